package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	// patience bounds everything that is waited for; a loaded machine with two
	// cores is slow.
	patience = 60 * time.Second
	// stopTime is how long a program may take to end after SIGTERM.
	stopTime = 20 * time.Second
)

// process is a program that runs beside the test. It is ended, by its pid, at
// the latest with the test, and its output is shown if the test failed.
type process struct {
	t    *testing.T
	name string
	cmd  *exec.Cmd
	out  *transcript // stdout and stderr as they came
	done chan struct{}
}

func start(t *testing.T, name string, env []string, argv ...string) *process {
	t.Helper()
	return launch(t, name, exec.Command(argv[0], argv[1:]...), env)
}

// startIn starts a program in a directory.
func startIn(t *testing.T, name, dir string, env []string, argv ...string) *process {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	return launch(t, name, cmd, env)
}

// startWithInput starts a program that is told something later.
func startWithInput(t *testing.T, name string, env []string, argv ...string) (*process, io.Writer) {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	return launch(t, name, cmd, env), stdin
}

func launch(t *testing.T, name string, cmd *exec.Cmd, env []string) *process {
	t.Helper()
	p := &process{t: t, name: name, cmd: cmd, out: newTranscript(), done: make(chan struct{})}
	p.cmd.Env = env
	p.cmd.Stdout, p.cmd.Stderr = p.out, p.out
	p.cmd.WaitDelay = 2 * time.Second // what it started may hold its output
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	go func() {
		p.cmd.Wait() // how it ended is in ProcessState
		close(p.done)
	}()
	t.Cleanup(func() {
		if p.running() {
			p.signal(syscall.SIGTERM)
			if !p.ended(stopTime) {
				p.kill()
				t.Errorf("%s (pid %d) did not end within %s of SIGTERM", name, p.cmd.Process.Pid, stopTime)
			}
		}
		if t.Failed() {
			t.Logf("%s, pid %d, ended by %q:\n%s", name, p.cmd.Process.Pid, p.cmd.ProcessState, p.out.tail(6000))
		}
	})
	return p
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// ended waits for the end.
func (p *process) ended(limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.done:
		return true
	case <-timer.C:
		return false
	}
}

func (p *process) signal(s syscall.Signal) {
	if err := p.cmd.Process.Signal(s); err != nil && p.running() {
		p.t.Errorf("%s to %s: %v", s, p.name, err)
	}
}

// kill is kill -9, and waits until the process is gone.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	<-p.done
}

// exit waits until the program has ended by itself and is its exit status, -1
// if a signal ended it.
func (p *process) exit() int {
	p.t.Helper()
	if !p.ended(patience) {
		p.t.Fatalf("%s did not end within %s", p.name, patience)
	}
	return p.cmd.ProcessState.ExitCode()
}

// stop asks the program to end and checks that it does so well.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.exit(); code != 0 {
		p.t.Errorf("%s ended after SIGTERM with %q, want exit status 0", p.name, p.cmd.ProcessState)
	}
}

// await waits for a line from the given one on and is its groups.
func (p *process) await(from int, pattern string) []string {
	p.t.Helper()
	want := regexp.MustCompile(pattern)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for {
		lines, more := p.out.since(from)
		for _, line := range lines {
			if m := want.FindStringSubmatch(line); m != nil {
				return m
			}
		}
		from += len(lines)
		select {
		case <-more:
		case <-p.done:
			if lines, _ := p.out.since(from); len(lines) == 0 {
				p.t.Fatalf("%s ended (%s) without saying %q", p.name, p.cmd.ProcessState, pattern)
			}
		case <-timer.C:
			p.t.Fatalf("%s did not say %q within %s", p.name, pattern, patience)
		}
	}
}

// transcript keeps output line by line and tells of every new line.
type transcript struct {
	mu    sync.Mutex
	lines []string
	rest  []byte
	more  chan struct{} // closed and replaced with each line
}

func newTranscript() *transcript { return &transcript{more: make(chan struct{})} }

func (t *transcript) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rest = append(t.rest, b...)
	for {
		line, rest, ok := bytes.Cut(t.rest, []byte("\n"))
		if !ok {
			return len(b), nil
		}
		t.lines = append(t.lines, string(line))
		t.rest = bytes.Clone(rest)
		close(t.more)
		t.more = make(chan struct{})
	}
}

// since are the lines from one on, and a channel that is closed with the next.
func (t *transcript) since(n int) ([]string, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lines[min(n, len(t.lines)):len(t.lines):len(t.lines)], t.more
}

func (t *transcript) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.lines)
}

func (t *transcript) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(append(t.lines[:len(t.lines):len(t.lines)], string(t.rest)), "\n")
}

func (t *transcript) tail(n int) string {
	s := t.String()
	return s[max(0, len(s)-n):]
}

// eventually asks again and again until there is no error.
func eventually(t *testing.T, what string, ask func() error) {
	t.Helper()
	within(t, patience, what, ask)
}

func within(t *testing.T, limit time.Duration, what string, ask func() error) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	for {
		err := ask()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		case <-again.C:
		}
	}
}

// result is what a command that has ended said.
type result struct {
	code           int
	stdout, stderr string
}

// runProgram runs a program to its end.
func runProgram(t *testing.T, env []string, stdin string, dir string, argv ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = env, dir
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 2 * time.Second
	err := cmd.Run()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", argv, err)
	}
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}
