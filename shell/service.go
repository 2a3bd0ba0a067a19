// Package shell runs the commands of EXECUTE_COMMAND: a program with its
// arguments, or a line for a shell, in a directory that the jail opened.
//
// A command gets a session of its own, an empty stdin, a safe environment, one
// budget for its output and a time. When the time is over, or nobody waits any
// more, every process that it started dies. After a normal end its background
// children live on, but the answer never waits for them, and what they still
// write goes nowhere.
//
// Commands come to life through one seam, Runner. Local runs them as this
// process' own user; then "shell" means everything that the daemon may do.
package shell

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"farhand/wire"
)

// Defaults of Config. Source: protocol 1.1.
const (
	DefaultPerMinute     = 60
	DefaultMaxConcurrent = 10
)

const (
	// termGrace is how long a command may take to end by itself after SIGTERM.
	termGrace = 500 * time.Millisecond
	// killPatience is how long the dead are waited for after SIGKILL.
	killPatience = 300 * time.Millisecond
	// stragglerPatience is how long a pipe that outlives the leader is read.
	stragglerPatience = 100 * time.Millisecond
	// answerMargin is what of Limits.AnswerWithin is left for the three above,
	// for the audit record and for the way back.
	answerMargin = 1500 * time.Millisecond
)

// Config says what a Service may do. Zero values take the defaults.
type Config struct {
	Timeout       time.Duration // the most that any command gets; default wire.DefaultCommandTimeout
	PerMinute     int           // commands started in any 60 s, all sessions together
	MaxConcurrent int           // commands running, all sessions together
	Environ       []string      // the daemon's environment; only a safe part is passed on
	Runner        Runner
	Log           *slog.Logger
}

// Service executes commands. It is safe for concurrent use.
type Service struct {
	timeout time.Duration
	limiter *limiter
	base    map[string]string
	runner  Runner
	log     *slog.Logger
	buffers *sync.Pool
}

