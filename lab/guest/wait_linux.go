package guest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// patience is how long anything may take. Under emulation a second is short.
const patience = 20 * time.Second

// pause is the time between two looks: short beside what the kernel takes to
// make a device under emulation.
const pause = 2 * time.Millisecond

// WaitFor waits until cond holds, and fails the test if that takes longer than
// anything should. It looks again and again: sysfs and device nodes of the
// guest tell of changes in too many ways to wait for each.
func WaitFor(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(pause) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

// WaitNode waits until path is there.
func WaitNode(t testing.TB, path string) {
	t.Helper()
	WaitFor(t, path, func() bool { return exists(path) })
}

// waitGlob waits until something matches and returns the first that does.
func waitGlob(t testing.TB, what, pattern string) string {
	t.Helper()
	var found string
	WaitFor(t, what, func() bool {
		matches, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		if len(matches) > 0 {
			found = matches[0]
		}
		return found != ""
	})
	return found
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// write sets a file of sysfs or configfs, which take nothing for an error and a
// line's end for an empty value.
func write(t testing.TB, path, value string) {
	t.Helper()
	if value == "" {
		value = "\n"
	}
	if err := os.WriteFile(path, []byte(value), 0o200); err != nil {
		t.Fatal(err)
	}
}

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func mkdir(t testing.TB, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

// remove takes folders or links of configfs away, one after the other.
func remove(t testing.TB, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if err := os.Remove(p); err != nil {
			t.Error(err)
		}
	}
}
