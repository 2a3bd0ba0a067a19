// Package systemd tells the service manager how the daemon is doing: readiness,
// a status line, and the watchdog (sd_notify(3), sd_watchdog_enabled(3)). Where
// there is no manager, every call is a cheap no-op.
package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// Notifier speaks to the manager named by $NOTIFY_SOCKET. The zero value with a
// logger is ready to use; it is safe for concurrent use.
type Notifier struct {
	// Active says whether a service manager started us (NOTIFY_SOCKET is set).
	Active bool
	Log    *slog.Logger
}

// Ready reports that the start is over.
func (n Notifier) Ready(status string) { n.send(daemon.SdNotifyReady + "\nSTATUS=" + oneLine(status)) }

// Status sets the line that `systemctl status` shows.
func (n Notifier) Status(status string) { n.send("STATUS=" + oneLine(status)) }

// Stopping reports that a clean stop began.
func (n Notifier) Stopping() { n.send(daemon.SdNotifyStopping) }

func (n Notifier) send(state string) {
	if !n.Active {
		return
	}
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.Log.Warn("service manager not reached", "error", err)
	}
}

// oneLine keeps a status from carrying further assignments.
func oneLine(s string) string {
	b := []byte(s)
	for i, c := range b {
		if c < 0x20 {
			b[i] = ' '
		}
	}
	return string(b)
}

// Watchdog feeds the manager's watchdog until ctx ends, at half its period, as
// long as alive answers nil within that time: a loop that hangs stops the
// feeding, and the manager restarts us. It returns at once if the manager set no
// watchdog for this process (WATCHDOG_USEC, WATCHDOG_PID).
func (n Notifier) Watchdog(ctx context.Context, alive func(context.Context) error) error {
	period, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("read the watchdog's period: %w", err)
	}
	if period == 0 {
		return nil
	}
	tick := time.NewTicker(period / 2)
	defer tick.Stop()
	for {
		if err := n.feed(ctx, period/4, alive); err != nil {
			n.Log.Error("watchdog not fed", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (n Notifier) feed(ctx context.Context, within time.Duration, alive func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if err := alive(ctx); err != nil {
		return err
	}
	n.send(daemon.SdNotifyWatchdog)
	return nil
}
