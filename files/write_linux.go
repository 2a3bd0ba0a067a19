package files

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// Write answers FILE_WRITE: afterwards the file has exactly the given content,
// durably. limit is the negotiated max_file_size_bytes. Links are followed, a
// dangling one to where it points if that is in the root. A new file has mode
// 0666 less the umask; one that exists keeps mode, owner, group, attributes and
// access list. CreateParents makes directories that are missing (0777 less the
// umask); if the write then fails, they are removed again. See the package
// comment for when the content is replaced at once and when in place.
//
// What the disk reserves is not written to, even where the daemon may: without that
// nothing could be recorded any more, and so nothing done, removing files included.
//
// Failures: PATH_NOT_FOUND (a directory is missing), PATH_OUTSIDE_ALLOWED_ROOT,
// PATH_INVALID_CHARS, FILE_TOO_LARGE, DISK_FULL and READ_ONLY_DISK (nothing was
// changed), PERMISSION_DENIED, PRIVACY_MODE_BLOCKED (a private file with several
// names), and INTERNAL_ERROR with details.reason is_a_directory or
// not_a_regular_file.
func (r *Root) Write(ctx context.Context, req wire.FileWrite, limit int64) (Trace, error) {
	a := r.ask("path", req.Path)
	trace := Trace{Path: a.shown()}
	err := r.on(ctx, a, "write", true, &trace.Path, func(p *place) (err error) {
		switch size := int64(len(req.Content)); {
		case size > limit:
			return tooLarge(a, "FILE_WRITE", size, limit)
		case p.exists && kindOf(&p.st) != unix.S_IFREG:
			return notRegular(a, &p.st)
		case p.manyNames():
			return r.manyNames(a)
		case !p.exists && (p.why != "" || len(p.missing) > 1 && !req.CreateParents):
			return missing(a, p)
		}
		if need := p.needs(int64(len(req.Content))); need > 0 {
			if err := room(a, p.dir.fd, need); err != nil {
				return err
			}
		}
		switch {
		case p.exists:
			err = r.replace(a, p, req.Content)
		case len(p.missing) == 1:
			err = create(p.dir.fd, p.name, req.Content)
		default:
			err = r.createBelow(p.dir, p.missing, req.Content)
		}
		switch err {
		case unix.ENOENT: // the directory was removed meanwhile
			return errRaced
		case unix.EINVAL: // as FAT says to some characters
			return badName(a)
		}
		return err
	})
	if err == nil {
		trace.Bytes = int64(len(req.Content))
	}
	return trace, err
}

// needs is how much room a new content of n bytes takes while the old one is there:
// all of it, unless it goes in its place.
func (p *place) needs(n int64) int64 {
	if p.exists && p.st.Nlink > 1 {
		return n - p.st.Size
	}
	return n
}

// create makes a file that doesn't exist; errRaced if it does by now.
func create(dir int, name string, content []byte) error {
	err := createTemp(dir, name, content, false)
	if err == unix.ENOENT { // no /proc to name a nameless file by
		err = createTemp(dir, name, content, true)
	}
	if err == unix.EEXIST {
		return errRaced
	}
	if err == nil {
		syncDir(dir)
	}
	return err
}

func createTemp(dir int, name string, content []byte, named bool) error {
	t, err := newTemp(dir, 0o666, named)
	if err != nil {
		return err
	}
	defer t.discard()
	if err := pwriteAll(t.fd, content, 0); err != nil {
		return err
	}
	return t.commit(name, false)
}

// createBelow makes directories for all names but the last, which is the file.
func (r *Root) createBelow(dir handle, names []string, content []byte) error {
	last := len(names) - 1
	at, made, err := r.makeBelow(dir, names[:last])
	if err != nil {
		return err
	}
	defer made.close()
	defer at.close()
	if err := create(at.fd, names[last], content); err != nil {
		made.undo()
		return err
	}
	return nil
}

// made are directories that were made one below the other.
type made struct {
	above []handle // where
	names []string
}

// undo removes them again, as far as they are empty.
func (m made) undo() {
	for i := len(m.above) - 1; i >= 0; i-- {
		_ = unlinkat(m.above[i].fd, m.names[i], unix.AT_REMOVEDIR)
	}
}

