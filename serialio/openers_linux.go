package serialio

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

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

// meddling are the meddlers that run. A port whose udev data tells
// ModemManager to leave it alone is left alone.
func meddling(udevData string) []meddler {
	known := meddlers()
	var running []meddler
	procs, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, p := range procs {
		if _, err := strconv.Atoi(p.Name()); err != nil {
			continue
		}
		comm := sysfs.Attr(filepath.Join("/proc", p.Name()), "comm")
		i := slices.IndexFunc(known, func(m meddler) bool { return m.name == comm })
		if i < 0 {
			continue
		}
		if !(comm == "ModemManager" && strings.Contains(udevData, "E:ID_MM_DEVICE_IGNORE=1\n")) {
			running = append(running, known[i])
		}
		known = slices.Delete(known, i, i+1)
	}
	return running
}

// Meddling are warnings about programs that run on this device and are known to
// get in the way of a USB port, each with what to do about it.
func (p *Port) Meddling() []string {
	// udev keeps what it knows of a character device there; without udev there
	// is nothing.
	udev, _ := os.ReadFile(fmt.Sprintf("/run/udev/data/c%d:%d", unix.Major(p.rdev), unix.Minor(p.rdev)))
	var all []string
	for _, m := range meddling(string(udev)) {
		all = append(all, m.hint)
	}
	return all
}

// takenAway is a hint about why a port may have vanished without being
// unplugged, or empty.
func takenAway() string {
	for _, m := range meddling("") {
		if m.name == "brltty" {
			return m.hint
		}
	}
	return ""
}
