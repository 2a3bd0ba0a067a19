package client_test

import (
	"bytes"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"farhand/client"
	"farhand/stream"
	"farhand/wire"
)

// A relay that says that it can't answer just now, as one that is cut off from its
// store does, is one that is away: what goes on for long waits for it.
func TestRelayCantAnswerForAWhile(t *testing.T) {
	notNow := wire.Errorf("UNAVAILABLE", "the relay can't answer now: try again")

	r, c := setup(t)
	opened := source(t, r, stream.Options{})
	st := watch(t, open(t, c), 0)
	s := <-opened
	fmt.Fprint(s, "hello")
	if p := next(t, st); string(p.Data) != "hello" {
		t.Fatalf("%+v", p)
	}
	var refused atomic.Int32
	r.Change(func() {
		r.Refuse = func(*http.Request) (int, *wire.Error) {
			if refused.Add(1) > 2 {
				return 0, nil
			}
			return 503, notNow
		}
	})
	r.Cut()
	fmt.Fprint(s, " again")
	if p := next(t, st); string(p.Data) != " again" || refused.Load() < 3 {
		t.Fatalf("%+v after %d attempts", p, refused.Load())
	}

	m := &machine{content: noise(2 * wire.TransferPiece)}
	sess := transfers(t, m)
	src, err := sess.Source(t.Context(), "f", 0)
	if err != nil {
		t.Fatal(err)
	}
	var failed atomic.Bool
	m.spoil = func(q wire.TransferRead, _ *wire.TransferData, _ *[]byte) error {
		if q.Offset > 0 && failed.CompareAndSwap(false, true) {
			return notNow
		}
		return nil
	}
	dir := localRoot(t)
	if sent, err := client.PutLocal(t.Context(), dir, "f", src, client.PutOptions{}); err != nil || !failed.Load() {
		t.Fatalf("%+v, %v", sent, err)
	}
	if got, _ := dir.ReadFile("f"); !bytes.Equal(got, m.content) {
		t.Error("another content")
	}
}
