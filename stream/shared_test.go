package stream

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/leak"
	"farhand/wire"
)

func shared(t *testing.T, h *Hub, size int) *Shared {
	t.Helper()
	x, err := h.Share(size, Owner{})
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func watch(t *testing.T, h *Hub, x *Shared, by Owner, from int64, credit int) (*Stream, *outlet) {
	t.Helper()
	v, err := x.View(Options{Owner: by, Credit: credit}, from)
	if err != nil {
		t.Fatal(err)
	}
	o := newOutlet(t, v.ID()[:4])
	h.Begin(v.ID(), o)
	synctest.Wait()
	return v, o
}

// Each receiver has all of it at its own pace, and its end is its own.
func TestSeveralReceiversOfOneSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		h := NewHub(HubOptions{Idle: time.Minute})
		defer h.Close()
		x := shared(t, h, 16)
		bob := Owner{Session: "b", Holder: "bob", Owner: "owner"}
		one, first := watch(t, h, x, alice, 0, 1000)
		fmt.Fprint(x, "hello ")
		two, second := watch(t, h, x, bob, 2, 1000)
		fmt.Fprint(x, "all")
		synctest.Wait()
		if a, b := text(first), text(second); a != "hello all" || b != "llo all" {
			t.Errorf("%q, %q", a, b)
		}
		if x.Views() != 2 || len(h.List()) != 2 || x.Next() != 9 {
			t.Errorf("%d views, %d streams", x.Views(), len(h.List()))
		}
		// One goes; the other and the source stay.
		h.CloseStream(two.ID(), alice) // not hers
		h.CloseStream(two.ID(), bob)
		if _, _, err := h.Attach(wire.StreamAttach{Stream: two.ID()}, bob, second); !errors.Is(err, wire.StreamNotFound) {
			t.Errorf("a closed view: %v", err)
		}
		<-time.After(2 * time.Minute) // the first isn't heard of any more
		synctest.Wait()
		if x.Views() != 0 || one.Info().Ended != ReasonIdle {
			t.Errorf("%d views, %+v", x.Views(), one.Info())
		}
		if _, _, err := h.Attach(wire.StreamAttach{Stream: one.ID()}, alice, first); !errors.Is(err, wire.StreamNotFound) {
			t.Errorf("an idle view: %v", err)
		}
		fmt.Fprint(x, "\nthen more\n") // the ring has the newest 16
		code := 4
		three, third := watch(t, h, x, alice, x.Line(), 1000)
		x.End("exited", &code)
		x.End("again", nil)
		synctest.Wait()
		if got := text(third); got != "then more\n." || three.Info().Ended != "exited" {
			t.Errorf("%q, %+v", got, three.Info())
		}
		// The end is there for whoever comes later, and so is what went before.
		_, fourth := watch(t, h, x, alice, x.Oldest(), 1000)
		if got := text(fourth); got != "o all\nthen more\n." {
			t.Errorf("%q", got)
		}
		<-time.After(DefaultRetainShared - time.Minute)
		_, late := watch(t, h, x, alice, x.Oldest(), 1000)
		if got := text(late); got != "o all\nthen more\n." {
			t.Errorf("after hours: %q", got)
		}
		<-time.After(DefaultRetain + time.Second)
		if x.Oldest() != x.Next() || x.Line() != x.Next() || len(h.all()) != 0 {
			t.Errorf("kept: %d to %d, %d streams", x.Oldest(), x.Next(), len(h.all()))
		}
	})
}

// text is all that came so far; a full stop is the end.
func text(o *outlet) string {
	var all strings.Builder
	for {
		select {
		case d := <-o.frames:
			all.Write(d.Data)
			if d.End != nil {
				all.WriteByte('.')
			}
		default:
			return all.String()
		}
	}
}

// What is forgotten nobody gets, be it written before or later.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		h := NewHub(HubOptions{Idle: time.Minute})
		defer h.Close()
		x := shared(t, h, 100)
		one, first := watch(t, h, x, alice, 0, 4)
		fmt.Fprint(x, "some that waits for credit")
		synctest.Wait()
		x.Forget()
		begun := time.Now()
		fmt.Fprint(x, "and later")
		if x.Room(t.Context(), 100) != nil || time.Since(begun) > 0 {
			t.Error("there is no room beside what was forgotten")
		}
		_, late := watch(t, h, x, alice, 0, 1000)
		x.End("gone", nil)
		h.Credit(wire.StreamCredit{Stream: one.ID(), Bytes: 100}, alice)
		_, later := watch(t, h, x, alice, 0, 1000)
		synctest.Wait()
		if a, b, c := text(first), text(late), text(later); a != "some." || b != "." || c != "." {
			t.Errorf("%q, %q, %q", a, b, c)
		}
		if x.Next() != 35 || x.Oldest() != 35 {
			t.Errorf("%d to %d", x.Oldest(), x.Next())
		}
	})
}

