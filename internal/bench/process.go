package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// program is a process of the bench; stop ends it.
type program struct {
	cmd *exec.Cmd
	out *bufio.Reader
}

func start(env []string, argv ...string) (*program, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Getenv("FARHAND_TEST_VERBOSE") != "" {
		cmd.Stderr = os.Stderr
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	return &program{cmd, bufio.NewReader(out)}, nil
}

// self starts another role of this program.
func self(args ...string) (*program, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return start(os.Environ(), append([]string{exe}, args...)...)
}

// line reads lines of standard output until one holds text.
func (p *program) line(text string) (string, error) {
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			return "", fmt.Errorf("%s ended without saying %q: %w", p.cmd.Path, text, err)
		}
		if strings.Contains(line, text) {
			go io.Copy(io.Discard, p.out)
			return strings.TrimSpace(line), nil
		}
	}
}

func (p *program) stop() {
	p.cmd.Process.Signal(syscall.SIGTERM)
	kill := time.AfterFunc(15*time.Second, func() { p.cmd.Process.Kill() })
	defer kill.Stop()
	p.cmd.Wait()
}

// rss is the resident set in MB (10^6 bytes), from /proc/PID/status (proc(5)).
func (p *program) rss() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			return kib * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("no VmRSS of %d", p.cmd.Process.Pid)
}
