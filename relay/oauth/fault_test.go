package oauth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"farhand/relay/store"
)

var errFault = errors.New("the store failed")

// faulty is a store whose n-th call from now fails: before it has done
// anything, or after it has done everything (the answer got lost).
type faulty struct {
	store.Store
	mu     sync.Mutex
	left   int // calls until the fault; negative: none
	after  bool
	tested bool
}

func (s *faulty) arm(calls int, after bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left, s.after, s.tested = calls, after, false
}

// fault says whether this call fails, and how.
func (s *faulty) fault() (before, after error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left < 0 {
		return nil, nil
	}
	s.left--
	if s.left >= 0 {
		return nil, nil
	}
	s.tested = true
	if s.after {
		return nil, errFault
	}
	return errFault, nil
}

func (s *faulty) Get(ctx context.Context, key string) (store.Entry, error) {
	before, after := s.fault()
	if before != nil {
		return store.Entry{}, before
	}
	e, err := s.Store.Get(ctx, key)
	return e, errors.Join(err, after)
}

func (s *faulty) Create(ctx context.Context, key string, value []byte, expires time.Time) (uint64, error) {
	before, after := s.fault()
	if before != nil {
		return 0, before
	}
	rev, err := s.Store.Create(ctx, key, value, expires)
	return rev, joinFault(err, after)
}

func (s *faulty) Update(ctx context.Context, key string, value []byte, expires time.Time, last uint64) (uint64, error) {
	before, after := s.fault()
	if before != nil {
		return 0, before
	}
	rev, err := s.Store.Update(ctx, key, value, expires, last)
	return rev, joinFault(err, after)
}

func (s *faulty) Delete(ctx context.Context, key string, last uint64) error {
	before, after := s.fault()
	if before != nil {
		return before
	}
	return joinFault(s.Store.Delete(ctx, key, last), after)
}

func (s *faulty) List(ctx context.Context, prefix string) ([]store.Entry, error) {
	before, after := s.fault()
	if before != nil {
		return nil, before
	}
	l, err := s.Store.List(ctx, prefix)
	return l, errors.Join(err, after)
}

func joinFault(err, after error) error {
	if after != nil {
		return after
	}
	return err
}

// openFaulty makes a fixture over a store that can fail.
func openFaulty(t *testing.T) (*fixture, *faulty) {
	var st *faulty
	f := open(t, func(s store.Store) store.Store {
		st = &faulty{Store: s, left: -1}
		return st
	})
	return f, st
}

// eachFault runs a step with a fault at its first store call, its second, and so
// on, in both manners, until it goes through without meeting one. check is
// called after each.
func eachFault(t *testing.T, step func(f *fixture, try int) answer, check func(t *testing.T, f *fixture, try int, a answer)) {
	f, st := openFaulty(t)
	for _, after := range []bool{false, true} {
		for n := 0; ; n++ {
			try := n
			if after {
				try += 1000
			}
			st.arm(-1, false)
			var met bool
			t.Run(fmt.Sprintf("after=%v/call=%d", after, n), func(t *testing.T) {
				f.t = t
				st.arm(n, after)
				a := step(f, try)
				met = st.tested
				st.arm(-1, false)
				check(t, f, try, a)
			})
			if !met {
				break
			}
			if n > 60 {
				t.Fatal("the step never ends")
			}
		}
	}
}

// A device code survives whatever the store does: polling on gets tokens, and
// one family.
func TestFaultDevice(t *testing.T) {
	type run struct{ device string }
	runs := map[int]run{}
	var login string
	eachFault(t, func(f *fixture, try int) answer {
		st := f.store.(*faulty)
		left, after := st.left, st.after
		st.arm(-1, false)
		if login == "" {
			login = f.owner("ann")
		}
		user, device := f.ask(fmt.Sprint("pi-", try))
		f.want(f.approve(login, user), 200)
		runs[try] = run{device}
		st.arm(left, after)
		return f.poll(device)
	}, func(t *testing.T, f *fixture, try int, a answer) {
		if a.status != 200 && a.status != 503 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		a = f.want(f.poll(runs[try].device), 200)
		if !f.alive(a.str("access_token")) {
			t.Fatal("refused")
		}
		f.oauthError(f.poll(runs[try].device), "invalid_grant")
	})
}

