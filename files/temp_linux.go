package files

import (
	"crypto/rand"
	"encoding/hex"
	"strings"

	"golang.org/x/sys/unix"
)

// tempPrefix begins the name of everything that we make on the way to something
// else; 16 hexadecimal digits follow. Whoever makes one holds flock(2) on it, so
// what a killed daemon left can be told from what is in use (Sweep).
const tempPrefix = ".farhand-tmp-"

func tempName() string {
	var b [8]byte
	rand.Read(b[:]) // never fails (crypto/rand)
	return tempPrefix + hex.EncodeToString(b[:])
}

func isTempName(name string) bool {
	digits, ok := strings.CutPrefix(name, tempPrefix)
	if !ok || len(digits) != 16 {
		return false
	}
	_, err := hex.DecodeString(digits)
	return err == nil
}

// temp is a new file on its way to a name in dir. It has no name of its own
// where the file system can do that (O_TMPFILE), so that nothing is left if we
// are killed.
type temp struct {
	dir  int
	fd   int
	name string // empty while it has none
}

// newTemp makes a file in dir. mode is subject to the umask and the directory's
// default access list.
func newTemp(dir int, mode uint32, named bool) (*temp, error) {
	if !named {
		fd, err := openat(dir, ".", unix.O_TMPFILE|unix.O_RDWR, mode)
		switch err {
		case nil:
			return lock(&temp{dir: dir, fd: fd}), nil
		case unix.EOPNOTSUPP, unix.EISDIR, unix.EINVAL, unix.ENOENT: // not on this file system, or kernel
		case unix.EPERM:
			// ext4 says so in a directory that was removed meanwhile.
			if st, e := fstat(dir); e == nil && st.Nlink == 0 {
				return nil, unix.ENOENT
			}
			return nil, err
		default:
			return nil, err
		}
	}
	for {
		name := tempName()
		fd, err := openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_RDWR, mode)
		if err == unix.EEXIST {
			continue
		}
		if err != nil {
			return nil, err
		}
		return lock(&temp{dir: dir, fd: fd, name: name}), nil
	}
}

func lock(t *temp) *temp {
	// Where locks don't exist, Sweep finds none held and goes by age alone.
	_ = retry(func() error { return unix.Flock(t.fd, unix.LOCK_EX|unix.LOCK_NB) })
	return t
}

// commit syncs the file and gives it its name: in place of what has that name if
// replace, else EEXIST if there is something.
func (t *temp) commit(name string, replace bool) error {
	if err := fsync(t.fd); err != nil {
		return err
	}
	if t.name == "" {
		own := name
		if replace {
			own = tempName()
		}
		if err := linkDescriptor(t.fd, t.dir, own); err != nil {
			return err
		}
		if !replace {
			return nil
		}
		t.name = own
	}
	if !replace {
		if err := moveNew(t.dir, t.name, t.dir, name); err != nil {
			return err
		}
	} else if err := renameat(t.dir, t.name, t.dir, name); err != nil {
		return err
	}
	t.name = ""
	return nil
}

// linkOver gives the file behind fd a name in place of what has it.
func linkOver(fd, dir int, name string) error {
	own := tempName()
	if err := linkDescriptor(fd, dir, own); err != nil {
		return err
	}
	err := renameat(dir, own, dir, name)
	if err != nil {
		_ = unlinkat(dir, own, 0)
	}
	return err
}

// discard closes the file and, unless it was committed, removes it.
func (t *temp) discard() {
	if t.name != "" {
		_ = unlinkat(t.dir, t.name, 0)
	}
	unix.Close(t.fd)
}
