package daemon

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"farhand/wire"
)

// Answer is what the local model said about private files, as it waits for the
// owner to let it go.
type Answer struct {
	ID      string    `json:"id"`
	Session string    `json:"session_id"`
	Holder  string    `json:"holder,omitempty"` // opaque: which login or token asked
	Model   string    `json:"model"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until"` // then it is refused
	Text    string    `json:"text"`
}

// maxWaiting bounds the answers that wait.
const maxWaiting = 64

// releases are the answers that wait. It is safe for concurrent use.
type releases struct {
	patience time.Duration

	mu      sync.Mutex
	waiting []*waitingAnswer // the oldest first
}

type waitingAnswer struct {
	Answer
	decided chan bool // true: it may go
}

func newReleases(patience time.Duration) *releases { return &releases{patience: patience} }

// hold waits until the owner lets an answer go; the error says that it may not.
func (r *releases) hold(ctx context.Context, a Answer) error {
	a.ID, a.Since = randomHex(4), time.Now()
	a.Until = a.Since.Add(r.patience)
	w := &waitingAnswer{a, make(chan bool, 1)}
	r.mu.Lock()
	if len(r.waiting) >= maxWaiting {
		r.mu.Unlock()
		return wire.Errorf(wire.ShimOverloaded, "%d answers wait for the owner already", maxWaiting).With("reason", "too_many_answers")
	}
	r.waiting = append(r.waiting, w)
	r.mu.Unlock()
	late := time.NewTimer(r.patience)
	defer late.Stop()
	why := "timeout"
	select {
	case yes := <-w.decided:
		if yes {
			return nil
		}
		why = "refused"
	case <-late.C:
	case <-ctx.Done():
	}
	taken := r.take(a.ID) != nil
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if !taken && why == "timeout" { // the owner was told that it is decided
		if <-w.decided {
			return nil
		}
		why = "refused"
	}
	return wire.Errorf(wire.AnswerNotReleased, "the machine's owner did not let the answer go").With("reason", why)
}

// take takes an answer out of those that wait; nil if it isn't there.
func (r *releases) take(id string) *waitingAnswer {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.IndexFunc(r.waiting, func(w *waitingAnswer) bool { return w.ID == id })
	if i < 0 {
		return nil
	}
	w := r.waiting[i]
	r.waiting = slices.Delete(r.waiting, i, i+1)
	return w
}

// list are the answers that wait, the oldest first.
func (r *releases) list() []Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := []Answer{}
	for _, w := range r.waiting {
		all = append(all, w.Answer)
	}
	return all
}

// decide lets an answer go, or not; false: none with this id waits.
func (r *releases) decide(id string, letGo bool) bool {
	w := r.take(id)
	if w == nil {
		return false
	}
	w.decided <- letGo // has room for one
	return true
}

// decide is what the owner says over the local socket.
func (d *daemon) decide(id string, letGo bool) error {
	if !d.releases.decide(id, letGo) {
		return fmt.Errorf("no answer %q waits", wire.Clean(id, 64))
	}
	return nil
}
