package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"

	"farhand/wire"
)

const (
	controlPath = "/ws/local-executor"
	sessions    = 8
)

// benchDaemon measures the daemon against a platform that is this process.
func benchDaemon(ctx context.Context, bin, dir string) ([]bar, error) {
	// What the AutoGPT platform grants.
	d, err := newDaemonBench(bin, dir, "", wire.Shell, wire.Files, wire.LocalLLM)
	if err != nil {
		return nil, err
	}
	defer d.server.Close()
	size, err := os.Stat(d.bin)
	if err != nil {
		return nil, err
	}
	bars := []bar{{name: "binary_size", value: float64(size.Size()) / 1e6, limit: 15, unit: "MB"}}
	hello, err := d.startToHello(ctx)
	if err != nil {
		return nil, fmt.Errorf("start to HELLO: %w", err)
	}
	bars = append(bars, hello)
	measured, err := d.measure(ctx)
	return append(bars, measured...), err
}

// benchGPIO measures operations on the lines of the simulated bench.
func benchGPIO(ctx context.Context, bin, dir string) ([]bar, error) {
	d, err := newDaemonBench(bin, dir, "sim = true\n", wire.HardwareGPIO)
	if err != nil {
		return nil, err
	}
	defer d.server.Close()
	return d.withPeer(ctx, func(_ *program, data, bare *socket) ([]bar, error) {
		var bars []bar
		for _, op := range []struct{ name, op, args string }{
			{"gpio_get", wire.OpGPIOGet, `{"line":27}`},
			{"gpio_set", wire.OpGPIOSet, `{"line":17,"value":1}`},
		} {
			frame := request(wire.THardwareOp, wire.HardwareOp{Device: "gpio:pinctrl-bcm2711", Op: op.op, Args: json.RawMessage(op.args)})
			ours := func() error { return ask(data, frame(), wire.THardwareResult, 0) }
			echo := func() error { _, err := bare.roundTrip(bareFrame(echoFrame)()); return err }
			if _, _, _, err := compare(ctx, "warm-up", 1, roundCalls, ours, echo); err != nil {
				return nil, err
			}
			ratio, _, _, err := compare(ctx, op.name, 25, roundCalls, ours, echo)
			if err != nil {
				return nil, err
			}
			bars = append(bars, bar{name: op.name, value: ratio, limit: 2})
		}
		return bars, nil
	})
}

// newDaemonBench prepares a daemon whose configuration has more lines, and a
// platform that grants these capabilities.
func newDaemonBench(bin, dir, config string, grants ...wire.Capability) (*daemonBench, error) {
	paths := []string{controlPath, "/bare"}
	for i := range sessions {
		paths = append(paths, fmt.Sprintf("%s/bench-%d", controlPath, i))
	}
	p, err := newAccept(paths...)
	if err != nil {
		return nil, err
	}
	d := &daemonBench{accept: p, bin: filepath.Join(bin, "farhandd"), dir: dir, config: config, grants: append(grants, wire.DirectoryBrowse)}
	if err := d.prepare(); err != nil {
		p.server.Close()
		return nil, err
	}
	return d, nil
}

type daemonBench struct {
	*accept
	bin, dir string
	config   string // more lines, before the first table
	grants   wire.Capabilities
}

func (d *daemonBench) root() string { return filepath.Join(d.dir, "work") }

// prepare writes the configuration, the tokens and the files.
func (d *daemonBench) prepare() error {
	if err := os.Mkdir(d.root(), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.root(), "small"), []byte("x"), 0o644); err != nil {
		return err
	}
	content := bytes.Repeat([]byte("0123456789abcdef"), big/16)
	if err := os.WriteFile(filepath.Join(d.root(), "big"), content, 0o644); err != nil {
		return err
	}
	config := fmt.Sprintf("platform_url = %q\nstate_dir = %q\nroots = [%q]\nlog_level = \"error\"\n%s[shell]\nenabled = true\n[limits]\nmax_commands_per_minute = 100000\n",
		d.url, filepath.Join(d.dir, "state"), d.root(), d.config)
	if err := os.WriteFile(filepath.Join(d.dir, "farhandd.toml"), []byte(config), 0o600); err != nil {
		return err
	}
	tokens := filepath.Join(d.dir, "tokens.json")
	if err := os.WriteFile(tokens, []byte(`{"access_token":"bench","refresh_token":"bench","access_token_expires_at":"2100-01-01T00:00:00Z"}`), 0o600); err != nil {
		return err
	}
	out, err := exec.Command(d.bin, "login", "--config", filepath.Join(d.dir, "farhandd.toml"), "--tokens", tokens).CombinedOutput()
	if err != nil {
		return fmt.Errorf("login: %w: %s", err, out)
	}
	return nil
}

