package natsfeed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"farhand/internal/leak"
	"farhand/internal/natstest"
	"farhand/relay/events"
	"farhand/wire"
)

// patience bounds everything that is waited for.
const patience = 30 * time.Second

func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond), nats.ReconnectBufSize(-1))
	if err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	nc.SetClosedHandler(func(*nats.Conn) { close(closed) })
	t.Cleanup(func() {
		nc.Close()
		<-closed
	})
	return nc
}

// open is one instance's feed.
func open(t *testing.T, url string) *Feed {
	t.Helper()
	f, err := Open(t.Context(), connect(t, url), Options{Name: "test", Replicas: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	})
	return f
}

// three are instances of one relay.
func three(t *testing.T) (*natstest.Server, []*Feed) {
	t.Helper()
	leak.Check(t)
	s := natstest.Start(t)
	return s, []*Feed{open(t, s.URL), open(t, s.URL), open(t, s.URL)}
}

// reader reads an owner's events at one instance after the other.
type reader struct {
	t      *testing.T
	owner  string
	cursor string
	seen   []string // subjects, and gaps
}

// until reads at f until so much was seen.
func (r *reader) until(f *Feed, n int) []string {
	r.t.Helper()
	late := time.After(patience)
	for len(r.seen) < n {
		list, next, gap, wake, err := f.Since(r.owner, r.cursor)
		if err != nil {
			r.t.Fatal(err)
		}
		if gap != "" {
			r.seen = append(r.seen, "gap "+string(gap))
		}
		for _, e := range list {
			switch {
			case e.Gap != "":
				r.seen = append(r.seen, "gap "+string(e.Gap))
			default:
				r.seen = append(r.seen, e.Subject)
			}
		}
		r.cursor = next
		if len(r.seen) >= n {
			break
		}
		select {
		case <-wake:
		case <-late:
			r.t.Fatalf("%d of %d came: %q", len(r.seen), n, r.seen)
		}
	}
	return r.seen
}

func say(f *Feed, owner, subject string) {
	f.Publish(owner, events.Event{Type: events.MachineOnline, Subject: subject})
}

