package devicetest

import (
	"io/fs"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// testProbeOpensNothing watches the device nodes while the driver looks.
func testProbeOpensNothing(t *testing.T, r *rig) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	nodes := 0
	err = filepath.WalkDir(r.b.DevRoot, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		nodes++
		_, err = unix.InotifyAddWatch(fd, path, unix.IN_OPEN)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if nodes == 0 {
		t.Fatal("there is no device node to watch")
	}
	if _, err := r.b.Family.Driver.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	var events [4096]byte
	if n, err := unix.Read(fd, events[:]); err == nil && n > 0 {
		t.Error("Probe opened a device node")
	}
}
