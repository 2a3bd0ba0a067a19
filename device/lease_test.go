package device

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
	"farhand/wire"
)

var alice, bob = Holder{Session: "a", ID: "1", Name: "alice"}, Holder{Session: "b", ID: "2"}

func begin(t *testing.T, ls *Leases, h Holder) (*Lease, context.Context, func(bool)) {
	t.Helper()
	l, ctx, end, err := ls.Begin(t.Context(), Key{Device: "k"}, "OP", h)
	if err != nil {
		t.Fatal(err)
	}
	return l, ctx, end
}

func isBusy(t *testing.T, ls *Leases, h Holder, holder string) {
	t.Helper()
	_, _, _, err := ls.Begin(t.Context(), Key{Device: "k"}, "OP", h)
	if e := wire.AsError(err); e.Code != wire.HardwareBusy || e.Details["holder"] != holder || e.Details["device"] != "k" {
		t.Errorf("session %s is answered %v %v, want busy by %s", h.Session, err, e.Details, holder)
	}
}

func TestLeaseForAnOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := NewLeases(LeaseOptions{})
		defer ls.Close()
		l, _, end := begin(t, ls, alice)
		state := &counter{}
		l.SetState(state)
		isBusy(t, ls, bob, "alice")
		if i := ls.List(); len(i) != 1 || i[0].Op != "OP" || i[0].Device != "k" {
			t.Errorf("the leases are %+v", i)
		}
		end(false)
		synctest.Wait()
		if state.closes() != 1 || len(ls.List()) != 0 {
			t.Errorf("closed %d times, leases %+v", state.closes(), ls.List())
		}
		_, _, end = begin(t, ls, bob)
		isBusy(t, ls, alice, "2")
		end(false)
	})
}

func TestHeldLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := NewLeases(LeaseOptions{Idle: time.Minute})
		defer ls.Close()
		l, _, end := begin(t, ls, alice)
		state := &counter{}
		l.SetState(state)
		if l.Held() {
			t.Error("held before any operation said so")
		}
		end(true)
		for range 3 { // each operation starts the idle time anew
			faketime.Advance(59 * time.Second)
			isBusy(t, ls, bob, "alice")
			l, _, end := begin(t, ls, alice)
			if !l.Held() || l.State() != io.Closer(state) {
				t.Errorf("held %v, state %v", l.Held(), l.State())
			}
			end(false)
		}
		if ls.Held("a") != 1 || ls.Held("b") != 0 {
			t.Error("the count of held devices is wrong")
		}
		faketime.Advance(time.Minute + time.Millisecond)
		synctest.Wait()
		if state.closes() != 1 || ls.Held("a") != 0 {
			t.Errorf("after idleness: closed %d times, %+v", state.closes(), ls.List())
		}
	})
}

func TestIdleDoesNotEndAnOperation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := NewLeases(LeaseOptions{Idle: time.Minute})
		defer ls.Close()
		_, _, end := begin(t, ls, alice)
		end(true)
		_, ctx, end := begin(t, ls, alice)
		faketime.Advance(time.Hour)
		if ctx.Err() != nil {
			t.Error("an operation was ended for idleness")
		}
		end(false)
	})
}

func TestLingeringState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := NewLeases(LeaseOptions{Linger: time.Second})
		defer ls.Close()
		l, _, end := begin(t, ls, alice)
		state := &counter{}
		l.SetState(state)
		l.Linger()
		end(false)
		if state.closes() != 0 || ls.Held("a") != 0 || len(ls.List()) != 0 {
			t.Errorf("closed %d times, %+v", state.closes(), ls.List())
		}
		faketime.Advance(time.Second / 2)
		l, _, end = begin(t, ls, alice) // the same session finds it as it was
		if l.State() != io.Closer(state) || l.Held() || state.closes() != 0 {
			t.Error("the state was not found again")
		}
		isBusy(t, ls, bob, "alice")
		faketime.Advance(time.Minute) // the time that lingers begins with the end of the operation
		end(false)
		l, _, end = begin(t, ls, bob) // another one takes the device
		if l.State() != nil || state.closes() != 1 {
			t.Errorf("after the take-over: state %v, closed %d times", l.State(), state.closes())
		}
		second := &counter{}
		l.SetState(second)
		l.Linger()
		end(false)
		if had, err := ls.Release(t.Context(), "k", "b"); had || err != nil || second.closes() != 1 {
			t.Errorf("RELEASE of what only lingers: %v, %v, closed %d times", had, err, second.closes())
		}
		l, _, end = begin(t, ls, bob)
		third := &counter{}
		l.SetState(third)
		l.Linger()
		end(false)
		faketime.Advance(time.Second + time.Millisecond)
		synctest.Wait()
		if third.closes() != 1 {
			t.Error("the state outlives its time")
		}
	})
}

