package usbtest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"farhand/wire"
)

// receiver is who gets a stream.
type receiver struct {
	ctx    context.Context
	frames chan wire.StreamData
}

func (*receiver) Request() string            { return "test" }
func (r *receiver) Context() context.Context { return r.ctx }

func (r *receiver) Send(ctx context.Context, _ string, d wire.StreamData) error {
	select {
	case r.frames <- d:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// packets collects the records of a stream.
type packets struct {
	t    *testing.T
	r    *receiver
	id   string
	more []wire.USBPacket
	end  string
}

// watch opens a stream of an endpoint.
func (d *desk) watch(t *testing.T, a wire.USBWatch) *packets {
	t.Helper()
	w := do[wire.USBWatching](d, t, wire.OpUSBWatch, a)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	p := &packets{t: t, id: w.Stream, r: &receiver{ctx: ctx, frames: make(chan wire.StreamData)}}
	d.hub.Begin(w.Stream, p.r)
	return p
}

// frame takes the next frame in.
func (p *packets) frame() {
	p.t.Helper()
	select {
	case f := <-p.r.frames:
		for _, raw := range f.Records {
			var u wire.USBPacket
			if err := json.Unmarshal(raw, &u); err != nil {
				p.t.Fatal(err)
			}
			p.more = append(p.more, u)
		}
		if f.Lost != nil {
			p.t.Errorf("records were lost: %+v", *f.Lost)
		}
		if f.End != nil {
			p.end = f.End.Reason
		}
	case <-time.After(patience):
		p.t.Fatal("the stream brings nothing")
	}
}

// next is the next record.
func (p *packets) next() wire.USBPacket {
	p.t.Helper()
	for len(p.more) == 0 {
		if p.end != "" {
			p.t.Fatalf("the stream ended: %s", p.end)
		}
		p.frame()
	}
	u := p.more[0]
	p.more = p.more[1:]
	return u
}

// ends asserts the reason of the stream's end.
func (p *packets) ends(want string) {
	p.t.Helper()
	for p.end == "" {
		p.frame()
	}
	if p.end != want {
		p.t.Errorf("the stream ended for %q, want %q", p.end, want)
	}
}
