package cli

import (
	"fmt"
	"os"

	"golang.org/x/term"
)

// raw hands every key to whoever reads in, and shows escape sequences on out as
// they are. restore undoes both.
func raw(in, out *os.File) (restore func(), err error) {
	before, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return nil, fmt.Errorf("terminal: %w", err)
	}
	plain, err := showSequences(out)
	if err != nil {
		term.Restore(int(in.Fd()), before)
		return nil, fmt.Errorf("terminal: %w", err)
	}
	return func() {
		plain()
		term.Restore(int(in.Fd()), before)
	}, nil
}
