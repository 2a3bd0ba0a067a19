// Command farhandd is the daemon on the device: it connects to one platform or
// relay, says what is wired to this machine, and does what it is asked to
// within what its owner allows.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := []os.Signal{syscall.SIGINT, syscall.SIGTERM}
	hangups := make(chan os.Signal, 1)
	switch {
	case signal.Ignored(syscall.SIGHUP): // as nohup leaves it
		// Heard, and nothing done about: commands would inherit that it is ignored, and
		// their terminals could hang up in vain.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	case os.Getenv("NOTIFY_SOCKET") != "": // a service manager's word for reading the configuration again
		signal.Notify(hangups, syscall.SIGHUP)
	default: // the terminal is gone
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	code := run(ctx, env{
		args:    os.Args[1:],
		environ: os.Environ(),
		stdin:   os.Stdin,
		stdout:  os.Stdout,
		stderr:  os.Stderr,
		hangups: hangups,
	})
	stop()
	os.Exit(code)
}
