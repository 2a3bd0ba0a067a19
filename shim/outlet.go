package shim

import (
	"context"

	"farhand/link"
	"farhand/wire"
)

// Outlet sends what belongs to one request and comes after its answer: the
// frames of a stream. It is a stream.Outlet.
type Outlet struct {
	socket  *socket
	request string
}

// Outlet is where the frames of a stream go that the call opens or attaches.
func (c *Call) Outlet() *Outlet { return &Outlet{c.socket, c.ID} }

// Request is the id of the request that the frames belong to.
func (o *Outlet) Request() string { return o.request }

// Context ends with the socket.
func (o *Outlet) Context() context.Context { return o.socket.ctx }

// Send sends one frame, and waits for room in the writer's queue of streams.
func (o *Outlet) Send(ctx context.Context, id string, d wire.StreamData) error {
	return o.socket.conn.Send(ctx, link.Streams, wire.Message{Type: wire.TStreamData, ID: id, Version: o.socket.version, Payload: d})
}

// OnAnswered has f called once the call's answer has been handed to the writer,
// so that what f sends comes after it. It isn't called if that fails. Only one f
// is called, and only Handle may set it.
func (c *Call) OnAnswered(f func()) { c.after = f }
