package shell

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// Spec is one program to be started.
type Spec struct {
	// Argv is the program and its arguments. Argv[0] without a slash is looked
	// up in Path as execvp does, relative elements being relative to Dir.
	Argv []string
	// Path is the list of directories for that, separated by colons. Empty
	// means DefaultPath.
	Path string
	// Env is the whole environment, NAME=VALUE.
	Env []string
	// Dir is the working directory, held open by the caller, so that whoever
	// renames directories meanwhile can't move the program elsewhere.
	Dir *os.File
	// Stdin may be nil, which is /dev/null. The runner uses the three files
	// during Start only; the caller closes them.
	Stdin, Stdout, Stderr *os.File
	// Terminal says that Stdin is a terminal, which becomes the controlling one
	// of the program's session.
	Terminal bool
}

// DefaultPath is where programs are looked for if the environment has no PATH:
// what systemd gives to a service.
const DefaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Runner starts programs. It is the one seam through which commands come to
// life: in this process, or in a helper that runs as another user. A Runner is
// safe for concurrent use.
type Runner interface {
	// Start starts spec in a session of its own. The error matches
	// fs.ErrNotExist if there is no such program, fs.ErrPermission if there is
	// one that may not be executed, ErrDirGone if the working directory no
	// longer exists, and ErrDirForbidden if the commands' user may not enter it.
	Start(ctx context.Context, spec Spec) (Process, error)
	// Close ends what the runner needs for itself and waits for it. Programs
	// go on.
	Close() error
}

// Process is a started program, the leader, and all that it starts in turn.
// Its methods are safe for concurrent use; Reap must be called once, last.
type Process interface {
	// EndsWithin waits at most d for the leader's end and says whether it came.
	// It may say no too early. It is called once at most, before anything else:
	// the caller's own thread waits, so that a program that is over in a moment
	// needs no other to be woken.
	EndsWithin(d time.Duration) bool
	// Exited is closed once the leader has ended.
	Exited() <-chan struct{}
	// Terminate asks the leader and its process group to end (SIGTERM).
	Terminate()
	// Kill ends every process that descends from the leader, also those in
	// sessions of their own, and returns when they are gone or patience is
	// over (a process in uninterruptible sleep can't be waited for).
	Kill(patience time.Duration)
	// Reap collects the status of the leader, which has ended or couldn't even
	// be killed; the runner then collects it when it ends at last, and the
	// status is SIGKILL. What the leader left in the background lives on. An
	// error means that nobody knows how it ended, ErrLost that it was ended
	// because what ran it is gone.
	Reap() (Status, error)
}

// Portable is a Process that another process of ours can go on with, since it
// isn't our child: what stands for it is a descriptor.
type Portable interface {
	Process
	// Descriptor does something with it.
	Descriptor(do func(fd uintptr) error) error
	// Leave lets go of the program, which goes on as long as somebody has a copy of
	// the descriptor. Nothing else is called then.
	Leave()
}

// The errors of a Runner beside those of package fs.
var (
	// ErrDirGone says that the working directory no longer exists.
	ErrDirGone = errors.New("working directory no longer exists")
	// ErrDirForbidden says that the commands' user may not enter it.
	ErrDirForbidden = errors.New("working directory may not be entered")
	// ErrLost says that what ran a program, or was to, is gone, and the program with
	// it.
	ErrLost = errors.New("what ran the command is gone")
)

// Status says how a leader ended.
type Status struct {
	Code   int            // the exit status, if Signal is 0
	Signal syscall.Signal // what killed it
}

// WireCode is the status as COMMAND_RESULT.exit_code has it: death by a signal
// is the negative signal number.
func (s Status) WireCode() int {
	if s.Signal != 0 {
		return -int(s.Signal)
	}
	return s.Code
}
