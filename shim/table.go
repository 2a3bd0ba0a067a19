package shim

import (
	"context"
	"time"

	"farhand/grant"
	"farhand/link"
	"farhand/wire"
)

// Table says what answers which request.
type Table map[wire.Type]Method

// Method is one entry of a Table.
type Method struct {
	// Handle does the work. Its value is the payload of the answer; nil stands
	// for {"ok": true} where the answer is ACK. An error becomes ERROR with its
	// wire code. The context ends when the socket is gone, the session ends or
	// the policy no longer allows the call; Handle must return soon after.
	//
	// What is never answered (wire.Method.OneWay) runs in the reader, outside
	// admission: Handle must then be quick, and what it returns goes nowhere.
	Handle func(ctx context.Context, call *Call) (any, error)
	// Lane names the queue that a call waits in: calls of one lane run one
	// after another in the order in which they arrived. Empty, or no Lane at
	// all, means that the call waits for nobody. It runs in the reader, so it
	// must be quick, and must be safe on any payload.
	Lane func(call *Call) string
	// Quick says that Handle usually returns within microseconds. It then runs
	// on the goroutine that reads the socket, which is replaced by another if
	// the call takes longer.
	Quick bool
	// Class is the send queue of the answer: Answers unless said otherwise.
	Class link.Class
}

// Unary is a Handle for a request whose payload decodes into Req. Unknown keys
// are ignored; a payload that doesn't fit is INTERNAL_ERROR with
// details.reason invalid_payload.
func Unary[Req any](f func(ctx context.Context, call *Call, req Req) (any, error)) func(context.Context, *Call) (any, error) {
	return func(ctx context.Context, call *Call) (any, error) {
		var req Req
		if err := wire.Decode(call.Payload, &req); err != nil {
			return nil, err
		}
		return f(ctx, call, req)
	}
}

// Call is one admitted request. Its methods are safe for concurrent use.
type Call struct {
	ID      string
	Type    wire.Type
	Payload []byte   // the JSON object as it came; owned by the call
	Data    []byte   // what is attached, until Handle returns
	Session *Session // nil on the control socket

	socket  *socket
	method  Method
	frame   []byte // what Data lies in
	ctx     context.Context
	cancel  context.CancelCauseFunc
	done    chan struct{} // closed when the answer has been handed to the writer
	began   time.Time     // when it was admitted
	ended   bool          // no more Emit; guarded by socket.mu
	after   func()        // once the answer has left; may be nil
	recheck func(*grant.Policy) error
}

// Granted is what the socket of the call was granted.
func (c *Call) Granted() wire.Capabilities { return c.socket.granted }

// PolicyNow is Policy for what outlives the call's socket.
func (c *Call) PolicyNow() *grant.Policy {
	if c.Session != nil {
		return c.Session.Policy()
	}
	return c.socket.shim.machine.Load()
}

// Policy is the four ceilings as they stand now.
func (c *Call) Policy() *grant.Policy { return c.socket.policy.Load() }

// Limits are the lower of ours and the platform's.
func (c *Call) Limits() Limits { return c.socket.limits }

// Recheck replaces what decides, when the policy changes, whether the call may
// go on; an error cancels it and is its answer. By default that is the check
// that admitted it.
func (c *Call) Recheck(f func(*grant.Policy) error) {
	c.socket.mu.Lock()
	defer c.socket.mu.Unlock()
	c.recheck = f
}

// Emit sends a frame that belongs to the call and comes before its answer
// (LOCAL_LLM_COMPLETION_CHUNK). It waits for the writer, so a slow peer slows
// the caller. It fails once the call is cancelled or over.
func (c *Call) Emit(t wire.Type, payload any) error {
	if err := c.ctx.Err(); err != nil {
		return context.Cause(c.ctx)
	}
	c.socket.mu.Lock()
	ended := c.ended
	c.socket.mu.Unlock()
	if ended {
		return errStopping
	}
	return c.socket.conn.Send(c.ctx, c.class(), wire.Message{Type: t, ID: c.ID, Version: c.socket.version, Payload: payload})
}

// class is the same for everything of one call, so that its answer never
// overtakes what it emitted.
func (c *Call) class() link.Class {
	if c.method.Class == link.Urgent {
		return link.Answers
	}
	return c.method.Class
}
