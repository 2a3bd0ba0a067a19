package rescue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
)

// house is a radio and a page in one, with a log of what was done to them.
type house struct {
	mu       sync.Mutex
	done     []string
	up, open bool
	reach    bool  // a network that the station knows is in reach
	raiseErr error // what Raise fails with
	openErr  error
	scanErr  error
	slow     time.Duration // what Raise takes
	note     string
	seen     []Network
	changes  []Phase
}

func (h *house) did(format string, args ...any) {
	h.done = append(h.done, fmt.Sprintf(format, args...))
}

func (h *house) lock() func() { h.mu.Lock(); return h.mu.Unlock }

func (h *house) Scan(context.Context) ([]Network, error) {
	defer h.lock()()
	if h.up {
		h.did("scan as an access point")
	}
	return []Network{{SSID: []byte("Workshop")}}, h.scanErr
}

func (h *house) Raise(ctx context.Context, ap AccessPoint) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(h.slow):
	}
	defer h.lock()()
	h.did("raise %s %s", ap.SSID, ap.Passphrase)
	h.up = h.raiseErr == nil
	return h.raiseErr
}

func (h *house) Lower(context.Context) error {
	defer h.lock()()
	if h.up {
		h.did("lower")
	}
	h.up = false
	return nil
}

func (h *house) Joined(context.Context) (bool, error) {
	defer h.lock()()
	return h.reach && !h.up, nil
}

func (h *house) Open(_ context.Context, v Visit) error {
	defer h.lock()()
	h.open, h.note, h.seen = h.openErr == nil, v.Note, v.Networks
	return h.openErr
}

func (h *house) Close() error {
	defer h.lock()()
	if h.open && !h.up {
		h.did("the page outlived its network")
	}
	h.open = false
	return nil
}

// is fails unless the network is up, and its page with it.
func (h *house) is(t *testing.T, up bool) {
	t.Helper()
	synctest.Wait()
	defer h.lock()()
	if h.up != up || h.open != up {
		t.Fatalf("network up %t, page open %t, want both %t; done: %s", h.up, h.open, up, strings.Join(h.done, ", "))
	}
}

func start(t *testing.T, allowed bool) (*Machine, *house) {
	t.Helper()
	h := &house{slow: time.Second}
	m := New(Config{
		Radio: h, Portal: h, Allowed: allowed,
		AccessPoint: AccessPoint{SSID: "farhand-1a2b3c4d", Passphrase: "bcdfghjkmnpq"},
		Join: func(context.Context) error {
			defer h.lock()()
			if h.up {
				h.did("told of a network as an access point")
			}
			h.did("join")
			return nil
		},
		Changed: func(s State) {
			defer h.lock()()
			h.changes = append(h.changes, s.Phase)
		},
	})
	t.Cleanup(func() {
		m.Close()
		if h.up || h.open {
			t.Error("after Close the network is still there")
		}
	})
	synctest.Wait()
	return m, h
}

// bubble runs f with a machine in a bubble of fake time.
func bubble(t *testing.T, allowed bool, f func(t *testing.T, m *Machine, h *house)) {
	synctest.Test(t, func(t *testing.T) {
		m, h := start(t, allowed)
		f(t, m, h)
	})
}

func TestTwoMinutesOfPatience(t *testing.T) {
	bubble(t, true, func(t *testing.T, m *Machine, h *house) {
		faketime.Advance(time.Hour)
		h.is(t, false) // nobody has said anything yet
		m.Offline(time.Now(), false)
		faketime.Advance(Patience - time.Second)
		h.is(t, false)
		if got := m.State().Phase; got != Waiting {
			t.Errorf("%s", got)
		}
		faketime.Advance(2*time.Second + h.slow)
		h.is(t, true)
		if got := m.State().Phase; got != Up {
			t.Errorf("%s", got)
		}
		if len(h.seen) != 1 || string(h.seen[0].SSID) != "Workshop" {
			t.Errorf("the page shows %v", h.seen)
		}
		if !slices.Contains(h.done, "raise farhand-1a2b3c4d bcdfghjkmnpq") {
			t.Errorf("%v", h.done)
		}
		m.Online()
		h.is(t, false)
		if got := m.State().Phase; got != Idle {
			t.Errorf("%s", got)
		}
		want := []Phase{Waiting, Raising, Up, Idle}
		if !slices.Equal(h.changes, want) {
			t.Errorf("went through %v, want %v", h.changes, want)
		}
	})
}

func TestOfflineBeforeTheStartCounts(t *testing.T) {
	bubble(t, true, func(t *testing.T, m *Machine, h *house) {
		m.Offline(time.Now().Add(-time.Minute), false)
		faketime.Advance(time.Minute - time.Second)
		h.is(t, false)
		faketime.Advance(2*time.Second + h.slow)
		h.is(t, true)
	})
}

