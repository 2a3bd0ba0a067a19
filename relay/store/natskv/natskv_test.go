package natskv

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"farhand/internal/leak"
	"farhand/internal/natstest"
	"farhand/relay/store"
	"farhand/relay/store/storetest"
)

func connect(t testing.TB, urls string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(urls, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
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

func TestSuite(t *testing.T) {
	server := natstest.Start(t)
	nc := connect(t, server.URL)
	n := 0
	buckets := map[store.Store]string{}
	storetest.Suite{
		Open: func(t testing.TB) store.Store {
			n++
			name := fmt.Sprint("suite-", n)
			s, err := Open(t.Context(), nc, Options{Bucket: name})
			if err != nil {
				t.Fatal(err)
			}
			buckets[s] = name
			return s
		},
		Reopen: func(t testing.TB, old store.Store) store.Store {
			if err := old.Close(); err != nil {
				t.Fatal(err)
			}
			server.Restart()
			server.Ready()
			s, err := Open(t.Context(), connect(t, server.URL), Options{Bucket: buckets[old]})
			if err != nil {
				t.Fatal(err)
			}
			return s
		},
	}.Run(t)
}

// What the servers remove of themselves is told, and one replica is what one
// server can have.
func TestExpiryIsTold(t *testing.T) {
	leak.Check(t)
	nc := connect(t, natstest.Start(t).URL)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s, err := Open(ctx, nc, Options{Bucket: "b"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Replicas() != 1 {
		t.Errorf("%d replicas on one server", s.Replicas())
	}
	events, err := s.Watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Create(ctx, "k", []byte("v"), time.Now().Add(200*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for gone := false; !gone; { // its being there is told too, unless it is over by then
		select {
		case ev := <-events:
			gone = ev.Deleted && ev.Key == "k"
		case <-ctx.Done():
			t.Fatal("that it expired isn't told")
		}
	}
}

func TestUnfit(t *testing.T) {
	for _, c := range []struct {
		name, config string
		options      Options
	}{
		{"small max_payload", "max_payload: 256KB", Options{Bucket: "b"}},
		{"more replicas than servers", "", Options{Bucket: "b", Replicas: 3}},
		{"no JetStream", "accounts { A: {users: [{user: a, password: a}]} }\nno_auth_user: a", Options{Bucket: "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nc := connect(t, natstest.Start(t, c.config).URL)
			_, err := Open(t.Context(), nc, c.options)
			if !errors.Is(err, ErrUnfit) {
				t.Fatalf("got %v", err)
			}
			t.Log(err)
		})
	}
}

// Three servers keep every record; what was written before and after one of them
// is killed, the leader or not, is read by everybody.
func TestReplicated(t *testing.T) {
	servers := natstest.Cluster(t, 3)
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	one, other := open(t, ctx, servers[0].URL+","+servers[1].URL), open(t, ctx, servers[1].URL+","+servers[2].URL)
	if one.Replicas() != 3 {
		t.Fatalf("%d replicas", one.Replicas())
	}
	events, err := other.Watch(ctx, "")
	if err != nil {
		t.Fatal(err)
	}

	rev, err := one.Create(ctx, "n", []byte{0}, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	for i := byte(1); i <= 100; i++ {
		if i == 50 {
			servers[0].Kill()
		}
		rev = count(t, ctx, one, i, rev)
		e, err := retry(ctx, func() (store.Entry, error) { return other.Get(ctx, "n") })
		if err != nil || e.Value[0] != i || e.Revision != rev {
			t.Fatalf("the other read %v, %v; want %d at %d", e, err, i, rev)
		}
	}

	for last := -1; last < 100; {
		select {
		case ev := <-events:
			if int(ev.Value[0]) <= last {
				t.Fatalf("told %d after %d", ev.Value[0], last)
			}
			last = int(ev.Value[0])
		case <-ctx.Done():
			t.Fatalf("the last of 100 changes isn't told; %d was", last)
		}
	}
}

// count writes i over rev. A write whose answer was lost with a server may have
// happened: then it has to be exactly ours.
func count(t *testing.T, ctx context.Context, s *Store, i byte, rev uint64) uint64 {
	t.Helper()
	next, err := retry(ctx, func() (uint64, error) {
		next, err := s.Update(ctx, "n", []byte{i}, time.Time{}, rev)
		if errors.Is(err, store.ErrConflict) {
			if e, err := s.Get(ctx, "n"); err == nil && e.Value[0] == i {
				return e.Revision, nil
			}
		}
		return next, err
	})
	if err != nil {
		t.Fatalf("write %d: %v", i, err)
	}
	return next
}

// retry repeats what fails while the servers elect a new leader.
func retry[T any](ctx context.Context, f func() (T, error)) (T, error) {
	for {
		v, err := f()
		if err == nil || errors.Is(err, store.ErrConflict) || errors.Is(err, store.ErrNotFound) || ctx.Err() != nil {
			return v, err
		}
	}
}

func open(t *testing.T, ctx context.Context, urls string) *Store {
	t.Helper()
	nc := connect(t, urls)
	s, err := retry(ctx, func() (*Store, error) { return Open(ctx, nc, Options{Bucket: "b"}) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