// Approving that fails half-way can be finished by the device or by trying again.
func TestFaultApprove(t *testing.T) {
	devices := map[int][2]string{}
	var login string
	eachFault(t, func(f *fixture, try int) answer {
		st := f.store.(*faulty)
		left, after := st.left, st.after
		st.arm(-1, false)
		if login == "" {
			login = f.owner("ann")
		}
		user, device := f.ask(fmt.Sprint("pi-", try))
		devices[try] = [2]string{user, device}
		st.arm(left, after)
		return f.approve(login, user, "name", fmt.Sprint("bench-", try))
	}, func(t *testing.T, f *fixture, try int, a answer) {
		if a.status != 200 && a.status != 503 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		again := f.approve(login, devices[try][0], "name", fmt.Sprint("bench-", try))
		if again.status != 200 && again.status != 409 { // 409: it was approved
			t.Fatalf("%d %s", again.status, again.body)
		}
		tokens := f.want(f.poll(devices[try][1]), 200)
		if !f.alive(tokens.str("access_token")) {
			t.Fatal("refused")
		}
		m := f.want(f.do(request{method: "GET", path: fmt.Sprint("/api/machines/bench-", try), bearer: login}), 200)
		if m.str("machine_id") != fmt.Sprint("pi-", try) {
			t.Fatalf("%s", m.body)
		}
	})
}

// A refresh whose answer is lost leaves the old token good; nothing is revoked.
func TestFaultRefresh(t *testing.T) {
	refresh := map[int]string{}
	var login string
	eachFault(t, func(f *fixture, try int) answer {
		st := f.store.(*faulty)
		left, after := st.left, st.after
		st.arm(-1, false)
		if login == "" {
			login = f.owner("ann")
		}
		_, refresh[try] = f.paired(login, fmt.Sprint("pi-", try))
		st.arm(left, after)
		return f.refresh(refresh[try])
	}, func(t *testing.T, f *fixture, try int, a answer) {
		if a.status == 200 {
			if !f.alive(a.str("access_token")) {
				t.Fatal("refused")
			}
			return
		}
		if a.status != 503 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		a = f.want(f.refresh(refresh[try]), 200)
		if !f.alive(a.str("access_token")) {
			t.Fatal("refused")
		}
	})
}

// A claim key never makes two machines, whatever fails: tokens come once at most.
func TestFaultClaim(t *testing.T) {
	keys := map[int]string{}
	var login string
	eachFault(t, func(f *fixture, try int) answer {
		st := f.store.(*faulty)
		left, after := st.left, st.after
		st.arm(-1, false)
		if login == "" {
			login = f.owner("ann")
		}
		a := f.want(f.do(request{method: "POST", path: "/api/claims", bearer: login, json: map[string]any{"capabilities": []string{"files"}}}), 200)
		keys[try] = a.str("claim_key")
		st.arm(left, after)
		return f.token("grant_type", grantClaim, "claim_key", keys[try], "machine_id", fmt.Sprint("pi-", try))
	}, func(t *testing.T, f *fixture, try int, a answer) {
		given := 0
		if a.status == 200 {
			given++
			if !f.alive(a.str("access_token")) {
				t.Fatal("refused")
			}
		}
		for i := range 2 {
			a = f.token("grant_type", grantClaim, "claim_key", keys[try], "machine_id", fmt.Sprintf("other-%d-%d", try, i))
			if a.status == 200 {
				given++
			} else {
				f.oauthError(a, "invalid_grant")
			}
		}
		if given > 1 {
			t.Fatalf("one key gave tokens %d times", given)
		}
	})
}

// Removing a machine can be repeated until it is done, and then its token is dead.
func TestFaultRemove(t *testing.T) {
	access := map[int]string{}
	var login string
	remove := func(f *fixture, try int) answer {
		return f.do(request{method: "DELETE", path: fmt.Sprintf("/api/machines/pi-%d-x", try), bearer: login})
	}
	eachFault(t, func(f *fixture, try int) answer {
		st := f.store.(*faulty)
		left, after := st.left, st.after
		st.arm(-1, false)
		if login == "" {
			login = f.owner("ann")
		}
		access[try], _ = f.paired(login, fmt.Sprintf("pi-%d-x", try))
		st.arm(left, after)
		return remove(f, try)
	}, func(t *testing.T, f *fixture, try int, a answer) {
		if a.status == 503 {
			if a = remove(f, try); a.status != 200 && a.status != 404 {
				t.Fatalf("%d %s", a.status, a.body)
			}
		} else {
			f.want(a, 200)
		}
		if f.alive(access[try]) {
			t.Fatal("the removed machine's token lives")
		}
	})
}

func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline.C:
			t.Fatal("never: " + what)
		case <-tick.C:
		}
	}
}