func (d *daemonBench) run() (*program, error) {
	return start(os.Environ(), d.bin, "run", "--config", filepath.Join(d.dir, "farhandd.toml"))
}

// startToHello is the time from exec to the first frame, which is HELLO.
func (d *daemonBench) startToHello(ctx context.Context) (bar, error) {
	var times []time.Duration
	for range 9 {
		begin := time.Now()
		p, err := d.run()
		if err != nil {
			return bar{}, err
		}
		s, err := d.take(ctx, controlPath)
		if err == nil {
			_, err = s.read()
		}
		times = append(times, time.Since(begin))
		if s != nil {
			s.Close()
		}
		p.stop()
		if err != nil {
			return bar{}, err
		}
	}
	fmt.Printf("%-16s %s (median of %d)\n", "start_to_hello", median(times), len(times))
	return bar{name: "start_to_hello", value: float64(median(times).Microseconds()) / 1e3, limit: 100, unit: "ms"}, nil
}

func (d *daemonBench) measure(ctx context.Context) ([]bar, error) {
	return d.withPeer(ctx, func(p *program, data, bare *socket) ([]bar, error) {
		rss, err := idle(ctx, p)
		if err != nil {
			return nil, err
		}
		fmt.Printf("%-16s %.1f MB with %d sessions\n", "idle_rss", rss, sessions)
		ratios, err := d.ratios(ctx, data, bare)
		return append([]bar{{name: "idle_rss", value: rss, limit: 20, unit: "MB"}}, ratios...), err
	})
}

// withPeer runs f with the daemon, the socket of a session of it, and that of a
// bare peer.
func (d *daemonBench) withPeer(ctx context.Context, f func(p *program, data, bare *socket) ([]bar, error)) ([]bar, error) {
	p, err := d.run()
	if err != nil {
		return nil, err
	}
	defer p.stop()
	data, err := d.connect(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	bareProcess, err := self("-role", "peer", "-url", strings.Replace(d.url, "http", "ws", 1)+"/bare")
	if err != nil {
		return nil, err
	}
	defer bareProcess.stop()
	bare, err := d.take(ctx, "/bare")
	if err != nil {
		return nil, err
	}
	return f(p, data, bare)
}

// idle waits until the resident set no longer changes, and reads it.
func idle(ctx context.Context, p *program) (float64, error) {
	last, same := 0.0, 0
	for tick := time.NewTicker(500 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			return 0, context.Cause(ctx)
		case <-tick.C:
		}
		now, err := p.rss()
		if err != nil {
			return 0, err
		}
		if same++; now != last {
			same = 0
		}
		if last = now; same >= 4 {
			return now, nil
		}
	}
}

func (d *daemonBench) ratios(ctx context.Context, data, bare *socket) ([]bar, error) {
	stat := request(wire.TFileStat, map[string]any{"path": filepath.Join(d.root(), "small"), "follow_symlinks": true})
	read := request(wire.TFileRead, map[string]any{"path": filepath.Join(d.root(), "big"), "encoding": "base64"})
	run := request(wire.TExecuteCommand, map[string]any{"argv": []string{"/bin/true"}})
	echo := func(t wire.Type) call {
		make := bareFrame(t)
		return func() error { _, err := bare.roundTrip(make()); return err }
	}
	ours := func(make func() []byte, want wire.Type, atLeast int) call {
		return func() error { return ask(data, make(), want, atLeast) }
	}
	// Warm both, so that the first round isn't about the first call.
	if _, _, _, err := compare(ctx, "warm-up", 1, roundCalls, ours(stat, wire.TFileStatResponse, 0), echo(echoFrame)); err != nil {
		return nil, err
	}
	statRatio, _, _, err := compare(ctx, "file_stat", 25, roundCalls, ours(stat, wire.TFileStatResponse, 0), echo(echoFrame))
	if err != nil {
		return nil, err
	}
	execRatio, _, _, err := compare(ctx, "exec_true", 9, roundCalls, ours(run, wire.TCommandResult, 0), echo(execFrame))
	if err != nil {
		return nil, err
	}
	readRatio, _, _, err := compare(ctx, "file_read_8mib", 11, 10, ours(read, wire.TFileContents, big), echo(bigFrame))
	if err != nil {
		return nil, err
	}
	return []bar{
		{name: "file_stat", value: statRatio, limit: 2},
		{name: "exec_true", value: execRatio, limit: 1.3},
		{name: "file_read_8mib", value: 1 / readRatio, limit: 0.7, floor: true},
	}, nil
}

