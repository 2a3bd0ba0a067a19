package shell

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// LocalConfig says how programs are kept together.
type LocalConfig struct {
	// Cgroup is the directory of a cgroup v2 under which the runner may make
	// cgroups. Empty means the own cgroup if it is delegated to us, "none"
	// means to do without.
	Cgroup string
	// Limits hold for each command with all that it starts, where the cgroup is
	// delegated with the controllers that they need. To have them this process
	// moves into a cgroup of its own below the delegated one.
	Limits GroupLimits
	Log    *slog.Logger
}

// GroupLimits bound one command. Zero values bound nothing.
type GroupLimits struct {
	Memory    int64 // bytes; a command that needs more is killed whole
	Processes int   // threads count, too
}

// childOOMScore is what commands of a protected process get as oom_score_adj
// (proc_pid_oom_score_adj(5), -1000 to 1000): of what has as much, they go first.
const childOOMScore = 950

// Local runs programs as this process' own user, each in a session of its own
// and with no descriptor but the standard three.
//
// Where a delegated cgroup v2 is at hand, each program gets a cgroup in it, and
// Kill is one write that nothing escapes. Elsewhere this process becomes the
// subreaper of its descendants (which is a property of the process, and stays
// after Close), so that what daemonised itself comes back to it and is found in
// /proc; the file tree_linux.go says what that can't see.
type Local struct {
	devNull   *os.File
	cgroups   *cgroups // nil: by process tree
	orphans   *orphans
	history   *history
	protected bool // from running out of memory, which commands must not inherit
	log       *slog.Logger
}

var _ Runner = (*Local)(nil)

// NewLocal makes a Local. An error means that a cgroup that was named can't be
// used, or that /dev/null can't be opened.
func NewLocal(c LocalConfig) (*Local, error) {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	devNull, err := os.OpenFile(os.DevNull, os.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("stdin for commands: %w", err)
	}
	closeInherited()
	l := &Local{devNull: devNull, history: newHistory(), protected: oomScore() < 0, log: c.Log}
	switch c.Cgroup {
	case "none":
	case "":
		if dir, ok := delegatedCgroup("/"); ok {
			l.cgroups = newCgroups(dir, l.control(dir, c.Limits))
		}
	default:
		if err := usableCgroup(c.Cgroup); err != nil {
			devNull.Close()
			return nil, fmt.Errorf("cgroup %s: %w", c.Cgroup, err)
		}
		l.cgroups = newCgroups(c.Cgroup, GroupLimits{})
	}
	if l.cgroups == nil {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			c.Log.Warn("can't become subreaper, processes that daemonise themselves outlive their command", "err", err)
		}
	}
	// Also with cgroups: as the first process of a container we inherit orphans
	// without having asked for them.
	l.orphans = startOrphans()
	return l, nil
}

// control prepares a delegated cgroup for limits and returns those that hold.
func (l *Local) control(dir string, limits GroupLimits) GroupLimits {
	if limits == (GroupLimits{}) {
		return limits
	}
	if err := takeControl(dir); err != nil {
		l.log.Warn("commands have no memory limit of their own", "cgroup", dir, "err", err)
		return GroupLimits{}
	}
	return limits
}

// Exact says whether Kill is sure to find every process of a command.
func (l *Local) Exact() bool { return l.cgroups != nil }

// Close implements Runner.
func (l *Local) Close() error {
	l.orphans.close()
	if l.cgroups != nil {
		l.cgroups.close()
	}
	return l.devNull.Close()
}

// Start implements Runner.
func (l *Local) Start(_ context.Context, spec Spec) (Process, error) {
	if len(spec.Argv) == 0 {
		return nil, fmt.Errorf("no program: %w", fs.ErrNotExist)
	}
	if spec.Dir != nil {
		// A descriptor leads into a directory that was deleted, too.
		var st unix.Stat_t
		if unix.Fstat(int(spec.Dir.Fd()), &st) == nil && st.Nlink == 0 {
			return nil, ErrDirGone
		}
	}
	program, err := lookup(spec.Argv[0], spec.Path, spec.Dir)
	if err != nil {
		return nil, fmt.Errorf("look up program: %w", err)
	}
	stdin := spec.Stdin
	if stdin == nil {
		stdin = l.devNull
	}
	attr := syscall.ProcAttr{
		Env:   spec.Env,
		Files: []uintptr{stdin.Fd(), spec.Stdout.Fd(), spec.Stderr.Fd()},
		Sys:   &syscall.SysProcAttr{Setsid: true, Setctty: spec.Terminal}, // Ctty is 0, the child's stdin
	}
	pidfd := -1
	attr.Sys.PidFD = &pidfd
	if spec.Dir != nil {
		// The child goes there before its descriptors are closed.
		attr.Dir = "/proc/self/fd/" + strconv.Itoa(int(spec.Dir.Fd()))
	}
	var group *cgroup
	if l.cgroups != nil {
		if group, err = l.cgroups.take(); err != nil {
			return nil, fmt.Errorf("cgroup for command: %w", err)
		}
		attr.Sys.UseCgroupFD = true
		attr.Sys.CgroupFD = int(group.dir.Fd())
	}
	begun := l.history.begin()
	pid, _, err := syscall.StartProcess(program, spec.Argv, &attr)
	if err != nil {
		l.history.forget(begun)
		if group != nil {
			l.cgroups.give(group)
		}
		if err == syscall.EACCES && spec.Dir != nil && unix.Faccessat(int(spec.Dir.Fd()), ".", unix.X_OK, unix.AT_EACCESS) != nil {
			return nil, ErrDirForbidden
		}
		return nil, &os.PathError{Op: "exec", Path: program, Err: err}
	}
	l.history.forked(begun, pid)
	if l.protected {
		if err := setOOMScore(pid, childOOMScore); err != nil {
			l.log.Warn("a command is protected from running out of memory like its starter", "err", err)
		}
	}
	p := &process{local: l, pid: pid, pidfd: pidfd, begun: begun, group: group, exited: make(chan struct{})}
	if group == nil {
		p.tree = &tree{
			leader: pid, begun: begun, history: l.history,
			output: []pipeID{pipeOf(spec.Stdout), pipeOf(spec.Stderr)},
			seen:   make(map[int]time.Duration), sessions: make(map[int]bool),
		}
	}
	return p, nil
}

