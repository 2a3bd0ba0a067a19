// Command tryout is `make run`: it starts the relay and the daemon on this
// machine, pairs them with the operator's command, and shows a real session.
// Everything it prints behind "$ farhand" is what that command really printed.
// It ends with 0 if the session went well, 1 if not, 130 if it was interrupted
// before its end, and leaves neither files nor processes behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// patience bounds each step; on a slow machine the first start takes seconds.
const patience = 60 * time.Second

func main() {
	once := flag.Bool("once", false, "end after the session")
	bin := flag.String("bin", "bin", "where the built programs are")
	flag.Parse()
	// The programs end with the thread that started them (see startProcess).
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, *bin, *once)
	stop()
	switch {
	case err == nil:
	case errors.Is(err, errInterrupted):
		os.Exit(130)
	default:
		fmt.Fprintln(os.Stderr, "make run:", err)
		os.Exit(1)
	}
}

// errInterrupted says that somebody had seen enough before the session's end.
var errInterrupted = errors.New("interrupted")

func run(ctx context.Context, bin string, once bool) (err error) {
	bin, err = filepath.Abs(bin)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "farhand-run-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &bench{bin: bin, dir: dir}
	defer func() { err = errors.Join(err, b.stop()) }()
	for _, step := range []func(context.Context) error{b.start, b.session} {
		if err := step(ctx); err != nil {
			if ctx.Err() != nil {
				say("Stopping")
				return errInterrupted
			}
			return err
		}
	}
	if once {
		return nil
	}
	say("Everything stays up until Ctrl-C. In another terminal:\n\n    export FARHAND_CONFIG_DIR=%s PATH=%s:$PATH\n    farhand --help\n    farhand devices\n    farhand exec -- uname -a\n", b.configDir(), bin)
	return b.wait(ctx)
}

// say prints what tryout itself has to say, set off from what the programs print.
func say(format string, args ...any) { fmt.Printf("\n── "+format+"\n", args...) }