// A clock that was wrong makes it neither wait for ever nor at all.
func TestWrongClock(t *testing.T) {
	bubble(t, true, func(t *testing.T, m *Machine, h *house) {
		m.Offline(time.Now().Add(50*365*24*time.Hour), false)
		faketime.Advance(Patience - time.Second)
		h.is(t, false)
		faketime.Advance(2*time.Second + h.slow)
		h.is(t, true)
	})
}

func TestNotBesideANetwork(t *testing.T) {
	bubble(t, true, func(t *testing.T, m *Machine, h *house) {
		began := time.Now()
		for range 20 { // the relay is down, the network isn't
			m.Offline(began, true)
			faketime.Advance(30 * time.Second)
			h.is(t, false)
		}
		// Then the network goes too: that is when the two minutes begin.
		m.Offline(began, false)
		faketime.Advance(Patience - time.Second)
		h.is(t, false)
		faketime.Advance(2*time.Second + h.slow)
		h.is(t, true)
		// A cable is plugged in: a network works, and the rescue ends at once.
		m.Offline(began, true)
		h.is(t, false)
	})
}

func TestOnlyWhereAllowed(t *testing.T) {
	bubble(t, false, func(t *testing.T, m *Machine, h *house) {
		m.Offline(time.Now(), false)
		faketime.Advance(time.Hour)
		h.is(t, false)
		m.SetAllowed(true)
		faketime.Advance(h.slow)
		h.is(t, true)
		m.SetAllowed(false) // such as by the first pairing
		h.is(t, false)
		faketime.Advance(time.Hour)
		h.is(t, false)
	})
}

func TestKnownNetworkIsTriedAgain(t *testing.T) {
	bubble(t, true, func(t *testing.T, m *Machine, h *house) {
		m.Offline(time.Now(), false)
		faketime.Advance(Patience + h.slow)
		h.is(t, true)
		faketime.Advance(RetryEvery)
		h.is(t, false)
		if got := m.State().Phase; got != Retrying {
			t.Errorf("%s", got)
		}
		faketime.Advance(retryLimit + h.slow)
		h.is(t, true) // not there: the rescue network comes back
		unlock := h.lock()
		h.reach = true
		unlock()
		faketime.Advance(RetryEvery + joinedEvery)
		h.is(t, false)
		if got := m.State().Phase; got != Waiting {
			t.Errorf("in a network again: %s", got)
		}
		m.Online()
		faketime.Advance(time.Hour)
		h.is(t, false)
	})
}

// Where no network is known there is nothing to wait for: the page's list is
// renewed, and the rescue network is back at once.
func TestNothingIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{slow: time.Second}
		m := New(Config{Radio: h, Portal: h, Allowed: true, Known: func() bool { return false }})
		defer m.Close()
		m.Offline(time.Now(), false)
		faketime.Advance(Patience + h.slow)
		h.is(t, true)
		faketime.Advance(RetryEvery + h.slow)
		h.is(t, true)
		if n := len(h.done); n != 3 { // raise, lower, raise
			t.Errorf("%v", h.done)
		}
	})
}

// A joined network that leads nowhere gets the same two minutes.
func TestJoinedButStillOffline(t *testing.T) {
	bubble(t, true, func(t *testing.T, m *Machine, h *house) {
		h.reach = true
		began := time.Now()
		m.Offline(began, false)
		faketime.Advance(Patience + h.slow)
		h.is(t, true)
		faketime.Advance(RetryEvery)
		h.is(t, false)
		m.Offline(began, false) // no address there
		faketime.Advance(Patience - time.Second)
		h.is(t, false)
		faketime.Advance(time.Second + h.slow)
		h.is(t, true)
	})
}

func TestVisitorHoldsIt(t *testing.T) {
	bubble(t, true, func(t *testing.T, m *Machine, h *house) {
		m.Offline(time.Now(), false)
		faketime.Advance(Patience + h.slow)
		h.is(t, true)
		faketime.Advance(RetryEvery - time.Minute)
		m.Active()
		faketime.Advance(VisitHolds - time.Second)
		h.is(t, true)
		faketime.Advance(time.Second)
		h.is(t, false)
	})
}

