package shell

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// What keeps commands from taking the machine's memory: limits of their cgroups
// where there are controllers (cgroup-v2, "Memory", "PID"), and their place in
// the order of victims.

// DefaultLimits are for a machine that has other things to do: half of its memory,
// and 512 processes.
func DefaultLimits() GroupLimits {
	l := GroupLimits{Processes: 512}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		l.Memory = int64(uint64(info.Totalram) * uint64(info.Unit) / 2)
	}
	return l
}

// ownLeaf is the cgroup of this process below a delegated one: a cgroup that
// gives controllers to those below it may hold no process itself (cgroup-v2, "No
// Internal Process Constraint").
const ownLeaf = "main"

// takeControl moves this process, which must be alone in the cgroup, into a leaf
// of its own and gives the controllers to what is made beside it.
func takeControl(dir string) error {
	leaf := filepath.Join(dir, ownLeaf)
	if err := os.Mkdir(leaf, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := writeValue(leaf, "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
		return err
	}
	return writeValue(dir, "cgroup.subtree_control", "+memory +pids")
}

// apply sets the limits of a new cgroup.
func (l GroupLimits) apply(dir string) error {
	if l.Memory > 0 {
		if err := writeValue(dir, "memory.max", strconv.FormatInt(l.Memory, 10)); err != nil {
			return err
		}
		if err := writeValue(dir, "memory.oom.group", "1"); err != nil {
			return err
		}
	}
	if l.Processes > 0 {
		return writeValue(dir, "pids.max", strconv.Itoa(l.Processes))
	}
	return nil
}

// writeValue writes a file of a cgroup or of /proc, which must exist.
func writeValue(dir, name, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// oomScore is this process' own oom_score_adj; 0 if it can't be read.
func oomScore() int {
	b, err := os.ReadFile("/proc/self/oom_score_adj")
	if err != nil {
		return 0
	}
	n, err := strconv.Atoi(string(bytes.TrimSpace(b)))
	if err != nil {
		return 0
	}
	return n
}

// setOOMScore raises the oom_score_adj of a child. That it has ended already is no
// error.
func setOOMScore(pid, score int) error {
	err := writeValue(fmt.Sprintf("/proc/%d", pid), "oom_score_adj", strconv.Itoa(score))
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH) {
		return nil
	}
	return err
}