// New makes a Service. The caller closes the Runner after the last Execute.
func New(c Config) *Service {
	if c.Timeout <= 0 {
		c.Timeout = wire.DefaultCommandTimeout
	}
	if c.PerMinute <= 0 {
		c.PerMinute = DefaultPerMinute
	}
	if c.MaxConcurrent <= 0 {
		c.MaxConcurrent = DefaultMaxConcurrent
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &Service{
		timeout: c.Timeout,
		limiter: newLimiter(c.PerMinute, c.MaxConcurrent),
		base:    environment(c.Environ),
		runner:  c.Runner,
		log:     c.Log,
		buffers: &sync.Pool{New: func() any { b := make([]byte, chunk); return &b }},
	}
}

// Place is the working directory of a command, as the jail opened it.
type Place struct {
	Dir  *os.File // not closed by Execute
	Path string   // its name, for messages only
}

// Limits are those of the session. Zero means none beyond the service's own.
type Limits struct {
	Timeout     time.Duration
	OutputBytes int64 // both streams together, before decoding; at most wire.MaxText
	// AnswerWithin is how long the other side waits for the answer. Execute
	// returns before it is over, at the cost of the command's time if needed.
	AnswerWithin time.Duration
}

// Trace is what the audit log wants to know about a command besides its result.
// It is filled in as far as the command came.
type Trace struct {
	Shell   string        // the shell that ran the line, empty for argv
	EnvKeys []string      // the names of the command's variables, sorted; never values
	Timeout time.Duration // what the command got in the end
}

// Execute runs one command to its end. Errors are SHIM_OVERLOADED (details
// max_concurrent or max_commands_per_minute), SHELL_NOT_AVAILABLE (details
// requested_shell), PATH_NOT_FOUND (the working directory vanished),
// INTERNAL_ERROR with details.reason (command_lost: its runner ended and it may
// have done its work in part), or that of ctx when it ends first. A
// timeout is no error: the result says timed_out.
func (s *Service) Execute(ctx context.Context, cmd wire.ExecuteCommand, place Place, limits Limits) (wire.CommandResult, Trace, error) {
	started := time.Now()
	var trace Trace
	if ctx.Err() != nil {
		return wire.CommandResult{}, trace, context.Cause(ctx)
	}
	timeout, err := s.timeoutFor(cmd.TimeoutSeconds, limits)
	if err != nil {
		return wire.CommandResult{}, trace, err
	}
	trace.Timeout = timeout
	env, keys, path, err := merge(s.base, cmd.Env)
	if err != nil {
		return wire.CommandResult{}, trace, err
	}
	trace.EnvKeys = keys
	candidates, err := s.candidates(cmd, path)
	if err != nil {
		return wire.CommandResult{}, trace, err
	}
	if err := s.limiter.acquire(); err != nil {
		return wire.CommandResult{}, trace, err
	}
	defer s.limiter.release()

	stdout, outWriter, err := newPipe()
	if err != nil {
		return wire.CommandResult{}, trace, fmt.Errorf("pipe for stdout: %w", err)
	}
	stderr, errWriter, err := newPipe()
	if err != nil {
		closeFD(stdout)
		outWriter.Close()
		return wire.CommandResult{}, trace, fmt.Errorf("pipe for stderr: %w", err)
	}
	process, shell, err := s.start(ctx, candidates, Spec{Env: env, Dir: place.Dir, Stdout: outWriter, Stderr: errWriter})
	outWriter.Close()
	errWriter.Close()
	if err != nil {
		closeFD(stdout)
		closeFD(stderr)
		return wire.CommandResult{}, trace, startError(err, cmd, place)
	}
	trace.Shell = shell

	budget := wire.MaxText
	if limits.OutputBytes > 0 && limits.OutputBytes < int64(budget) {
		budget = int(limits.OutputBytes)
	}
	out := newOutput(s.buffers, budget, stdout, stderr)
	if !process.EndsWithin(min(moment, timeout)) {
		out.start()
	}
	timedOut, cancelled := wait(ctx, process, timeout-time.Since(started))
	status, statusErr := process.Reap()
	out.finish(stragglerPatience)
	if cancelled {
		return wire.CommandResult{}, trace, fmt.Errorf("command given up: %w", context.Cause(ctx))
	}
	if statusErr != nil {
		return wire.CommandResult{}, trace, lostError(statusErr)
	}

	result := wire.CommandResult{
		ExitCode:        status.WireCode(),
		TimedOut:        timedOut,
		DurationSeconds: milliseconds(time.Since(started)),
	}
	if timedOut {
		result.ExitCode = -1 // the protocol's, whatever the last signal was
	}
	result.Stdout, result.Stderr, result.OutputTruncated = out.texts(budget)
	return result, trace, nil
}

// moment is how long output may wait in the pipes. Most commands that are asked
// for in a row (test, stat, true) are over before.
const moment = 2 * time.Millisecond

// wait waits for the leader. If time or ctx ends first, it ends the whole tree:
// politely for a moment, then by force.
func wait(ctx context.Context, process Process, timeout time.Duration) (timedOut, cancelled bool) {
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-process.Exited():
		return false, false
	case <-timer.C:
		timedOut = true
	case <-ctx.Done():
		cancelled = true
	}
	process.Terminate()
	timer.Reset(termGrace)
	select {
	case <-process.Exited():
	case <-timer.C:
	}
	process.Kill(killPatience)
	return timedOut, cancelled
}

// timeoutFor is the lowest of what was asked for, what the session and the
// service allow, and what leaves time for the answer.
func (s *Service) timeoutFor(asked *float64, limits Limits) (time.Duration, error) {
	timeout := s.timeout
	if limits.Timeout > 0 {
		timeout = min(timeout, limits.Timeout)
	}
	if asked != nil {
		if !(*asked > 0) || math.IsInf(*asked, 0) {
			return 0, invalid("invalid_timeout", "timeout_seconds must be above 0")
		}
		if *asked < timeout.Seconds() { // compared as floats: no overflow
			timeout = time.Duration(*asked * float64(time.Second))
		}
	}
	if within := limits.AnswerWithin; within > 0 {
		timeout = min(timeout, max(within-answerMargin, within/2))
	}
	return timeout, nil
}

// candidate is one way to run a command: the program and where to look for it.
type candidate struct {
	argv  []string
	path  string
	shell string
}

