// Command tryout is `make run`: it starts the relay and the daemon on this
// machine, pairs them with the operator's command, and shows a real session.
// Everything it prints behind "$ farhand" is what that command really printed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// patience bounds each step; on a slow machine the first start takes seconds.
const patience = 60 * time.Second

func main() {
	once := flag.Bool("once", false, "end after the session")
	bin := flag.String("bin", "bin", "where the built programs are")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, *bin, *once)
	stop()
	switch {
	case err == nil, errors.Is(err, context.Canceled):
	default:
		fmt.Fprintln(os.Stderr, "make run:", err)
		os.Exit(1)
	}
}

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
	if err := b.start(ctx); err != nil {
		return err
	}
	if err := b.session(ctx); err != nil {
		return err
	}
	if once {
		return nil
	}
	say("Everything stays up until Ctrl-C. In another terminal:\n\n    export FARHAND_CONFIG_DIR=%s PATH=%s:$PATH\n    farhand --help\n    farhand devices\n    farhand exec -- uname -a\n", b.configDir(), bin)
	return b.wait(ctx)
}

// say prints what tryout itself has to say, set off from what the programs print.
func say(format string, args ...any) { fmt.Printf("\n── "+format+"\n", args...) }
