package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/gorilla/websocket"

	"farhand/wire"
)

// transferBytes is the size of the file that is copied, barePiece what the bare
// copy puts into one frame: as much as ours.
const (
	transferBytes  = 1 << 30
	transferRounds = 5
	barePiece      = wire.TransferPiece
)

// benchTransfer copies a file of 1 GiB to a machine and back with the real
// programs, from the start of the command to its end. Beside it the same file goes
// the same way bare: a process reads it and sends it in frames of gorilla's, one
// copies the frames, one writes and syncs it. For root all files lie in memory, so
// that it isn't the disk that is measured.
func benchTransfer(ctx context.Context, bin, dir string) ([]bar, error) {
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprint("size=", 5*transferBytes)); err == nil {
		defer syscall.Unmount(dir, syscall.MNT_DETACH)
	}
	c, err := newCopies(bin, dir)
	if err != nil {
		return nil, err
	}
	defer c.stop()
	put := call(func() error { return c.farhand("put", c.file("source"), ":ours") })
	get := call(func() error { return c.farhand("get", ":ours", c.file("back")) })
	bare := call(func() error { return c.bare(ctx) })
	straight := call(func() error { return c.straight() })
	if _, _, _, err := compare(ctx, "bare, one hop", transferRounds, 1, bare, straight); err != nil { // what the hop is worth
		return nil, err
	}
	var bars []bar
	for _, way := range []struct {
		name string
		ours call
		come string
	}{{"put", put, c.file("work/ours")}, {"get", get, c.file("back")}} {
		clean := func() error { // what is there would be taken for the same, or its pages be used again
			return errors.Join(os.RemoveAll(way.come), os.RemoveAll(c.file("bare")))
		}
		c.peak = 0
		ours := func() error { return errors.Join(clean(), way.ours()) }
		ratio, _, _, err := compare(ctx, way.name+" 1 GiB", transferRounds, 1, ours, bare)
		if err != nil {
			return nil, err
		}
		far, err := c.daemon.peak()
		if err != nil {
			return nil, err
		}
		fmt.Printf("%-16s command %.1f MB, daemon %.1f MB at most\n", way.name+" memory", c.peak, far)
		bars = append(bars,
			bar{name: way.name + "_1gib", value: 1 / ratio, limit: 0.6, floor: true},
			bar{name: way.name + "_memory", value: max(c.peak, far), limit: 40, unit: "MB"})
		if way.name == "put" { // the daemon's copy stays, to be fetched
			if err := ours(); err != nil {
				return nil, err
			}
		}
	}
	return bars, nil
}

// copies are a relay with a machine, and a file.
type copies struct {
	bin, dir string
	relay    *relay
	daemon   *program
	peak     float64 // of the command, MB
}

func (c *copies) file(name string) string { return filepath.Join(c.dir, name) }

func newCopies(bin, dir string) (c *copies, err error) {
	c = &copies{bin: bin, dir: dir}
	defer func() {
		if err != nil {
			c.stop()
		}
	}()
	if err := c.source(); err != nil {
		return c, err
	}
	if c.relay, err = startRelay(bin, dir); err != nil {
		return c, err
	}
	config := fmt.Sprintf("platform_url = %q\nstate_dir = %q\nroots = [%q]\nmachine_id = \"bench\"\nhardware.enabled = false\n",
		c.relay.url, c.file("state"), c.file("work"))
	err = errors.Join(os.Mkdir(c.file("work"), 0o700), os.WriteFile(c.file("farhandd.toml"), []byte(config), 0o600))
	if err != nil {
		return c, err
	}
	tokens, err := c.relay.claim("bench")
	if err != nil {
		return c, err
	}
	login := exec.Command(filepath.Join(bin, "farhandd"), "login", "--config", c.file("farhandd.toml"), "--tokens", "-")
	login.Stdin = strings.NewReader(tokens)
	if out, err := login.CombinedOutput(); err != nil {
		return c, fmt.Errorf("farhandd login: %w: %s", err, out)
	}
	if c.daemon, err = start(os.Environ(), filepath.Join(bin, "farhandd"), "run", "--config", c.file("farhandd.toml")); err != nil {
		return c, err
	}
	_, err = c.daemon.line("Online")
	return c, err
}

func (c *copies) stop() {
	if c.daemon != nil {
		c.daemon.stop()
	}
	if c.relay != nil {
		c.relay.stop()
	}
}

// source makes the file, of bytes that nothing can compress.
func (c *copies) source() error {
	f, err := os.Create(c.file("source"))
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{1}), transferBytes)
	return errors.Join(err, f.Close())
}

// farhand runs the command and notes its memory.
func (c *copies) farhand(args ...string) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, append([]string{"-role", "measured", "--", filepath.Join(c.bin, "farhand")}, args...)...)
	cmd.Env = append(os.Environ(), "FARHAND_URL="+c.relay.url, "FARHAND_TOKEN="+c.relay.token, "FARHAND_CONFIG_DIR="+c.dir)
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("farhand %s: %w: %s", args[0], err, out)
	}
	peak, err := strconv.ParseFloat(strings.TrimSpace(string(out)), 64)
	c.peak = max(c.peak, peak)
	return err
}