func TestEnteredNetwork(t *testing.T) {
	bubble(t, true, func(t *testing.T, m *Machine, h *house) {
		m.Offline(time.Now(), false)
		faketime.Advance(Patience + h.slow)
		h.is(t, true)
		m.Entered()
		synctest.Wait()
		h.is(t, true) // the page's answer is still on its way
		faketime.Advance(farewell)
		h.is(t, false)
		if got := m.State().Phase; got != Trying {
			t.Errorf("%s", got)
		}
		// It isn't to be joined: the rescue network comes back and says so.
		faketime.Advance(JoinLimit + h.slow)
		h.is(t, true)
		if !strings.Contains(h.note, "could not be joined within 50 seconds") {
			t.Errorf("the page says %q", h.note)
		}
		if got := h.done[len(h.done)-2]; got != "join" || slices.Contains(h.done, "told of a network as an access point") {
			t.Errorf("%v", h.done)
		}
		// The second attempt works.
		m.Entered()
		faketime.Advance(farewell)
		unlock := h.lock()
		h.reach = true
		unlock()
		faketime.Advance(joinedEvery)
		h.is(t, false)
		m.Online()
		faketime.Advance(time.Hour)
		h.is(t, false)
	})
}

// Field case 85: what keeps it from running is said, with the program's name,
// and tried again.
func TestWhatFailsIsSaid(t *testing.T) {
	for name, set := range map[string]func(*house, error){
		"raise": func(h *house, err error) { h.raiseErr = err },
		"page":  func(h *house, err error) { h.openErr = err },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, true, func(t *testing.T, m *Machine, h *house) {
				unlock := h.lock()
				set(h, errors.New("dnsmasq (pid 7) holds UDP port 53"))
				unlock()
				m.Offline(time.Now(), false)
				faketime.Advance(Patience + h.slow)
				h.is(t, false)
				if got := m.State(); got.Phase != Failed || !strings.Contains(got.Problem, "dnsmasq (pid 7)") {
					t.Errorf("%+v", got)
				}
				unlock = h.lock()
				set(h, nil)
				h.scanErr = errors.New("no list") // is no reason to give up
				unlock()
				faketime.Advance(failedWait + h.slow)
				h.is(t, true)
			})
		})
	}
}

// A board without a radio is no failure; one may be plugged in later.
func TestNoRadio(t *testing.T) {
	bubble(t, true, func(t *testing.T, m *Machine, h *house) {
		unlock := h.lock()
		h.raiseErr = fmt.Errorf("iwd: %w", ErrNoRadio)
		unlock()
		m.Offline(time.Now(), false)
		faketime.Advance(Patience + h.slow)
		if got := m.State().Phase; got != Absent {
			t.Errorf("%s", got)
		}
		unlock = h.lock()
		h.raiseErr = nil
		unlock()
		faketime.Advance(failedWait + h.slow)
		h.is(t, true)
	})
}

func TestCheckComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{}
		var problem error = errors.New("lighttpd (pid 9) holds TCP port 80")
		m := New(Config{Radio: h, Portal: h, Allowed: true, Check: func(context.Context) error { return problem }})
		defer m.Close()
		m.Offline(time.Now(), false)
		faketime.Advance(Patience)
		h.is(t, false)
		if got := m.State().Problem; !strings.Contains(got, "lighttpd (pid 9)") {
			t.Errorf("%q", got)
		}
		if len(h.done) != 0 {
			t.Errorf("the radio was used all the same: %v", h.done)
		}
	})
}

// A network that works while the access point is about to come up ends it there.
func TestRaisingIsAbandoned(t *testing.T) {
	bubble(t, true, func(t *testing.T, m *Machine, h *house) {
		h.slow = 40 * time.Second
		m.Offline(time.Now(), false)
		faketime.Advance(Patience + time.Second)
		if got := m.State().Phase; got != Raising {
			t.Errorf("%s", got)
		}
		m.Online()
		h.is(t, false)
		if got := m.State().Phase; got != Idle {
			t.Errorf("%s", got)
		}
		if len(h.done) != 0 {
			t.Errorf("%v", h.done)
		}
	})
}

func TestAccessPointOfAnEarlierProcessIsLowered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &house{up: true}
		m := New(Config{Radio: h, Portal: h})
		defer m.Close()
		h.is(t, false)
	})
}

func TestPassphrases(t *testing.T) {
	seen := make(map[string]bool)
	letters := make(map[rune]int)
	for range 1000 {
		p := NewPassphrase()
		if len(p) != PassphraseLength || seen[p] {
			t.Fatalf("%q", p)
		}
		seen[p] = true
		for _, r := range p {
			letters[r]++
			if !strings.ContainsRune(alphabet, r) {
				t.Fatalf("%q has a letter that can be mistaken", p)
			}
		}
	}
	if len(letters) != len(alphabet) {
		t.Errorf("only %d of %d letters come up", len(letters), len(alphabet))
	}
}
