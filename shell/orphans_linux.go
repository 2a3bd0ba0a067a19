package shell

import (
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// orphans reaps what commands leave behind: a subreaper inherits orphaned
// descendants and must collect them when they end, or they stay as zombies.
//
// Children that somebody else in this process started must not be taken from
// them. So only a child is collected that is outside our own session, for which
// nobody here holds a pidfd, and which was found dead twice, a second apart:
// whoever waits for it has had its time.
type orphans struct {
	stop    chan struct{}
	stopped chan struct{}
}

// sweepPause is the time between two looks, and the most often that we look.
const sweepPause = time.Second

func startOrphans() *orphans {
	o := &orphans{stop: make(chan struct{}), stopped: make(chan struct{})}
	died := make(chan os.Signal, 1)
	signal.Notify(died, unix.SIGCHLD)
	go func() {
		defer close(o.stopped)
		defer signal.Stop(died)
		o.run(died)
	}()
	return o
}

func (o *orphans) close() {
	close(o.stop)
	<-o.stopped
}

func (o *orphans) run(died <-chan os.Signal) {
	var suspects map[int]time.Duration // pid -> when it was born
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		if len(suspects) == 0 {
			select {
			case <-died:
			case <-o.stop:
				return
			}
		}
		timer.Reset(sweepPause)
		select {
		case <-timer.C:
		case <-o.stop:
			return
		}
		suspects = o.sweep(suspects)
	}
}

// sweep collects the suspects that are still dead and returns the new ones.
func (o *orphans) sweep(suspects map[int]time.Duration) map[int]time.Duration {
	if !anyZombie() {
		return nil
	}
	own, _ := unix.Getsid(0)
	next := make(map[int]time.Duration)
	all := processTable()
	held := heldPids()
	for _, p := range all {
		if p.ppid != os.Getpid() || !p.dead() || p.session == own || held[p.pid] {
			continue
		}
		if born, known := suspects[p.pid]; known && born == p.born {
			unix.Wait4(p.pid, nil, unix.WNOHANG, nil)
		} else {
			next[p.pid] = p.born
		}
	}
	return next
}

// anyZombie says whether any child waits to be collected, without collecting it.
func anyZombie() bool {
	var info unix.Siginfo
	err := unix.Waitid(unix.P_ALL, 0, &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return err == nil && info.Signo != 0
}
