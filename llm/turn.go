package llm

import (
	"context"
	"sync"

	"farhand/wire"
)

// turn lets one completion run at a time and the next ones wait in order.
type turn struct {
	most int // that may wait

	mu    sync.Mutex
	busy  bool
	queue []*waiter
}

type waiter struct{ moved chan struct{} } // closed at each step forward

// enter returns when it is the caller's turn, which lasts until leave. Who doesn't
// want to wait, or finds the queue full, gets LOCAL_LLM_BUSY. step is told how many
// are before the caller whenever that changes; its error, and the end of ctx, end
// the waiting.
func (t *turn) enter(ctx context.Context, wait bool, step func(before int) error) (leave func(), err error) {
	t.mu.Lock()
	if !t.busy {
		t.busy = true
		t.mu.Unlock()
		return t.leave, nil
	}
	if !wait || len(t.queue) >= t.most {
		waiting := len(t.queue)
		t.mu.Unlock()
		return nil, wire.Errorf(wire.LocalLLMBusy, "another completion is running").With("waiting", waiting)
	}
	w := &waiter{moved: make(chan struct{})}
	t.queue = append(t.queue, w)
	t.mu.Unlock()
	for {
		before, moved := t.before(w)
		if before == 0 {
			return t.leave, nil
		}
		if err := step(before); err != nil {
			t.giveUp(w)
			return nil, err
		}
		select {
		case <-moved:
		case <-ctx.Done():
			t.giveUp(w)
			return nil, context.Cause(ctx)
		}
	}
}

// before is how many are before a waiter, the running one too; 0: it is its turn.
func (t *turn) before(w *waiter) (int, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, other := range t.queue {
		if other == w {
			return i + 1, w.moved
		}
	}
	return 0, nil
}

// state is whether somebody's turn it is, and how many wait.
func (t *turn) state() (busy bool, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy, len(t.queue)
}

// leave gives the turn to the first that waits.
func (t *turn) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.queue) == 0 {
		t.busy = false
		return
	}
	first := t.queue[0]
	t.queue = t.queue[1:]
	close(first.moved)
	t.wakeFrom(0)
}

// giveUp takes a waiter out; if its turn came just now, it goes to the next.
func (t *turn) giveUp(w *waiter) {
	t.mu.Lock()
	for i, other := range t.queue {
		if other == w {
			t.queue = append(t.queue[:i:i], t.queue[i+1:]...)
			t.wakeFrom(i)
			t.mu.Unlock()
			return
		}
	}
	t.mu.Unlock()
	t.leave()
}

// wakeFrom tells those that moved forward. The lock is held.
func (t *turn) wakeFrom(i int) {
	for _, w := range t.queue[i:] {
		close(w.moved)
		w.moved = make(chan struct{})
	}
}
