package serialsim

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"farhand/serialio/termios"
)

// share has reads of a terminal answer nothing instead of waiting.
func share(terminal *os.File) error {
	conn, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	var opErr error
	err = conn.Control(func(fd uintptr) {
		var t *unix.Termios
		if t, opErr = termios.Get(int(fd)); opErr == nil {
			t.Cc[unix.VMIN] = 0
			opErr = termios.Set(int(fd), t)
		}
	})
	return errors.Join(err, opErr)
}
