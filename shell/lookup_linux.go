package shell

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// lookup finds a program as execvp does, with relative names being relative to
// dir. The answer is what execve in that directory takes. As there, a file that
// may not be executed is passed over, but remembered for the error.
func lookup(name, path string, dir *os.File) (string, error) {
	at := unix.AT_FDCWD
	if dir != nil {
		at = int(dir.Fd())
	}
	if strings.Contains(name, "/") {
		if err := executable(at, name); err != nil {
			return "", err
		}
		return name, nil
	}
	if name == "" {
		return "", fmt.Errorf("empty program name: %w", fs.ErrNotExist)
	}
	if path == "" {
		path = DefaultPath
	}
	notFound := fmt.Errorf("%w in PATH", fs.ErrNotExist)
	for element := range strings.SplitSeq(path, ":") {
		if element == "" {
			element = "."
		}
		candidate := strings.TrimSuffix(element, "/") + "/" + name
		err := executable(at, candidate)
		switch {
		case err == nil:
			return candidate, nil
		case errors.Is(err, errNotExecutable):
			notFound = err
		}
	}
	return "", notFound
}

// errNotExecutable says that a file is there, but may not be executed. A
// directory that may not be searched isn't meant: for a path to look in, that is
// as good as not there.
var errNotExecutable = fmt.Errorf("%w: not executable", fs.ErrPermission)

func executable(at int, name string) error {
	var st unix.Stat_t
	if err := unix.Fstatat(at, name, &st, 0); err != nil {
		switch err {
		case unix.ENOTDIR, unix.ENAMETOOLONG, unix.ELOOP:
			return fs.ErrNotExist
		}
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return errNotExecutable
	}
	if err := unix.Faccessat(at, name, unix.X_OK, unix.AT_EACCESS); err != nil {
		return errNotExecutable
	}
	return nil
}