func (m made) close() {
	for i := range m.above {
		m.above[i].close()
	}
}

// makeBelow makes directories one below the other and opens the last. After a
// failure none is left.
func (r *Root) makeBelow(dir handle, names []string) (at handle, m made, err error) {
	at, m.names = handle{fd: dir.fd, id: dir.id}, names
	defer func() {
		if err != nil {
			m.undo()
			m.close()
			at.close()
		}
	}()
	for _, name := range names {
		// Somebody else's directory of that name will do for the next attempt,
		// whose walk looks at it first.
		if err := mkdirat(at.fd, name, 0o777); err == unix.EEXIST {
			return at, m, errRaced
		} else if err != nil {
			return at, m, err
		}
		m.above = append(m.above, at)
		parent := at
		at, err = parent.down(name)
		switch err {
		case nil:
		case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
			return at, m, errRaced
		default:
			return at, m, err
		}
		if r.never.blocks(parent.id, name, at.id, func() (int64, error) { return fsType(at.fd) }) {
			return at, m, errRaced // not what we made
		}
		syncDir(parent.fd)
	}
	return at, m, nil
}

// replace gives an existing regular file new content.
func (r *Root) replace(a asked, p *place, content []byte) error {
	old, err := r.reopen(p, unix.O_RDWR)
	if err == unix.EACCES {
		old, err = r.reopen(p, unix.O_WRONLY)
	}
	writable := err == nil
	if err == unix.ETXTBSY { // a program that runs: only a new inode will do
		old, err = r.reopen(p, unix.O_RDONLY)
	}
	if err != nil {
		return err
	}
	defer unix.Close(old)
	if p.st.Nlink > 1 && writable {
		return overwrite(old, p.st.Size, content)
	}
	err = r.replaceInode(a, p, old, content, false)
	if err == unix.ENOENT { // no /proc to name a nameless file by
		err = r.replaceInode(a, p, old, content, true)
	}
	if errors.Is(err, errKeepInode) && writable {
		return overwrite(old, p.st.Size, content)
	}
	if err == nil {
		syncDir(p.dir.fd)
	}
	return err
}

// errKeepInode says that a new inode would lose something or isn't allowed.
var errKeepInode = errors.New("the file can only be written in place")

// replaceInode puts a new file with the old one's ways in its place.
func (r *Root) replaceInode(a asked, p *place, old int, content []byte, named bool) error {
	t, err := newTemp(p.dir.fd, 0o600, named)
	if err == unix.EACCES || err == unix.EPERM {
		return errors.Join(errKeepInode, err)
	}
	if err != nil {
		return err
	}
	defer t.discard()
	if err := inherit(t.fd, old, &p.st); err != nil {
		return errors.Join(errKeepInode, err)
	}
	if err := pwriteAll(t.fd, content, 0); err != nil {
		return err
	}
	err = r.lose(a, p, func() error { return t.commit(p.name, true) }, func(fd int) error {
		return linkOver(fd, p.dir.fd, p.name)
	})
	switch err {
	case unix.EACCES, unix.EPERM, unix.EBUSY, unix.EXDEV: // sticky directory; mount point
		return errors.Join(errKeepInode, err)
	case unix.EISDIR, unix.ENOTDIR:
		return errRaced
	default:
		return err
	}
}

// inherit gives the file fd owner, group, attributes, access list and mode of
// the file old. The mode is last, since the others may change it.
func inherit(fd, old int, st *unix.Stat_t) error {
	is, err := fstat(fd)
	if err != nil {
		return err
	}
	if is.Uid != st.Uid || is.Gid != st.Gid {
		err := retry(func() error { return unix.Fchown(fd, int(st.Uid), int(st.Gid)) })
		if err != nil {
			return err
		}
	}
	if err := copyAttributes(fd, old); err != nil {
		return err
	}
	return retry(func() error { return unix.Fchmod(fd, keptMode(st.Mode)) })
}

