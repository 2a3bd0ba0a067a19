package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/internal/testenv"
	"farhand/wire"
)

// What the machine's disk says is what the operator reads, with what to do.
func TestTransferDisk(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	disk := filepath.Join(b.root(), "disk")
	if err := os.Mkdir(disk, 0o700); err != nil {
		t.Fatal(err)
	}
	err := unix.Mount("tmpfs", disk, "tmpfs", 0, "size=4m")
	testenv.Need(t, "mount", err == nil, fmt.Sprint("a small tmpfs: ", err))
	t.Cleanup(func() { unix.Unmount(disk, unix.MNT_DETACH) })
	b.claim("files")
	b.write(filepath.Join(b.here(), "large"), string(noise(1, 8<<20)))
	b.write(filepath.Join(b.here(), "fits"), string(noise(1, 3<<20)))

	e := b.owner.fails(1, wire.DiskFull, "put", "large", ":disk/f")
	if e.Details["needed_bytes"] != float64(8<<20) || e.Details["available_bytes"] != float64(4<<20) {
		t.Errorf("details %v", e.Details)
	}
	if r := b.owner.run("put", "large", ":disk/f"); !strings.Contains(r.stderr, "make room") {
		t.Errorf("it says %q", r.stderr)
	}
	b.write(filepath.Join(disk, "other"), string(noise(1, 2<<20)))
	b.owner.fails(1, wire.DiskFull, "put", "fits", ":disk/f")
	if err := os.Remove(filepath.Join(disk, "other")); err != nil {
		t.Fatal(err)
	}
	b.owner.must("put", "fits", ":disk/f")
	if err := unix.Mount("", disk, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	b.owner.fails(1, wire.ReadOnlyDisk, "put", "fits", ":disk/g")
	b.owner.must("get", ":disk/f", "back")
	if left := leftovers(t, disk); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}