// The source waits for those who go on, and for the furthest if nobody does.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leak.Check(t)
		h := NewHub(HubOptions{Idle: time.Minute})
		defer h.Close()
		x := shared(t, h, 100)
		if x.Write(make([]byte, 300)); x.Room(t.Context(), 60) != nil {
			t.Error("no room although nobody receives")
		}
		slow, _ := watch(t, h, x, alice, x.Next(), 1)
		v, _ := watch(t, h, x, alice, x.Next(), 50)
		x.Write(make([]byte, 100)) // 50 of which were sent
		h.Credit(wire.StreamCredit{Stream: v.ID(), Bytes: 50}, alice)
		begun := time.Now()
		if x.Room(t.Context(), 50) != nil {
			t.Error("no room although one has received half")
		}
		if waited := time.Since(begun); waited != stalls {
			t.Errorf("the slow one was waited for for %s", waited)
		}
		if x.Room(t.Context(), 50) != nil || time.Since(begun) != stalls {
			t.Error("it is waited for again")
		}
		x.Write(make([]byte, 20))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if x.Room(ctx, 40) == nil {
			t.Error("room although nobody has received enough")
		}
		came := make(chan error)
		go func() { came <- x.Room(t.Context(), 40) }()
		synctest.Wait()
		h.Credit(wire.StreamCredit{Stream: v.ID(), Bytes: 10}, alice)
		if err := <-came; err != nil {
			t.Error(err)
		}
		h.Credit(wire.StreamCredit{Stream: slow.ID(), Bytes: 1}, alice) // it goes on, and counts again
		go func() { came <- x.Room(t.Context(), 1) }()
		synctest.Wait()
		h.Credit(wire.StreamCredit{Stream: slow.ID(), Bytes: 100}, alice)
		if err := <-came; err != nil {
			t.Error(err)
		}
		x.Write(make([]byte, 100))
		go func() { came <- x.Room(t.Context(), 40) }()
		begun = time.Now()
		if err := <-came; err != nil || time.Since(begun) > time.Minute {
			t.Errorf("%v after %s", err, time.Since(begun))
		}
	})
}

// Who follows the source and holds it up gets every byte.
func TestNothingIsLostWithRoom(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 2))
			h := NewHub(HubOptions{})
			defer h.Close()
			x := shared(t, h, 200)
			v, o := watch(t, h, x, alice, 0, 20)
			go func() {
				for range 50 {
					if x.Room(t.Context(), 100) != nil {
						return
					}
					write(x.s, r.IntN(100), false)
				}
				x.End("done", nil)
			}()
			var got int64
			for done := false; !done; {
				d := <-o.frames
				if d.Lost != nil {
					t.Fatalf("seed %d: lost %+v", seed, d.Lost)
				}
				got = check(t, x.s, d, got, false)
				done = d.End != nil
				h.Credit(wire.StreamCredit{Stream: v.ID(), Bytes: len(d.Data)}, alice)
			}
			if got != x.Next() {
				t.Errorf("seed %d: %d of %d", seed, got, x.Next())
			}
		})
	}
}

// Receivers that come again and again and are never heard of make room for others;
// those that are there are not sent away.
func TestViewsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewHub(HubOptions{})
		defer h.Close()
		x := shared(t, h, 16)
		tended, _ := watch(t, h, x, alice, 0, 1000)
		for range maxViews - 1 {
			watch(t, h, x, alice, 0, 1000)
		}
		if _, err := x.View(Options{Owner: alice}, 0); !errors.Is(err, wire.ShimOverloaded) {
			t.Errorf("one too many: %v", err)
		}
		<-time.After(tending)
		h.Credit(wire.StreamCredit{Stream: tended.ID()}, alice)
		<-time.After(time.Second)
		for range 2 * maxViews {
			h.Credit(wire.StreamCredit{Stream: tended.ID()}, alice)
			watch(t, h, x, alice, 0, 1000)
			if x.Views() > maxViews {
				t.Fatalf("%d views", x.Views())
			}
			<-time.After(tending + time.Second)
		}
		if i := tended.Info(); i.Ended != "" {
			t.Errorf("one that was there all the time: %+v", i)
		}
	})
}
