package client

import (
	"context"
	"encoding/json"
	"time"

	"farhand/wire"
)

// Watch does an operation that opens a stream, which its result names, and
// receives it. The window of its credit is the args' own credit.
func (s *Session) Watch(ctx context.Context, op wire.HardwareOp) (*Stream, HardwareResult, error) {
	var window struct {
		Credit int `json:"credit"`
	}
	_ = json.Unmarshal(op.Args, &window) // what is wrong with them the device says
	var out HardwareResult
	r := request{method: method(wire.THardwareOp), payload: op}
	st, err := open(ctx, s.client.sock, s.do, s.at, r, &out, func(payload []byte) (string, int64, int) {
		var answer struct {
			Result wire.Opened `json:"result"`
		}
		_ = wire.Decode(payload, &answer)
		return answer.Result.Stream, 0, window.Credit
	})
	return st, out, err
}

// Attach receives a stream that exists: from an offset on, or from the oldest
// that there is. Whoever received it before gets no more. credit 0 is 256 KiB.
func (s *Session) Attach(ctx context.Context, id string, from *int64, credit int) (*Stream, wire.StreamAttached, error) {
	var out wire.StreamAttached
	r := request{method: method(wire.TStreamAttach), payload: wire.StreamAttach{Stream: id, From: from, Credit: credit}}
	st, err := open(ctx, s.client.sock, s.do, s.at, r, &out, func(payload []byte) (string, int64, int) {
		var answer wire.StreamAttached
		if wire.Decode(payload, &answer) != nil {
			return "", 0, 0
		}
		if from != nil {
			return id, *from, credit
		}
		return id, answer.Oldest, credit
	})
	return st, out, err
}

// WatchDevices lists what is wired to a machine, as Devices does, and receives
// what changes afterwards: records of wire.HardwareEvent. The stream ends with
// STREAM_NOT_FOUND when the daemon was started anew: then list again.
func (c *Client) WatchDevices(ctx context.Context, machine, family string) (*Stream, wire.HardwareListResponse, error) {
	in := wire.HardwareListRequest{Watch: true}
	if family != "" {
		in.Type = &family
	}
	var out wire.HardwareListResponse
	do := func(ctx context.Context, r request, dst any) error {
		r.machine, r.timeout = machine, controlTimeout
		payload, err := c.sock.do(ctx, r)
		if err != nil {
			return err
		}
		return decode(payload, dst)
	}
	at := func() (string, string) { return "", machine }
	r := request{method: method(wire.THardwareListRequest), payload: in}
	st, err := open(ctx, c.sock, do, at, r, &out, func(payload []byte) (string, int64, int) {
		var answer wire.HardwareListResponse
		_ = wire.Decode(payload, &answer)
		return answer.Stream, 0, in.Credit
	})
	return st, out, err
}

// Ping asks the device itself whether it is there, and says how long that took.
// Every frame of a session, this one too, keeps the outputs alive that have a
// deadman_seconds in it.
func (s *Session) Ping(ctx context.Context) (time.Duration, error) {
	begun := time.Now()
	err := s.do(ctx, request{method: method(wire.TPing), payload: wire.Empty{}}, new(wire.Empty))
	return time.Since(begun), err
}

// at is where the session's frames go.
func (s *Session) at() (session, machine string) {
	o := s.Info()
	if s.place.Span || s.place.Joins != nil {
		return o.ID, o.MachineID
	}
	return o.ID, ""
}

// open does a request whose answer names a stream, which is received from that
// very answer on: found tells its id, where it begins and its credit.
func open(ctx context.Context, sock *socket, do func(context.Context, request, any) error, at func() (string, string),
	r request, dst any, found func(payload []byte) (id string, from int64, credit int)) (*Stream, error) {
	opened := make(chan *Stream, 1)
	r.arrived = func(conn *connection, payload []byte) {
		id, from, credit := found(payload)
		if id == "" {
			return
		}
		st := newStream(sock, id, credit)
		st.do, st.at, st.conn, st.expect = do, at, conn, from
		sock.streams.add(st)
		opened <- st
	}
	err := do(ctx, r, dst)
	var st *Stream
	select {
	case st = <-opened: // which was there before do returned the answer
	default:
	}
	switch {
	case err == nil && st == nil:
		return nil, wire.Errorf(wire.InternalError, "%s was answered without a stream", r.method.Request).With("op", string(r.method.Request))
	case err != nil && st != nil: // the caller gave up in the moment in which it came
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = st.Close(bounded)
		return nil, err
	}
	return st, err
}

const (
	// controlTimeout is the relay's deadline for requests to a machine.
	controlTimeout = 10 * time.Second
	// closeTimeout bounds the closing of a stream that nobody waits for.
	closeTimeout = 2 * time.Second
)
