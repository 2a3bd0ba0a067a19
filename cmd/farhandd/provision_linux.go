package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os/exec"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"farhand/provision"
	"farhand/provision/render"
	"farhand/provision/rescue/iwd"
	"farhand/provision/serve"
)

func (o *options) provisionLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(o.stderr, nil))
}

// restartPatience is how long a start waits to be ended by the restart that it
// asked for, so that nothing begins that would only be stopped.
const restartPatience = 60 * time.Second

func (o *options) provisionBoot(ctx context.Context) error {
	log := o.provisionLog()
	outcome, err := provision.Open(log).Boot(ctx)
	if outcome.Restart == "" {
		return err
	}
	log.Warn("the machine starts once more", "why", outcome.Restart)
	if out, e := exec.CommandContext(ctx, "systemctl", "--no-block", "reboot").CombinedOutput(); e != nil {
		return errors.Join(err, fmt.Errorf("restart: %w: %s", e, out))
	}
	timer := time.NewTimer(restartPatience)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
	return err
}

// provisionIdle is how long the helper stays though nobody asks. The daemon
// tells its state more often than that, so it only leaves without a daemon.
const provisionIdle = 5 * time.Minute

func (o *options) provisionServe(ctx context.Context) error {
	log := o.provisionLog()
	listeners, err := activation.Listeners()
	if err != nil {
		return fmt.Errorf("activated sockets: %w", err)
	}
	if len(listeners) != 1 {
		return fmt.Errorf("%d activated sockets instead of one; start farhand-provision.socket", len(listeners))
	}
	l, ok := listeners[0].(*net.UnixListener)
	if !ok {
		return errors.New("the activated socket is no Unix stream socket")
	}
	l.SetUnlinkOnClose(false) // the service manager's, who listens on
	srv, err := provision.NewServer(provision.Open(log), iwd.Radio{})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	err = serve.Run(ctx, l, serve.Options{
		Handler: srv, Users: []uint32{render.FarhandID}, Idle: provisionIdle, Busy: srv.Busy, Log: log,
	})
	return errors.Join(err, srv.Close())
}
