// Package storetest is the contract of store.Store as a test: every
// implementation runs Suite.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"farhand/relay/store"
)

// patience bounds every wait, so that a broken implementation fails rather
// than hangs.
const patience = 10 * time.Second

// Suite tests one implementation.
type Suite struct {
	// Open makes an empty store; the suite closes it.
	Open func(t testing.TB) store.Store
	// Reopen closes s and opens what it kept; nil if the implementation keeps
	// nothing of its own.
	Reopen func(t testing.TB, s store.Store) store.Store
}

// Run runs every case as a subtest.
func (s Suite) Run(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(*testing.T, context.Context, store.Store)
	}{
		{"GetCreate", testGetCreate},
		{"Update", testUpdate},
		{"Delete", testDelete},
		{"RevisionsNeverReused", testRevisions},
		{"List", testList},
		{"Invalid", testInvalid},
		{"Copies", testCopies},
		{"Expiry", testExpiry},
		{"ExpiryMoves", testExpiryMoves},
		{"OneWinner", testOneWinner},
		{"Counter", testCounter},
		{"Watch", testWatch},
		{"WatchLastIsNeverLost", testWatchLast},
		{"WatchEnds", testWatchEnds},
		{"Closed", testClosed},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			st := s.Open(t)
			defer st.Close()
			c.test(t, ctx, st)
		})
	}
	if s.Reopen != nil {
		t.Run("Reopen", s.testReopen)
	}
}

func testGetCreate(t *testing.T, ctx context.Context, s store.Store) {
	if _, err := s.Get(ctx, "a.b"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("Get of nothing: %v", err)
	}
	rev := must(s.Create(ctx, "a.b", []byte("one"), time.Time{}))(t)
	if rev == 0 {
		t.Fatal("revision 0 is reserved")
	}
	e := must(s.Get(ctx, "a.b"))(t)
	if e.Key != "a.b" || string(e.Value) != "one" || e.Revision != rev || !e.Expires.IsZero() {
		t.Fatalf("got %+v", e)
	}
	if _, err := s.Create(ctx, "a.b", []byte("two"), time.Time{}); !errors.Is(err, store.ErrExists) {
		t.Fatalf("second Create: %v", err)
	}
	if e = must(s.Get(ctx, "a.b"))(t); string(e.Value) != "one" {
		t.Fatalf("a refused Create wrote %q", e.Value)
	}
	must(s.Create(ctx, "empty", nil, time.Time{}))(t)
	if e = must(s.Get(ctx, "empty"))(t); len(e.Value) != 0 {
		t.Fatalf("empty value came back as %q", e.Value)
	}
}

func testUpdate(t *testing.T, ctx context.Context, s store.Store) {
	if _, err := s.Update(ctx, "k", []byte("x"), time.Time{}, 1); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("Update of nothing: %v", err)
	}
	first := must(s.Create(ctx, "k", []byte("1"), time.Time{}))(t)
	second := must(s.Update(ctx, "k", []byte("2"), time.Time{}, first))(t)
	if second <= first {
		t.Fatalf("revision went from %d to %d", first, second)
	}
	for _, last := range []uint64{first, second + 1, 0} {
		if _, err := s.Update(ctx, "k", []byte("3"), time.Time{}, last); !errors.Is(err, store.ErrConflict) {
			t.Fatalf("Update over revision %d: %v", last, err)
		}
	}
	if e := must(s.Get(ctx, "k"))(t); string(e.Value) != "2" || e.Revision != second {
		t.Fatalf("got %+v", e)
	}
}

func testDelete(t *testing.T, ctx context.Context, s store.Store) {
	if err := s.Delete(ctx, "k", 0); err != nil {
		t.Fatalf("Delete of nothing: %v", err)
	}
	if err := s.Delete(ctx, "k", 7); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("Delete of a revision of nothing: %v", err)
	}
	first := must(s.Create(ctx, "k", []byte("1"), time.Time{}))(t)
	second := must(s.Update(ctx, "k", []byte("2"), time.Time{}, first))(t)
	if err := s.Delete(ctx, "k", first); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("Delete of an old revision: %v", err)
	}
	must(s.Get(ctx, "k"))(t)
	if err := s.Delete(ctx, "k", second); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("after Delete: %v", err)
	}
	must(s.Create(ctx, "k", []byte("3"), time.Time{}))(t)
	if err := s.Delete(ctx, "k", 0); err != nil {
		t.Fatal(err)
	}
}

