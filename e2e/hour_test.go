package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"farhand/audit"
	"farhand/client"
	"farhand/grant"
	"farhand/internal/faketime"
	"farhand/link"
	"farhand/relay/access"
	"farhand/relay/route"
	"farhand/relay/store"
	"farhand/shim"
	"farhand/stream"
	"farhand/terminal"
	"farhand/wire"
)

// cables is a network within the process, which can be cut: then nothing arrives
// any more on what is connected, as behind a router that has lost its uplink, and
// nothing new can be connected until it is mended. What was connected stays dead.
type cables struct {
	offered chan net.Conn
	closed  chan struct{}
	once    sync.Once

	mu  sync.Mutex
	cut *atomic.Bool // of what is connected now
	off bool
}

func newCables() *cables {
	return &cables{offered: make(chan net.Conn), closed: make(chan struct{}), cut: new(atomic.Bool)}
}

// lose cuts it, mend mends it.
func (c *cables) lose() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut.Store(true)
	c.cut, c.off = new(atomic.Bool), true
}

func (c *cables) mend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = false
}

func (c *cables) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	c.mu.Lock()
	cut, off := c.cut, c.off
	c.mu.Unlock()
	if off {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ENETUNREACH}
	}
	here, there := net.Pipe()
	select {
	case c.offered <- cable{there, cut}:
		return cable{here, cut}, nil
	case <-c.closed:
	case <-ctx.Done():
	}
	here.Close()
	there.Close()
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
}

// Accept implements net.Listener.
func (c *cables) Accept() (net.Conn, error) {
	select {
	case conn := <-c.offered:
		return conn, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

func (c *cables) Close() error {
	c.once.Do(func() { close(c.closed) })
	return nil
}

func (c *cables) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

type cable struct {
	net.Conn
	cut *atomic.Bool
}

// Read gets nothing any more once it is cut.
func (c cable) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.cut.Load() {
			return n, err
		}
	}
}

// Write goes nowhere once it is cut.
func (c cable) Write(b []byte) (int, error) {
	if c.cut.Load() {
		return len(b), nil
	}
	return c.Conn.Write(b)
}

// oneOwner is an authority with one owner, who has one machine and may do all.
type oneOwner struct{ machine access.Machine }

func (o oneOwner) Device(context.Context, string) (access.Device, error) {
	return access.Device{Owner: "ann", MachineID: o.machine.ID, Family: "f", ClientID: "autogpt-local-executor"}, nil
}
func (o oneOwner) Operator(context.Context, string) (access.Operator, error) {
	return access.Operator{Owner: "ann", Name: "ann", Holder: "login", Login: true, Manage: true}, nil
}
func (o oneOwner) Bind(context.Context, access.Device, string) error { return nil }
func (o oneOwner) Machine(context.Context, string, string) (access.Machine, error) {
	return o.machine, nil
}
func (o oneOwner) Machines(context.Context, string) ([]access.Machine, error) {
	return []access.Machine{o.machine}, nil
}
func (o oneOwner) Seen(context.Context, string, string, wire.Hello) error { return nil }
func (o oneOwner) Left(context.Context, string, string) error             { return nil }

func (o oneOwner) Anchored(_ context.Context, _, _ string, a wire.Anchor) (wire.Anchor, error) {
	return a, nil
}

// constant is a token that lasts.
type constant string

func (k constant) Token(context.Context) (string, error)            { return string(k), nil }
func (k constant) Rejected(context.Context, string) (string, error) { return string(k), nil }
func (k constant) Expiry() time.Time                                { return time.Time{} }

// script is a program on a terminal, played by the test.
type script struct {
	net.Conn // its end of the terminal
	exited   chan struct{}
	code     int
	hungUp   sync.Once
}

func (p *script) Exited() <-chan struct{}  { return p.exited }
func (p *script) Terminate()               { p.exit(-15) }
func (p *script) Kill(time.Duration)       { p.exit(-9) }
func (p *script) Reap() (int, error)       { return p.code, nil }
func (p *script) prints(text string) error { _, err := io.WriteString(p, text); return err }

