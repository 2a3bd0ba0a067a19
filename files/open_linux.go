package files

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// OpenFile opens a regular file for reading, from its beginning, and tells its
// size as it is now. Unlike Read it sets no limit: it is for who passes a file on
// in pieces. The file stays open when the root is closed.
//
// Failures: PATH_NOT_FOUND, PATH_OUTSIDE_ALLOWED_ROOT, PATH_INVALID_CHARS,
// PERMISSION_DENIED, PRIVACY_MODE_BLOCKED, and INTERNAL_ERROR with details.reason is_a_directory or
// not_a_regular_file.
func (r *Root) OpenFile(ctx context.Context, path string) (*os.File, int64, error) {
	a := r.ask("path", path)
	if err := r.enter(ctx); err != nil {
		return nil, 0, fault(a, "open", err)
	}
	defer r.leave()
	var file *os.File
	var size int64
	err := untilStill(func() error {
		p, err := r.resolve(ctx, a, true)
		if err != nil {
			return err
		}
		defer p.close()
		if !p.exists {
			return missing(a, &p)
		}
		if p.private() {
			return r.isPrivate(a)
		}
		if kindOf(&p.st) != unix.S_IFREG {
			return notRegular(a, &p.st)
		}
		fd, err := r.reopen(&p, unix.O_RDONLY)
		if err != nil {
			return err
		}
		st, err := fstat(fd)
		if err != nil {
			unix.Close(fd)
			return err
		}
		file, size = os.NewFile(uintptr(fd), a.shown()), st.Size
		return nil
	})
	if err != nil {
		return nil, 0, fault(a, "open", err)
	}
	return file, size, nil
}
