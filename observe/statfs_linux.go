package observe

import (
	"golang.org/x/sys/unix"

	"farhand/wire"
)

func statfs(path string, d *wire.TopDisk) error {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return err
	}
	unit := st.Frsize // as statvfs(3) does
	if unit == 0 {
		unit = st.Bsize
	}
	d.Total, d.Free = int64(st.Blocks)*unit, int64(st.Bavail)*unit
	d.ReadOnly = st.Flags&unix.ST_RDONLY != 0
	return nil
}
