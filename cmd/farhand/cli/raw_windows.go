package cli

import (
	"context"
	"os"
	"time"

	"golang.org/x/sys/windows"
)

// showSequences has the console understand them, which it does on request only.
func showSequences(out *os.File) (undo func(), err error) {
	console := windows.Handle(out.Fd())
	var mode uint32
	if err := windows.GetConsoleMode(console, &mode); err != nil {
		return nil, err
	}
	want := mode | windows.ENABLE_PROCESSED_OUTPUT | windows.ENABLE_VIRTUAL_TERMINAL_PROCESSING | windows.DISABLE_NEWLINE_AUTO_RETURN
	if err := windows.SetConsoleMode(console, want); err != nil {
		return nil, err
	}
	return func() { windows.SetConsoleMode(console, mode) }, nil
}

// sizeChanges ticks when the console may have another size, until ctx ends: nothing
// tells of that.
func sizeChanges(ctx context.Context) <-chan time.Time {
	const often = 300 * time.Millisecond
	ticks := make(chan time.Time)
	go func() {
		defer close(ticks)
		tick := time.NewTicker(often)
		defer tick.Stop()
		for {
			select {
			case t := <-tick.C:
				select {
				case ticks <- t:
				case <-ctx.Done():
					return
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ticks
}
