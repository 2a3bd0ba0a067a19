package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"farhand/internal/leak"
	"farhand/internal/testenv"
	"farhand/provision/request"
	"farhand/wire"
)

// handler answers everything, and hangs where it is told to.
type handler struct {
	hang chan struct{} // not nil: ShowStatus waits for it or for its context
	went chan struct{} // not nil: gets one for each ShowStatus
}

func (h handler) ShowPairing(context.Context, request.Pairing) error { return nil }
func (h handler) ShowStatus(ctx context.Context, _ request.Status) error {
	if h.went != nil {
		h.went <- struct{}{}
	}
	if h.hang == nil {
		return nil
	}
	select {
	case <-h.hang:
	case <-ctx.Done():
	}
	return ctx.Err()
}
func (h handler) Paired(context.Context) error                          { return nil }
func (h handler) Facts(context.Context) (request.Facts, error)          { return request.Facts{Slot: "a"}, nil }
func (h handler) Offline(context.Context, request.Offline) error        { return nil }
func (h handler) Online(context.Context) error                          { return nil }
func (h handler) Settings(context.Context) (s wire.Settings, err error) { return s, nil }
func (h handler) ChangeSettings(context.Context, wire.SettingsChange) (s wire.Settings, err error) {
	return s, nil
}
func (h handler) KeepNetworks(context.Context, request.Reached) error   { return nil }
func (h handler) SetClockHint(context.Context, request.ClockHint) error { return nil }

// start runs a server; stop ends it and returns what Run did.
func start(t *testing.T, o Options) (c request.Client, stop func() error) {
	t.Helper()
	leak.Check(t)
	dir, err := os.MkdirTemp("", "serve") // where another user can get at it, too
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err == nil {
		err = errors.Join(os.Chmod(dir, 0o755), os.Chmod(path, 0o666))
	}
	if err != nil {
		t.Fatal(err)
	}
	o.Log = slog.New(slog.DiscardHandler)
	if o.Handler == nil {
		o.Handler = handler{}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, l, o) }()
	t.Cleanup(cancel)
	return request.Client{Path: path}, func() error {
		cancel()
		return <-done
	}
}

func me() []uint32 { return []uint32{uint32(os.Getuid())} }

func TestAnswers(t *testing.T) {
	c, stop := start(t, Options{Users: me()})
	for range 2 * maxConnections { // one after another, each is free again
		if f, err := c.Facts(t.Context()); err != nil || f.Slot != "a" {
			t.Fatalf("%+v, %v", f, err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// Nobody but the daemon and root is answered: the kernel says who calls.
func TestStranger(t *testing.T) {
	c, stop := start(t, Options{})
	if os.Getuid() != 0 {
		if err := c.Online(t.Context()); !errors.Is(err, request.NotAllowed) {
			t.Error(err)
		}
	}
	testenv.Need(t, "root", os.Getuid() == 0, "it calls as another user")
	if err := c.Online(t.Context()); err != nil {
		t.Errorf("root: %v", err)
	}
	got := make(chan error, 1)
	go func() {
		// This thread alone becomes somebody else, and ends with the goroutine.
		runtime.LockOSThread()
		const nobody = 65534
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
			got <- errno
			return
		}
		fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		if err == nil {
			err = syscall.Connect(fd, &syscall.SockaddrUnix{Name: c.Path})
		}
		b := make([]byte, 200)
		n := 0
		if err == nil {
			n, err = syscall.Read(fd, b)
			syscall.Close(fd)
		}
		if err == nil {
			err = errors.New(string(b[:n]))
		}
		got <- err
	}()
	if err := <-got; err.Error() != `{"code":"not_allowed","message":"only the daemon may ask"}`+"\n" {
		t.Error(err)
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// The end waits for what is in work, which hears of it.
func TestStop(t *testing.T) {
	h := handler{hang: make(chan struct{}), went: make(chan struct{}, 1)}
	c, stop := start(t, Options{Users: me(), Handler: h})
	answered := make(chan error, 1)
	go func() { answered <- c.ShowStatus(t.Context(), request.Status{State: "x"}) }()
	<-h.went
	if err := stop(); err != nil {
		t.Error(err)
	}
	if err := <-answered; err == nil {
		t.Error("no error for what was cut short")
	}
}

func TestTooMany(t *testing.T) {
	h := handler{hang: make(chan struct{}), went: make(chan struct{}, maxConnections)}
	c, stop := start(t, Options{Users: me(), Handler: h})
	answered := make(chan error, maxConnections)
	for range maxConnections {
		go func() { answered <- c.ShowStatus(t.Context(), request.Status{State: "x"}) }()
	}
	for range maxConnections {
		<-h.went
	}
	if err := c.Online(t.Context()); err == nil {
		t.Error("one more than there may be was answered")
	}
	close(h.hang)
	for range maxConnections {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
	if err := stop(); err != nil {
		t.Error(err)
	}
}

// It ends by itself when nobody asks, but not while something must go on.
func TestIdle(t *testing.T) {
	leak.Check(t)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(t.TempDir(), "s")})
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	if err := Run(t.Context(), l, Options{
		Handler: handler{}, Users: me(), Idle: 4 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
		Busy: func() bool { asked++; return asked < 3 },
	}); err != nil {
		t.Error(err)
	}
	if asked != 3 {
		t.Errorf("it asked %d times whether something must go on", asked)
	}
}