// process is a program that Local started.
type process struct {
	local *Local
	pid   int
	// pidfd is for EndsWithin and for heldPids, which finds it in this process'
	// table of descriptors; -1 before Linux 5.2.
	pidfd int
	begun *interval
	group *cgroup // nil: by process tree
	tree  *tree   // nil: by cgroup

	watch  sync.Once // starts wait, or closes exited
	exited chan struct{}

	mu        sync.Mutex
	reaped    bool
	abandoned bool // Reap was called before the leader ended
}

// wait waits for the leader without collecting it, so that its pid stays ours
// until Reap and Kill can't hit a stranger.
func (p *process) wait() {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, p.pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			break
		}
	}
	p.mu.Lock()
	close(p.exited)
	abandoned := p.abandoned
	p.mu.Unlock()
	if abandoned {
		if _, err := p.collect(); err != nil {
			p.local.log.Error("a command that couldn't be killed", "err", err)
		}
	}
}

// EndsWithin implements Process.
func (p *process) EndsWithin(d time.Duration) bool {
	if p.pidfd < 0 {
		return false
	}
	// A pidfd is readable once its process has ended (pidfd_open(2)).
	fds := []unix.PollFd{{Fd: int32(p.pidfd), Events: unix.POLLIN}}
	if n, err := unix.Poll(fds, int(d.Milliseconds())); err != nil || n == 0 {
		return false
	}
	p.watch.Do(func() { close(p.exited) })
	return true
}

// Exited implements Process.
func (p *process) Exited() <-chan struct{} {
	p.watch.Do(func() { go p.wait() })
	return p.exited
}

func (p *process) Terminate() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped || p.abandoned {
		return
	}
	if p.tree != nil {
		p.tree.look() // while it still hangs together
	}
	unix.Kill(-p.pid, unix.SIGTERM) // ESRCH: gone already
}

func (p *process) Kill(patience time.Duration) {
	p.mu.Lock()
	if p.reaped || p.abandoned {
		p.mu.Unlock()
		return
	}
	if p.tree != nil {
		p.tree.look()
	} else {
		p.group.spent = true
	}
	unix.Kill(-p.pid, unix.SIGKILL)
	p.mu.Unlock()
	deadline := time.Now().Add(patience)
	if p.group != nil {
		p.group.kill(deadline)
	} else {
		p.tree.kill(deadline)
	}
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-p.Exited():
	case <-timer.C:
	}
}

// Reap implements Process.
func (p *process) Reap() (Status, error) {
	p.mu.Lock()
	select {
	case <-p.Exited():
		p.mu.Unlock()
		return p.collect()
	default:
		p.abandoned = true
		p.mu.Unlock()
		p.local.log.Warn("a command can't be killed, going on without it", "pid", p.pid)
		return Status{Signal: syscall.SIGKILL}, nil
	}
}

// collect reaps the leader, which has ended.
func (p *process) collect() (Status, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reaped {
		return Status{}, nil
	}
	p.reaped = true
	var ws unix.WaitStatus
	var err error
	for {
		if _, err = unix.Wait4(p.pid, &ws, 0, nil); err != unix.EINTR {
			break
		}
	}
	if p.pidfd >= 0 {
		unix.Close(p.pidfd)
	}
	p.local.history.end(p.begun)
	if p.group != nil {
		p.local.cgroups.give(p.group)
	}
	switch {
	case err != nil: // somebody else in this process collected it
		return Status{}, fmt.Errorf("status of process %d: %w", p.pid, err)
	case ws.Signaled():
		return Status{Signal: ws.Signal()}, nil
	default:
		return Status{Code: ws.ExitStatus()}, nil
	}
}
