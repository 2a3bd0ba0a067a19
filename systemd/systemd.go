// Package systemd tells the service manager how the daemon is doing: readiness,
// a status line, and the watchdog (sd_notify(3), sd_watchdog_enabled(3)). Where
// there is no manager, every call is a cheap no-op.
package systemd

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
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

// Reloading reports that the configuration is read again; Ready says that this is
// over. A unit with Type=notify-reload waits for both.
func (n Notifier) Reloading() {
	n.send(daemon.SdNotifyReloading + "\n" + strings.TrimSuffix(daemon.SdNotifyMonotonicUsec(), "\n"))
}

// Extend asks for so much more time for the start or the stop that is going on. It
// is for work that progresses (EXTEND_TIMEOUT_USEC=).
func (n Notifier) Extend(d time.Duration) {
	n.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", d.Microseconds()))
}

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

// Part is something that everything depends on.
type Part struct {
	Name string
	// Alive returns nil as soon as the part has shown that it is at work. It is
	// asked again and again, never twice at the same time, and gives up with ctx.
	Alive func(ctx context.Context) error
}

// The watchdog's period is divided: this long after a feeding the parts are asked
// again, and this long one may take before the log says which it is. Both together
// leave time to ask once more.
const (
	feedEvery = 3
	patience  = 4
)

// Watchdog feeds the manager's watchdog until ctx ends, each time after every part
// has shown that it is alive: one that hangs stops the feeding, and the manager
// restarts us. It returns at once if the manager set no watchdog for this process
// (WATCHDOG_USEC, WATCHDOG_PID).
func (n Notifier) Watchdog(ctx context.Context, parts ...Part) error {
	period, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		return fmt.Errorf("read the watchdog's period: %w", err)
	}
	if period == 0 {
		return nil
	}
	n.feed(ctx, period, parts)
	return nil
}

// feed is Watchdog with a period.
func (n Notifier) feed(ctx context.Context, period time.Duration, parts []Part) {
	for ctx.Err() == nil {
		for i := 0; i < len(parts) && ctx.Err() == nil; {
			if n.ask(ctx, period/patience, parts[i]) {
				i++
			}
		}
		if ctx.Err() != nil {
			return
		}
		n.send(daemon.SdNotifyWatchdog)
		rest(ctx, period/feedEvery)
	}
}

// ask asks one part once, and says in the log if it isn't alive.
func (n Notifier) ask(ctx context.Context, within time.Duration, p Part) bool {
	asking, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := p.Alive(asking)
	if err == nil {
		return true
	}
	if ctx.Err() == nil {
		n.Log.Error("the watchdog isn't fed", "part", p.Name, "error", err)
		rest(asking, within) // a part that fails at once is asked no more often than one that hangs
	}
	return false
}

func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
