// Package testenv makes skipped tests visible: a test names what it needs, and
// a run that promises to have it fails instead of skipping.
package testenv

import (
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

// MustVar names the environment variable that lists, separated by commas, the
// needs that a run has to meet. "all" stands for every one.
const MustVar = "FARHAND_TEST_MUST"

// Need goes on if have is true. Otherwise it skips the test with the name of
// what is missing and why, or fails it if FARHAND_TEST_MUST lists the name.
func Need(t testing.TB, name string, have bool, why string) {
	t.Helper()
	switch {
	case have:
	case must(os.Getenv(MustVar), name):
		t.Fatalf("needs %s, which %s says this run has: %s", name, MustVar, why)
	default:
		t.Skipf("needs %s: %s", name, why)
	}
}

func must(list, name string) bool {
	for item := range strings.SplitSeq(list, ",") {
		if item = strings.TrimSpace(item); item == name || item == "all" {
			return true
		}
	}
	return false
}

// Hangups has SIGHUP end what tests start even where it doesn't end this run, as nohup
// has it: that a signal is ignored is inherited.
func Hangups() {
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
}

// LabVar names the environment variable that is 1 in the guest of the kernel
// lab (make lab), where tests find devices of a real kernel.
const LabVar = "FARHAND_LAB"

// Lab skips a test that wants the kernel lab's guest, unless it runs in it.
func Lab(t testing.TB) {
	t.Helper()
	Need(t, "lab", os.Getenv(LabVar) == "1", "it makes devices in the kernel lab's guest: make lab")
}
