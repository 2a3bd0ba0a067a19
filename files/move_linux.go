package files

import (
	"context"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// Move answers FILE_MOVE. Links are moved and replaced themselves, never their
// targets. Without Overwrite nothing that exists is replaced, not even what
// appears at the last moment. With it, a file or an empty directory is replaced
// at once (rename), anything else by being exchanged with what is moved and
// removed only then. Between file systems it copies beside the destination with
// mode, owner, times and attributes, syncs, renames and only then removes the
// source. Moving something onto itself does nothing. What was replaced goes
// last: a failure on the way never loses both.
//
// Failures: PATH_NOT_FOUND (details.src, or details.dst for its directory),
// PATH_EXISTS, PATH_OUTSIDE_ALLOWED_ROOT (details.reason is_root or protected
// too), PRIVACY_MODE_BLOCKED (either end is, or may hold, something private),
// PATH_INVALID_CHARS, PATH_NOT_EMPTY (dst holds src), DISK_FULL (nothing
// was changed), READ_ONLY_DISK, PERMISSION_DENIED, INTERNAL_ERROR with
// details.reason into_itself, busy, or not_a_regular_file (a socket or device
// can't be copied).
func (r *Root) Move(ctx context.Context, req wire.FileMove) (Trace, error) {
	src, dst := r.ask("src", req.Src), r.ask("dst", req.Dst)
	trace := Trace{Src: src.shown(), Dst: dst.shown()}
	if err := r.enter(ctx); err != nil {
		return trace, fault(src, "move", err)
	}
	defer r.leave()
	err := untilStill(func() error {
		from, err := r.find(ctx, src, false, &trace.Src)
		if err != nil {
			return err
		}
		defer from.close()
		to, err := r.find(ctx, dst, false, &trace.Dst)
		if err != nil {
			return err
		}
		defer to.close()
		m := &moving{root: r, ctx: ctx, src: src, dst: dst, from: &from, to: &to, overwrite: req.Overwrite}
		return m.do()
	})
	return trace, fault(dst, "move to", err)
}

// moving is one move whose ends are found.
type moving struct {
	root      *Root
	ctx       context.Context
	src, dst  asked
	from, to  *place
	overwrite bool
}

func (m *moving) do() error {
	from, to := m.from, m.to
	switch {
	case from.name == "":
		return m.root.isRoot(m.src)
	case from.private():
		return m.root.isPrivate(m.src)
	case to.private():
		return m.root.isPrivate(m.dst)
	case !from.exists:
		return missing(m.src, from)
	case to.name == "":
		return m.root.isRoot(m.dst)
	case !to.exists && len(to.missing) > 1, !to.exists && to.why != "":
		return missing(m.dst, to)
	case m.same():
		return nil
	case kindOf(&from.st) == unix.S_IFDIR && within(to, from):
		return m.dst.fail(wire.InternalError, "into_itself", "%s can't be moved into itself", m.src.shown())
	case m.root.never.holds(identOf(&from.st)):
		return m.root.protected(m.src)
	case from.holdsPrivate():
		return m.root.holdsPrivate(m.src)
	case kindOf(&from.st) == unix.S_IFLNK && to.couldLead():
		return m.root.holdsPrivate(m.dst)
	case to.exists && !m.overwrite:
		return m.exists()
	case to.exists && m.root.never.holds(identOf(&to.st)):
		return m.root.protected(m.dst)
	case to.holdsPrivate():
		return m.root.holdsPrivate(m.dst)
	case to.exists && within(from, to):
		return m.dst.fail(wire.PathNotEmpty, "", "%s holds %s", m.dst.shown(), m.src.shown())
	}
	err := m.rename()
	if err == unix.EXDEV {
		err = m.copyOver()
	}
	if err != nil {
		return err
	}
	syncDir(to.dir.fd)
	if from.dir.id != to.dir.id {
		syncDir(from.dir.fd)
	}
	return nil
}

func (m *moving) exists() *wire.Error {
	return m.dst.fail(wire.PathExists, "", "path %s exists", m.dst.shown())
}

// same says whether both ends are one name.
func (m *moving) same() bool {
	return m.from.dir.id == m.to.dir.id && m.from.name == m.to.name
}

// within says whether p lies below the directory of. It goes by canonical names;
// the kernel has the last word where there is a rename.
func within(p, of *place) bool {
	n := len(of.above)
	if len(p.above) <= n || p.above[n] != of.name {
		return false
	}
	for i, name := range of.above {
		if p.above[i] != name {
			return false
		}
	}
	return true
}

// rename moves within one file system, in the way that the two ends allow.
func (m *moving) rename() error {
	from, to := m.from, m.to
	if !to.exists || !m.overwrite {
		err := moveNew(from.dir.fd, from.name, to.dir.fd, to.name)
		if err == unix.EEXIST {
			if m.overwrite {
				return errRaced
			}
			return m.exists()
		}
		return m.settle(err)
	}
	if identOf(&from.st) == identOf(&to.st) && kindOf(&from.st) != unix.S_IFDIR {
		return m.oneInode()
	}
	err := renameat(from.dir.fd, from.name, to.dir.fd, to.name)
	switch err {
	case unix.ENOTEMPTY, unix.EEXIST, unix.EISDIR, unix.ENOTDIR:
		return m.exchange()
	}
	return m.settle(err)
}

// settle turns what only a swap can cause into errRaced.
func (m *moving) settle(err error) error {
	switch err {
	case unix.ENOENT, unix.ENOTDIR, unix.EISDIR:
		return errRaced
	case unix.EINVAL:
		if kindOf(&m.from.st) != unix.S_IFDIR { // as FAT says to some characters
			return badName(m.dst)
		}
		// rename(2): the new name is below the old one.
		return m.dst.fail(wire.InternalError, "into_itself", "%s can't be moved to %s", m.src.shown(), m.dst.shown())
	}
	return err
}

// oneInode moves a file onto another of its own hard links, where rename(2) does
// nothing. Two spellings of one name, on a file system that ignores case, aren't
// two links: there it is a rename.
func (m *moving) oneInode() error {
	from, to := m.from, m.to
	if from.dir.id == to.dir.id && strings.EqualFold(from.name, to.name) || from.st.Nlink < 2 {
		return m.settle(renameat(from.dir.fd, from.name, to.dir.fd, to.name))
	}
	return m.settle(unlinkat(from.dir.fd, from.name, 0))
}

// exchange replaces what rename can't: src and dst change places, then the old
// dst is taken out of the way and removed.
func (m *moving) exchange() error {
	from, to := m.from, m.to
	err := renameat2(from.dir.fd, from.name, to.dir.fd, to.name, unix.RENAME_EXCHANGE)
	switch {
	case err == nil:
		old := tempName()
		if err := renameat(from.dir.fd, from.name, from.dir.fd, old); err != nil {
			return err
		}
		return m.removeOld(&from.dir, old)
	case err != unix.EINVAL && err != unix.ENOSYS && err != unix.EOPNOTSUPP:
		return m.settle(err)
	}
	return m.exchangeSlowly()
}

// exchangeSlowly is exchange for file systems that can't: there is a moment
// without dst. If it goes wrong there, dst comes back.
func (m *moving) exchangeSlowly() error {
	from, to := m.from, m.to
	old := tempName()
	if err := renameat(to.dir.fd, to.name, to.dir.fd, old); err != nil {
		return m.settle(err)
	}
	if err := moveNew(from.dir.fd, from.name, to.dir.fd, to.name); err != nil {
		return errors.Join(err, moveNew(to.dir.fd, old, to.dir.fd, to.name))
	}
	return m.removeOld(&to.dir, old)
}

// removeOld removes what was replaced.
func (m *moving) removeOld(dir *handle, name string) error {
	count := 0
	old := place{dir: handle{fd: dir.fd, id: dir.id}, name: name, exists: true, spot: spot{t: m.to.spot.t}}
	err := untilStill(func() error {
		if err := lstatat(dir.fd, name, &old.st); err == unix.ENOENT {
			return nil
		} else if err != nil {
			return err
		}
		return m.root.remove(m.ctx, m.dst, &old, true, &count)
	})
	if err != nil {
		return m.dst.fail(wire.CodeOf(fault(m.dst, "remove", err)), "old_content_left",
			"%s was moved, but what it replaced could not be removed and is left as %s", m.src.shown(), name)
	}
	return nil
}

// moveNew renames only if the new name is free, else EEXIST.
func moveNew(from int, old string, to int, name string) error {
	err := renameat2(from, old, to, name, unix.RENAME_NOREPLACE)
	if err != unix.EINVAL && err != unix.ENOSYS && err != unix.EOPNOTSUPP {
		return err
	}
	return moveReserved(from, old, to, name)
}

// moveReserved is moveNew for file systems without RENAME_NOREPLACE: it takes
// the new name with something empty, which fails if there is anything, and
// replaces that.
func moveReserved(from int, old string, to int, name string) error {
	var st, mine unix.Stat_t
	if err := lstatat(from, old, &st); err != nil {
		return err
	}
	flags := 0
	if kindOf(&st) == unix.S_IFDIR {
		flags = unix.AT_REMOVEDIR
		if err := mkdirat(to, name, 0o700); err != nil {
			return err
		}
	} else {
		fd, err := openat(to, name, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		unix.Close(fd)
	}
	if err := lstatat(to, name, &mine); err != nil {
		return err
	}
	err := renameat(from, old, to, name)
	if err != nil {
		var st unix.Stat_t
		if lstatat(to, name, &st) == nil && identOf(&st) == identOf(&mine) && (flags != 0 || st.Size == 0) {
			_ = unlinkat(to, name, flags)
		}
	}
	return err
}
