package serialio

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"farhand/device"
	"farhand/device/sysfs"
)

// A command that we are just starting has all our descriptors until it is
// executed. So who seems to have a node is looked at again for a moment, longer
// than starting a program takes on a busy board.
const (
	openedAgain = 20
	openedPause = 10 * time.Millisecond
)

// keptOpenBy is openedBy of those that keep it.
func keptOpenBy(node string, self int) string {
	who := openedBy(node, self)
	for i := 0; who != "" && i < openedAgain; i++ {
		time.Sleep(openedPause)
		who = openedBy(node, self)
	}
	return who
}

// openedBy names a process other than self that has the node open, as far as
// this process may see: "process 812 (picocom)", or empty. The kernel shows the
// open files of other users to root alone.
func openedBy(node string, self int) string {
	node = sysfs.Real(node)
	procs, err := os.ReadDir("/proc")
	if node == "" || err != nil {
		return ""
	}
	for _, p := range procs {
		pid, err := strconv.Atoi(p.Name())
		if err != nil || pid == self {
			continue
		}
		dir := filepath.Join("/proc", p.Name())
		fds, err := os.ReadDir(filepath.Join(dir, "fd"))
		if err != nil {
			continue // another user's, or just ended
		}
		for _, fd := range fds {
			if target, err := os.Readlink(filepath.Join(dir, "fd", fd.Name())); err == nil && target == node {
				return fmt.Sprintf("process %d (%s)", pid, device.Clean(sysfs.Attr(dir, "comm")))
			}
		}
	}
	return ""
}
