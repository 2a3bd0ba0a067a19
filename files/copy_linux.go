package files

import (
	"bytes"
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// copyOver moves to another file system: copy beside the destination, sync,
// rename, remove the source.
func (m *moving) copyOver() error {
	from, to := m.from, m.to
	name := tempName()
	c := &copying{root: m.root, ctx: m.ctx, src: m.src, secret: from.spot.t, links: make(map[ident]string)}
	c.top = handle{fd: to.dir.fd, id: to.dir.id}
	c.topName = name
	defer c.unlock()
	if err := c.entry(&from.dir, from.name, &c.top, name, ""); err != nil {
		m.dropCopy(name)
		return fault(m.dst, "copy to", err)
	}
	if err := m.place(name); err != nil {
		m.dropCopy(name)
		return err
	}
	if err := m.removeSource(); err != nil {
		return m.src.fail(wire.CodeOf(fault(m.src, "remove", err)), "source_left",
			"%s was copied to %s, but could not be removed", m.src.shown(), m.dst.shown()).With("dst", m.dst.shown())
	}
	return nil
}

// removeSource removes what was copied, and only that: it is taken aside first,
// and put back if it is something else by now or a file with other content.
func (m *moving) removeSource() error {
	dir, name, aside := &m.from.dir, m.from.name, tempName()
	if err := renameat(dir.fd, name, dir.fd, aside); err != nil {
		return err
	}
	now := place{dir: handle{fd: dir.fd, id: dir.id}, name: aside, exists: true}
	was := &m.from.st
	err := lstatat(dir.fd, aside, &now.st)
	if err == nil && (identOf(&now.st) != identOf(was) ||
		kindOf(was) == unix.S_IFREG && (now.st.Size != was.Size || now.st.Mtim != was.Mtim)) {
		err = errChanged
	}
	if err != nil {
		return errors.Join(err, moveNew(dir.fd, aside, dir.fd, name))
	}
	count := 0
	return untilStill(func() error { return m.root.remove(m.ctx, m.src, &now, true, &count) })
}

// errChanged says that a file was changed while it was copied.
var errChanged = errors.New("the source changed while it was copied")

// place gives the copy its name, as rename would have.
func (m *moving) place(name string) error {
	st := unix.Stat_t{}
	if err := lstatat(m.to.dir.fd, name, &st); err != nil {
		return err
	}
	made := place{dir: handle{fd: m.to.dir.fd, id: m.to.dir.id}, above: m.to.above, name: name, exists: true, st: st}
	last := &moving{root: m.root, ctx: m.ctx, src: m.src, dst: m.dst, from: &made, to: m.to, overwrite: m.overwrite}
	return last.rename()
}

// dropCopy removes an unfinished copy, even if the move was cancelled.
func (m *moving) dropCopy(name string) {
	x := *m
	x.ctx = context.WithoutCancel(m.ctx)
	_ = x.removeOld(&m.to.dir, name)
}

// copying is the copy of one tree. Several names of one file in it stay that.
type copying struct {
	root    *Root
	ctx     context.Context
	src     asked
	secret  *territory
	top     handle // where the copy is made
	topName string
	lock    int // descriptor that holds the lock on the copy, 0 if none
	links   map[ident]string
	depth   int
}

// maxCopyDepth bounds the levels of a tree that is copied; two descriptors are
// open for each.
const maxCopyDepth = 256

func (c *copying) unlock() {
	if c.lock > 0 {
		unix.Close(c.lock)
	}
}

// entry copies src in from to dst in to. path is dst's path below the top.
func (c *copying) entry(from *handle, src string, to *handle, dst, path string) error {
	if err := c.ctx.Err(); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := lstatat(from.fd, src, &st); err != nil {
		return err
	}
	if c.root.blocked(from, src, &st) {
		return c.root.protected(c.src)
	}
	kind := kindOf(&st)
	if private, err := c.private(from, src, &st); private || err != nil {
		return orError(err, c.root.isPrivate(c.src))
	}
	if kind != unix.S_IFDIR && st.Nlink > 1 {
		if first, ok := c.links[identOf(&st)]; ok {
			return c.link(first, to, dst)
		}
		c.links[identOf(&st)] = path
	}
	switch kind {
	case unix.S_IFREG:
		return c.file(from, src, &st, to, dst)
	case unix.S_IFDIR:
		return c.dir(from, src, &st, to, dst, path)
	case unix.S_IFLNK:
		target, err := readlinkat(from.fd, src)
		if err == nil {
			err = retry(func() error { return unix.Symlinkat(target, to.fd, dst) })
		}
		if err != nil {
			return err
		}
		return c.dress(to, dst, &st)
	case unix.S_IFIFO:
		if err := retry(func() error { return unix.Mkfifoat(to.fd, dst, st.Mode&0o777) }); err != nil {
			return err
		}
		return c.dress(to, dst, &st)
	}
	return c.src.fail(wire.InternalError, "not_a_regular_file",
		"%s holds a socket or device, which can't be copied", c.src.shown())
}

// private says whether something of the tree is private by what it is. By its
// path nothing is: such a tree isn't moved.
func (c *copying) private(from *handle, name string, st *unix.Stat_t) (bool, error) {
	if c.secret == nil {
		return false, nil
	}
	switch kindOf(st) {
	case unix.S_IFDIR:
		fd, err := pin(from.fd, name)
		if err != nil {
			return false, err
		}
		defer unix.Close(fd)
		is, err := fstat(fd)
		return err == nil && c.secret.keeps(identOf(&is), fd), err
	case unix.S_IFREG:
		rule, err := c.secret.ofFile(c.ctx, st, from.fd, name)
		return rule != nil, err
	}
	return false, nil
}

func orError(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// link makes another name of a file that was copied before.
func (c *copying) link(first string, to *handle, dst string) error {
	at := handle{fd: c.top.fd, id: c.top.id}
	defer func() { at.close() }()
	names := append([]string{c.topName}, split(first)...)
	for _, name := range names[:len(names)-1] {
		next, err := at.down(name)
		if err != nil {
			return err
		}
		at.close()
		at = next
	}
	return retry(func() error { return unix.Linkat(at.fd, names[len(names)-1], to.fd, dst, 0) })
}

func (c *copying) file(from *handle, src string, st *unix.Stat_t, to *handle, dst string) error {
	in, err := openat(from.fd, src, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer unix.Close(in)
	if is, err := fstat(in); err != nil {
		return err
	} else if identOf(&is) != identOf(st) || kindOf(&is) != unix.S_IFREG || is.Nlink > 1 && st.Nlink < 2 {
		return errRaced
	}
	out, err := openat(to.fd, dst, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	c.hold(out)
	defer unix.Close(out)
	if err := c.content(out, in); err != nil {
		return err
	}
	if err := copyAttributes(out, in); err != nil && err != unix.EOPNOTSUPP {
		return err
	}
	if err := c.dress(to, dst, st); err != nil {
		return err
	}
	return fsync(out)
}

// hold keeps the lock that says that the copy is in use, once.
func (c *copying) hold(fd int) {
	if c.lock > 0 {
		return
	}
	if own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		_ = retry(func() error { return unix.Flock(own, unix.LOCK_EX|unix.LOCK_NB) })
		c.lock = own
	}
}

// copyPiece is how many bytes are copied between two looks at the context.
const copyPiece = 1 << 20

// content copies bytes; a piece of nothing but zeros becomes a hole.
func (c *copying) content(out, in int) error {
	buf := make([]byte, copyPiece)
	zeros := make([]byte, 4<<10)
	off := int64(0)
	for {
		if err := c.ctx.Err(); err != nil {
			return err
		}
		n, err := pread(in, buf, off)
		if err != nil {
			return err
		}
		if n == 0 {
			return retry(func() error { return unix.Ftruncate(out, off) })
		}
		for rest := buf[:n]; len(rest) > 0; {
			k := min(len(rest), len(zeros))
			if !bytes.Equal(rest[:k], zeros[:k]) {
				if err := pwriteAll(out, rest[:k], off); err != nil {
					return err
				}
			}
			rest, off = rest[k:], off+int64(k)
		}
	}
}

func (c *copying) dir(from *handle, src string, st *unix.Stat_t, to *handle, dst, path string) error {
	if c.depth++; c.depth > maxCopyDepth {
		return c.src.fail(wire.InternalError, "too_deep", "%s has more than %d levels", c.src.shown(), maxCopyDepth)
	}
	defer func() { c.depth-- }()
	in, err := openDir(from.fd, src)
	if err != nil {
		return err
	}
	inside := handle{fd: in, owned: true}
	defer inside.close()
	if is, err := fstat(in); err != nil {
		return err
	} else if inside.id = identOf(&is); inside.id != identOf(st) {
		return errRaced
	}
	if err := mkdirat(to.fd, dst, 0o700); err != nil {
		return err
	}
	out, err := openDir(to.fd, dst)
	if err != nil {
		return err
	}
	made := handle{fd: out, owned: true}
	defer made.close()
	if is, err := fstat(out); err != nil {
		return err
	} else {
		made.id = identOf(&is)
	}
	c.hold(out)
	err = readDir(in, func(d dirent) error {
		return c.entry(&inside, d.name, &made, d.name, path+"/"+d.name)
	})
	if err != nil {
		return err
	}
	if err := copyAttributes(out, in); err != nil && err != unix.EOPNOTSUPP {
		return err
	}
	if err := c.dress(to, dst, st); err != nil {
		return err
	}
	return fsync(out)
}

// dress gives a copy the owner, mode and times of its original. An owner that we
// may not give is no failure, as it isn't for mv: the copy is then ours.
func (c *copying) dress(to *handle, name string, st *unix.Stat_t) error {
	mode := st.Mode & 0o7777
	err := retry(func() error {
		return unix.Fchownat(to.fd, name, int(st.Uid), int(st.Gid), unix.AT_SYMLINK_NOFOLLOW)
	})
	if err == unix.EPERM {
		mode &^= unix.S_ISUID | unix.S_ISGID
		err = retry(func() error { return unix.Fchownat(to.fd, name, -1, int(st.Gid), unix.AT_SYMLINK_NOFOLLOW) })
	}
	if err != nil && err != unix.EPERM {
		return err
	}
	if kindOf(st) != unix.S_IFLNK {
		if err := retry(func() error { return unix.Fchmodat(to.fd, name, mode, 0) }); err != nil && err != unix.EPERM {
			return err
		}
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	err = retry(func() error { return unix.UtimesNanoAt(to.fd, name, times, unix.AT_SYMLINK_NOFOLLOW) })
	if errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}