func (p *script) exit(code int) {
	p.hungUp.Do(func() {
		p.code = code
		p.Close()
		close(p.exited)
	})
}

// far is a client, a relay and a machine in fake time, with the parts that they
// are made of in life, and two networks that can be cut.
type far struct {
	t                 *testing.T
	operators, device *cables
	session           *client.Session
	programs          chan *script
	connect           func() *client.Client
}

func newFar(t *testing.T) *far {
	t.Helper()
	f := &far{t: t, operators: newCables(), device: newCables(), programs: make(chan *script, 8)}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))

	db, err := store.OpenBolt(filepath.Join(dir, "relay.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	router := route.New(route.Config{Authority: oneOwner{access.Machine{ID: "m", Owner: "ann", Name: "far"}}, Store: db, Log: log})
	mux := http.NewServeMux()
	router.Register(mux)
	server := &http.Server{Handler: mux}
	var serving sync.WaitGroup
	for _, l := range []net.Listener{f.operators, f.device} {
		serving.Go(func() { _ = server.Serve(l) })
	}
	t.Cleanup(func() {
		router.Close()
		server.Close()
		serving.Wait()
	})
	f.machine(dir, log)
	f.connect = func() *client.Client {
		c, err := client.New(client.Config{URL: "http://localhost", Token: "t", Dial: f.operators.dial, Log: log})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	synctest.Wait()
	if f.session, err = f.connect().Open(t.Context(), client.Place{Machine: "far"}); err != nil {
		t.Fatal(err)
	}
	return f
}

// machine is the device: the shim with terminals, streams and nothing else.
func (f *far) machine(dir string, log *slog.Logger) {
	t := f.t
	root := filepath.Join(dir, "work")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	key := []byte(strings.Repeat("k", 32))
	record, err := audit.Open(audit.Options{Path: filepath.Join(dir, "audit.log"), Key: key, MachineID: "m", ShimVersion: "1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { record.Close() })
	bindings, err := grant.Open(grant.Options{Dir: dir, Key: key, MachineID: "m"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bindings.Close() })
	hub := stream.NewHub(stream.HubOptions{Log: log})
	t.Cleanup(func() { hub.Close() })
	terminals, err := terminal.New(terminal.Options{Hub: hub, Log: log, Ends: func() (terminal.End, error) {
		ours, its := net.Pipe()
		f.programs <- &script{Conn: its, exited: make(chan struct{})}
		return ours, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { terminals.Close() })
	s, err := shim.New(shim.Config{
		ControlURL: "ws://localhost/ws/local-executor",
		Dial: func(ctx context.Context, url, token string) (*link.Conn, error) {
			return link.Dial(ctx, url, link.DialOptions{Token: token, Device: true, NetDial: f.device.dial})
		},
		Tokens: constant("t"), LoginNeeded: func(error) bool { return false },
		Hello: func(context.Context, wire.Channel, string) (wire.Hello, error) {
			return wire.Hello{ShimVersion: "1", MachineID: "m", DisplayName: "far", Platform: "linux", Arch: "arm64",
				Capabilities: wire.Capabilities{wire.DirectoryBrowse, wire.Shell, wire.Grants, wire.Streams, wire.Cancel, wire.Terminal}}, nil
		},
		Open: func(_ context.Context, s *shim.Session) (shim.Table, io.Closer, error) {
			return f.table(s, hub, terminals), io.NopCloser(nil), nil
		},
		Bindings: bindings, Audit: record, Roots: []string{root}, OnState: func(shim.Status) {}, Log: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
}

// table is what a session answers, as package daemon has it.
func (f *far) table(s *shim.Session, hub *stream.Hub, terminals *terminal.Service) shim.Table {
	by := stream.Owner{Session: s.ID(), Holder: s.Owner(), Owner: s.Owner()}
	opened := func(c *shim.Call, o wire.TerminalOpened, err error) (any, error) {
		if err == nil {
			c.OnAnswered(func() { hub.Begin(o.Streams.Out, c.Outlet()) })
		}
		return o, err
	}
	return shim.Table{
		wire.TTerminalOpen: {Handle: shim.Unary(func(_ context.Context, c *shim.Call, r wire.TerminalOpen) (any, error) {
			o, err := terminals.Open(terminal.Request{TerminalOpen: r, Owner: by, Cwd: "/", Hold: s.Hold, Start: func(terminal.Files) (terminal.Program, string, error) {
				// What was made last is ours: the test opens one at a time.
				p := <-f.programs
				f.programs <- p
				return p, "script", nil
			}})
			return opened(c, o, err)
		})},
		wire.TTerminalAttach: {Handle: shim.Unary(func(_ context.Context, c *shim.Call, r wire.TerminalAttach) (any, error) {
			o, err := terminals.Attach(r, by)
			return opened(c, o, err)
		})},
		wire.TTerminalInput: {Handle: shim.Unary(func(ctx context.Context, _ *shim.Call, r wire.TerminalInput) (any, error) {
			return terminals.Input(ctx, r, by)
		})},
		wire.TTerminalList: {Handle: shim.Unary(func(context.Context, *shim.Call, wire.Empty) (any, error) {
			return wire.TerminalListResponse{Terminals: terminals.List(by)}, nil
		})},
		wire.TTerminalClose: {Handle: shim.Unary(func(ctx context.Context, _ *shim.Call, r wire.TerminalClose) (any, error) {
			return wire.Ack{OK: true}, terminals.CloseTerminal(ctx, r.Terminal, by)
		})},
		wire.TStreamCredit: {Handle: shim.Unary(func(_ context.Context, _ *shim.Call, r wire.StreamCredit) (any, error) {
			hub.Credit(r, by)
			return nil, nil
		})},
		wire.TStreamAttach: {Handle: shim.Unary(func(_ context.Context, c *shim.Call, r wire.StreamAttach) (any, error) {
			answer, flow, err := hub.Attach(r, by, c.Outlet())
			if err == nil {
				c.OnAnswered(flow)
			}
			return answer, err
		})},
		wire.TStreamClose: {Handle: shim.Unary(func(_ context.Context, _ *shim.Call, r wire.StreamClose) (any, error) {
			hub.CloseStream(r.Stream, by)
			return nil, nil
		})},
	}
}

// open starts a program on a terminal and looks at it.
func (f *far) open() (*viewing, *script) {
	f.t.Helper()
	term, err := f.session.OpenTerminal(f.t.Context(), wire.TerminalOpen{})
	v := view(f.t, term, err)
	return v, <-f.programs
}

// hears is what a program is typed, until so much has come.
func (p *script) hears(t *testing.T, n int) string {
	t.Helper()
	b := make([]byte, n)
	if _, err := io.ReadFull(p, b); err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// soon is when everybody is back after a link was: a machine tries once a minute.
const soon = 2 * time.Minute

// A terminal whose link is lost for an hour, on either side, comes back exactly:
// what the program wrote meanwhile, up to what the machine keeps, is there without
// a gap and without a new screen; what was typed arrives once, also where its answer
// was lost; and the exit code is there for who comes late.
func TestTerminalAfterAnHour(t *testing.T) {
	for name, lost := range map[string]func(*far) *cables{
		"operator": func(f *far) *cables { return f.operators },
		"machine":  func(f *far) *cables { return f.device },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFar(t)
				net := lost(f)
				v, p := f.open()
				var want strings.Builder
				prints := func(text string) {
					t.Helper()
					want.WriteString(text)
					if err := p.prints(text); err != nil {
						t.Fatal(err)
					}
				}
				same := func(what string) {
					t.Helper()
					v.until(what, func(out string, _ *wire.StreamEnd) bool { return len(out) >= want.Len() })
					synctest.Wait() // and nothing more comes
					v.mu.Lock()
					defer v.mu.Unlock()
					if string(v.out) != want.String() || v.resets != 0 {
						t.Fatalf("%s: %d bytes for %d, drawn anew %d times", what, len(v.out), want.Len(), v.resets)
					}
				}
				prints("\x1b[2J\x1b[Hbefore\r\n")
				same("before")

				// What is typed reaches the program in the moment in which the link is
				// lost, and its answer doesn't come back.
				typed := make(chan error, 1)
				go func() {
					_, err := v.term.Write(t.Context(), []byte("once\n"))
					typed <- err
				}()
				if got := p.hears(t, 4); got != "once" {
					t.Fatalf("typed %q", got)
				}
				net.lose()
				p.hears(t, 1)
				faketime.Advance(10 * time.Minute)
				for i := range 2000 {
					prints(fmt.Sprintf("\x1b[3%dmline %d of a long hour\x1b[0m\r\n", i%8, i))
				}
				faketime.Advance(50 * time.Minute)
				net.mend()
				faketime.Advance(soon)
				same("after an hour")
				if err := <-typed; err != nil {
					t.Fatalf("typing: %v", err)
				}
				go func() {
					_, err := v.term.Write(t.Context(), []byte("twice\n"))
					typed <- err
				}()
				if got := p.hears(t, 6); got != "twice\n" {
					t.Errorf("after %q the program hears %q", "once\n", got)
				}
				if err := <-typed; err != nil {
					t.Fatal(err)
				}

				// And it ends while nobody is there.
				net.lose()
				prints("at last\r\n")
				faketime.Advance(time.Minute)
				p.exit(7)
				faketime.Advance(time.Hour)
				net.mend()
				faketime.Advance(soon)
				out, end := v.ends()
				if out != want.String() || exitOf(end) != 7 || end.Reason != wire.TerminalExited || v.resets != 0 {
					t.Errorf("%d bytes for %d, %+v, drawn anew %d times", len(out), want.Len(), end, v.resets)
				}
				// Who comes from elsewhere sees all of it, and much later how it ended.
				for _, after := range []time.Duration{0, 10 * time.Hour} {
					faketime.Advance(after)
					other, err := f.connect().Open(t.Context(), client.Place{Machine: "far"})
					if err != nil {
						t.Fatal(err)
					}
					term, err := other.AttachTerminal(t.Context(), v.term.ID(), nil)
					late := view(t, term, err)
					if got, end := late.ends(); exitOf(end) != 7 || after == 0 && got != want.String() {
						t.Errorf("%s later: %d bytes, %+v", after, len(got), end)
					}
					list, err := other.Terminals(t.Context())
					if err != nil || len(list) != 1 || list[0].Ended == nil || *list[0].Ended.ExitCode != 7 {
						t.Errorf("%s later: %+v, %v", after, list, err)
					}
				}
				faketime.Advance(15 * time.Hour)
				other, err := f.connect().Open(t.Context(), client.Place{Machine: "far"})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := other.AttachTerminal(t.Context(), v.term.ID(), nil); !errors.Is(err, wire.TerminalNotFound) {
					t.Errorf("after a day: %v", err)
				}
			})
		})
	}
}

// What the machine can't keep is told: the screen is drawn anew from a line, and
// what was lost is never passed over.
func TestTerminalAfterTooMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFar(t)
		v, p := f.open()
		if err := p.prints("before\r\n"); err != nil {
			t.Fatal(err)
		}
		v.shows("before")
		f.operators.lose()
		faketime.Advance(10 * time.Minute)
		line := strings.Repeat("x", 98) + "\r\n"
		for range 2 * wire.TerminalRing / len(line) {
			if err := p.prints(line); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.prints("after\r\n"); err != nil {
			t.Fatal(err)
		}
		faketime.Advance(50 * time.Minute)
		f.operators.mend()
		faketime.Advance(soon)
		v.shows("after")
		v.mu.Lock()
		out, resets := string(v.out), v.resets
		v.mu.Unlock()
		if resets != 1 || !strings.HasPrefix(out, "before\r\n"+line) || len(out) > wire.TerminalRing+100 {
			t.Errorf("%d bytes, drawn anew %d times: %.40q", len(out), resets, out)
		}
		p.exit(0)
	})
}