// keptMode is the mode after a write: as on a write in place, the kernel's rule
// for who isn't root takes set-user-id and an effective set-group-id away.
func keptMode(mode uint32) uint32 {
	mode &= 0o7777
	if unix.Geteuid() != 0 {
		mode &^= unix.S_ISUID
		if mode&unix.S_IXGRP != 0 {
			mode &^= unix.S_ISGID
		}
	}
	return mode
}

// accessList is where Linux keeps a POSIX access control list (acl(5)).
const accessList = "system.posix_acl_access"

// copyAttributes makes the extended attributes of fd those of old, as far as
// they are a user's to set: user.* and the access list must go over, others
// (security labels) do if they may. Capabilities of a program don't: new content
// doesn't have the old one's trust.
func copyAttributes(fd, old int) error {
	names, err := listAttributes(old)
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return nil
	}
	if err != nil {
		return err
	}
	hasList := false
	for _, name := range names {
		if name == "security.capability" {
			continue
		}
		hasList = hasList || name == accessList
		must := name == accessList || strings.HasPrefix(name, "user.")
		value, err := getAttribute(old, name)
		if err == nil {
			err = retry(func() error { return unix.Fsetxattr(fd, name, value, 0) })
		}
		if err != nil && must && err != unix.ENODATA {
			return err
		}
	}
	if !hasList { // what the directory's default list gave the new file
		err := retry(func() error { return unix.Fremovexattr(fd, accessList) })
		if err != nil && err != unix.ENODATA && err != unix.EOPNOTSUPP {
			return err
		}
	}
	return nil
}

func listAttributes(fd int) ([]string, error) {
	return growing(func(buf []byte) (int, error) { return unix.Flistxattr(fd, buf) }, func(b []byte) []string {
		return strings.FieldsFunc(string(b), func(c rune) bool { return c == 0 })
	})
}

func getAttribute(fd int, name string) ([]byte, error) {
	return growing(func(buf []byte) (int, error) { return unix.Fgetxattr(fd, name, buf) }, func(b []byte) []byte { return b })
}

// growing calls get with a larger buffer until the answer fits. The kernel's
// bound on both is 64 KiB (xattr(7)).
func growing[T any](get func([]byte) (int, error), made func([]byte) T) (none T, _ error) {
	for size := 256; size <= 64<<10; size *= 4 {
		buf := make([]byte, size)
		n := 0
		err := retry(func() (e error) { n, e = get(buf); return e })
		if err == nil {
			return made(buf[:n]), nil
		}
		if err != unix.ERANGE {
			return none, err
		}
	}
	return none, unix.E2BIG
}

// overwrite writes content in place. Space for it is reserved first where the
// file system can, and the bytes that it replaces are kept in memory, at most as
// many as content has: if the disk is full or a write fails, the old content is
// put back.
func overwrite(fd int, size int64, content []byte) error {
	return overwriteBy(pwriteAll, fd, size, content)
}

func overwriteBy(write func(fd int, p []byte, off int64) error, fd int, size int64, content []byte) error {
	undo, err := readBack(fd, min(size, int64(len(content))))
	if err != nil {
		return err
	}
	if err = reserve(fd, size, int64(len(content))); err == nil {
		err = write(fd, content, 0)
	}
	if err == nil {
		err = retry(func() error { return unix.Ftruncate(fd, int64(len(content))) })
	}
	if err == nil {
		return fsync(fd)
	}
	back := errors.Join(pwriteAll(fd, undo, 0), retry(func() error { return unix.Ftruncate(fd, size) }), fsync(fd))
	return errors.Join(err, back)
}

// readBack reads the first n bytes of a file; none of one that may be written
// but not read.
func readBack(fd int, n int64) ([]byte, error) {
	buf := make([]byte, n)
	for got := 0; got < len(buf); {
		n, err := pread(fd, buf[got:], int64(got))
		if err == unix.EBADF {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if n == 0 {
			return buf[:got], nil
		}
		got += n
	}
	return buf, nil
}

// reserve makes sure of room up to size bytes, without changing the file's.
// Only a full disk is a failure: not every file system can reserve.
func reserve(fd int, have, size int64) error {
	if size <= have {
		return nil
	}
	err := retry(func() error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, have, size-have) })
	if err == unix.ENOSPC || err == unix.EDQUOT {
		return err
	}
	return nil
}