func testRevisions(t *testing.T, ctx context.Context, s store.Store) {
	first := must(s.Create(ctx, "k", []byte("1"), time.Time{}))(t)
	if err := s.Delete(ctx, "k", first); err != nil {
		t.Fatal(err)
	}
	second := must(s.Create(ctx, "k", []byte("1"), time.Time{}))(t)
	if second <= first {
		t.Fatalf("the second life of a key has revision %d, the first had %d", second, first)
	}
	if _, err := s.Update(ctx, "k", nil, time.Time{}, first); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("Update over the first life: %v", err)
	}
}

func testList(t *testing.T, ctx context.Context, s store.Store) {
	for _, k := range []string{"o.2.x", "o.1.b", "o.1.a", "o.10.a", "o.1", "p.1.a"} {
		must(s.Create(ctx, k, []byte("v:"+k), time.Time{}))(t)
	}
	must(s.Create(ctx, "o.1.gone", nil, time.Now().Add(-time.Second)))(t)
	for prefix, want := range map[string][]string{
		"o.1.":  {"o.1.a", "o.1.b"},
		"o.":    {"o.1", "o.1.a", "o.1.b", "o.10.a", "o.2.x"},
		"none.": {},
		"":      {"o.1", "o.1.a", "o.1.b", "o.10.a", "o.2.x", "p.1.a"},
	} {
		got := []string{}
		for _, e := range must(s.List(ctx, prefix))(t) {
			if string(e.Value) != "v:"+e.Key || e.Revision == 0 {
				t.Errorf("List(%q): %+v", prefix, e)
			}
			got = append(got, e.Key)
		}
		if !slices.Equal(got, want) {
			t.Errorf("List(%q) = %v, want %v", prefix, got, want)
		}
	}
}

func testInvalid(t *testing.T, ctx context.Context, s store.Store) {
	long := string(bytes.Repeat([]byte("k"), store.MaxKey+1))
	for _, key := range []string{"", ".", "a.", ".a", "a..b", "a b", "a/b", "ä", "*", ">", "a.>", "a\x00", long} {
		_, err1 := s.Get(ctx, key)
		_, err2 := s.Create(ctx, key, nil, time.Time{})
		_, err3 := s.Update(ctx, key, nil, time.Time{}, 1)
		err4 := s.Delete(ctx, key, 0)
		for i, err := range []error{err1, err2, err3, err4} {
			if !errors.Is(err, store.ErrInvalid) {
				t.Errorf("key %.20q, call %d: %v", key, i, err)
			}
		}
	}
	for _, prefix := range []string{"a", ".", "a..", "a.*."} {
		_, err1 := s.List(ctx, prefix)
		_, err2 := s.Watch(ctx, prefix)
		if !errors.Is(err1, store.ErrInvalid) || !errors.Is(err2, store.ErrInvalid) {
			t.Errorf("prefix %q: %v, %v", prefix, err1, err2)
		}
	}
	if _, err := s.Create(ctx, "big", make([]byte, store.MaxValue+1), time.Time{}); !errors.Is(err, store.ErrInvalid) {
		t.Errorf("a value over the limit: %v", err)
	}
	must(s.Create(ctx, "big", make([]byte, store.MaxValue), time.Time{}))(t)
	must(s.Create(ctx, long[:store.MaxKey], nil, time.Time{}))(t)
}

func testCopies(t *testing.T, ctx context.Context, s store.Store) {
	value := []byte("abc")
	must(s.Create(ctx, "k", value, time.Time{}))(t)
	value[0] = 'X'
	e := must(s.Get(ctx, "k"))(t)
	e.Value[1] = 'Y'
	if got := must(s.Get(ctx, "k"))(t); string(got.Value) != "abc" {
		t.Fatalf("the store shares memory with its caller: %q", got.Value)
	}
}

