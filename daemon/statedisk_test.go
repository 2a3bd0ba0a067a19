package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMountedReadOnly(t *testing.T) {
	const info = `23 1 254:0 / / rw,relatime - ext4 /dev/vda rw,discard
43 23 7:0 / /a\040b rw,relatime shared:1 master:2 - ext4 /dev/loop0 rw,errors=remount-ro,emergency_ro
44 23 7:1 / /c ro,relatime - ext4 /dev/loop1 rw
45 23 7:2 / /d rw - ext4 /dev/loop2 ro,errors=continue
46 23 0:1 / /proc rw,nosuid - proc proc rw
47 broken
48 1 - ro
`
	for id, want := range map[uint64]bool{23: false, 43: true, 44: true, 45: true, 46: false, 47: false, 48: false, 4: false, 999: false} {
		if got := mountedReadOnly(info, id); got != want {
			t.Errorf("mount %d: %v", id, got)
		}
	}
	if readOnly(t.TempDir(), slog.New(slog.DiscardHandler)) {
		t.Error("a directory that takes writes is read-only")
	}
}

func TestUnwritable(t *testing.T) {
	for err, want := range map[error]bool{
		unix.EROFS: true, fmt.Errorf("write: %w", unix.EIO): true, unix.ENOSPC: false, unix.EACCES: false, errors.New("x"): false, nil: false,
	} {
		if unwritable(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}

// A copy in memory has what the daemon needs and not the log, stays over a
// restart, and gives its login back to a disk that is well again.
func TestStateInMemory(t *testing.T) {
	disk, memory := t.TempDir(), filepath.Join(t.TempDir(), memoryName)
	write := func(dir, name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	for _, name := range []string{"tokens.json", "audit.key", "audit.head", "audit.log", "audit.log.1", "machine.json"} {
		write(disk, name, name)
	}
	write(disk, "huge", string(make([]byte, maxCopied+1)))
	if err := os.Mkdir(filepath.Join(disk, "sim"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := copyState(disk, memory); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(memory)
	if err != nil || len(entries) != 4 || read(filepath.Join(memory, "audit.head")) != "audit.head" {
		t.Errorf("the copy has %v, %v", entries, err)
	}
	write(memory, "tokens.json", "newer")
	if err := copyState(disk, memory); err != nil || read(filepath.Join(memory, "tokens.json")) != "newer" {
		t.Errorf("a restart went back to what the disk has: %v", err)
	}
	var d services
	if err := d.bringBack(memory, disk); err != nil || read(filepath.Join(disk, "tokens.json")) != "newer" || read(filepath.Join(disk, "audit.log")) != "audit.log" {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(memory); !os.IsNotExist(err) {
		t.Errorf("the copy is still there: %v", err)
	}
	if err := d.bringBack(memory, disk); err != nil {
		t.Error(err)
	}
}

func FuzzMountInfo(f *testing.F) {
	f.Add("43 23 7:0 / /a rw shared:1 - ext4 /dev/loop0 rw,emergency_ro\n", uint64(43))
	f.Add("44 23 7:1 / /c ro - ext4 /dev/loop1 rw", uint64(44))
	f.Fuzz(func(t *testing.T, info string, id uint64) {
		if mountedReadOnly(info, id) && (!strings.Contains(info, "ro") || !strings.Contains(info, fmt.Sprint(id))) {
			t.Errorf("mount %d is read-only by %q", id, info)
		}
	})
}