// request makes frames as the platform sends them, each with a new id.
func request(t wire.Type, payload any) func() []byte {
	body, err := json.Marshal(payload)
	if err != nil {
		panic(err) // maps of strings: can't fail
	}
	return func() []byte {
		return fmt.Appendf(nil, `{"type":%q,"id":%q,"ts":%.6f,"payload":%s}`, t, uuid.NewString(), float64(time.Now().UnixMicro())/1e6, body)
	}
}

// ask sends a request and takes its answer, passing over STATUS.
func ask(s *socket, frame []byte, want wire.Type, atLeast int) error {
	b, err := s.roundTrip(frame)
	for err == nil {
		head := b[:min(len(b), 200)]
		switch {
		case bytes.Contains(head, []byte(`"type":"STATUS"`)):
			b, err = s.read()
			continue
		case !bytes.Contains(head, []byte(`"type":"`+string(want)+`"`)) || len(b) < atLeast:
			return fmt.Errorf("got %s", head)
		}
		return nil
	}
	return err
}

// connect does what the platform does to open the sessions, and returns the
// first one's socket.
func (d *daemonBench) connect(ctx context.Context) (*socket, error) {
	control, err := d.take(ctx, controlPath)
	if err != nil {
		return nil, err
	}
	if err := d.ack(control, ""); err != nil {
		return nil, err
	}
	var first *socket
	for i := range sessions {
		id := fmt.Sprintf("bench-%d", i)
		if err := d.open(control, id); err != nil {
			return nil, err
		}
		s, err := d.take(ctx, controlPath+"/"+id)
		if err != nil {
			return nil, err
		}
		if err := d.ack(s, id); err != nil {
			return nil, err
		}
		if first == nil {
			first = s
		} else {
			go drain(s)
		}
	}
	go drain(control)
	return first, nil
}

// drain reads what an idle socket sends.
func drain(s *socket) {
	for {
		if _, err := s.read(); err != nil {
			return
		}
	}
}

func (d *daemonBench) ack(s *socket, session string) error {
	b, err := s.read()
	if err != nil {
		return err
	}
	e, err := wire.DecodeEnvelope(b)
	if err != nil {
		return err
	}
	var hello wire.Hello
	if err := wire.Decode(e.Payload, &hello); err != nil {
		return err
	}
	payload := map[string]any{"session_id": nil, "protocol_version": "1.1", "max_file_size_bytes": 10485760, "command_timeout_seconds": 30, "max_concurrent": 4}
	var granted []wire.Capability
	for _, c := range hello.Capabilities {
		if d.grants.Has(c) {
			granted = append(granted, c)
		}
	}
	payload["granted_capabilities"] = granted
	if session == "" {
		payload["connection_id"] = uuid.NewString()
	} else {
		payload["session_id"] = session
	}
	return s.WriteJSON(map[string]any{"type": wire.THelloAck, "id": e.ID, "ts": 1, "payload": payload})
}

// open browses to the root, attaches and activates.
func (d *daemonBench) open(control *socket, id string) error {
	var list wire.DirectoryListResponse
	if err := exchange(control, wire.TDirectoryListRequest, map[string]any{}, &list); err != nil {
		return err
	}
	if len(list.Entries) == 0 {
		return fmt.Errorf("no root is offered")
	}
	var binding wire.SessionBinding
	err := exchange(control, wire.TAttachSession, map[string]any{"session_id": id, "browse_id": list.BrowseID, "directory_ref": list.Entries[0].DirectoryRef}, &binding)
	if err != nil {
		return err
	}
	return exchange(control, wire.TActivateSession, map[string]any{"session_id": id, "revision": binding.Revision}, &binding)
}

func exchange(s *socket, t wire.Type, payload, answer any) error {
	b, err := s.roundTrip(request(t, payload)())
	if err != nil {
		return err
	}
	e, err := wire.DecodeEnvelope(b)
	if err != nil {
		return err
	}
	if e.Type == wire.TError {
		return fmt.Errorf("%s: %s", t, e.Payload)
	}
	return wire.Decode(e.Payload, answer)
}
