package oauth

import (
	"sync"
	"time"
)

// Limits that attempts meet. They live in memory: a restart of the relay is
// nothing that an attacker can bring about.
const (
	freeFailures = 5                // logins that may fail before anybody waits
	firstWait    = 10 * time.Second // then this long, doubling
	longestWait  = 15 * time.Minute // up to this
	// forgetAfter is how long a quiet account or address is remembered.
	forgetAfter = time.Hour
	// maxRemembered bounds each table; beyond it whoever was quiet longest is
	// forgotten.
	maxRemembered = 1 << 14
)

// backoff makes failures wait, per key (an account, an address).
type backoff struct {
	mu   sync.Mutex
	keys map[string]*failures
}

type failures struct {
	failed  int
	running int // attempts whose outcome isn't known: they count as failed
	until   time.Time
	last    time.Time
}

func newBackoff() *backoff { return &backoff{keys: make(map[string]*failures)} }

// outcome is how an attempt ended.
type outcome int

const (
	failed outcome = iota
	succeeded
	undecided // it was never looked at: the relay was too busy, say
)

// begin asks for one attempt under all the keys. If one has to wait, wait says
// how long and done is nil; otherwise done must be called with the outcome.
// Success clears the first key alone: whoever has an account of his own must
// not be able to clear his address.
func (b *backoff) begin(keys ...string) (done func(outcome), wait time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for _, k := range keys {
		f := b.keys[k]
		if f == nil {
			continue
		}
		if now.Sub(f.last) > forgetAfter && f.running == 0 {
			delete(b.keys, k)
			continue
		}
		wait = max(wait, f.until.Sub(now))
		if f.running > 0 && f.failed+f.running >= freeFailures {
			wait = max(wait, time.Second)
		}
	}
	if wait > 0 {
		return nil, wait
	}
	taken := make([]*failures, len(keys))
	for i, k := range keys {
		f := b.keys[k]
		if f == nil {
			b.makeRoom()
			f = &failures{}
			b.keys[k] = f
		}
		f.running++
		f.last = now
		taken[i] = f
	}
	return func(o outcome) { b.end(taken, o) }, 0
}

func (b *backoff) end(taken []*failures, o outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, f := range taken {
		f.running--
		switch {
		case o == failed:
			f.failed++
			f.last = time.Now()
			if over := f.failed - freeFailures; over >= 0 {
				f.until = f.last.Add(min(longestWait, firstWait<<min(over, 16)))
			}
		case o == succeeded && i == 0:
			f.failed, f.until = 0, time.Time{}
		}
	}
}

func (b *backoff) makeRoom() {
	if len(b.keys) < maxRemembered {
		return
	}
	oldest, at := "", time.Time{}
	for k, f := range b.keys {
		if f.running == 0 && (oldest == "" || f.last.Before(at)) {
			oldest, at = k, f.last
		}
	}
	delete(b.keys, oldest)
}

// hourly allows so many events an hour, per key.
type hourly struct {
	limit int
	mu    sync.Mutex
	keys  map[string][]time.Time // oldest first, at most limit
}

func newHourly(limit int) *hourly { return &hourly{limit: limit, keys: make(map[string][]time.Time)} }

// take notes one event. If the hour is full it notes nothing, and wait says
// when there is room again; otherwise undo takes the event back.
func (h *hourly) take(key string) (undo func(), wait time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	events := h.keys[key]
	for len(events) > 0 && now.Sub(events[0]) >= time.Hour {
		events = events[1:]
	}
	if len(events) >= h.limit {
		h.keys[key] = events
		return nil, events[0].Add(time.Hour).Sub(now)
	}
	if len(events) == 0 {
		h.makeRoom(now)
	}
	h.keys[key] = append(events, now)
	return func() { h.giveBack(key, now) }, 0
}

func (h *hourly) giveBack(key string, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := h.keys[key]
	for i, e := range events {
		if e.Equal(at) {
			h.keys[key] = append(events[:i:i], events[i+1:]...)
			break
		}
	}
	if len(h.keys[key]) == 0 {
		delete(h.keys, key)
	}
}

func (h *hourly) makeRoom(now time.Time) {
	if len(h.keys) < maxRemembered {
		return
	}
	oldest, at := "", time.Time{}
	for k, events := range h.keys {
		newest := events[len(events)-1]
		if oldest == "" || newest.Before(at) {
			oldest, at = k, newest
		}
	}
	delete(h.keys, oldest)
}

// pollSlack is how much earlier than asked a device may poll: timers and
// networks aren't exact, and a device that keeps to the interval must not be
// told to slow down (RFC 8628 says nothing of tolerance; clients were seen to
// fail without).
const pollSlack = time.Second

// polls keeps the interval of each device code.
type polls struct {
	mu   sync.Mutex
	keys map[string]*poll
}

type poll struct {
	last     time.Time
	interval time.Duration
}

func newPolls() *polls { return &polls{keys: make(map[string]*poll)} }

// tooEarly notes a poll and says whether it came before the interval was over;
// then the interval grows by 5 s for good (RFC 8628, section 3.5).
func (p *polls) tooEarly(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	e := p.keys[key]
	if e == nil {
		p.makeRoom(now)
		p.keys[key] = &poll{last: now, interval: pollInterval}
		return false
	}
	early := now.Sub(e.last) < e.interval-pollSlack
	e.last = now
	if early {
		e.interval += 5 * time.Second
	}
	return early
}

func (p *polls) forget(key string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.keys, key)
}

func (p *polls) makeRoom(now time.Time) {
	if len(p.keys) < maxRemembered {
		return
	}
	for k, e := range p.keys {
		if now.Sub(e.last) > userCodeLife {
			delete(p.keys, k)
		}
	}
	for k := range p.keys {
		if len(p.keys) < maxRemembered {
			return
		}
		delete(p.keys, k)
	}
}