func testExpiry(t *testing.T, ctx context.Context, s store.Store) {
	past := time.Now().Add(-time.Second)
	rev := must(s.Create(ctx, "k", []byte("1"), past))(t)
	if _, err := s.Get(ctx, "k"); !errors.Is(err, store.ErrNotFound) {
		t.Fatalf("Get of an expired key: %v", err)
	}
	if _, err := s.Update(ctx, "k", []byte("2"), time.Time{}, rev); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("Update of an expired key: %v", err)
	}
	if err := s.Delete(ctx, "k", rev); !errors.Is(err, store.ErrConflict) {
		t.Fatalf("Delete of an expired revision: %v", err)
	}
	again := must(s.Create(ctx, "k", []byte("3"), time.Time{}))(t)
	if again <= rev {
		t.Fatalf("revision %d after %d", again, rev)
	}
	if e := must(s.Get(ctx, "k"))(t); string(e.Value) != "3" {
		t.Fatalf("got %q", e.Value)
	}

	soon := time.Now().Add(150 * time.Millisecond)
	must(s.Create(ctx, "soon", []byte("1"), soon))(t)
	e := must(s.Get(ctx, "soon"))(t)
	if d := e.Expires.Sub(soon); d > time.Millisecond || d < -time.Millisecond {
		t.Fatalf("expires %v, want %v", e.Expires, soon)
	}
	until(t, ctx, "the key expires", func() bool {
		_, err := s.Get(ctx, "soon")
		return errors.Is(err, store.ErrNotFound)
	})
	if time.Now().Before(soon) {
		t.Fatal("the key expired too early")
	}
}

func testExpiryMoves(t *testing.T, ctx context.Context, s store.Store) {
	soon := time.Now().Add(500 * time.Millisecond)
	kept := must(s.Create(ctx, "kept", nil, soon))(t)
	moved := must(s.Create(ctx, "moved", nil, soon))(t)
	must(s.Create(ctx, "marker", nil, soon))(t)
	must(s.Update(ctx, "kept", []byte("kept"), time.Time{}, kept))(t)
	later := time.Now().Add(time.Hour)
	must(s.Update(ctx, "moved", []byte("moved"), later, moved))(t)
	until(t, ctx, "the marker expires", func() bool {
		_, err := s.Get(ctx, "marker")
		return errors.Is(err, store.ErrNotFound)
	})
	if e := must(s.Get(ctx, "kept"))(t); !e.Expires.IsZero() {
		t.Fatalf("expiry wasn't taken away: %v", e.Expires)
	}
	if e := must(s.Get(ctx, "moved"))(t); e.Expires.Before(later.Add(-time.Second)) {
		t.Fatalf("expiry wasn't moved: %v", e.Expires)
	}
}

func testOneWinner(t *testing.T, ctx context.Context, s store.Store) {
	const rivals = 16
	var wg sync.WaitGroup
	created := make(chan uint64, rivals)
	for i := range rivals {
		wg.Go(func() {
			rev, err := s.Create(ctx, "k", fmt.Append(nil, i), time.Time{})
			if err == nil {
				created <- rev
			} else if !errors.Is(err, store.ErrExists) {
				t.Errorf("Create: %v", err)
			}
		})
	}
	wg.Wait()
	if len(created) != 1 {
		t.Fatalf("%d of %d creators won", len(created), rivals)
	}
	rev := <-created
	updated := make(chan int, rivals)
	for i := range rivals {
		wg.Go(func() {
			_, err := s.Update(ctx, "k", fmt.Append(nil, "winner ", i), time.Time{}, rev)
			if err == nil {
				updated <- i
			} else if !errors.Is(err, store.ErrConflict) {
				t.Errorf("Update: %v", err)
			}
		})
	}
	wg.Wait()
	if len(updated) != 1 {
		t.Fatalf("%d of %d updates won", len(updated), rivals)
	}
	if e := must(s.Get(ctx, "k"))(t); string(e.Value) != fmt.Sprint("winner ", <-updated) {
		t.Fatalf("the loser's value stayed: %q", e.Value)
	}
}

