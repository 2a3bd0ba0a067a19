package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"farhand/wire"
)

// benchRelay measures one hop through the relay, and what idle devices cost.
func benchRelay(ctx context.Context, bin, dir string, idleDevices int) ([]bar, error) {
	r, err := startRelay(bin, dir)
	if err != nil {
		return nil, err
	}
	defer func() { r.stop() }()
	hop, err := r.hop(ctx)
	if err != nil {
		return nil, fmt.Errorf("hop: %w", err)
	}
	idle, err := r.idle(ctx, bin, dir, idleDevices)
	if err != nil {
		return nil, fmt.Errorf("idle: %w", err)
	}
	return []bar{hop, idle}, nil
}

type relay struct {
	*program
	url   string // http://…
	token string // the owner's
}

// startRelay starts a relay and makes its owner's account. No share of requests is
// what is measured.
func startRelay(bin, dir string, more ...string) (*relay, error) {
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	argv := append([]string{filepath.Join(bin, "farhand-relay"), "run", "--listen", addr, "--data-dir", filepath.Join(dir, "data"),
		"--max-calls", "0", "--max-requests", "0"}, more...)
	p, err := start(os.Environ(), argv...)
	if err != nil {
		return nil, err
	}
	r := &relay{program: p, url: "http://" + addr}
	line, err := p.line("/setup?token=")
	if err != nil {
		p.stop()
		return nil, err
	}
	setup := regexp.MustCompile(`token=([A-Za-z0-9_-]+)`).FindStringSubmatch(line)
	var login struct {
		Token string `json:"token"`
	}
	err = r.post("/api/setup", map[string]any{"setup_token": setup[1], "name": "bench", "passphrase": rand.Text()}, &login)
	if err != nil {
		p.stop()
		return nil, err
	}
	r.token = login.Token
	return r, nil
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

func (r *relay) ws(path string) string { return strings.Replace(r.url, "http", "ws", 1) + path }

func (r *relay) post(path string, body, answer any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequest(http.MethodPost, r.url+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	if r.token != "" {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	return do(req, answer)
}

func do(req *http.Request, answer any) error {
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 {
		return fmt.Errorf("%s: HTTP %d %s", req.URL.Path, resp.StatusCode, b)
	}
	return json.Unmarshal(b, answer)
}

// pair makes a machine by a claim key and returns its access token.
func (r *relay) pair(machine string) (string, error) {
	var claim struct {
		Key string `json:"claim_key"`
	}
	if err := r.post("/api/claims", map[string]any{"capabilities": []string{"files"}}, &claim); err != nil {
		return "", err
	}
	form := url.Values{"grant_type": {"urn:farhand:params:oauth:grant-type:claim"}, "client_id": {"autogpt-local-executor"},
		"claim_key": {claim.Key}, "machine_id": {machine}, "display_name": {machine}}
	req, err := http.NewRequest(http.MethodPost, r.url+"/api/oauth/token", strings.NewReader(form.Encode()))
	if err != nil {
		return "", err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	var tokens struct {
		AccessToken string `json:"access_token"`
	}
	err = do(req, &tokens)
	return tokens.AccessToken, err
}

// hop compares a request through the relay, to a device that echoes, with the
// same device asked directly, beside a forwarder that only copies.
func (r *relay) hop(ctx context.Context) (bar, error) {
	token, err := r.pair("hop")
	if err != nil {
		return bar{}, err
	}
	device, err := self("-role", "devices", "-url", r.url, "-tokens", "hop:"+token)
	if err != nil {
		return bar{}, err
	}
	defer device.stop()
	if _, err := device.line("connected"); err != nil {
		return bar{}, err
	}
	var session struct {
		ID string `json:"session_id"`
	}
	if err := r.post("/api/sessions", map[string]any{"machine": "hop"}, &session); err != nil {
		return bar{}, err
	}
	ws, _, err := dialer().DialContext(ctx, r.ws("/ws/operator"), http.Header{"Authorization": {"Bearer " + r.token}})
	if err != nil {
		return bar{}, err
	}
	operator := &socket{Conn: ws}
	defer operator.Close()

	direct, err := newAccept("/bare")
	if err != nil {
		return bar{}, err
	}
	defer direct.server.Close()
	bareProcess, err := self("-role", "peer", "-url", strings.Replace(direct.url, "http", "ws", 1)+"/bare")
	if err != nil {
		return bar{}, err
	}
	defer bareProcess.stop()
	bare, err := direct.take(ctx, "/bare")
	if err != nil {
		return bar{}, err
	}
	copied, stop, err := throughForwarder(ctx)
	if err != nil {
		return bar{}, err
	}
	defer stop()

	stat := request(wire.TFileStat, map[string]any{"path": "/bench/some/file", "follow_symlinks": true})
	through := func() error {
		frame := stat()
		frame = append(frame[:len(frame)-1], fmt.Sprintf(`,"session_id":%q}`, session.ID)...)
		return ask(operator, frame, wire.TFileStatResponse, 0)
	}
	straight := func() error { return ask(bare, stat(), wire.TFileStatResponse, 0) }
	echo := func(s *socket) call {
		make := bareFrame(echoFrame)
		return func() error { _, err := s.roundTrip(make()); return err }
	}
	hop, err := adds(ctx, "relay_hop", through, straight, echo(bare))
	if err != nil {
		return bar{}, err
	}
	if _, err := adds(ctx, "bare forwarder", echo(copied), echo(bare), echo(bare)); err != nil {
		return bar{}, err
	}
	return bar{name: "relay_hop", value: hop, limit: 1.5}, nil
}

// adds is how many echoes longer the way through is than the straight one to the
// same device: the median over rounds of all three in turn, after one to warm up.
func adds(ctx context.Context, name string, through, straight, echo call) (float64, error) {
	const rounds = 25
	var ratios []float64
	var times [3][]time.Duration
	for i := range rounds + 1 {
		var took [3]time.Duration
		for k, f := range []call{through, straight, echo} {
			var err error
			if took[k], err = timed(roundCalls, f); err != nil {
				return 0, fmt.Errorf("%s: %w", name, err)
			}
		}
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		if i == 0 {
			continue
		}
		ratios = append(ratios, float64(took[0]-took[1])/float64(took[2]))
		for k := range took {
			times[k] = append(times[k], took[k]/roundCalls)
		}
	}
	fmt.Printf("%-16s through %s  straight %s  echo %s  adds %.2f echoes\n", name, median(times[0]), median(times[1]), median(times[2]), median(ratios))
	return median(ratios), nil
}

func throughForwarder(ctx context.Context) (*socket, func(), error) {
	f, err := self("-role", "forwarder")
	if err != nil {
		return nil, nil, err
	}
	addr, err := f.line("127.0.0.1")
	if err != nil {
		f.stop()
		return nil, nil, err
	}
	ws, _, err := dialer().DialContext(ctx, "ws://"+addr, nil)
	if err != nil {
		f.stop()
		return nil, nil, err
	}
	p, err := self("-role", "peer", "-url", "ws://"+addr)
	if err != nil {
		f.stop()
		return nil, nil, err
	}
	return &socket{Conn: ws}, func() { ws.Close(); p.stop(); f.stop() }, nil
}

// idle connects many devices that do nothing, and reads what each costs.
//
// The relay is started anew before, so that what logging in and pairing took
// isn't in the figure.
func (r *relay) idle(ctx context.Context, bin, dir string, n int) (bar, error) {
	tokens, err := r.pairMany(ctx, n)
	if err != nil {
		return bar{}, err
	}
	r.stop()
	addr := strings.TrimPrefix(r.url, "http://")
	if r.program, err = start(os.Environ(), filepath.Join(bin, "farhand-relay"), "run", "--listen", addr, "--data-dir", filepath.Join(dir, "data")); err != nil {
		return bar{}, err
	}
	if err := r.answers(ctx); err != nil {
		return bar{}, err
	}
	file := filepath.Join(dir, "tokens")
	if err := os.WriteFile(file, []byte(strings.Join(tokens, "\n")), 0o600); err != nil {
		return bar{}, err
	}
	before, err := idle(ctx, r.program)
	if err != nil {
		return bar{}, err
	}
	many, err := self("-role", "devices", "-url", r.url, "-tokens", "@"+file)
	if err != nil {
		return bar{}, err
	}
	defer many.stop()
	if _, err := many.line("connected"); err != nil {
		return bar{}, err
	}
	after, err := idle(ctx, r.program)
	if err != nil {
		return bar{}, err
	}
	each := (after - before) * 1e3 / float64(n)
	fmt.Printf("%-16s %.1f kB each (%d devices: %.1f MB, before %.1f MB)\n", "relay_idle", each, n, after, before)
	return bar{name: "relay_idle", value: each, limit: 60, unit: "kB"}, nil
}

// answers waits until the relay does.
func (r *relay) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errTimeout)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; {
		resp, err := http.Get(r.url + "/.well-known/oauth-authorization-server")
		if err == nil {
			resp.Body.Close()
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("relay: %w", context.Cause(ctx))
		}
	}
}

func (r *relay) pairMany(ctx context.Context, n int) ([]string, error) {
	tokens := make([]string, n)
	var all sync.WaitGroup
	next := make(chan int)
	errs := make(chan error, 8)
	for range cap(errs) {
		all.Go(func() {
			for i := range next {
				machine := fmt.Sprintf("idle-%d", i)
				token, err := r.pair(machine)
				if err != nil {
					errs <- err
					return
				}
				tokens[i] = machine + ":" + token
			}
		})
	}
	var err error
	for i := range n {
		select {
		case next <- i:
		case err = <-errs:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			break
		}
	}
	close(next)
	all.Wait()
	return tokens, err
}

// devices are shims as simple as can be: they shake hands, let themselves be
// browsed and attached, and answer FILE_STAT with the same few bytes. tokens is
// machine:token, or @file with one on each line.
func devices(ctx context.Context, base, tokens string) error {
	list := []string{tokens}
	if name, ok := strings.CutPrefix(tokens, "@"); ok {
		b, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		list = strings.Split(string(b), "\n")
	}
	fails := make(chan error, len(list))
	for _, item := range list {
		machine, token, _ := strings.Cut(item, ":")
		d := &device{base: strings.Replace(base, "http", "ws", 1), machine: machine, token: token, fails: fails}
		if err := d.connect(ctx, ""); err != nil {
			return fmt.Errorf("%s: %w", machine, err)
		}
	}
	out := bufio.NewWriter(os.Stdout)
	fmt.Fprintln(out, "connected", len(list))
	out.Flush()
	select {
	case err := <-fails:
		return err
	case <-ctx.Done():
		return nil
	}
}

type device struct {
	base, machine, token string
	fails                chan error
}

func (d *device) connect(ctx context.Context, session string) error {
	path := controlPath
	if session != "" {
		path += "/" + session
	}
	small := &websocket.Dialer{ReadBufferSize: 1 << 10, WriteBufferSize: 1 << 10, HandshakeTimeout: 30 * time.Second}
	ws, resp, err := small.DialContext(ctx, d.base+path, http.Header{"Authorization": {"Bearer " + d.token}})
	if err != nil {
		if resp != nil {
			err = errors.Join(err, errors.New(resp.Status))
		}
		return err
	}
	hello := map[string]any{"shim_version": "1", "protocol_version": "1.1", "machine_id": d.machine, "platform": "linux", "arch": "arm64",
		"capabilities": []string{"files", "directory_browse"}, "allowed_root": nil, "local_llm_models": []string{}, "hardware_devices": []string{}}
	if session != "" {
		hello["allowed_root"] = "/bench"
	}
	if err := ws.WriteJSON(map[string]any{"type": "HELLO", "id": "hello", "ts": 1, "payload": hello}); err != nil {
		return err
	}
	var ack struct{ Type string }
	if err := ws.ReadJSON(&ack); err != nil {
		return err
	}
	if ack.Type != "HELLO_ACK" {
		return fmt.Errorf("got %s", ack.Type)
	}
	go func() {
		defer ws.Close()
		d.fails <- d.serve(ctx, ws)
	}()
	return nil
}

func (d *device) serve(ctx context.Context, ws *websocket.Conn) error {
	for {
		_, b, err := ws.ReadMessage()
		if err != nil {
			return err
		}
		e, err := wire.DecodeEnvelope(b)
		if err != nil {
			return err
		}
		answer, err := d.answer(ctx, e)
		if err != nil {
			return err
		}
		if answer == nil {
			continue
		}
		if err := ws.WriteMessage(websocket.TextMessage, answer); err != nil {
			return err
		}
	}
}

func (d *device) answer(ctx context.Context, e wire.Envelope) ([]byte, error) {
	const fingerprint = "0000000000000000000000000000000000000000000000000000000000000000"
	frame := func(t wire.Type, payload string) []byte {
		return fmt.Appendf(nil, `{"type":%q,"id":%q,"ts":1,"version":"1.1","pending_capacity":3,"payload":%s}`, t, e.ID, payload)
	}
	if e.Type == wire.TFileStat {
		return frame(wire.TFileStatResponse, `{"exists":true,"is_file":true,"is_dir":false,"is_symlink":false,"size_bytes":1,"mtime":1.0,"ctime":1.0,"mode":"0644","owner_uid":0,"owner_gid":0,"mime_type":null,"path":"/bench/x"}`), nil
	}
	var session wire.SessionBinding
	if err := wire.Decode(e.Payload, &session); err != nil {
		return nil, err
	}
	binding := fmt.Sprintf(`{"session_id":%q,"allowed_root":"/bench","fingerprint":%q,"revision":1`, session.SessionID, fingerprint)
	switch e.Type {
	case wire.TDirectoryListRequest:
		return frame(wire.TDirectoryListResponse, `{"browse_id":"b","current":null,"parent_ref":null,"entries":[{"directory_ref":"r","name":"bench","path":"/bench"}],"next_cursor":null,"truncated":false,"expires_at":4e9}`), nil
	case wire.TAttachSession:
		return frame(wire.TSessionAttached, binding+`,"root_grant":"g"}`), nil
	case wire.TActivateSession:
		return frame(wire.TSessionActivated, binding+"}"), d.connect(ctx, session.SessionID)
	case wire.TDetachSession:
		return frame(wire.TAck, `{"ok":true}`), nil
	}
	return nil, nil
}
