package leak

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"farhand/internal/testenv"
)

// TestFindsGoroutine: one that blocks is named with the line that started it,
// and is no longer found when it ended.
func TestFindsGoroutine(t *testing.T) {
	before := take()
	stop := make(chan struct{})
	go func() { <-stop }()
	left := strings.Join(take().since(before), "\n")
	if !strings.Contains(left, "leak.TestFindsGoroutine") {
		t.Errorf("not found: %q", left)
	}
	close(stop)
	if left := waitForNone(before); left != nil {
		t.Errorf("still there: %v", left)
	}
}

func TestFindsDescriptor(t *testing.T) {
	testenv.Need(t, "linux", runtime.GOOS == "linux", "descriptors are read from /proc")
	before := take()
	f, err := os.Open(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	left := strings.Join(take().since(before), "\n")
	if !strings.Contains(left, "leak.test") {
		t.Errorf("not found: %q", left)
	}
	f.Close()
	if left := waitForNone(before); left != nil {
		t.Errorf("still there: %v", left)
	}
}

func TestCheckPassesWhenAllIsGone(t *testing.T) {
	Check(t)
	done := make(chan struct{})
	go close(done)
	<-done
}
