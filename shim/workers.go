package shim

import (
	"sync"
	"time"
)

// idleWorker is how long a worker waits for its next job.
const idleWorker = 10 * time.Second

// workers run jobs in goroutines that are used again: a fresh one spends as much
// time on growing its stack as a small request takes altogether. There is no
// bound but that of admission.
type workers struct {
	jobs chan func()
	quit chan struct{}
	all  sync.WaitGroup
}

func newWorkers() *workers {
	return &workers{jobs: make(chan func()), quit: make(chan struct{})}
}

// run runs f at once, in a worker that is idle or in a new one.
func (w *workers) run(f func()) {
	select {
	case w.jobs <- f:
	default:
		w.all.Go(func() { w.work(f) })
	}
}

func (w *workers) work(f func()) {
	patience := time.NewTimer(idleWorker)
	defer patience.Stop()
	for {
		f()
		f = nil // or it would keep its request in memory
		patience.Reset(idleWorker)
		select {
		case f = <-w.jobs:
		case <-patience.C:
			return
		case <-w.quit:
			return
		}
	}
}

// close ends the idle ones; those at work end with their job.
func (w *workers) close() { close(w.quit) }
