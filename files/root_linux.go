package files

import (
	"context"
	"os"
	"sync"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// Root is one directory and what may be done in it. All methods may be called at
// the same time.
type Root struct {
	path  string   // canonical
	names []string // path, split
	home  string   // what "~" stands for; empty if unknown
	never *Forbidden
	self  handle

	private *Private
	line    []ident // the directories above, from "/", as they were when it was opened

	spare spare // memory of large reads

	// open is held for reading by every operation, so that the descriptor isn't
	// closed, and its number given to something else, under one of them.
	open   sync.RWMutex
	closed bool
}

// Open opens the directory at path, whose parents may be links. What p marks is
// private in it, and it itself may be. It fails with
// PATH_NOT_FOUND if there is none, with PATH_INVALID_CHARS if its canonical path
// is not UTF-8, and with PATH_OUTSIDE_ALLOWED_ROOT if f closes it.
func Open(path string, f *Forbidden, p *Private) (*Root, error) {
	canonical, self, line, err := f.descend(path)
	if err != nil {
		return nil, err
	}
	if !utf8.ValidString(canonical) {
		self.close()
		return nil, asked{key: "path", path: path}.fail(wire.PathInvalidChars, "", "root %s is not UTF-8", shown(path))
	}
	home, _ := os.UserHomeDir() // without one, "~" is refused
	return &Root{
		path:  canonical,
		names: split(canonical),
		home:  home,
		never: f,
		self:  self,

		private: p,
		line:    line,
	}, nil
}

// Path is the canonical path of the root.
func (r *Root) Path() string { return r.path }

// Close waits for the operations that run (cancel their contexts to hurry them)
// and closes the root's descriptor. Operations begun later fail. It may be
// called again.
func (r *Root) Close() error {
	r.open.Lock()
	defer r.open.Unlock()
	if r.closed {
		return nil
	}
	r.closed = true
	r.self.close()
	return nil
}

// enter begins an operation; leave ends it.
func (r *Root) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.open.RLock()
	if r.closed {
		r.open.RUnlock()
		return wire.Errorf(wire.InternalError, "root %s is closed", r.path).With("reason", "closed")
	}
	return nil
}

func (r *Root) leave() { r.open.RUnlock() }

// OpenDir opens a directory for a command to start in. The descriptor (O_PATH:
// good for fchdir and for passing on, not for listing) is the one that the jail
// reached, so nothing that is swapped later moves it. An empty path is the root.
// The string is its canonical path. Failures: PATH_NOT_FOUND,
// PATH_OUTSIDE_ALLOWED_ROOT, PATH_INVALID_CHARS, PERMISSION_DENIED, and
// INTERNAL_ERROR with details.reason not_a_directory.
func (r *Root) OpenDir(ctx context.Context, path string) (*os.File, string, error) {
	a := r.ask("path", path)
	if a.path == "" {
		a.path = "."
	}
	var dir *os.File
	canonical := a.shown()
	err := r.on(ctx, a, "open", true, &canonical, func(p *place) error {
		switch {
		case !p.exists:
			return missing(a, p)
		case p.private():
			return r.isPrivate(a)
		case kindOf(&p.st) != unix.S_IFDIR:
			return notDirectory(a)
		}
		fd, err := r.pinPlace(p)
		if err != nil {
			return err
		}
		dir = os.NewFile(uintptr(fd), canonical)
		return nil
	})
	return dir, canonical, err
}

// pinPlace opens the directory that p was found to be.
func (r *Root) pinPlace(p *place) (int, error) {
	return r.reopen(p, unix.O_PATH|unix.O_DIRECTORY)
}

// reopen opens what p was found to be, and only that: errRaced if it is
// something else by now.
func (r *Root) reopen(p *place, flags int) (int, error) {
	name := p.name
	if name == "" {
		name = "." // the root itself
	}
	fd, err := openat(p.dir.fd, name, flags|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	switch err {
	case nil:
	case unix.ENOENT, unix.ELOOP, unix.ENOTDIR, unix.ENXIO:
		return -1, errRaced
	default:
		return -1, err
	}
	st, err := fstat(fd)
	if err == nil && (identOf(&st) != identOf(&p.st) || kindOf(&st) != kindOf(&p.st)) {
		err = errRaced
	}
	if err == nil && p.spot.t != nil && kindOf(&st) == unix.S_IFREG && (st.Nlink > 1) != (p.st.Nlink > 1) {
		err = errRaced // it was judged by other names than it has
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