// TestTakenUpAgain is a session that comes back to its lingering device, and
// another that wants it before the first one's operation has begun.
func TestTakenUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := NewLeases(LeaseOptions{Linger: time.Second})
		defer ls.Close()
		l, _, end := begin(t, ls, alice)
		state := &counter{}
		l.SetState(state)
		l.Linger()
		end(false)
		again, err := ls.take(t.Context(), l.Key(), alice)
		if again != l || err != nil {
			t.Fatalf("taken up again, it is %v %v", again, err)
		}
		isBusy(t, ls, bob, "alice")
		ls.leave(again) // it gave up waiting: the device lingers as before
		_, _, end = begin(t, ls, bob)
		if state.closes() != 1 {
			t.Errorf("taken over, the state was closed %d times", state.closes())
		}
		end(false)
	})
}

func TestOperationsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := NewLeases(LeaseOptions{})
		defer ls.Close()
		_, _, end := begin(t, ls, alice)
		var order []int
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _, end := begin(t, ls, alice)
			order = append(order, 2)
			end(false)
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errBroken)
		if _, _, _, err := ls.Begin(ctx, Key{Device: "k"}, "OP", alice); !errors.Is(err, errBroken) {
			t.Errorf("one that gives up waiting is answered %v", err)
		}
		order = append(order, 1)
		end(false)
		<-done
		synctest.Wait()
		if len(order) != 2 || order[0] != 1 || len(ls.byKey) != 0 {
			t.Errorf("the order was %v, left %v", order, ls.byKey)
		}
	})
}

func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := NewLeases(LeaseOptions{})
		defer ls.Close()
		l, ctx, end := begin(t, ls, alice)
		state := &counter{}
		l.SetState(state)
		released := make(chan bool)
		go func() {
			had, err := ls.Release(t.Context(), "k", "a")
			if err != nil {
				t.Error(err)
			}
			released <- had
		}()
		<-ctx.Done() // the operation that runs is told why
		if e := wire.AsError(context.Cause(ctx)); e.Code != wire.HardwareTransferFailed {
			t.Errorf("the cause is %v", context.Cause(ctx))
		}
		if state.closes() != 0 {
			t.Error("the state was closed under an operation")
		}
		end(true)
		if !<-released || state.closes() != 1 {
			t.Errorf("closed %d times", state.closes())
		}
		if had, err := ls.Release(t.Context(), "k", "a"); had || err != nil {
			t.Errorf("a second release: %v, %v", had, err)
		}
		_, _, end = begin(t, ls, bob)
		end(true)
		if had, _ := ls.Release(t.Context(), "k", "a"); had {
			t.Error("one session released another's device")
		}
		isBusy(t, ls, alice, "2")
	})
}

func TestLostLink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := NewLeases(LeaseOptions{})
		defer ls.Close()
		_, _, end := begin(t, ls, alice)
		end(true)
		ls.ReleaseAfter("a", 10*time.Second)
		faketime.Advance(9 * time.Second)
		ls.Keep("a") // it came back
		faketime.Advance(time.Minute)
		isBusy(t, ls, bob, "alice")
		ls.ReleaseAfter("a", 10*time.Second)
		faketime.Advance(9 * time.Second)
		ls.ReleaseAfter("a", 10*time.Second) // another attempt that failed
		faketime.Advance(time.Second + time.Millisecond)
		synctest.Wait()
		_, _, end = begin(t, ls, bob)
		end(true)
		if len(ls.grace) != 0 {
			t.Error("timers are left")
		}
	})
}

func TestEndWhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := NewLeases(LeaseOptions{})
		defer ls.Close()
		for _, k := range []string{"k1", "k2", "k3"} {
			_, _, end, err := ls.Begin(t.Context(), Key{Device: k}, "OP", alice)
			if err != nil {
				t.Fatal(err)
			}
			end(true)
		}
		n, err := ls.EndWhere(t.Context(), errBroken, func(i LeaseInfo) bool { return i.Device != "k2" })
		if n != 2 || err != nil || len(ls.List()) != 1 || ls.List()[0].Device != "k2" {
			t.Errorf("%d ended, %v, left %+v", n, err, ls.List())
		}
		if err := ls.ReleaseAll(t.Context(), "a"); err != nil || len(ls.List()) != 0 {
			t.Errorf("%v, left %+v", err, ls.List())
		}
	})
}

func TestCloseLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := NewLeases(LeaseOptions{})
		l, ctx, end := begin(t, ls, alice)
		state := &counter{}
		l.SetState(state)
		ls.ReleaseAfter("b", time.Hour)
		go func() {
			<-ctx.Done()
			end(true)
		}()
		ls.Close()
		if state.closes() != 1 {
			t.Errorf("closed %d times", state.closes())
		}
		if _, _, _, err := ls.Begin(t.Context(), Key{Device: "k"}, "OP", alice); err == nil {
			t.Error("a lease after Close")
		}
		ls.Close()
	})
}
