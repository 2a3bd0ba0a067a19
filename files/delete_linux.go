package files

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// Delete answers FILE_DELETE. A link is deleted itself, never its target. A
// directory that isn't empty needs Recursive; its tree goes by descriptors, no
// link in it is followed, and neither another file system mounted in it nor what
// files can never reach is entered. Trace.Entries counts what was removed, also
// if the rest then failed.
//
// Failures: PATH_NOT_FOUND (unless MissingOK), PATH_NOT_EMPTY,
// PATH_OUTSIDE_ALLOWED_ROOT (details.reason is_root: the root itself;
// protected: it is or holds what files can never reach), PATH_INVALID_CHARS,
// PRIVACY_MODE_BLOCKED (a private directory, or one that may hold something
// private),
// PERMISSION_DENIED, READ_ONLY_DISK, INTERNAL_ERROR with details.reason busy (a
// mount point).
func (r *Root) Delete(ctx context.Context, req wire.FileDelete) (Trace, error) {
	a := r.ask("path", req.Path)
	trace := Trace{Path: a.shown()}
	err := r.on(ctx, a, "delete", false, &trace.Path, func(p *place) error {
		switch {
		case p.name == "":
			return r.isRoot(a)
		case !p.exists && (req.MissingOK || trace.Entries > 0): // or somebody else removed the rest
			return nil
		case !p.exists:
			return missing(a, p)
		case p.private() && kindOf(&p.st) == unix.S_IFDIR:
			return r.isPrivate(a)
		case p.manyNames():
			return r.manyNames(a)
		case p.onTheWay(), req.Recursive && p.holdsPrivate():
			return r.holdsPrivate(a)
		}
		return r.lose(a, p, func() error {
			return r.remove(ctx, a, p, req.Recursive, &trace.Entries)
		}, func(fd int) error {
			trace.Entries--
			return linkDescriptor(fd, p.dir.fd, p.name)
		})
	})
	return trace, err
}

// remove removes what p was found to be.
func (r *Root) remove(ctx context.Context, a asked, p *place, recursive bool, count *int) error {
	if kindOf(&p.st) != unix.S_IFDIR {
		return removed(count, unlinkat(p.dir.fd, p.name, 0))
	}
	if recursive {
		x := &removal{root: r, ctx: ctx, asked: a, count: count, secret: p.spot.t}
		return x.tree(&p.dir, p.name)
	}
	switch err := unlinkat(p.dir.fd, p.name, unix.AT_REMOVEDIR); err {
	case unix.ENOTEMPTY, unix.EEXIST: // POSIX allows either
		return a.fail(wire.PathNotEmpty, "", "directory %s is not empty", a.shown())
	default:
		return removed(count, err)
	}
}

// removed counts a success, and turns what only a swap can cause into errRaced.
func removed(count *int, err error) error {
	switch err {
	case nil:
		*count++
	case unix.ENOENT, unix.EISDIR, unix.ENOTDIR:
		return errRaced
	}
	return err
}

// maxHeld bounds the directories that one removal keeps open, one a level.
const maxHeld = 64

// namesAtOnce bounds the names of one directory that are held in memory.
const namesAtOnce = 1024

// removal is the removal of one tree.
type removal struct {
	root  *Root
	ctx   context.Context
	asked asked
	count *int
	// secret is what is private now; nil: nothing, or nobody asked for this.
	secret *territory
	held   []handle // the directories from the top down to where we are
}

// tree removes the directory name of dir and everything in it.
func (x *removal) tree(dir *handle, name string) error {
	fd, err := openDir(dir.fd, name)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
		return errRaced
	default:
		return err
	}
	at := handle{fd: fd, owned: true}
	defer func() { at.close() }()
	st, err := fstat(fd)
	if err != nil {
		return err
	}
	at.id = identOf(&st)
	switch {
	case x.root.never.holds(at.id),
		x.root.never.blocks(dir.id, name, at.id, func() (int64, error) { return fsType(fd) }):
		return x.root.protected(x.asked)
	case x.secret.keeps(at.id, fd):
		return x.root.holdsPrivate(x.asked)
	case at.id.dev != dir.id.dev:
		return unix.EBUSY // what rmdir would say in the end, before anything is lost
	}
	x.held = append(x.held, at)
	defer func() { x.held = x.held[:len(x.held)-1] }()
	if err := x.empty(&at); err != nil {
		return err
	}
	switch err := unlinkat(dir.fd, name, unix.AT_REMOVEDIR); err {
	case unix.ENOTEMPTY, unix.EEXIST: // somebody goes on making files in it
		return errRaced
	default:
		return removed(x.count, err)
	}
}

// empty removes the entries of dir, some at a time until none is left.
func (x *removal) empty(dir *handle) error {
	for tries := 0; tries < maxRaces; tries++ {
		var found []dirent
		err := readDir(dir.fd, func(d dirent) error {
			if found = append(found, d); len(found) == namesAtOnce {
				return errEnough
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEnough) {
			return err
		}
		if len(found) == 0 {
			return nil
		}
		for _, d := range found {
			if err := x.ctx.Err(); err != nil {
				return err
			}
			switch err := x.entry(dir, d); {
			case err == nil:
				tries = -1 // it goes forward
			case !errors.Is(err, errRaced):
				return err
			}
		}
	}
	return errRaced
}

// errEnough ends a listing.
var errEnough = errors.New("enough entries")

func (x *removal) entry(dir *handle, d dirent) error {
	if !d.isDir(dir.fd) {
		if err := x.guard(dir, d.name); err != nil {
			return err
		}
		return removed(x.count, unlinkat(dir.fd, d.name, 0))
	}
	if len(x.held) < maxHeld {
		return x.tree(dir, d.name)
	}
	// Too deep to keep every level open: move it up to the top of the tree,
	// where the loop finds it again.
	top := &x.held[0]
	return renameat(dir.fd, d.name, top.fd, tempName())
}

// guard refuses what files can never reach (the configuration file, if it
// stands in this tree).
func (x *removal) guard(dir *handle, name string) error {
	var st unix.Stat_t
	if err := lstatat(dir.fd, name, &st); err != nil {
		return removed(x.count, err)
	}
	if x.root.blocked(dir, name, &st) {
		return x.root.protected(x.asked)
	}
	return nil
}