// candidates are the ways to run a command, best first.
func (s *Service) candidates(cmd wire.ExecuteCommand, path string) ([]candidate, error) {
	switch {
	case cmd.Command != nil && cmd.Argv != nil:
		return nil, invalid("command_and_argv", "give either command or argv, not both")
	case cmd.Command == nil && len(cmd.Argv) == 0:
		return nil, invalid("no_command", "give either command or argv")
	case cmd.Command == nil:
		for _, arg := range cmd.Argv {
			if strings.Contains(arg, "\x00") {
				return nil, invalid("nul_byte", "argv contains a NUL byte")
			}
		}
		return []candidate{{argv: cmd.Argv, path: path}}, nil
	}
	line := *cmd.Command
	if strings.Contains(line, "\x00") {
		return nil, invalid("nul_byte", "command contains a NUL byte")
	}
	// Shells come from the daemon's own PATH: which one runs must not depend
	// on what the request puts into the environment.
	posix := func(name string) candidate {
		return candidate{[]string{name, "-c", line}, s.base["PATH"], name}
	}
	switch cmd.Shell {
	case "", "auto":
		return []candidate{posix("bash"), posix("sh")}, nil
	case "bash", "sh", "zsh":
		return []candidate{posix(cmd.Shell)}, nil
	case "pwsh":
		return []candidate{{[]string{"pwsh", "-NoLogo", "-NoProfile", "-Command", line}, s.base["PATH"], "pwsh"}}, nil
	case "powershell", "cmd":
		return nil, noShell(cmd.Shell)
	}
	return nil, invalid("invalid_shell", "shell must be auto, bash, sh, zsh, pwsh, powershell or cmd")
}

// start starts the first candidate that exists.
func (s *Service) start(ctx context.Context, candidates []candidate, spec Spec) (Process, string, error) {
	var err error
	for _, c := range candidates {
		spec.Argv, spec.Path = c.argv, c.path
		var process Process
		if process, err = s.runner.Start(ctx, spec); err == nil {
			return process, c.shell, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	return nil, "", err
}

// lostError says on the wire that nobody knows how a command ended.
func lostError(err error) error {
	if errors.Is(err, ErrLost) {
		return wire.Errorf(wire.InternalError, "the command was ended, since what runs commands on this machine stopped; it may have done its work in part").
			With("reason", "command_lost")
	}
	return fmt.Errorf("how the command ended is not known: %w", err)
}

// startError says on the wire why a command didn't start. Messages never carry
// arguments: they may hold secrets.
func startError(err error, cmd wire.ExecuteCommand, place Place) error {
	if _, ok := errors.AsType[*wire.Error](err); ok {
		return err
	}
	if _, ok := errors.AsType[wire.Code](err); ok {
		return err
	}
	switch {
	case errors.Is(err, ErrLost):
		return lostError(err)
	case errors.Is(err, ErrDirGone):
		return wire.Errorf(wire.PathNotFound, "working directory %s no longer exists", place.Path).With("path", place.Path)
	case errors.Is(err, ErrDirForbidden):
		return invalid("directory_forbidden", "the user that commands run as may not enter %s; give it access, for example by the directory's group", place.Path)
	case errors.Is(err, fs.ErrNotExist) && len(cmd.Argv) == 0: // a line, or a shell that reads what is typed
		name := cmd.Shell
		if name == "" {
			name = "auto"
		}
		return noShell(name)
	case errors.Is(err, fs.ErrNotExist):
		return wire.Errorf(wire.ShellNotAvailable, "program %s not found", quoteProgram(cmd.Argv[0])).
			With("requested_shell", cmd.Argv[0])
	case errors.Is(err, fs.ErrPermission):
		return invalid("permission_denied", "not allowed to execute the command")
	case errors.Is(err, syscall.ENOEXEC):
		return invalid("exec_format", "the program has a format that this machine can't execute")
	case errors.Is(err, syscall.E2BIG):
		return invalid("argument_list_too_long", "command and environment are longer than the operating system takes")
	}
	return fmt.Errorf("start command: %w", err)
}

func noShell(name string) error {
	return wire.Errorf(wire.ShellNotAvailable, "shell %s is not available here", name).With("requested_shell", name)
}

// quoteProgram is the name of a program for a message.
func quoteProgram(name string) string {
	const most = 128
	if len(name) > most {
		name = name[:most] + "…"
	}
	return fmt.Sprintf("%q", name)
}

// milliseconds is d in seconds with three decimals, as the wire has it.
func milliseconds(d time.Duration) float64 {
	return math.Round(d.Seconds()*1000) / 1000
}
