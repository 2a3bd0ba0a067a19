package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"sync"
	"syscall"
	"time"
)

// stopTime is how long a program may take to end by itself.
const stopTime = 15 * time.Second

// process is a program that runs beside the session. Its output goes to a file,
// and what is waited for is found in it line by line.
type process struct {
	name string
	cmd  *exec.Cmd
	log  *os.File
	done chan struct{}
	err  error // valid after done

	mu      sync.Mutex
	pattern *regexp.Regexp
	found   chan []string
	echo    bool
	seen    []string
}

func startProcess(name, logPath string, echo bool, env []string, argv ...string) (*process, error) {
	log, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	p := &process{name: name, log: log, done: make(chan struct{}), echo: echo}
	p.cmd = exec.Command(argv[0], argv[1:]...)
	p.cmd.Env = env
	p.cmd.Stderr = log
	// Ctrl-C is ours to pass on; but should we be killed, nothing stays behind.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		log.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		defer close(p.done)
		p.read(out)
		p.err = p.cmd.Wait()
		log.Close()
	}()
	return p, nil
}

func (p *process) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		fmt.Fprintln(p.log, line)
		p.mu.Lock()
		if p.echo {
			fmt.Println(line)
		}
		p.seen = append(p.seen, line)
		p.match(line)
		p.mu.Unlock()
	}
}

// match is called with mu held.
func (p *process) match(line string) {
	if p.pattern == nil {
		return
	}
	if m := p.pattern.FindStringSubmatch(line); m != nil {
		p.found <- m
		p.pattern = nil
	}
}

// await waits for a line that the pattern matches and returns the groups.
func (p *process) await(ctx context.Context, pattern string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	p.mu.Lock()
	p.pattern = regexp.MustCompile(pattern)
	p.found = make(chan []string, 1)
	for _, line := range p.seen {
		p.match(line)
	}
	found := p.found
	p.mu.Unlock()
	select {
	case m := <-found:
		return m, nil
	case <-p.done:
		return nil, fmt.Errorf("%s ended early (%v); its log is %s", p.name, p.err, p.tail())
	case <-ctx.Done():
		return nil, fmt.Errorf("%s didn't say %q in time: %w; its log is %s", p.name, pattern, context.Cause(ctx), p.tail())
	}
}

// tail is the end of the log, since the directory is gone when this is read.
func (p *process) tail() string {
	b, err := os.ReadFile(p.log.Name())
	if err != nil {
		return err.Error()
	}
	return "\n" + string(b[max(0, len(b)-4000):])
}

// quiet stops passing the output on to the terminal.
func (p *process) quiet() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.echo = false
}

// stop asks the program to end and insists after a while.
func (p *process) stop() error {
	select {
	case <-p.done:
		return fmt.Errorf("%s had ended before (%v)", p.name, p.err)
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	timer := time.NewTimer(stopTime)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
		p.cmd.Process.Kill()
		<-p.done
		return fmt.Errorf("%s didn't stop within %s", p.name, stopTime)
	}
	if p.err != nil {
		return fmt.Errorf("%s stopped badly: %w", p.name, p.err)
	}
	return nil
}
