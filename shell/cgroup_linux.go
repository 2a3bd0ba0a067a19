package shell

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// cgroups makes one cgroup v2 per command under a directory that is ours. A
// cgroup that a command has left empty serves the next one; one in which
// something still lives is set aside until it is empty.
//
// One that was killed is never used again but removed: newer kernels (seen on
// 6.18) go on killing whatever is forked into it from outside, since they count
// the kills of a cgroup and compare with the count of the parent's own.
type cgroups struct {
	base   string
	prefix string
	limits GroupLimits

	mu    sync.Mutex
	free  []string // names, the longest unused first
	spent []string // those that were killed and couldn't be removed yet
	made  int
}

// cgroup is the one of a running command.
type cgroup struct {
	name  string
	dir   *os.File
	spent bool // killed
}

// lookedAt bounds how many cgroups are asked whether they are empty before a
// new one is made.
const lookedAt = 8

func newCgroups(base string, limits GroupLimits) *cgroups {
	// The pid keeps the names of two daemons under one cgroup apart.
	return &cgroups{base: base, prefix: "command-" + strconv.Itoa(os.Getpid()) + "-", limits: limits}
}

// take gives an empty cgroup.
func (c *cgroups) take() (*cgroup, error) {
	name, err := c.emptyOne()
	if err != nil {
		return nil, err
	}
	dir, err := os.OpenFile(filepath.Join(c.base, name), os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	return &cgroup{name: name, dir: dir}, nil
}

func (c *cgroups) emptyOne() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range min(len(c.spent), lookedAt) {
		name := c.spent[0]
		c.spent = c.spent[1:]
		c.remove(name)
	}
	for range min(len(c.free), lookedAt) {
		name := c.free[0]
		c.free = c.free[1:]
		populated, err := populated(filepath.Join(c.base, name))
		switch {
		case err == nil && !populated:
			return name, nil
		case err == nil:
			c.free = append(c.free, name)
		}
		// A cgroup that can't be asked was removed by somebody: forget it.
	}
	for {
		name := c.prefix + strconv.Itoa(c.made)
		c.made++
		err := os.Mkdir(filepath.Join(c.base, name), 0o755)
		if errors.Is(err, os.ErrExist) {
			continue // of an earlier process with our pid
		}
		if err != nil {
			return "", err
		}
		return name, c.limits.apply(filepath.Join(c.base, name))
	}
}

// give takes a cgroup back, empty or not.
func (c *cgroups) give(g *cgroup) {
	g.dir.Close()
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.spent {
		c.remove(g.name)
	} else {
		c.free = append(c.free, g.name)
	}
}

// remove removes a cgroup that was killed, now or, if something in it is still
// dying, later. Called with mu held.
func (c *cgroups) remove(name string) {
	switch unix.Rmdir(filepath.Join(c.base, name)) {
	case nil, unix.ENOENT:
	default:
		c.spent = append(c.spent, name)
	}
}

// close removes what is empty. The rest goes with the cgroup above.
func (c *cgroups) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range slices.Concat(c.free, c.spent) {
		unix.Rmdir(filepath.Join(c.base, name))
	}
	c.free, c.spent = nil, nil
}

// kill ends every process in the cgroup and waits until it is empty or the
// deadline has come.
func (g *cgroup) kill(deadline time.Time) {
	err := g.write("cgroup.kill", "1")
	for {
		if err != nil { // before Linux 5.14: one by one, until no more appear
			g.killEach()
		}
		events, openErr := g.open("cgroup.events")
		if openErr != nil {
			return
		}
		empty := waitEmpty(events, deadline)
		events.Close()
		if empty || !time.Now().Before(deadline) {
			return
		}
	}
}

func (g *cgroup) killEach() {
	procs, err := g.open("cgroup.procs")
	if err != nil {
		return
	}
	defer procs.Close()
	for lines := bufio.NewScanner(procs); lines.Scan(); {
		if pid, err := strconv.Atoi(lines.Text()); err == nil && pid > 1 {
			unix.Kill(pid, unix.SIGKILL)
		}
	}
}

