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

	spot    spot     // dir, as the rules of what is private see it
	is      verdict  // what they say of the place itself
	told    []string // above, as it may be told
	touched bool     // the way led through something private
	top     spot     // the root, for further walks of the same operation
}

func (p *place) close() { p.dir.close() }

// path is the canonical path of the place, as it can stand in JSON and may be told.
func (p *place) path(r *Root) string {
	names := p.above
	if p.spot.t != nil {
		names = p.told
	}
	switch {
	case !p.exists && len(p.missing) > 0:
		names = append(slices.Clip(names), p.absent()...)
	case p.name != "":
		names = append(slices.Clip(names), p.spot.named(p.is, p.dir.id, p.name, kindOf(&p.st) == unix.S_IFDIR))
	}
	return r.join(names)
}

// absent are the names of what doesn't exist as they may be told. The first is
// what it will be once it exists.
func (p *place) absent() []string {
	if p.spot.t == nil {
		return p.missing
	}
	told := make([]string, len(p.missing))
	for i, name := range p.missing {
		told[i] = name
		below := p.missing[:i+1]
		if v := p.spot.judge(join(p.spot.names, below)); v.hides(len(p.spot.names)+i+1, false) {
			told[i] = p.spot.t.p.alias(p.dir.id, strings.Join(below, "/"))
		}
	}
	return told
}

// names are those of the place from "/".
func (p *place) names() []string {
	switch {
	case p.name == "":
		return p.spot.names
	case p.exists:
		return join(p.spot.names, []string{p.name})
	}
	return join(p.spot.names, p.missing)
}

// private says whether the place is private, or would be.
func (p *place) private() bool { return p.is.private() }

// holdsPrivate says whether a place could hold something private, or is on the way
// to it.
func (p *place) holdsPrivate() bool {
	return p.onTheWay() || p.spot.t != nil && p.exists && kindOf(&p.st) == unix.S_IFDIR && p.spot.below(p.names())
}

// couldLead says whether a link at this place could be on the way of what a rule
// means: what then stands behind it would have another path than the rule's.
func (p *place) couldLead() bool { return p.spot.t != nil && p.spot.below(p.names()) }

// onTheWay says whether a rule leads through what is there: a directory, or a
// link.
func (p *place) onTheWay() bool {
	if p.spot.t == nil || !p.exists {
		return false
	}
	_, on := p.spot.t.holders[identOf(&p.st)]
	return on
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
	return r.resolveFrom(ctx, a, follow, r.top())
}

// resolveFrom is resolve for who has looked already what is private.
func (r *Root) resolveFrom(ctx context.Context, a asked, follow bool, top spot) (place, error) {
	w := walk{root: r, ctx: ctx, asked: a, follow: follow, top: top}
	err := w.begin()
	var p place
	if err == nil {
		p, err = w.finish()
	}
	if err != nil {
		if w.touched && a.as != nil {
			*a.as = r.join(append(slices.Clip(w.told), hidden))
		}
		w.dir.close()
		return place{}, fault(a, "resolve", err)
	}
	return p, nil
}

// find is resolve for an operation with a record, of which path is to stand there.
func (r *Root) find(ctx context.Context, a asked, follow bool, path *string) (place, error) {
	p, err := r.resolve(ctx, a, follow)
	if err != nil {
		*path = a.shown()
		return p, err
	}
	*path = p.path(r)
	return p, nil
}

