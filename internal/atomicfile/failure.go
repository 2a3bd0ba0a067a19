package atomicfile

import (
	"errors"
	"syscall"
)

// Full says whether err is that there is no room, on the disk or in a quota.
func Full(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// Why is what the system says of err, without the names of files, for who may
// not learn them.
func Why(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}
