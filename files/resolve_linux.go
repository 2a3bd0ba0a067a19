package files

import (
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// maxSteps bounds the components that one path makes us look at, links and the
// new beginnings after ".." included. The longest path without either has 2048.
const maxSteps = 1 << 15

// place is where a path ends: a name in an open directory, and what is there.
type place struct {
	dir   handle   // the directory that holds name
	above []string // the canonical names of dir below the root
	name  string   // empty for the root itself, which dir then is

	exists  bool
	st      unix.Stat_t // if exists: what name is, a link only if links were not to be followed
	missing []string    // if not: the names from name on that don't exist
	why     string      // if not, and not simply absent: not_a_directory or too_many_links, of name

	link bool // the last component that was asked for is a link
}

func (p *place) close() { p.dir.close() }

// path is the canonical path of the place, as it can stand in JSON.
func (p *place) path(r *Root) string {
	names := p.above
	switch {
	case !p.exists && len(p.missing) > 0:
		names = append(slices.Clip(names), p.missing...)
	case p.name != "":
		names = append(slices.Clip(names), p.name)
	}
	return r.join(names)
}

func (r *Root) join(names []string) string {
	if len(names) == 0 {
		return r.path
	}
	return shown(strings.TrimSuffix(r.path, "/") + "/" + strings.Join(names, "/"))
}

// resolve finds the place that a leads to; follow says whether a link that the
// path ends in is followed too. That nothing is there isn't an error. The caller
// closes the place.
func (r *Root) resolve(ctx context.Context, a asked, follow bool) (place, error) {
	w := walk{root: r, ctx: ctx, asked: a, follow: follow}
	err := w.begin()
	var p place
	if err == nil {
		p, err = w.run()
	}
	if err != nil {
		w.dir.close()
		return place{}, fault(a, "resolve", err)
	}
	return p, nil
}

// walk is one resolution under way. It stands in dir, whose canonical names are
// done, and ahead are the names to come. When a name doesn't exist, those from it
// on are kept in phantom, so that ".." can lead back out of what isn't there, as
// realpath does.
type walk struct {
	root   *Root
	ctx    context.Context
	asked  asked
	follow bool

	dir     handle
	done    []string
	ahead   []string
	phantom []string
	why     string
	link    bool

	links int
	steps int
}

// begin checks the path as text and finds where it starts.
func (w *walk) begin() error {
	path := w.asked.path
	switch {
	case path == "":
		return w.asked.fail(wire.InternalError, "invalid_payload", "%s is empty", w.asked.key)
	case strings.ContainsRune(path, 0):
		return w.asked.fail(wire.PathInvalidChars, "", "path has a NUL in it")
	case utf8.RuneCountInString(path) > wire.MaxPath:
		e := wire.Errorf(wire.PathInvalidChars, "path is longer than %d characters", wire.MaxPath)
		return e.With(w.asked.key, shown(path[:wire.MaxDeviceString])).With("reason", "too_long")
	case path[0] == '~':
		home := w.root.home
		if (len(path) > 1 && path[1] != '/') || home == "" {
			return w.asked.fail(wire.PathInvalidChars, "", "path %s: no such home directory", shown(path))
		}
		path = home + path[1:]
	}
	if path[0] == '/' {
		return w.enter(split(path))
	}
	w.restart(split(path))
	return nil
}

// split is a path's components without empty ones and ".".
func split(path string) []string {
	names := make([]string, 0, strings.Count(path, "/")+1)
	for name := range strings.SplitSeq(path, "/") {
		if name != "" && name != "." {
			names = append(names, name)
		}
	}
	return names
}

// restart goes on from the root.
func (w *walk) restart(ahead []string) {
	w.dir.close()
	w.dir = handle{fd: w.root.self.fd, id: w.root.self.id}
	w.done, w.ahead, w.phantom, w.why = nil, ahead, nil, ""
}

// enter goes on along an absolute path, which must lead into the root.
func (w *walk) enter(names []string) error {
	if below, ok := w.root.below(names); ok {
		w.restart(below)
		return nil
	}
	return w.outside(names)
}

// below says whether an absolute path begins with the root's, and what follows.
func (r *Root) below(names []string) ([]string, bool) {
	n := len(r.names)
	if len(names) < n || !slices.Equal(names[:n], r.names) {
		return nil, false
	}
	return names[n:], true
}

// run walks to the end.
func (w *walk) run() (place, error) {
	for {
		if err := w.step(); err != nil {
			return place{}, err
		}
		if len(w.ahead) == 0 {
			switch {
			case len(w.phantom) > 0:
				return w.nothing()
			case len(w.done) == 0:
				return w.atRoot()
			}
			// The path ended in ".." or in a link to ".": its last name is the
			// last one of the directory that we stand in.
			w.restart(w.done)
		}
		name, rest := w.ahead[0], w.ahead[1:]
		switch {
		case len(w.phantom) > 0 && name == "..":
			w.phantom = w.phantom[:len(w.phantom)-1]
			if len(w.phantom) == 0 {
				w.why = ""
			}
			w.ahead = rest
		case len(w.phantom) > 0:
			w.phantom = append(w.phantom, name)
			w.ahead = rest
		case name == "..":
			if err := w.up(rest); err != nil {
				return place{}, err
			}
		case len(rest) == 0:
			if p, ended, err := w.last(name); ended || err != nil {
				return p, err
			}
		default:
			if err := w.down(name, rest); err != nil {
				return place{}, err
			}
		}
	}
}

// step bounds the work and lets it be cancelled.
func (w *walk) step() error {
	if w.steps++; w.steps > maxSteps {
		return w.asked.fail(wire.PathInvalidChars, "too_long", "path has too many components")
	}
	if w.steps%16 == 0 {
		return w.ctx.Err()
	}
	return nil
}

func (w *walk) atRoot() (place, error) {
	st, err := fstat(w.dir.fd)
	if err != nil {
		return place{}, err
	}
	return place{dir: w.dir, exists: true, st: st, link: w.link}, nil
}

// nothing is the end of a path that leads to nothing.
func (w *walk) nothing() (place, error) {
	if len(w.done) == 0 {
		st, err := fstat(w.dir.fd)
		if err != nil {
			return place{}, err
		}
		if st.Nlink == 0 {
			return place{}, w.root.outside(w.asked).With("reason", "root_gone")
		}
	}
	return place{dir: w.dir, above: w.done, name: w.phantom[0], missing: w.phantom, why: w.why, link: w.link}, nil
}

// up follows "..": from the root it leaves, and may come back.
func (w *walk) up(rest []string) error {
	if n := len(w.done); n > 0 {
		for n > 1 && len(rest) > 0 && rest[0] == ".." { // several at once
			n, rest = n-1, rest[1:]
		}
		w.restart(join(w.done[:n-1], rest))
		return nil
	}
	own := w.root.names
	if len(own) == 0 { // "/..", which is "/"
		w.ahead = rest
		return nil
	}
	return w.enter(join(own[:len(own)-1], rest))
}

func join(a, b []string) []string {
	return append(append(make([]string, 0, len(a)+len(b)), a...), b...)
}

// last looks at the last component.
func (w *walk) last(name string) (p place, ended bool, err error) {
	p = place{dir: w.dir, above: w.done, name: name, exists: true}
	switch err = lstatat(w.dir.fd, name, &p.st); err {
	case nil:
	case unix.ENOENT:
		return w.absent(name, nil)
	default:
		return p, true, err
	}
	if w.blocked(name, &p.st) {
		return p, true, w.root.protected(w.asked)
	}
	if kindOf(&p.st) != unix.S_IFLNK {
		p.link = w.link
		return p, true, nil
	}
	w.link, p.link = true, true
	if !w.follow {
		return p, true, nil
	}
	target, err := readlinkat(w.dir.fd, name)
	switch err {
	case nil:
		return p, false, w.splice(name, target, nil)
	case unix.EINVAL, unix.ENOENT: // swapped meanwhile: look again
		return p, false, nil
	}
	return p, true, err
}

// down enters a directory on the way.
func (w *walk) down(name string, rest []string) error {
	next, err := w.dir.down(name)
	switch err {
	case nil:
		if w.root.never.blocks(w.dir.id, name, next.id, func() (int64, error) { return fsType(next.fd) }) {
			next.close()
			return w.root.protected(w.asked)
		}
		w.dir.close()
		w.dir = next
		w.done, w.ahead = append(w.done, name), rest
		return nil
	case unix.ENOENT:
		_, _, err := w.absent(name, rest)
		return err
	case unix.ENOTDIR, unix.ELOOP:
	default:
		return err
	}
	target, err := readlinkat(w.dir.fd, name)
	switch err {
	case nil:
		return w.splice(name, target, rest)
	case unix.ENOENT: // swapped meanwhile: look again
		return nil
	case unix.EINVAL:
		return w.file(name, rest)
	}
	return err
}

// file is met where the path needs a directory.
func (w *walk) file(name string, rest []string) error {
	var st unix.Stat_t
	switch err := lstatat(w.dir.fd, name, &st); {
	case err == unix.ENOENT, err == nil && (kindOf(&st) == unix.S_IFDIR || kindOf(&st) == unix.S_IFLNK):
		return nil // swapped meanwhile: look again
	case err != nil:
		return err
	case w.blocked(name, &st):
		return w.root.protected(w.asked)
	}
	w.phantom, w.why, w.ahead = []string{name}, "not_a_directory", rest
	return nil
}

// absent is a name that isn't there. With U+FFFD in it, it may stand for one
// that can't be spelled in Unicode.
func (w *walk) absent(name string, rest []string) (place, bool, error) {
	if strings.ContainsRune(name, utf8.RuneError) {
		real, err := w.spelled(name)
		if err != nil {
			return place{}, true, err
		}
		if real != "" {
			w.ahead = join([]string{real}, rest)
			return place{}, false, nil
		}
	}
	if w.root.never.named(w.dir.id, name) {
		return place{}, true, w.root.protected(w.asked)
	}
	w.phantom, w.ahead = []string{name}, rest
	return place{}, false, nil
}

// spelled finds the only entry of dir that is shown as name, if there is one.
func (w *walk) spelled(name string) (string, error) {
	fd, err := openDir(w.dir.fd, ".")
	if err != nil {
		return "", nil // can't be listed, so it never was shown
	}
	defer unix.Close(fd)
	var found []string
	err = readDir(fd, func(d dirent) error {
		if d.name != name && len(found) < 2 && shown(d.name) == name {
			found = append(found, d.name)
		}
		return w.ctx.Err()
	})
	if err != nil || len(found) != 1 {
		return "", err
	}
	return found[0], nil
}

// splice puts a link's target in its place. A link too many leads nowhere.
func (w *walk) splice(name, target string, rest []string) error {
	if w.links++; w.links > MaxLinks {
		w.phantom, w.why, w.ahead = []string{name}, "too_many_links", rest
		return nil
	}
	names := join(split(target), rest)
	if strings.HasPrefix(target, "/") {
		return w.enter(names)
	}
	w.ahead = names
	return nil
}

// blocked says whether name, of which st was just taken, is closed.
func (w *walk) blocked(name string, st *unix.Stat_t) bool {
	return w.root.blocked(&w.dir, name, st)
}

func (r *Root) blocked(dir *handle, name string, st *unix.Stat_t) bool {
	return r.never.blocks(dir.id, name, identOf(st), func() (int64, error) {
		fd, err := openat(dir.fd, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
		if err != nil {
			return 0, err
		}
		defer unix.Close(fd)
		return fsType(fd)
	})
}
