package files

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// Bounds of looking for the other names of files. Beyond them every file that has
// several counts as private.
const (
	linkedEntries = 100_000
	linkedDepth   = 64
	linkedTime    = 3 * time.Second
)

// linked are the private files, whatever number of names they have at the moment in
// which they are found: another name may just be away.
type linked struct {
	files map[ident]int // the rule that closes them
	all   bool          // not everything could be looked at
	open  bool          // only those with several names that others may read are of interest
}

// isLinked says whether one of the names of a file lies where the rules close
// everything. Only of one with several names that is a question.
func (t *territory) isLinked(ctx context.Context, id ident) (rule int, yes bool, err error) {
	if t.linked == nil {
		s := &linkSearch{ctx: ctx, t: t, found: &linked{files: make(map[ident]int)}, until: deadline()}
		if err := s.run(); err != nil {
			return 0, false, err
		}
		t.linked = s.found
	}
	rule, yes = t.linked.files[id]
	return rule, yes || t.linked.all, nil
}

func deadline() time.Time { return time.Now().Add(linkedTime) }

// linkSearch looks through all that is private.
type linkSearch struct {
	ctx   context.Context
	t     *territory
	found *linked
	until time.Time
	seen  int
}

// errTooMuch ends a search that takes too long.
var errTooMuch = errors.New("too much to look through")

func (s *linkSearch) run() error {
	for _, w := range s.t.ways {
		err := s.way(w)
		if s.ctx.Err() != nil {
			return s.ctx.Err()
		}
		if err != nil {
			s.found.all = true
			return nil
		}
	}
	return nil
}

// way looks through what one pattern fits.
func (s *linkSearch) way(w way) error {
	at, err := rootSlash()
	if err != nil {
		return err
	}
	defer func() { at.close() }()
	prefix := w.glob.Prefix()
	for i, name := range prefix {
		next, target, err := lookAt(&at, name)
		switch {
		case err == unix.ENOENT, err == unix.ENOTDIR, target != "":
			next.close()
			return nil // nothing is there, or another way leads there
		case err != nil:
			return err
		}
		at.close()
		at = next
		if i < len(prefix)-1 || !w.glob.Literal() {
			continue
		}
		var st unix.Stat_t
		if st, err = fstat(at.fd); err != nil {
			return err
		}
		if kindOf(&st) != unix.S_IFDIR {
			s.note(&st, w.rule)
			return nil
		}
	}
	fd, err := openDir(at.fd, ".")
	if err == unix.ENOTDIR {
		return nil
	}
	if err != nil {
		return err
	}
	dir := handle{fd: fd, id: at.id, owned: true}
	defer dir.close()
	return s.dir(&dir, w, prefix, w.glob.Literal(), 0)
}

func (s *linkSearch) note(st *unix.Stat_t, rule int) {
	switch {
	case kindOf(st) != unix.S_IFREG:
	case s.found.open && (st.Nlink < 2 || st.Mode&0o077 == 0 && own(st)):
	default:
		s.found.files[identOf(st)] = rule
	}
}

// dir looks through a directory; inside says that all in it is private.
func (s *linkSearch) dir(dir *handle, w way, names []string, inside bool, depth int) error {
	if depth > linkedDepth {
		return errTooMuch
	}
	return readDir(dir.fd, func(d dirent) error {
		if s.seen++; s.seen > linkedEntries || s.seen%256 == 0 && time.Now().After(s.until) {
			return errTooMuch
		}
		if err := s.ctx.Err(); err != nil {
			return err
		}
		here := append(names[:len(names):len(names)], d.name)
		private := inside || w.glob.Match(here) > 0
		switch {
		case d.isDir(dir.fd):
			if private || w.glob.Below(here) {
				return s.enter(dir, d.name, w, here, private, depth)
			}
		case private && (d.kind == unix.DT_REG || d.kind == unix.DT_UNKNOWN):
			var st unix.Stat_t
			if err := lstatat(dir.fd, d.name, &st); err == nil {
				s.note(&st, w.rule)
			} else if err != unix.ENOENT {
				return err
			}
		}
		return nil
	})
}

func (s *linkSearch) enter(dir *handle, name string, w way, names []string, inside bool, depth int) error {
	fd, err := openDir(dir.fd, name)
	switch err {
	case nil:
	case unix.ENOENT, unix.ENOTDIR, unix.ELOOP: // swapped meanwhile
		return nil
	default:
		return err
	}
	sub := handle{fd: fd, owned: true}
	defer sub.close()
	st, err := fstat(fd)
	if err != nil {
		return err
	}
	sub.id = identOf(&st)
	if sub.id.dev != dir.id.dev {
		if magic, err := fsType(fd); err != nil || kernelFS(magic) {
			return err
		}
	}
	return s.dir(&sub, w, names, inside, depth+1)
}