// measured runs a command and prints its largest resident set in MB (10^6 bytes).
// It is a process between, since a child counts from what its parent had when it
// was forked (getrusage(2)), and the bench has much.
func measured(argv []string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok {
		return errors.New("the system doesn't say what a process took")
	}
	fmt.Println(float64(usage.Maxrss) * 1024 / 1e6)
	return nil
}

// bare copies the file through a forwarder.
func (c *copies) bare(ctx context.Context) error {
	f, err := self("-role", "forwarder")
	if err != nil {
		return err
	}
	defer f.stop()
	addr, err := f.line("127.0.0.1")
	if err != nil {
		return err
	}
	to, err := self("-role", "receiver", "-url", "ws://"+addr, "-file", c.file("bare"))
	if err != nil {
		return err
	}
	defer to.stop()
	from, err := self("-role", "sender", "-url", "ws://"+addr, "-file", c.file("source"))
	if err != nil {
		return err
	}
	if err := from.cmd.Wait(); err != nil {
		return fmt.Errorf("bare copy: %w", err)
	}
	return nil
}

// straight copies the file to a receiver that listens itself.
func (c *copies) straight() error {
	to, err := self("-role", "receiver", "-file", c.file("bare"))
	if err != nil {
		return err
	}
	defer to.stop()
	addr, err := to.line("127.0.0.1")
	if err != nil {
		return err
	}
	from, err := self("-role", "sender", "-url", "ws://"+addr, "-file", c.file("source"))
	if err != nil {
		return err
	}
	if err := from.cmd.Wait(); err != nil {
		return fmt.Errorf("bare copy, one hop: %w", err)
	}
	return nil
}

// sendFile sends a file in binary frames and a text to end it, and waits for the
// answer.
func sendFile(ctx context.Context, url, name string) error {
	ws, _, err := dialer().DialContext(ctx, url, nil)
	if err != nil {
		return err
	}
	defer ws.Close()
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for buf := make([]byte, barePiece); ; {
		n, err := io.ReadFull(f, buf)
		if n > 0 {
			if err := ws.WriteMessage(websocket.BinaryMessage, buf[:n]); err != nil {
				return err
			}
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if err := ws.WriteMessage(websocket.TextMessage, []byte("end")); err != nil {
		return err
	}
	_, _, err = ws.ReadMessage()
	return err
}

// receiveFile is the other end. Without a URL it listens, and prints where.
func receiveFile(ctx context.Context, url, name string) error {
	if url == "" {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Println(l.Addr())
		done := make(chan error, 1)
		up := websocket.Upgrader{ReadBufferSize: buffer, WriteBufferSize: buffer}
		srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ws, err := up.Upgrade(w, r, nil)
			if err == nil {
				err = receiveFrom(ws, name)
			}
			done <- err
		})}
		go srv.Serve(l)
		defer srv.Close()
		return <-done
	}
	ws, _, err := dialer().DialContext(ctx, url, nil)
	if err != nil {
		return err
	}
	return receiveFrom(ws, name)
}

func receiveFrom(ws *websocket.Conn, name string) error {
	defer ws.Close()
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	for buf := make([]byte, barePiece); ; {
		kind, r, err := ws.NextReader()
		if err != nil {
			return err
		}
		if kind == websocket.TextMessage {
			break
		}
		if _, err := io.CopyBuffer(struct{ io.Writer }{f}, r, buf); err != nil {
			return err
		}
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := ws.WriteMessage(websocket.TextMessage, []byte("ok")); err != nil {
		return err
	}
	if _, _, err := ws.ReadMessage(); !websocket.IsCloseError(err, websocket.CloseAbnormalClosure) { // the other side is gone
		return err
	}
	return nil
}

// claim pairs a machine by a claim key and returns its tokens.
func (r *relay) claim(machine string) (string, error) {
	var claim struct {
		Key string `json:"claim_key"`
	}
	if err := r.post("/api/claims", map[string]any{"capabilities": []string{"files"}}, &claim); err != nil {
		return "", err
	}
	resp, err := http.PostForm(r.url+"/api/oauth/token", url.Values{
		"grant_type": {"urn:farhand:params:oauth:grant-type:claim"}, "client_id": {"autogpt-local-executor"},
		"claim_key": {claim.Key}, "machine_id": {machine}, "display_name": {machine},
	})
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("claim: HTTP %d %s", resp.StatusCode, b)
	}
	return string(b), err
}

// peak is the largest resident set so far, in MB (10^6 bytes).
func (p *program) peak() (float64, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.SplitSeq(string(b), "\n") {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 64)
			return kib * 1024 / 1e6, err
		}
	}
	return 0, fmt.Errorf("no VmHWM of %d", p.cmd.Process.Pid)
}
