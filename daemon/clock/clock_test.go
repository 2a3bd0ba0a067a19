package clock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// fixture is a root with these files, and a kernel that says so of its clock.
func fixture(t *testing.T, disciplined bool, files ...string) Clock {
	t.Helper()
	root := t.TempDir()
	for i := 0; i < len(files); i += 2 {
		put(t, filepath.Join(root, files[i]), files[i+1])
	}
	return Clock{Root: root, Kernel: func() (bool, error) { return disciplined, nil }}
}

func put(t *testing.T, path, content string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestState: field case 77, the daemon knows what its clock stands on.
func TestState(t *testing.T) {
	for _, c := range []struct {
		name        string
		disciplined bool
		files       []string
		want        State
	}{
		{"kernel", true, nil, Synchronised},
		{"timesyncd", false, []string{stampFile, ""}, Synchronised},
		{"hint", false, []string{hintFile, "", bootFile, "clock=floor\n"}, Hint},
		{"saved", false, []string{bootFile, "slot=a\nsource=bootloader\nclock=saved\n"}, Saved},
		{"floor", false, []string{bootFile, "clock=floor"}, Floor},
		{"battery", false, []string{rtcFile, "1\n"}, RTC},
		{"battery that the initramfs found empty", false, []string{rtcFile, "1\n", bootFile, "clock=floor\n"}, Floor},
		{"nonsense", false, []string{bootFile, "clock=perfect\n", rtcFile, "0\n"}, Unsynchronised},
		{"nothing", false, nil, Unsynchronised},
	} {
		if got := fixture(t, c.disciplined, c.files...).State(); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	failing := fixture(t, false)
	failing.Kernel = func() (bool, error) { return true, errors.New("not permitted") }
	if got := failing.State(); got != Unsynchronised {
		t.Errorf("a kernel that doesn't say: %s", got)
	}
}

func TestKernel(t *testing.T) {
	if _, err := disciplined(); err != nil {
		t.Error(err)
	}
}

// TestWait: field case 77, the wait for the network's time is bounded, and there
// is none where that can't be expected.
func TestWait(t *testing.T) {
	waited := func(c Clock, most time.Duration) (State, time.Duration) {
		start := time.Now()
		s := c.Wait(context.Background(), most)
		return s, time.Since(start)
	}
	synctest.Test(t, func(t *testing.T) { // the fake clock begins in 2000
		if s := fixture(t, false, rtcFile, "1").State(); s != Unset {
			t.Errorf("before the first Farhand: %s", s)
		}
		never := fixture(t, false, timesyncDir+"/x", "", bootFile, "clock=saved")
		if s, took := waited(never, 20*time.Second); s != Saved || took != 20*time.Second {
			t.Errorf("%s after %s", s, took)
		}
		if s, took := waited(fixture(t, false, bootFile, "clock=floor"), time.Hour); s != Floor || took != 0 {
			t.Errorf("without timesyncd: %s after %s", s, took)
		}
		if s, took := waited(fixture(t, true, timesyncDir+"/x", ""), time.Hour); s != Synchronised || took != 0 {
			t.Errorf("synchronised: %s after %s", s, took)
		}
		if s, took := waited(fixture(t, false, timesyncDir+"/x", "", bootFile, "clock=rtc"), time.Hour); s != RTC || took != 0 {
			t.Errorf("battery: %s after %s", s, took)
		}
		late := fixture(t, false, timesyncDir+"/x", "")
		since := time.Now()
		late.Kernel = func() (bool, error) { return time.Since(since) > 3*time.Second, nil }
		if s, took := waited(late, time.Minute); s != Synchronised || took > 4*time.Second {
			t.Errorf("%s after %s", s, took)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if s := never.Wait(ctx, time.Hour); s != Saved {
			t.Errorf("cancelled: %s", s)
		}
	})
}
