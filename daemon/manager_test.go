package daemon

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"farhand/config"
	"farhand/internal/leak"
)

// manager plays the service manager: it hears what the daemon says.
type manager struct {
	t    *testing.T
	conn *net.UnixConn
	path string
}

func newManager(t *testing.T, watchdog time.Duration) *manager {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	t.Setenv("WATCHDOG_USEC", strconv.FormatInt(watchdog.Microseconds(), 10))
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	return &manager{t, conn, path}
}

// hear waits for a message that begins like this, passing over all others.
func (m *manager) hear(prefix string, within time.Duration) (string, bool) {
	m.t.Helper()
	if err := m.conn.SetReadDeadline(time.Now().Add(within)); err != nil {
		m.t.Fatal(err)
	}
	b := make([]byte, 4096)
	for {
		n, err := m.conn.Read(b)
		if err != nil {
			return "", false
		}
		if text := string(b[:n]); strings.HasPrefix(text, prefix) {
			return text, true
		}
	}
}

// drain passes over what was said already.
func (m *manager) drain() { m.hear("nothing begins like this", time.Millisecond) }

// run runs a daemon for a platform that can't be reached, and stops it at the end.
func (m *manager) run(change func(*Options)) *daemon {
	m.t.Helper()
	dead, err := url.Parse("http://127.0.0.1:1")
	if err != nil {
		m.t.Fatal(err)
	}
	o := Options{
		Config: config.Config{
			Platform: dead, StateDir: m.t.TempDir(), Roots: []string{m.t.TempDir()}, HardwareEnabled: true, Sim: true,
			OAuthClientID: "x", DisplayName: "bench", StreamMemory: 32 << 20, LeaseIdle: time.Minute,
			Limits: config.Limits{MaxConcurrent: 4, MaxFileSize: 1 << 20, CommandTimeout: time.Minute, CommandsPerMinute: 60},
		},
		Log: slog.New(slog.DiscardHandler), Screen: io.Discard, Environ: []string{"NOTIFY_SOCKET=" + m.path}, Level: new(slog.LevelVar),
	}
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := newDaemon(o)
	done := make(chan error, 1)
	go func() { done <- d.runUntil(ctx) }()
	m.t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Errorf("run: %v", err)
		}
	})
	return d
}

// Field case 55: a start says that it goes on. READY comes when the connection's
// loop runs, with the state that it is in: the network is no condition.
func TestReadyWithoutNetwork(t *testing.T) {
	leak.Check(t)
	m := newManager(t, 0)
	m.run(nil)
	if _, ok := m.hear("EXTEND_TIMEOUT_USEC=", 10*time.Second); !ok {
		t.Error("a start of several steps didn't ask for time")
	}
	got, ok := m.hear("READY=1", 10*time.Second)
	if !ok || !strings.Contains(got, "\nSTATUS=pairing") {
		t.Errorf("%q", got)
	}
}

func TestFedWhileAllIsWell(t *testing.T) {
	m := newManager(t, 200*time.Millisecond)
	m.run(nil)
	if _, ok := m.hear("READY=1", 10*time.Second); !ok {
		t.Fatal("never ready")
	}
	for range 3 {
		if _, ok := m.hear("WATCHDOG=1", 10*time.Second); !ok {
			t.Error("not fed")
		}
	}
}

