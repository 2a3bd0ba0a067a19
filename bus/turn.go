package bus

import (
	"context"
	"errors"
	"os"
)

// turn lets one call at a time into the kernel, which can't be called off
// there: a chip that holds the clock keeps the adapter's driver waiting for as
// long as that sees fit, a second as a rule. Whoever gives up goes at once; the
// call ends by itself, and the next waits for it.
type turn chan struct{}

func newTurn() turn {
	t := make(turn, 1)
	t <- struct{}{}
	return t
}

// run runs call in its turn. If ctx ends first, its cause is the error and call
// still runs: what it uses is then not to be touched any more.
func (t turn) run(ctx context.Context, call func() error) error {
	if err := t.take(ctx); err != nil {
		return err
	}
	if ctx.Done() == nil {
		defer t.give()
		return call()
	}
	done := make(chan error, 1)
	go func() { // ends with the call; close waits for it
		defer t.give()
		done <- call()
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) take(ctx context.Context) error {
	select {
	case _, open := <-t:
		if !open {
			return os.ErrClosed
		}
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (t turn) give() { t <- struct{}{} }

// close waits for the call that runs and lets no more in. It may be repeated;
// first says whether this is the first time.
func (t turn) close() (first bool) {
	if errors.Is(t.take(context.Background()), os.ErrClosed) {
		return false
	}
	close(t)
	return true
}
