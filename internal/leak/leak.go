// Package leak fails a test that leaves goroutines or file descriptors behind.
package leak

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"testing"
	"time"
)

// patience is how long what the test stopped may take to be really gone.
const patience = 5 * time.Second

// Check notes the goroutines and the open descriptors of the process and, when
// the test and its later cleanups are over, fails it unless they are back to
// what they were. Call it first in the test; it can't tell apart what tests
// that run in parallel leave. Descriptors are looked at on Linux only.
func Check(t testing.TB) {
	t.Helper()
	before := take()
	t.Cleanup(func() {
		t.Helper()
		left := waitForNone(before)
		if len(left) > 0 {
			t.Errorf("left behind by the test:\n%s", strings.Join(left, "\n"))
		}
	})
}

// waitForNone asks again and again, since what was closed ends on its own time.
func waitForNone(before snapshot) []string {
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	again := time.NewTicker(2 * time.Millisecond)
	defer again.Stop()
	for {
		left := take().since(before)
		if len(left) == 0 {
			return nil
		}
		select {
		case <-deadline.C:
			return left
		case <-again.C:
		}
	}
}

type snapshot struct {
	goroutines  map[string]string // id -> stack
	descriptors map[string]string // number -> what it stands for
}

func take() snapshot {
	return snapshot{goroutines(), descriptors()}
}

func (s snapshot) since(before snapshot) []string {
	var left []string
	for id, stack := range s.goroutines {
		if _, old := before.goroutines[id]; !old {
			left = append(left, stack)
		}
	}
	for number, target := range s.descriptors {
		// The same number may stand for something else by now.
		if before.descriptors[number] != target {
			left = append(left, fmt.Sprintf("descriptor %s: %s", number, target))
		}
	}
	sort.Strings(left)
	return left
}

// goroutines are all of the process but those that belong to the runtime and to
// package testing.
func goroutines() map[string]string {
	buf := make([]byte, 64<<10)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	all := make(map[string]string)
	for i, stack := range strings.Split(string(buf), "\n\n") {
		if i == 0 || ofTheHouse(stack) { // the first is our own
			continue
		}
		id, _, _ := strings.Cut(strings.TrimPrefix(stack, "goroutine "), " ")
		all[id] = stack
	}
	return all
}

func ofTheHouse(stack string) bool {
	for _, mark := range []string{
		"created by runtime", "created by testing.", "\ntesting.(*T).Run(", "\ntesting.(*M).",
		"\nos/signal.loop(", "\nos/signal.signal_recv(", // started once by the first signal.Notify, for good
		"\ntesting.runTests(", "created by internal/synctest.", "\nruntime.ReadTrace(",
	} {
		if strings.Contains(stack, mark) {
			return true
		}
	}
	return false
}

func descriptors() map[string]string {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	all := make(map[string]string)
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join("/proc/self/fd", e.Name()))
		if err != nil { // closed meanwhile: that of the listing itself
			continue
		}
		switch target {
		case "anon_inode:[eventpoll]", "anon_inode:[eventfd]": // the runtime's poller opens them at first need
			continue
		}
		all[e.Name()] = target
	}
	return all
}
