package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// bench is a relay, a daemon and an operator.
type bench struct {
	bin, dir string
	relay    *process
	daemon   *process
	env      []string // of the operator's command
}

func (b *bench) program(name string) string { return filepath.Join(b.bin, name) }
func (b *bench) configDir() string          { return filepath.Join(b.dir, "operator") }
func (b *bench) rootDir() string            { return filepath.Join(b.dir, "work") }

func (b *bench) start(ctx context.Context) error {
	for _, d := range []string{b.configDir(), b.rootDir()} {
		if err := os.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	b.env = append(cleanEnv(), "FARHAND_CONFIG_DIR="+b.configDir(), "COLUMNS=100")
	addr, err := freeAddr()
	if err != nil {
		return err
	}
	url := "http://" + addr

	say("The relay, on %s", url)
	b.relay, err = startProcess("the relay", filepath.Join(b.dir, "relay.log"), false, cleanEnv(),
		b.program("farhand-relay"), "run", "--listen", addr, "--data-dir", filepath.Join(b.dir, "relay"))
	if err != nil {
		return err
	}
	setup, err := b.relay.await(ctx, `/setup\?token=([A-Za-z0-9_-]+)`)
	if err != nil {
		return err
	}
	passphrase := filepath.Join(b.dir, "passphrase")
	if err := os.WriteFile(passphrase, []byte(rand.Text()+"\n"), 0o600); err != nil {
		return err
	}
	if err := b.farhand(ctx, "login", url, "--name", "you", "--passphrase-file", passphrase, "--setup", setup[1]); err != nil {
		return err
	}

	say("The daemon, with what this machine has and a bench of simulated devices")
	config := filepath.Join(b.dir, "farhandd.toml")
	toml := fmt.Sprintf("platform_url = %q\nstate_dir = %q\nroots = [%q]\ndisplay_name = \"bench\"\nsim = true\n\n[shell]\nenabled = true\n",
		url, filepath.Join(b.dir, "state"), b.rootDir())
	if err := os.WriteFile(config, []byte(toml), 0o600); err != nil {
		return err
	}
	b.daemon, err = startProcess("the daemon", filepath.Join(b.dir, "daemon.log"), true, cleanEnv(),
		b.program("farhandd"), "run", "--config", config)
	return err
}

// cleanEnv is our environment without what would configure the programs
// behind our back.
func cleanEnv() []string {
	var env []string
	for _, pair := range os.Environ() {
		if !strings.HasPrefix(pair, "FARHAND_") && !strings.HasPrefix(pair, "NOTIFY_SOCKET=") {
			env = append(env, pair)
		}
	}
	return env
}

// freeAddr finds a free loopback port.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// farhand runs the operator's command and shows it with its output.
func (b *bench) farhand(ctx context.Context, args ...string) error {
	_, err := b.capture(ctx, args...)
	return err
}

func (b *bench) capture(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	fmt.Println("$ farhand " + shown(args))
	cmd := exec.CommandContext(ctx, b.program("farhand"), args...)
	cmd.Env = b.env
	cmd.Dir = b.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	os.Stdout.Write(out.Bytes())
	if err != nil {
		return "", fmt.Errorf("farhand %s: %w", args[0], err)
	}
	return out.String(), nil
}

// shown is a command line as a person would type it.
func shown(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n\\\"'$*?;&|<>()") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		quoted[i] = a
	}
	return strings.Join(quoted, " ")
}

// wait ends when ctx does, or when a program ends before.
func (b *bench) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		say("Stopping")
		return nil
	case <-b.relay.done:
		return fmt.Errorf("the relay ended: %v", b.relay.err)
	case <-b.daemon.done:
		return fmt.Errorf("the daemon ended: %v", b.daemon.err)
	}
}

func (b *bench) stop() error {
	var err error
	if b.daemon != nil {
		err = b.daemon.stop()
	}
	if b.relay != nil {
		err = errors.Join(err, b.relay.stop())
	}
	return err
}