// waitEmpty waits for cgroup.events, which becomes readable out of band when it
// changes (cgroup-v2, "Un-populated Notification").
func waitEmpty(events *os.File, deadline time.Time) bool {
	const round = 20 * time.Millisecond
	if isEmpty(events) {
		return true
	}
	wait := min(time.Until(deadline), round)
	if wait > 0 {
		unix.Poll([]unix.PollFd{{Fd: int32(events.Fd()), Events: unix.POLLPRI}}, int(wait.Milliseconds())+1)
	}
	return isEmpty(events)
}

func isEmpty(events *os.File) bool {
	buf := make([]byte, 256)
	n, _ := events.ReadAt(buf, 0)
	return bytes.Contains(buf[:n], []byte("populated 0"))
}

func populated(dir string) (bool, error) {
	events, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
	if err != nil {
		return false, err
	}
	return !bytes.Contains(events, []byte("populated 0")), nil
}

func (g *cgroup) open(name string) (*os.File, error) {
	fd, err := unix.Openat(int(g.dir.Fd()), name, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (g *cgroup) write(name, value string) error {
	fd, err := unix.Openat(int(g.dir.Fd()), name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(value))
	return err
}

// delegatedCgroup is the cgroup v2 of this process, if somebody gave us the
// right to make cgroups in it: systemd marks it with an extended attribute
// (Delegate=yes), others by making us its owner. Root may write everywhere, so
// for root only the mark counts.
func delegatedCgroup(root string) (string, bool) {
	self, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return "", false
	}
	mounts, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	if err != nil {
		return "", false
	}
	dir, ok := ownCgroup(string(self), string(mounts))
	if !ok {
		return "", false
	}
	dir = filepath.Join(root, dir)
	if !marked(dir) && (os.Geteuid() == 0 || !writable(dir)) {
		return "", false
	}
	return dir, usableCgroup(dir) == nil
}

func marked(dir string) bool {
	var value [2]byte
	for _, name := range []string{"user.delegate", "trusted.delegate"} { // systemd since 253, and before
		if n, err := unix.Getxattr(dir, name, value[:]); err == nil && n == 1 && value[0] == '1' {
			return true
		}
	}
	return false
}

func writable(dir string) bool {
	return unix.Access(dir, unix.W_OK) == nil && unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) == nil
}

// usableCgroup tries what a command needs.
func usableCgroup(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return err
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		return errors.New("not a cgroup v2")
	}
	if !writable(dir) {
		return unix.EACCES
	}
	probe, err := os.MkdirTemp(dir, "probe-")
	if err != nil {
		return err
	}
	return unix.Rmdir(probe)
}

// ownCgroup finds the directory of our cgroup v2 from /proc/self/cgroup and
// /proc/self/mountinfo (cgroups(7), proc_pid_mountinfo(5)).
func ownCgroup(self, mounts string) (string, bool) {
	own := ""
	for line := range strings.Lines(self) {
		if rest, ok := strings.CutPrefix(line, "0::"); ok {
			own = strings.TrimSuffix(rest, "\n")
		}
	}
	if !strings.HasPrefix(own, "/") || strings.Contains(own, "/..") {
		return "", false // none, or outside our cgroup namespace
	}
	for line := range strings.Lines(mounts) {
		left, right, ok := strings.Cut(line, " - ")
		fields := strings.Fields(left)
		if !ok || len(fields) < 5 || !strings.HasPrefix(right, "cgroup2 ") {
			continue
		}
		mountRoot, mountPoint := fields[3], fields[4]
		inside, ok := strings.CutPrefix(own, strings.TrimSuffix(mountRoot, "/"))
		if !ok || inside != "" && inside[0] != '/' {
			continue
		}
		return filepath.Join(mountPoint, inside), true
	}
	return "", false
}
