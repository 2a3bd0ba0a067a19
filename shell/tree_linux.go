package shell

import (
	"bytes"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Killing a tree of processes without a cgroup. We are the subreaper of every
// descendant, so each process of a command is, at any moment, either below its
// leader or below a direct child of ours that was orphaned. An orphan belongs
// to the command if
//   - it was seen below the leader before the first signal was sent, or is in a
//     session that one of those made;
//   - it, or what is below it, still holds the command's stdout or stderr;
//   - it was born while no other command ran.
//
// With several commands at once, an orphan that was one before the end began,
// made a session of its own and let go of the output can't be told apart and
// is left alone: only a cgroup is exact.
//
// A direct child of ours is an orphan unless somebody in this process started
// it. Whoever did (a Local, os/exec) holds a pidfd for it until it is collected,
// from the very moment of the fork on, so the table of descriptors tells.

// proc is one line of the process table.
type proc struct {
	pid, ppid, session int
	state              byte
	born               time.Duration // since boot
}

func (p proc) dead() bool { return p.state == 'Z' || p.state == 'X' }

// tree is what is known of one command's processes.
type tree struct {
	leader  int
	begun   *interval
	history *history
	output  []pipeID // the pipes of its stdout and stderr

	mu       sync.Mutex
	seen     map[int]time.Duration // members by pid: when they were born
	sessions map[int]bool          // theirs
}

// pipeID is how /proc/PID/fd shows a pipe: pipe:[INODE].
type pipeID string

// pipeOf is empty for what isn't a pipe.
func pipeOf(f *os.File) pipeID {
	var st unix.Stat_t
	if f == nil || unix.Fstat(int(f.Fd()), &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return ""
	}
	return pipeID("pipe:[" + strconv.FormatUint(st.Ino, 10) + "]")
}

// kill kills the processes of the command until none is left or the deadline
// has come. The leader isn't reaped, orphans are.
func (t *tree) kill(deadline time.Time) {
	const looks = 3 // however late it is: on a busy machine one look may take longer than the time there is
	orphans := make(map[int]bool)
	for n := 1; ; n++ {
		var killed []unix.PollFd
		for _, v := range t.look() {
			if v.ppid == os.Getpid() && v.pid != t.leader {
				orphans[v.pid] = true
			}
			if v.dead() {
				continue
			}
			if fd, ok := killExactly(v); ok {
				killed = append(killed, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
			}
		}
		if len(killed) == 0 {
			break
		}
		waitDead(killed, deadline)
		if n >= looks && !time.Now().Before(deadline) {
			break
		}
	}
	for pid := range orphans {
		unix.Wait4(pid, nil, unix.WNOHANG, nil) // what isn't dead yet falls to the orphans' reaper
	}
}

// killExactly sends SIGKILL to the very process that was seen, never to one
// that got its pid since. The descriptor becomes readable when it is dead.
func killExactly(v proc) (pidfd int, ok bool) {
	fd, err := unix.PidfdOpen(v.pid, 0)
	if err != nil {
		if err == unix.ENOSYS { // before Linux 5.3
			unix.Kill(v.pid, unix.SIGKILL)
		}
		return -1, false
	}
	if now, found := readProc(v.pid); found && now.born == v.born &&
		unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil {
		return fd, true
	}
	unix.Close(fd)
	return -1, false
}

// waitDead waits for the killed processes and closes their descriptors. It
// comes back early now and then, since what they left must be killed too.
func waitDead(killed []unix.PollFd, deadline time.Time) {
	const round = 20 * time.Millisecond
	until := time.Now().Add(round)
	if deadline.Before(until) {
		until = deadline
	}
	for i := range killed {
		for {
			left := time.Until(until)
			if left <= 0 {
				break
			}
			_, err := unix.Poll(killed[i:i+1], int(left.Milliseconds())+1)
			if err != unix.EINTR {
				break
			}
		}
	}
	for _, k := range killed {
		unix.Close(int(k.Fd))
	}
}

// look finds the processes of the command, the dead included, and remembers
// them, so that they are known again when they are orphans.
func (t *tree) look() []proc {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := processTable()
	children := make(map[int][]proc, len(all))
	for _, p := range all {
		children[p.ppid] = append(children[p.ppid], p)
	}
	held := heldPids()
	own, _ := unix.Getsid(0)

	var found []proc
	added := make(map[int]bool)
	var add func(p proc)
	add = func(p proc) {
		if added[p.pid] {
			return
		}
		added[p.pid] = true
		found = append(found, p)
		t.seen[p.pid] = p.born
		if p.session != own {
			t.sessions[p.session] = true
		}
		for _, c := range children[p.pid] {
			add(c)
		}
	}
	for _, p := range all {
		if p.session == t.leader {
			add(p)
		}
	}
	for _, p := range children[os.Getpid()] {
		switch {
		case p.session == own, held[p.pid], held[p.session]:
			// a child that somebody else here started, or another command's
		case !held[t.leader]:
			// no pidfds here, so nothing is certain
		case t.sawBefore(p), t.holdsOutput(p, children), t.history.onlyDuring(t.begun, p):
			add(p)
		}
	}
	return found
}

func (t *tree) sawBefore(p proc) bool {
	born, seen := t.seen[p.pid]
	return seen && born == p.born || t.sessions[p.session]
}

// holdsOutput says whether p or a process below it holds one of the pipes to
// which the command writes.
func (t *tree) holdsOutput(p proc, children map[int][]proc) bool {
	dir := "/proc/" + strconv.Itoa(p.pid) + "/fd/"
	entries, _ := os.ReadDir(dir) // unreadable for what runs as somebody else by now
	for _, e := range entries {
		target, err := os.Readlink(dir + e.Name())
		if err == nil && strings.HasPrefix(target, "pipe:") && slices.Contains(t.output, pipeID(target)) {
			return true
		}
	}
	return slices.ContainsFunc(children[p.pid], func(c proc) bool { return t.holdsOutput(c, children) })
}

// heldPids are the processes for which this process has a pidfd.
func heldPids() map[int]bool {
	held := make(map[int]bool)
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return held
	}
	for _, e := range entries {
		// Its target is anon_inode:[pidfd], or pidfd:[N] since Linux 6.9.
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil || !strings.Contains(target, "pidfd") {
			continue
		}
		info, err := os.ReadFile("/proc/self/fdinfo/" + e.Name())
		if err != nil {
			continue
		}
		for line := range bytes.Lines(info) {
			if value, ok := bytes.CutPrefix(line, []byte("Pid:")); ok {
				if pid, err := strconv.Atoi(string(bytes.TrimSpace(value))); err == nil && pid > 0 {
					held[pid] = true
				}
			}
		}
	}
	return held
}

// processTable reads /proc. What vanishes meanwhile is left out.
func processTable() []proc {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	all := make([]proc, 0, len(names))
	for _, name := range names {
		if name[0] < '1' || name[0] > '9' {
			continue
		}
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if p, ok := readProc(pid); ok {
			all = append(all, p)
		}
	}
	return all
}

func readProc(pid int) (proc, bool) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, false
	}
	return parseStat(stat)
}

// parseStat reads /proc/PID/stat (proc_pid_stat(5)): the name, in parentheses,
// may itself contain anything, so what counts is after the last one.
func parseStat(stat []byte) (proc, bool) {
	head, _, ok := bytes.Cut(stat, []byte(" ("))
	end := bytes.LastIndex(stat, []byte(") "))
	if !ok || end < 0 {
		return proc{}, false
	}
	fields := bytes.Fields(stat[end+2:])
	const state, ppid, session, startTime = 0, 1, 3, 19 // fields 3, 4, 6 and 22
	if len(fields) <= startTime || len(fields[state]) != 1 {
		return proc{}, false
	}
	p := proc{state: fields[state][0]}
	var err [4]error
	var ticks uint64
	p.pid, err[0] = strconv.Atoi(string(head))
	p.ppid, err[1] = strconv.Atoi(string(fields[ppid]))
	p.session, err[2] = strconv.Atoi(string(fields[session]))
	ticks, err[3] = strconv.ParseUint(string(fields[startTime]), 10, 62)
	for _, e := range err {
		if e != nil {
			return proc{}, false
		}
	}
	p.born = time.Duration(ticks) * tick
	return p, true
}
