package writelog

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// File is a disk in a sparse file.
type File struct{ *os.File }

// Zero punches a hole where the file system can.
func (f File) Zero(offset, length int64) error {
	const punch = unix.FALLOC_FL_PUNCH_HOLE | unix.FALLOC_FL_KEEP_SIZE
	err := unix.Fallocate(int(f.Fd()), punch, offset, length)
	if errors.Is(err, unix.EOPNOTSUPP) {
		_, err = f.WriteAt(make([]byte, length), offset)
	}
	return err
}
