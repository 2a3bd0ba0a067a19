package link

import (
	"log/slog"
	"sync"
	"time"
)

// Options are what dialled and accepted sockets have in common. The zero value
// of each field means its default.
type Options struct {
	// PingEvery is how often a WebSocket ping goes out: 20 s, as the protocol's
	// reference client has it.
	PingEvery time.Duration
	// DeadAfter is how long no byte may arrive before the peer counts as gone:
	// 30 s, which is PingEvery and 10 s for the answer. A message that is still
	// arriving is life with every byte, and so is one of ours that goes out.
	DeadAfter time.Duration
	// Buffers are shared by many sockets so that idle ones hold none.
	Buffers *Buffers
	// Log gets what the far side can't be told. Never contents.
	Log *slog.Logger
}

const (
	defaultPingEvery = 20 * time.Second
	defaultDeadAfter = 30 * time.Second
	// fragment is the size of a WebSocket frame within a long message; pings
	// and pongs go out between two of them.
	fragment = 64 << 10
	// writeStall bounds how long the kernel may take one fragment.
	writeStall = 30 * time.Second
	// flushWait, closeWait and lingerWait bound Close, together 2.5 s: what is
	// queued, the close frame, and the peer's own close.
	flushWait  = time.Second
	closeWait  = 500 * time.Millisecond
	lingerWait = time.Second
	// maxReason is the room for a reason in a close frame (RFC 6455 section 5.5).
	maxReason = 123
)

func (o Options) withDefaults() Options {
	if o.PingEvery <= 0 {
		o.PingEvery = defaultPingEvery
	}
	if o.DeadAfter <= 0 {
		o.DeadAfter = defaultDeadAfter
	}
	if o.Buffers == nil {
		o.Buffers = new(Buffers)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Buffers is a pool of write buffers. The zero value is ready to use, safe for
// concurrent use, and must not be copied.
type Buffers struct {
	pool sync.Pool
}

// Get and Put are what gorilla's BufferPool asks for.
func (b *Buffers) Get() any  { return b.pool.Get() }
func (b *Buffers) Put(x any) { b.pool.Put(x) }
