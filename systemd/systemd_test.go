package systemd

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// manager is a real datagram socket such as systemd listens on.
func manager(t *testing.T) *net.UnixConn {
	t.Helper()
	path := filepath.Join(t.TempDir(), "notify")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	t.Setenv("NOTIFY_SOCKET", path)
	return c
}

func read(t *testing.T, c *net.UnixConn) string {
	t.Helper()
	b := make([]byte, 1024)
	if err := c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	n, err := c.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(b[:n])
}

func TestNotify(t *testing.T) {
	c := manager(t)
	n := Notifier{Active: true, Log: slog.New(slog.DiscardHandler)}
	n.Ready("online\nMAINPID=1")
	if got := read(t, c); got != "READY=1\nSTATUS=online MAINPID=1" {
		t.Errorf("got %q", got)
	}
	n.Stopping()
	if got := read(t, c); got != "STOPPING=1" {
		t.Errorf("got %q", got)
	}
}

func TestReloading(t *testing.T) {
	c := manager(t)
	n := Notifier{Active: true, Log: slog.New(slog.DiscardHandler)}
	n.Reloading()
	got := read(t, c)
	stamp, ok := strings.CutPrefix(got, "RELOADING=1\nMONOTONIC_USEC=")
	if _, err := strconv.ParseUint(stamp, 10, 64); !ok || err != nil {
		t.Errorf("got %q", got)
	}
}

// Field case 55: a start that progresses gets the time that it needs.
func TestExtend(t *testing.T) {
	c := manager(t)
	Notifier{Active: true, Log: slog.New(slog.DiscardHandler)}.Extend(90 * time.Second)
	if got := read(t, c); got != "EXTEND_TIMEOUT_USEC=90000000" {
		t.Errorf("got %q", got)
	}
}

// feeding runs a watchdog with a period of 200 ms; the part hangs once hang is
// closed.
func feeding(t *testing.T, alive func(context.Context) error) *net.UnixConn {
	t.Helper()
	c := manager(t)
	t.Setenv("WATCHDOG_USEC", "200000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	healthy := Part{"healthy", func(context.Context) error { return nil }}
	go func() {
		done <- Notifier{Active: true, Log: slog.New(slog.DiscardHandler)}.Watchdog(ctx, healthy, Part{"part", alive}, healthy)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

// fed says whether the watchdog is fed within two of its periods.
func fed(t *testing.T, c *net.UnixConn) bool {
	t.Helper()
	if err := c.SetReadDeadline(time.Now().Add(400 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	n, err := c.Read(b)
	return err == nil && string(b[:n]) == "WATCHDOG=1"
}

// drain takes what was sent before a part began to hang.
func drain(t *testing.T, c *net.UnixConn, asked <-chan struct{}) {
	t.Helper()
	<-asked
	if err := c.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := c.Read(make([]byte, 64)); err != nil {
			return
		}
	}
}

// Field case 58: one part that doesn't answer is enough.
func TestWatchdogStopsFeedingWhenAPartHangs(t *testing.T) {
	var hang atomic.Bool
	asked := make(chan struct{}, 100)
	c := feeding(t, func(ctx context.Context) error {
		if !hang.Load() {
			return nil
		}
		asked <- struct{}{}
		<-ctx.Done()
		return errors.New("doesn't answer")
	})
	for range 3 {
		if !fed(t, c) {
			t.Error("not fed although all is well")
		}
	}
	hang.Store(true)
	drain(t, c, asked)
	if fed(t, c) {
		t.Error("fed although a part hangs")
	}
	hang.Store(false)
	if !fed(t, c) {
		t.Error("not fed again although the part is back")
	}
}

func TestWatchdogStopsFeedingWhenAPartFails(t *testing.T) {
	var fail atomic.Bool
	asked := make(chan struct{}, 1000)
	c := feeding(t, func(context.Context) error {
		if !fail.Load() {
			return nil
		}
		asked <- struct{}{}
		return errors.New("a loop has ended")
	})
	if !fed(t, c) {
		t.Error("not fed although all is well")
	}
	fail.Store(true)
	drain(t, c, asked)
	if fed(t, c) {
		t.Error("fed although a part fails")
	}
	if n := len(asked); n > 20 {
		t.Errorf("asked %d times in two periods", n)
	}
}

// Field case 53: a process that the manager doesn't watch, such as a child that
// inherited the environment, feeds nothing.
func TestAnotherProcessWatchdog(t *testing.T) {
	c := manager(t)
	t.Setenv("WATCHDOG_USEC", "40000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getppid()))
	if err := (Notifier{Active: true, Log: slog.New(slog.DiscardHandler)}).Watchdog(t.Context(), Part{"x", func(context.Context) error { return nil }}); err != nil {
		t.Error(err)
	}
	if fed(t, c) {
		t.Error("fed another's watchdog")
	}
}

func TestNoManagerNoWatchdog(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "")
	n := Notifier{Log: slog.New(slog.DiscardHandler)}
	n.Ready("x")
	if err := n.Watchdog(t.Context(), Part{"x", func(context.Context) error { t.Error("asked"); return nil }}); err != nil {
		t.Error(err)
	}
}
