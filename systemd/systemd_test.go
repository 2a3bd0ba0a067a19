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
	if err := c.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
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

func TestWatchdogStopsFeedingWhenNotAlive(t *testing.T) {
	c := manager(t)
	t.Setenv("WATCHDOG_USEC", "40000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan int, 100)
	calls := 0
	alive := func(context.Context) error {
		calls++
		asked <- calls
		if calls > 2 {
			return errors.New("a loop hangs")
		}
		return nil
	}
	done := make(chan error, 1)
	go func() {
		done <- Notifier{Active: true, Log: slog.New(slog.DiscardHandler)}.Watchdog(ctx, alive)
	}()
	for range 2 {
		if got := read(t, c); !strings.Contains(got, "WATCHDOG=1") {
			t.Errorf("got %q", got)
		}
	}
	for n := range asked {
		if n >= 5 { // asked on, but never fed again
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := c.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 64)); err == nil {
		t.Errorf("fed although not alive (%d bytes)", n)
	}
}

func TestNoManagerNoWatchdog(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "")
	n := Notifier{Log: slog.New(slog.DiscardHandler)}
	n.Ready("x")
	if err := n.Watchdog(t.Context(), func(context.Context) error { t.Error("asked"); return nil }); err != nil {
		t.Error(err)
	}
}
