package helper

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"farhand/shell"
	"farhand/wire"
)

// errTooLong is a request longer than any program can be started with.
var errTooLong = fmt.Errorf("the request: %w", syscall.E2BIG)

// Why a command didn't start. Only these classes matter to the daemon; the text is
// for people.
const (
	notFound = iota + 1
	notPermitted
	dirGone
	dirForbidden
	busy
	withErrno // the number follows
	other
	stranger
)

// failure is the message for an error of a runner.
func failure(err error) []byte {
	class, number := other, syscall.Errno(0)
	switch {
	case errors.Is(err, shell.ErrDirGone):
		class = dirGone
	case errors.Is(err, shell.ErrDirForbidden):
		class = dirForbidden
	case errors.Is(err, errBusy):
		class = busy
	case errors.Is(err, errStranger):
		class = stranger
	case errors.Is(err, fs.ErrNotExist):
		class = notFound
	case errors.Is(err, fs.ErrPermission):
		class = notPermitted
	case errors.As(err, &number):
		class = withErrno
	}
	text := err.Error()
	const most = 1 << 10
	text = text[:min(len(text), most)]
	body := binary.LittleEndian.AppendUint32([]byte{byte(class)}, uint32(number))
	return message(failed, append(body, text...))
}

// parseFailure is the error that failure was made of, as far as errors.Is goes.
func parseFailure(body []byte) error {
	if len(body) < 5 {
		return errMalformed
	}
	text := string(body[5:])
	switch body[0] {
	case notFound:
		return remote{text, fs.ErrNotExist}
	case notPermitted:
		return remote{text, fs.ErrPermission}
	case dirGone:
		return remote{text, shell.ErrDirGone}
	case dirForbidden:
		return remote{text, shell.ErrDirForbidden}
	case busy:
		return wire.Errorf(wire.ShimOverloaded, "the helper runs as many commands as it may").With("hint", "try again once some have ended")
	case stranger:
		return wire.Errorf(wire.InternalError, "what runs commands on this machine runs none for the daemon's user").
			With("reason", "exec_helper_unreachable").With("hint", "farhandd install --helper sets both up for each other")
	case withErrno:
		return remote{text, syscall.Errno(binary.LittleEndian.Uint32(body[1:]))}
	case other:
		return errors.New(text)
	}
	return errMalformed
}

// remote is an error that happened in the helper.
type remote struct {
	text string
	is   error
}

func (r remote) Error() string { return r.text }
func (r remote) Unwrap() error { return r.is }

// errStranger is a helper that is for another user.
var errStranger = errors.New("for another user")

// errBusy is a helper that runs as many commands as it may.
var errBusy = errors.New("too many commands")