// All instances tell the same in the same order, whoever it happened to, and a
// reader may go from one to another with every event.
func TestOneOrder(t *testing.T) {
	_, all := three(t)
	const each = 30
	var publishing sync.WaitGroup
	for i, f := range all {
		publishing.Go(func() {
			for n := range each {
				say(f, "ann", fmt.Sprintf("%d.%d", i, n))
				say(f, "bob", "other")
			}
		})
	}
	publishing.Wait()
	var orders [][]string
	for _, f := range all {
		r := &reader{t: t, owner: "ann"}
		orders = append(orders, r.until(f, 3*each))
	}
	for i := range all {
		if !slices.Equal(orders[i], orders[0]) {
			t.Fatalf("instance %d tells another order", i)
		}
		last := -1
		for _, s := range orders[0] { // what one publishes stays in order
			var from, n int
			if _, err := fmt.Sscanf(s, "%d.%d", &from, &n); err != nil {
				t.Fatalf("%q: %v", s, err)
			}
			if from == i {
				if n != last+1 {
					t.Fatalf("%d after %d of instance %d", n, last, i)
				}
				last = n
			}
		}
	}
	wanderer := &reader{t: t, owner: "ann"}
	list, _, _, _, err := all[0].Since("ann", "")
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range list {
		wanderer.cursor = e.Cursor
		got, _, gap, _, err := all[i%3].Since("ann", e.Cursor)
		if err != nil || gap != "" || len(got) != len(list)-i-1 {
			t.Fatalf("after event %d, instance %d tells %d, gap %q, %v", i, i%3, len(got), gap, err)
		}
	}
	// One that has just come knows all of it.
	late := open(t, all[0].js.Conn().ConnectedUrl())
	r := &reader{t: t, owner: "ann"}
	if got := r.until(late, 3*each); !slices.Equal(got, orders[0]) {
		t.Error("a new instance tells another order")
	}
	for _, bad := range []string{"x", all[0].life, all[0].life + ".-1", "." + wanderer.cursor} {
		if _, _, _, _, err := all[0].Since("ann", bad); !errors.Is(err, wire.InvalidArgument) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A cursor of an instance that is ahead is waited for.
func TestAhead(t *testing.T) {
	_, all := three(t)
	say(all[0], "ann", "one")
	r := &reader{t: t, owner: "ann"}
	r.until(all[0], 1)
	_, n, _ := events.ParseCursor(r.cursor)
	r.cursor = all[1].life + "." + fmt.Sprint(n+1)
	r.seen = nil
	say(all[0], "ann", "two")
	say(all[0], "ann", "three")
	if got := r.until(all[1], 1); got[0] != "three" {
		t.Errorf("%q", got)
	}
}

// What is missing is told, exactly: before the first event, not where nothing is.
func TestTooOld(t *testing.T) {
	_, all := three(t)
	say(all[0], "ann", "first")
	r := &reader{t: t, owner: "ann"}
	r.until(all[0], 1)
	start := r.cursor
	for i := range events.Kept {
		say(all[i%2], "ann", "next")
	}
	for _, f := range all {
		r := &reader{t: t, owner: "ann", cursor: start}
		if got := r.until(f, events.Kept); got[0] != "next" {
			t.Fatalf("%q", got[0])
		}
	}
	say(all[2], "ann", "last")
	late := open(t, all[0].js.Conn().ConnectedUrl()) // which never had the first ones
	for i, f := range append(all, late) {
		sees(t, f, "ann", "last")
		list, _, gap, _, err := f.Since("ann", start)
		if err != nil || gap != events.TooOld || len(list) != events.Kept || list[0].Subject != "next" {
			t.Errorf("instance %d: %d events, gap %q, %v", i, len(list), gap, err)
		}
	}
}

// sees waits until an instance has seen an event.
func sees(t *testing.T, f *Feed, owner, subject string) {
	t.Helper()
	late := time.After(patience)
	for {
		list, _, _, wake, err := f.Since(owner, "")
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(list, func(e events.Event) bool { return e.Subject == subject }) {
			return
		}
		select {
		case <-wake:
		case <-late:
			t.Fatalf("%q didn't come", subject)
		}
	}
}

// While NATS is away nothing is lost of what fits, and of the rest it is told that
// it is.
func TestCutOff(t *testing.T) {
	server, all := three(t)
	say(all[0], "ann", "before")
	r := &reader{t: t, owner: "ann"}
	r.until(all[1], 1)
	all[0].room = 20
	server.Kill()
	for i := range 30 {
		owner := "ann"
		if i >= 5 {
			owner = fmt.Sprint("o", i)
		}
		say(all[0], owner, fmt.Sprint("meanwhile ", i))
	}
	say(all[0], "ann", "one too many")
	server.Restart()
	server.Ready()
	if got := r.until(all[2], 7); got[1] != "meanwhile 0" || got[5] != "meanwhile 4" || got[6] != "gap not_recorded" {
		t.Errorf("%q", got)
	}
	say(all[1], "ann", "after")
	if got := r.until(all[0], 8); got[7] != "after" {
		t.Errorf("%q", got)
	}
}

// A stream that somebody removed is made anew, and readers are told.
func TestMadeAnew(t *testing.T) {
	_, all := three(t)
	say(all[0], "ann", "before")
	r := &reader{t: t, owner: "ann"}
	r.until(all[1], 1)
	js, err := jetstream.New(all[0].js.Conn())
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), all[0].stream()); err != nil {
		t.Fatal(err)
	}
	say(all[0], "ann", "after")
	if got := r.until(all[2], 3); got[1] != "gap relay_restarted" || got[2] != "after" {
		t.Errorf("%q", got)
	}
}

// What waited for NATS and is no longer true isn't told. It is asked once more if
// others told something meanwhile.
func TestStill(t *testing.T) {
	server, all := three(t)
	say(all[0], "ann", "before")
	r := &reader{t: t, owner: "ann"}
	r.until(all[1], 1)
	server.Kill()
	asked := make(chan struct{}, 1)
	var still atomic.Bool
	still.Store(true)
	all[0].Publish("ann", events.Event{Type: events.MachineOffline, Subject: "late", Still: func(context.Context) bool {
		select {
		case asked <- struct{}{}:
		default:
		}
		return still.Load()
	}})
	<-asked
	still.Store(false)
	server.Restart()
	server.Ready()
	times := 0
	all[0].Publish("ann", events.Event{Type: events.MachineOffline, Subject: "overtaken", Still: func(context.Context) bool {
		if times++; times == 1 {
			say(all[1], "ann", "back")
			sees(t, all[1], "ann", "back")
			return true
		}
		return false
	}})
	all[0].Publish("ann", events.Event{Type: events.MachineOffline, Subject: "true", Still: func(context.Context) bool { return true }})
	if got := r.until(all[2], 3); got[1] != "back" || got[2] != "true" {
		t.Errorf("%q", got)
	}
}
