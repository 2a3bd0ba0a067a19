package gpio

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"farhand/wire"
)

// softPWM toggles a line by a thread of its own. Its edges are as late as the
// scheduler lets that thread be, which it measures.
type softPWM struct {
	claim *claim
	mask  uint64
	stop  chan struct{}
	done  chan struct{}

	mu     sync.Mutex
	w      wave
	late   []time.Duration // of the last edges
	edges  int
	missed int
	err    error
}

// measured is how many of the last edges count for the jitter.
const measured = 1024

func startSoftware(c *claim, bit int, w wave) *softPWM {
	p := &softPWM{claim: c, mask: 1 << bit, w: w, stop: make(chan struct{}), done: make(chan struct{})}
	go p.run()
	return p
}

func (p *softPWM) independent() bool { return false }

func (p *softPWM) wave() wave {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.w
}

func (p *softPWM) set(w wave) error {
	if err := softwareFits(w); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	p.w = w
	p.late, p.edges, p.missed = nil, 0, 0
	return nil
}

func (p *softPWM) halt() error {
	select {
	case <-p.stop:
	default:
		close(p.stop)
	}
	<-p.done
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return p.err
	}
	return p.claim.Set(p.mask, 0)
}

// run has a thread for itself, whose timers are exact; the thread ends with it.
func (p *softPWM) run() {
	defer close(p.done)
	runtime.LockOSThread()
	exactTimers()
	next := time.Now()
	for {
		w := p.wave()
		if !p.pulse(next, w) {
			return
		}
		next = next.Add(w.period)
		if behind := time.Since(next); behind > w.period {
			n := int(behind / w.period)
			next = next.Add(time.Duration(n) * w.period)
			p.mu.Lock()
			p.missed += n
			p.mu.Unlock()
		}
	}
}

// pulse is one period. It answers false once it is over.
func (p *softPWM) pulse(at time.Time, w wave) bool {
	if w.high > 0 && !p.edge(at, p.mask) {
		return false
	}
	if w.high < w.period && !p.edge(at.Add(w.high), 0) {
		return false
	}
	return waitUntil(at.Add(w.period), p.stop)
}

func (p *softPWM) edge(at time.Time, bits uint64) bool {
	if !waitUntil(at, p.stop) {
		return false
	}
	late := time.Since(at)
	err := p.claim.Set(p.mask, bits)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		p.err = err
		return false
	}
	if len(p.late) < measured {
		p.late = append(p.late, late)
	} else {
		p.late[p.edges%measured] = late
	}
	p.edges++
	return true
}

func (p *softPWM) tell(s *wire.GPIOPWMState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.w.tell(s)
	s.Kind, s.Running = "software", p.err == nil
	if p.err != nil {
		s.Reason = "it ended: " + errnoText(p.err)
	}
	s.Jitter = jitter(p.late)
	if s.Jitter != nil {
		s.Jitter.Edges, s.Jitter.Missed = p.edges, p.missed
	}
}

// jitter sums up how late edges were; nil if there were none.
func jitter(late []time.Duration) *wire.GPIOJitter {
	if len(late) == 0 {
		return nil
	}
	sorted := slices.Clone(late)
	slices.Sort(sorted)
	at := func(share float64) float64 {
		d := sorted[int(share*float64(len(sorted)-1))]
		return math.Round(float64(d)/100) / 10
	}
	return &wire.GPIOJitter{P50US: at(0.5), P99US: at(0.99), MaxUS: at(1)}
}

// coarse is what is left to exact timers, which can't be called off.
const coarse = 5 * time.Millisecond

// waitUntil waits, and answers false if it was called off.
func waitUntil(at time.Time, stop <-chan struct{}) bool {
	if left := time.Until(at); left > 2*coarse {
		t := time.NewTimer(left - coarse)
		defer t.Stop()
		select {
		case <-stop:
			return false
		case <-t.C:
		}
	}
	select {
	case <-stop:
		return false
	default:
	}
	if left := time.Until(at); left > 0 {
		exactWait(left)
	}
	return true
}
