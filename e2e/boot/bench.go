package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"farhand/client"
	"farhand/e2e/boot/guest"
)

// bench is what stands on the desk beside the boards: the relay, which they see
// at another address than we do, and its owner with the operator's command.
type bench struct {
	bin, dir string
	port     int
	ca       string // SHA-256 of the relay's CA
	relay    *exec.Cmd
	said     *guest.Text
	done     chan error
}

// relayFor is the relay's address, as a board sees it.
func (b *bench) relayFor() string { return fmt.Sprintf("https://%s:%d", guest.HostAddress, b.port) }
func (b *bench) relayHere() string {
	return fmt.Sprintf("https://127.0.0.1:%d", b.port)
}

func startBench(ctx context.Context, bin, dir string) (_ *bench, err error) {
	b := &bench{dir: dir, said: guest.NewText(), done: make(chan error, 1)}
	if b.bin, err = filepath.Abs(bin); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "operator"), 0o700); err != nil {
		return nil, err
	}
	if b.port, err = freePort(); err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "relay")
	out, err := b.run(ctx, "farhand-relay", "init", "--json", "--data-dir", data, "--name", guest.HostAddress, "--name", "127.0.0.1")
	if err != nil {
		return nil, err
	}
	var made struct {
		CA string `json:"ca_sha256"`
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil {
		return nil, fmt.Errorf("farhand-relay init: %w", err)
	}
	b.ca = made.CA
	b.relay = exec.Command(filepath.Join(b.bin, "farhand-relay"), "run", "--data-dir", data, "--listen", fmt.Sprintf("127.0.0.1:%d", b.port))
	b.relay.Env, b.relay.Stdout, b.relay.Stderr = b.env(), b.said, b.said
	b.relay.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is ours to pass on
	if err := b.relay.Start(); err != nil {
		return nil, err
	}
	go func() { b.done <- b.relay.Wait() }()
	if err := b.login(ctx); err != nil {
		return nil, errors.Join(err, b.stop())
	}
	return b, nil
}

func (b *bench) login(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	setup, err := b.said.Await(ctx, 0, setupPattern)
	if err != nil {
		return fmt.Errorf("the relay: %w", err)
	}
	passphrase := filepath.Join(b.dir, "passphrase")
	if err := os.WriteFile(passphrase, []byte(rand.Text()+"\n"), 0o600); err != nil {
		return err
	}
	_, err = b.farhand(ctx, "login", b.relayHere(), "--ca-sha256", b.ca, "--name", "owner", "--passphrase-file", passphrase, "--setup", setup[1])
	return err
}

// stop ends the relay.
func (b *bench) stop() error {
	if b.relay == nil || b.relay.Process == nil {
		return nil
	}
	if err := b.relay.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("the relay ended before: %w: %s", err, b.said.Tail())
	}
	timer := time.NewTimer(15 * time.Second)
	defer timer.Stop()
	select {
	case <-b.done:
		return nil
	case <-timer.C:
		return errors.Join(errors.New("the relay didn't end when asked"), b.relay.Process.Kill())
	}
}

// env is our environment without what would configure the programs behind our
// back.
func (b *bench) env() []string {
	env := []string{"FARHAND_CONFIG_DIR=" + filepath.Join(b.dir, "operator"), "COLUMNS=100"}
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "FARHAND_") && !strings.HasPrefix(pair, "NOTIFY_SOCKET=") && !strings.HasPrefix(pair, "COLUMNS=") {
			env = append(env, pair)
		}
	}
	return env
}

// farhand runs the operator's command and returns what it printed.
func (b *bench) farhand(ctx context.Context, args ...string) (string, error) {
	return b.run(ctx, "farhand", args...)
}

func (b *bench) run(ctx context.Context, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(b.bin, program), args...)
	cmd.Env, cmd.Dir = b.env(), b.dir
	cmd.WaitDelay = 5 * time.Second
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if err != nil {
		if ctx.Err() != nil {
			err = errors.Join(context.Cause(ctx), err)
		}
		err = fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(errs.String()+out.String()))
	}
	return out.String(), err
}

// machine is what the relay knows of one, by our name for it; nil if it knows
// none.
func (b *bench) machine(ctx context.Context, name string) (*client.Machine, error) {
	out, err := b.farhand(ctx, "machines", "--json")
	if err != nil {
		return nil, err
	}
	var all struct{ Machines []client.Machine }
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		return nil, fmt.Errorf("farhand machines: %w", err)
	}
	for _, m := range all.Machines {
		if m.Name == name {
			return &m, nil
		}
	}
	return nil, nil
}

// freePort finds a free loopback port.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	a, ok := l.Addr().(*net.TCPAddr)
	if !ok {
		return 0, fmt.Errorf("a TCP listener at %s", l.Addr())
	}
	return a.Port, nil
}
