package client

import (
	"context"
	"encoding/json"
	"math/rand/v2"
	"testing"

	"farhand/wire"
)

// FuzzAccept: whatever frames come, what is handed on is without a gap that
// isn't told, and no more than so much waits.
func FuzzAccept(f *testing.F) {
	f.Add(uint64(1), uint16(100))
	f.Add(uint64(2), uint16(3000))
	f.Fuzz(func(t *testing.T, seed uint64, frames uint16) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		st := &Stream{room: 4 << 10}
		records := seed%2 == 1
		for range frames {
			d := wire.StreamData{Offset: st.expect + rnd.Int64N(40) - 20}
			if rnd.IntN(3) == 0 {
				d.Offset = st.expect
			}
			if records {
				d.Records = make([]json.RawMessage, rnd.IntN(20))
				for i := range d.Records {
					d.Records[i] = json.RawMessage("1234")
				}
			} else {
				d.Data = make([]byte, rnd.IntN(2000))
			}
			if rnd.IntN(3) == 0 {
				d.Lost = &wire.StreamGap{From: d.Offset - rnd.Int64N(50), To: d.Offset + rnd.Int64N(3) - 1}
			}
			if rnd.IntN(500) == 0 {
				d.End = &wire.StreamEnd{Reason: "x"}
			}
			before := st.expect
			if !st.accept(d) && (st.expect != before || !st.stale) {
				t.Fatalf("a frame that was refused left %d, stale %t", st.expect, st.stale)
			}
			if st.expect < before {
				t.Fatal("it went backwards")
			}
			if bound := 2*st.room + 2*wire.StreamDataMax; st.unread > bound {
				t.Fatalf("%d bytes wait", st.unread)
			}
		}
		at, unread := int64(0), 0
		for _, c := range st.queue {
			if c.Lost != nil {
				if c.Lost.From != at || c.Lost.To <= at {
					t.Fatalf("at %d: lost %+v", at, c.Lost)
				}
				at = c.Lost.To
			}
			if c.Offset != at {
				t.Fatalf("offset %d, want %d", c.Offset, at)
			}
			if len(c.Data) > wire.StreamDataMax {
				t.Fatalf("a chunk of %d bytes", len(c.Data))
			}
			at += int64(len(c.Data) + len(c.Records))
			unread += weight(c.Data, c.Records)
		}
		if at != st.expect || unread != st.unread {
			t.Fatalf("at %d with %d unread, the stream says %d and %d", at, unread, st.expect, st.unread)
		}
	})
}

// Attaching replaces all credit: no more is under way and unread together than
// the window.
func TestAttachCredit(t *testing.T) {
	st := &Stream{id: "s", room: 1000, expect: 700, unread: 400, owed: 300, stale: true}
	var sent wire.StreamAttach
	st.do = func(_ context.Context, r request, _ any) error {
		sent = r.payload.(wire.StreamAttach)
		return nil
	}
	if err := st.attach(); err != nil {
		t.Fatal(err)
	}
	if *sent.From != 700 || sent.Credit != 600 || st.owed != 0 || st.stale {
		t.Errorf("sent %+v, owed %d, stale %t", sent, st.owed, st.stale)
	}
	st.unread = 5000 // more than there was credit for
	if st.attach(); sent.Credit != 1 {
		t.Errorf("credit of %d, which would stand for the default if 0", sent.Credit)
	}
}