// Field case 58: every part can stop the feeding, and what only takes its time
// doesn't. That each part notices its own hang is tested where the part is.
func TestEveryPartIsAsked(t *testing.T) {
	m := newManager(t, time.Hour)
	d := m.run(nil)
	if _, ok := m.hear("READY=1", 10*time.Second); !ok {
		t.Fatal("never ready")
	}
	var names []string
	for _, p := range d.parts() {
		names = append(names, p.Name)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if err := p.Alive(ctx); err != nil {
			t.Errorf("%s: %v", p.Name, err)
		}
		cancel()
	}
	if want := []string{"state", "connection", "sockets", "audit", "streams", "devices", "leases"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

func TestADaemonThatHangsIsNotFed(t *testing.T) {
	m := newManager(t, 200*time.Millisecond)
	d := m.run(nil)
	if _, ok := m.hear("WATCHDOG=1", 10*time.Second); !ok {
		t.Fatal("never fed")
	}
	d.mu.Lock()
	m.drain()
	if _, ok := m.hear("WATCHDOG=1", 600*time.Millisecond); ok {
		// One may have been on its way when the lock was taken.
		if _, ok := m.hear("WATCHDOG=1", 600*time.Millisecond); ok {
			t.Error("fed although the daemon's state is locked")
		}
	}
	d.mu.Unlock()
	if _, ok := m.hear("WATCHDOG=1", 10*time.Second); !ok {
		t.Error("not fed again")
	}
}

// What waits for the network has bounds of its own, and the loop answers for it; a
// loop that does anything else doesn't.
func TestTheConnectionsLoop(t *testing.T) {
	d := newDaemon(Options{Log: slog.New(slog.DiscardHandler)})
	alive := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		return d.loop.Alive(ctx)
	}
	release, back := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(back)
		d.during(func() { <-release })
	}()
	if err := alive(); err != nil {
		t.Error(err)
	}
	close(release)
	<-back
	if alive() == nil {
		t.Error("alive although nobody answers")
	}
}

func TestReload(t *testing.T) {
	m := newManager(t, 0)
	hangups := make(chan os.Signal, 1)
	var next config.Config
	var fails error
	d := m.run(func(o *Options) {
		next = o.Config
		next.LogLevel = slog.LevelDebug
		o.Hangups = hangups
		o.Load = func() (config.Config, error) { return next, fails }
	})
	if _, ok := m.hear("READY=1", 10*time.Second); !ok {
		t.Fatal("never ready")
	}
	reload := func() string {
		t.Helper()
		hangups <- syscall.SIGHUP
		if got, ok := m.hear("RELOADING=1\nMONOTONIC_USEC=", 10*time.Second); !ok {
			t.Errorf("%q", got)
		}
		got, ok := m.hear("READY=1", 10*time.Second)
		if !ok {
			t.Error("the reload never ends")
		}
		return got
	}
	if got := reload(); !strings.Contains(got, "STATUS=pairing") || d.opts.Level.Level() != slog.LevelDebug {
		t.Errorf("%q, level %s", got, d.opts.Level.Level())
	}
	fails = &config.Error{Key: "roots", Reason: "broken"}
	next.LogLevel = slog.LevelError
	if reload(); d.opts.Level.Level() != slog.LevelDebug {
		t.Error("a configuration that can't be used was put to use")
	}
}

func TestReloadSaysWhatNeedsARestart(t *testing.T) {
	m := newManager(t, 0)
	hangups := make(chan os.Signal, 1)
	load := func(text string) config.Config {
		t.Helper()
		file := filepath.Join(t.TempDir(), "farhandd.toml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(config.Input{File: file, Home: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	const common = "platform_url = \"http://127.0.0.1:1\"\nstate_dir = \"%\"\n"
	text := strings.ReplaceAll(common, "%", t.TempDir())
	d := m.run(func(o *Options) {
		o.Config = load(text)
		o.Hangups = hangups
		o.Load = func() (config.Config, error) {
			return load(text + "log_level = \"debug\"\n[shell]\nenabled = true\n"), nil
		}
	})
	if _, ok := m.hear("READY=1", 10*time.Second); !ok {
		t.Fatal("never ready")
	}
	hangups <- syscall.SIGHUP
	if got, _ := m.hear("READY=1", 10*time.Second); !strings.Contains(got, "only a restart puts it to use: shell.enabled") || strings.Contains(got, "log_level") {
		t.Errorf("%q", got)
	}
	if w := d.status().Warnings; !slices.ContainsFunc(w, func(s string) bool { return strings.Contains(s, "shell.enabled") }) {
		t.Errorf("%q", w)
	}
}
