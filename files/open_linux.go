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
	var file *os.File
	var size int64
	err := r.on(ctx, a, "open", true, nil, func(p *place) error {
		fd, err := r.openContent(a, p)
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
	return file, size, err
}
