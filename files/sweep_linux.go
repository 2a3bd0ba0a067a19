package files

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// sweepAge is how old what Sweep removes must be at least: it closes the moment
// between making a file and locking it.
const sweepAge = time.Minute

// sweepDepth bounds the levels that Sweep looks at, one descriptor each.
const sweepDepth = 128

// Sweep removes what a killed daemon left of unfinished operations: entries named
// as only we name them, older than a minute and not locked by anybody. It looks
// at the whole tree, so call it in the background when a root is opened; cancel
// ctx to end it early. It returns how many it removed and the context's error;
// what can't be read or removed is passed over.
func (r *Root) Sweep(ctx context.Context) (int, error) {
	if err := r.enter(ctx); err != nil {
		return 0, err
	}
	defer r.leave()
	fd, err := openDir(r.self.fd, ".")
	if err != nil {
		return 0, fault(asked{key: "path", path: r.path}, "sweep", err)
	}
	top := handle{fd: fd, id: r.self.id, owned: true}
	defer top.close()
	s := &sweep{root: r, ctx: ctx, before: time.Now().Add(-sweepAge), secret: r.private.look()}
	err = s.dir(&top, 0)
	return s.count, err
}

type sweep struct {
	root   *Root
	ctx    context.Context
	before time.Time
	secret *territory // what is private isn't removed; nil: nothing is
	count  int
}

func (s *sweep) dir(dir *handle, depth int) error {
	err := readDir(dir.fd, func(d dirent) error {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		switch {
		case isTempName(d.name):
			s.entry(dir, d.name, s.before)
			return nil
		case isPartName(d.name):
			s.entry(dir, d.name, s.before.Add(-partAge))
			return nil
		}
		if depth == sweepDepth || !d.isDir(dir.fd) {
			return nil
		}
		fd, err := openDir(dir.fd, d.name)
		if err != nil {
			return nil
		}
		sub := handle{fd: fd, owned: true}
		defer sub.close()
		st, err := fstat(fd)
		if err != nil {
			return nil
		}
		sub.id = identOf(&st)
		// Another file system may be a network's: not ours to walk through.
		if sub.id.dev != dir.id.dev ||
			s.root.never.blocks(dir.id, d.name, sub.id, func() (int64, error) { return fsType(fd) }) {
			return nil
		}
		return s.dir(&sub, depth+1)
	})
	if s.ctx.Err() != nil {
		return s.ctx.Err()
	}
	if errno := unix.Errno(0); errors.As(err, &errno) {
		return nil
	}
	return err
}

// entry removes one leftover unless it is newer than before or in use.
func (s *sweep) entry(dir *handle, name string, before time.Time) {
	fd, err := openat(dir.fd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	st, err := fstat(fd)
	if err != nil || !time.Unix(st.Ctim.Unix()).Before(before) {
		return
	}
	if unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	p := place{dir: handle{fd: dir.fd, id: dir.id}, name: name, exists: true, st: st, spot: spot{t: s.secret}}
	if s.root.remove(s.ctx, asked{key: "path", path: name}, &p, true, new(int)) == nil {
		s.count++
	}
}