func testCounter(t *testing.T, ctx context.Context, s store.Store) {
	const workers, rounds = 8, 10
	must(s.Create(ctx, "n", []byte{0}, time.Time{}))(t)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for done := 0; done < rounds; {
				e, err := s.Get(ctx, "n")
				if err != nil {
					t.Errorf("Get: %v", err)
					return
				}
				_, err = s.Update(ctx, "n", []byte{e.Value[0] + 1}, time.Time{}, e.Revision)
				if err == nil {
					done++
				} else if !errors.Is(err, store.ErrConflict) {
					t.Errorf("Update: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	if e := must(s.Get(ctx, "n"))(t); e.Value[0] != workers*rounds {
		t.Fatalf("counted %d, want %d", e.Value[0], workers*rounds)
	}
}

func testWatch(t *testing.T, ctx context.Context, s store.Store) {
	must(s.Create(ctx, "w.before", nil, time.Time{}))(t)
	events := must(s.Watch(ctx, "w."))(t)
	rev := must(s.Create(ctx, "w.k", []byte("1"), time.Time{}))(t)
	if ev := next(t, ctx, events); ev.Key != "w.k" || ev.Revision != rev || string(ev.Value) != "1" || ev.Deleted {
		t.Fatalf("after Create: %+v", ev)
	}
	must(s.Create(ctx, "other.k", nil, time.Time{}))(t)
	rev = must(s.Update(ctx, "w.k", []byte("2"), time.Time{}, rev))(t)
	if ev := next(t, ctx, events); ev.Key != "w.k" || ev.Revision != rev || string(ev.Value) != "2" {
		t.Fatalf("after Update: %+v", ev)
	}
	if err := s.Delete(ctx, "w.k", rev); err != nil {
		t.Fatal(err)
	}
	if ev := next(t, ctx, events); ev.Key != "w.k" || !ev.Deleted {
		t.Fatalf("after Delete: %+v", ev)
	}
}

func testWatchLast(t *testing.T, ctx context.Context, s store.Store) {
	events := must(s.Watch(ctx, "w."))(t)
	const keys, rounds = 5, 20
	for k := range keys {
		key := fmt.Sprint("w.", k)
		rev := must(s.Create(ctx, key, []byte{0}, time.Time{}))(t)
		for i := 1; i < rounds; i++ {
			rev = must(s.Update(ctx, key, []byte{byte(i)}, time.Time{}, rev))(t)
		}
	}
	last := map[string]byte{}
	for len(last) < keys || slices.ContainsFunc(values(last), func(v byte) bool { return v != rounds-1 }) {
		ev := next(t, ctx, events)
		if ev.Value[0] < last[ev.Key] {
			t.Fatalf("%s went back from %d to %d", ev.Key, last[ev.Key], ev.Value[0])
		}
		last[ev.Key] = ev.Value[0]
	}
}

func testWatchEnds(t *testing.T, ctx context.Context, s store.Store) {
	wctx, cancel := context.WithCancel(ctx)
	ended := must(s.Watch(wctx, ""))(t)
	closed := must(s.Watch(ctx, ""))(t)
	must(s.Create(ctx, "unread", nil, time.Time{}))(t)
	cancel()
	drain(t, ctx, ended)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	drain(t, ctx, closed)
}

func testClosed(t *testing.T, ctx context.Context, s store.Store) {
	must(s.Create(ctx, "k", nil, time.Time{}))(t)
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err1 := s.Get(ctx, "k")
	_, err2 := s.Create(ctx, "l", nil, time.Time{})
	_, err3 := s.Update(ctx, "k", nil, time.Time{}, 1)
	err4 := s.Delete(ctx, "k", 0)
	_, err5 := s.List(ctx, "")
	_, err6 := s.Watch(ctx, "")
	for i, err := range []error{err1, err2, err3, err4, err5, err6} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("call %d on a closed store: %v", i, err)
		}
	}
}

func (s Suite) testReopen(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	st := s.Open(t)
	at := time.Now().Add(time.Hour)
	rev := must(st.Create(ctx, "k", []byte("v"), at))(t)
	gone := must(st.Create(ctx, "gone", nil, time.Time{}))(t)
	if err := st.Delete(ctx, "gone", gone); err != nil {
		t.Fatal(err)
	}
	st = s.Reopen(t, st)
	defer st.Close()
	e := must(st.Get(ctx, "k"))(t)
	if string(e.Value) != "v" || e.Revision != rev || !e.Expires.Equal(time.Unix(0, at.UnixNano())) {
		t.Fatalf("got %+v", e)
	}
	if again := must(st.Create(ctx, "gone", nil, time.Time{}))(t); again <= gone {
		t.Fatalf("revision %d after %d", again, gone)
	}
}

// must is for calls that have to succeed: must(s.Get(ctx, k))(t).
func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func next(t *testing.T, ctx context.Context, events <-chan store.Event) store.Event {
	t.Helper()
	select {
	case ev, ok := <-events:
		if !ok {
			t.Fatal("the watch ended")
		}
		return ev
	case <-ctx.Done():
		t.Fatal("no event came")
	}
	panic("unreachable")
}

func drain(t *testing.T, ctx context.Context, events <-chan store.Event) {
	t.Helper()
	for {
		select {
		case _, ok := <-events:
			if !ok {
				return
			}
		case <-ctx.Done():
			t.Fatal("the watch doesn't end")
		}
	}
}

// until polls a condition that time alone brings about.
func until(t *testing.T, ctx context.Context, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}

func values(m map[string]byte) []byte {
	v := make([]byte, 0, len(m))
	for _, b := range m {
		v = append(v, b)
	}
	return v
}
