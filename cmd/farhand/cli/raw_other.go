//go:build !windows

package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

// showSequences is what a terminal does anyway.
func showSequences(*os.File) (undo func(), err error) { return func() {}, nil }

// sizeChanges ticks when the terminal may have another size, until ctx ends.
func sizeChanges(ctx context.Context) <-chan os.Signal {
	changes := make(chan os.Signal, 1)
	signal.Notify(changes, syscall.SIGWINCH)
	changes <- syscall.SIGWINCH // it may have changed since it was asked
	context.AfterFunc(ctx, func() {
		signal.Stop(changes)
		close(changes)
	})
	return changes
}
