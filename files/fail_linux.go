package files

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// errRaced says that what was looked at is no longer what is there: the
// operation is begun anew, at most maxRaces times.
var errRaced = errors.New("the file system changed meanwhile")

// maxRaces bounds how often somebody who keeps swapping names can make an
// operation begin anew. The chance of losing even one such race is some 1 in 10
// under a program that does nothing else.
const maxRaces = 64

// untilStill runs f until it isn't raced.
func untilStill(f func() error) error {
	for range maxRaces {
		if err := f(); !errors.Is(err, errRaced) {
			return err
		}
	}
	return wire.Errorf(wire.InternalError, "the path keeps changing while it is used").With("reason", "changed_meanwhile")
}

// asked is a path as it was requested and the key that it has in the request and
// so in the details of an error: path, src or dst.
type asked struct {
	key  string
	path string
	as   *string // what is told in its place, if names may be private; nil: it itself
}

// shown is the path as it may stand in an answer.
func (a asked) shown() string {
	if a.as != nil {
		return *a.as
	}
	return shown(a.path)
}

// fail makes the error of an operation on a. Messages and details name what was
// requested and never what it leads to.
func (a asked) fail(code wire.Code, reason, format string, args ...any) *wire.Error {
	e := wire.Errorf(code, format, args...).With(a.key, a.shown())
	if reason != "" {
		e.With("reason", reason)
	}
	return e
}

func (r *Root) outside(a asked) *wire.Error {
	return a.fail(wire.PathOutsideAllowedRoot, "", "path %s is outside allowed root %s", a.shown(), r.path).
		With("requested_path", a.shown()).With("allowed_root", r.path)
}

// protected is outside for what no root opens up.
func (r *Root) protected(a asked) *wire.Error {
	return r.outside(a).With("reason", "protected")
}

// isRoot refuses to delete, move or replace the root itself.
func (r *Root) isRoot(a asked) *wire.Error {
	e := a.fail(wire.PathOutsideAllowedRoot, "is_root", "path %s is the allowed root itself", a.shown())
	return e.With("requested_path", a.shown()).With("allowed_root", r.path)
}

func missing(a asked, p *place) *wire.Error {
	switch p.why {
	case "not_a_directory":
		return a.fail(wire.PathNotFound, p.why, "path %s leads through something that is not a directory", a.shown())
	case "too_many_links":
		return a.fail(wire.PathNotFound, p.why, "path %s leads through more than %d links", a.shown(), MaxLinks)
	}
	return a.fail(wire.PathNotFound, "", "path %s does not exist", a.shown())
}

func badName(a asked) *wire.Error {
	return a.fail(wire.PathInvalidChars, "", "path %s is no name that this file system can store", a.shown())
}

func notRegular(a asked, st *unix.Stat_t) *wire.Error {
	if kindOf(st) == unix.S_IFDIR {
		return a.fail(wire.InternalError, "is_a_directory", "path %s is a directory", a.shown())
	}
	return a.fail(wire.InternalError, "not_a_regular_file", "path %s is not a regular file", a.shown())
}

func notDirectory(a asked) *wire.Error {
	return a.fail(wire.InternalError, "not_a_directory", "path %s is not a directory", a.shown())
}

func tooLarge(a asked, op string, attempted, limit int64) *wire.Error {
	return a.fail(wire.FileTooLarge, "", "%s of %d bytes exceeds the limit of %d bytes", op, attempted, limit).
		With("op", op).With("attempted_bytes", attempted).With("max_file_size_bytes", limit)
}

// fault turns an error of the operating system into what crosses the wire. An
// error that has its code already, errRaced and the context's errors stay what
// they are.
func fault(a asked, doing string, err error) error {
	var code wire.Code
	reason := ""
	errno := unix.Errno(0)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &code), errors.Is(err, errRaced):
		return err
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s %s: %w", doing, a.shown(), err)
	case !errors.As(err, &errno):
		return a.fail(wire.InternalError, "os_error", "%s %s: %v", doing, a.shown(), err)
	}
	switch errno {
	case unix.ENOENT, unix.ESTALE:
		code = wire.PathNotFound
	case unix.ENOTDIR:
		code, reason = wire.PathNotFound, "not_a_directory"
	case unix.EACCES, unix.EPERM:
		code = wire.PathNotAllowed
	case unix.ENOSPC:
		code = wire.DiskFull
	case unix.EDQUOT:
		code, reason = wire.DiskFull, "quota"
	case unix.EROFS:
		code = wire.ReadOnlyDisk
	case unix.ENAMETOOLONG, unix.EILSEQ:
		code = wire.PathInvalidChars
	case unix.EBUSY:
		code, reason = wire.InternalError, "busy"
	case unix.EISDIR:
		code, reason = wire.InternalError, "is_a_directory"
	default:
		code, reason = wire.InternalError, "os_error"
	}
	return a.fail(code, reason, "%s %s: %v", doing, a.shown(), errno).With("errno", unix.ErrnoName(errno))
}