// on does something with what is at the path that a leads to, and again if that
// changes meanwhile. told becomes what the record may have of the path; nil: there is
// none. An error of the system that do returns says what was being done.
func (r *Root) on(ctx context.Context, a asked, doing string, follow bool, told *string, do func(*place) error) error {
	if err := r.enter(ctx); err != nil {
		return fault(a, doing, err)
	}
	defer r.leave()
	if told == nil {
		told = new(string)
	}
	return fault(a, doing, untilStill(func() error {
		p, err := r.find(ctx, a, follow, told)
		if err != nil {
			return err
		}
		defer p.close()
		return do(&p)
	}))
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

	top     spot     // the root, as the rules of what is private see it
	spot    spot     // where the walk stands
	told    []string // done, as it may be told
	touched bool     // it has stood in something private
	left    bool     // it has followed a link that lies there
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
		told := w.asked.shown()
		return e.With(w.asked.key, shown(told[:min(len(told), wire.MaxDeviceString)])).With("reason", "too_long")
	case path[0] == '~':
		home := w.root.home
		if (len(path) > 1 && path[1] != '/') || home == "" {
			return w.asked.fail(wire.PathInvalidChars, "", "path %s: no such home directory", w.asked.shown())
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
	w.spot, w.told = w.top, nil
	w.touch(w.top.is)
}

// touch notes that the walk stands, or ends, in something private.
func (w *walk) touch(v verdict) { w.touched = w.touched || v.private() }

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

// finish walks to the end and has the rules judge it.
func (w *walk) finish() (place, error) {
	p, err := w.run()
	if err != nil || w.top.t == nil {
		return p, err
	}
	p.top, p.spot, p.told = w.top, w.spot, w.told
	switch {
	case p.name == "":
		p.is = w.spot.is
	default:
		p.is = w.spot.judge(p.names())
		if !p.exists || p.is.private() {
			break
		}
		if err := w.byIdentity(&p); err != nil {
			return p, err
		}
	}
	w.touch(p.is)
	p.touched = w.touched
	if w.touched && w.asked.as != nil {
		*w.asked.as = p.path(w.root)
	}
	if w.left && !p.private() {
		if w.asked.as != nil {
			*w.asked.as = w.root.join([]string{hidden})
		}
		return p, blocked(w.asked, "leads_through_private", "path leads out of something private by a link that lies there")
	}
	return p, nil
}

// byIdentity judges a place whose path says nothing by what it is.
func (w *walk) byIdentity(p *place) error {
	id := identOf(&p.st)
	switch kindOf(&p.st) {
	case unix.S_IFDIR:
		if fd, err := openat(p.dir.fd, p.name, unix.O_PATH|unix.O_NOFOLLOW, 0); err == nil {
			if st, err := fstat(fd); err == nil && identOf(&st) == id {
				inside := w.spot.enter(p.name, id, fd)
				p.is = inside.is
			}
			unix.Close(fd)
		}
		return nil
	case unix.S_IFREG:
		return w.spot.byLinks(w.ctx, &p.is, &p.st, p.dir.fd, p.name)
	}
	return nil
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
		w.leave(name)
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
		if w.top.t != nil {
			inside := w.spot.enter(name, next.id, next.fd)
			w.told = append(w.told, w.spot.named(inside.is, w.dir.id, name, true))
			w.spot = inside
			w.touch(inside.is)
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
		w.leave(name)
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

// leave notes that the link name is followed: where a private one leads is
// nobody's business, unless that is private as well.
func (w *walk) leave(name string) {
	if w.top.t == nil {
		return
	}
	if v := w.spot.entry(name); v.private() {
		w.left = true
		w.touch(v)
	}
}

// absent is a name that isn't there. With U+FFFD in it, it may stand for one
// that can't be spelled in Unicode.
func (w *walk) absent(name string, rest []string) (place, bool, error) {
	if w.top.t != nil && isAlias(name) {
		real, err := w.called(func(n string) bool { return w.top.t.p.alias(w.dir.id, n) == name })
		if err != nil {
			return place{}, true, err
		}
		if real != "" {
			w.ahead = join([]string{real}, rest)
			return place{}, false, nil
		}
	}
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
// What is private is never shown so.
func (w *walk) spelled(name string) (string, error) {
	return w.called(func(n string) bool {
		if n == name || shown(n) != name {
			return false
		}
		if w.top.t == nil {
			return true
		}
		v := w.spot.entry(n)
		return !v.hides(len(w.spot.names)+1, false)
	})
}

// called finds the only entry of dir that is, if there is one.
func (w *walk) called(is func(string) bool) (string, error) {
	fd, err := openDir(w.dir.fd, ".")
	if err != nil {
		return "", nil // can't be listed, so it never was shown
	}
	defer unix.Close(fd)
	var found []string
	err = readDir(fd, func(d dirent) error {
		if len(found) < 2 && is(d.name) {
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
