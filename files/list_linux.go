package files

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"farhand/internal/fnmatch"
	"farhand/internal/sorted"
	"farhand/wire"
)

const (
	// maxListDepth bounds the levels of a recursive list, one descriptor each.
	maxListDepth = 128
	// listWindow is how many names of one directory are held in memory at a time;
	// of a larger one the first in order, then the next ones in another pass.
	listWindow = 4096
	// maxListBytes is the most JSON that the entries of one answer may take:
	// the frame less the room for its envelope.
	maxListBytes = wire.MaxFrame - 64<<10
)

// List answers FILE_LIST: the entries of a directory, or of the tree below it,
// sorted by path in byte order. Names that begin with "." are left out with all
// below them unless IncludeHidden. Glob is matched against the base name and
// doesn't keep a directory from being searched. Links to directories aren't
// entered. MaxEntries is taken as at least 1 and at most wire.MaxListEntries, its
// default; Truncated says that there is more. What files can never reach isn't
// listed, nor what lies in a directory that can't be read. Of a link, IsFile and
// IsDir tell what its target is if that is in the root, else both are false; size
// and time are its own.
//
// Failures: PATH_NOT_FOUND, PATH_OUTSIDE_ALLOWED_ROOT, PATH_INVALID_CHARS,
// PERMISSION_DENIED, and INTERNAL_ERROR with details.reason not_a_directory.
func (r *Root) List(ctx context.Context, req wire.FileList) (wire.FileListResponse, Trace, error) {
	a := r.ask("path", req.Path)
	trace := Trace{Path: a.shown()}
	var answer wire.FileListResponse
	err := r.on(ctx, a, "list", true, &trace.Path, func(p *place) error {
		dir, err := r.openToList(a, p)
		if err != nil {
			return err
		}
		defer dir.close()
		above := p.above
		if p.name != "" {
			above = append(slices.Clip(above), p.name)
		}
		l := newListing(ctx, r, req)
		l.top = p.top
		answer, err = l.run(&dir, above, p.path(r), p.into(dir.fd))
		return err
	})
	if err != nil {
		return wire.FileListResponse{}, trace, err
	}
	trace.Entries = len(answer.Entries)
	return answer, trace, nil
}

// openToList opens a directory whose entries are wanted.
func (r *Root) openToList(a asked, p *place) (handle, error) {
	switch {
	case !p.exists:
		return handle{}, missing(a, p)
	case kindOf(&p.st) != unix.S_IFDIR:
		return handle{}, notDirectory(a)
	}
	fd, err := r.reopen(p, unix.O_RDONLY|unix.O_DIRECTORY)
	return handle{fd: fd, id: identOf(&p.st), owned: err == nil}, err
}

// listing is one list under way.
type listing struct {
	ctx       context.Context
	root      *Root
	top       spot // the root, as the rules of what is private see it
	glob      *fnmatch.Pattern
	recursive bool
	hidden    bool
	most      int
	held      int // names of one directory in memory at a time

	answer wire.FileListResponse
	bytes  int
}

func newListing(ctx context.Context, r *Root, req wire.FileList) *listing {
	l := &listing{ctx: ctx, root: r, recursive: req.Recursive, hidden: req.IncludeHidden, most: wire.MaxListEntries}
	l.held = listWindow
	if req.MaxEntries != nil {
		l.most = min(max(*req.MaxEntries, 1), wire.MaxListEntries)
	}
	if req.Glob != nil && *req.Glob != "" {
		glob := fnmatch.Compile(*req.Glob)
		l.glob = &glob
	}
	return l
}

func (l *listing) run(dir *handle, above []string, path string, at view) (wire.FileListResponse, error) {
	l.answer.Entries = []wire.FileEntry{} // never null
	err := l.dir(dir, above, path, at, 0)
	if errors.Is(err, errEnough) {
		l.answer.Truncated = true
		err = nil
	}
	return l.answer, err
}

// item is something to be done in a directory, in the order of key: list an
// entry, or enter a subdirectory, whose entries all sort as name + "/".
type item struct {
	key   string // by the name that is told
	name  string
	enter bool
}

// dir lists what is in a directory, of which path is told.
func (l *listing) dir(dir *handle, above []string, path string, at view, depth int) error {
	prefix := strings.TrimSuffix(path, "/") + "/"
	window := l.held
	if !l.recursive {
		window = min(window, l.most-len(l.answer.Entries)+1)
	}
	for last, more := "", true; more; {
		items, cut, err := l.window(dir, at, last, window)
		if err != nil {
			return err
		}
		for _, it := range items {
			last = it.key
			if err := l.ctx.Err(); err != nil {
				return err
			}
			if it.enter {
				err = l.enter(dir, it, prefix, above, at, depth)
			} else {
				err = l.entry(dir, it, prefix, above)
			}
			if err != nil {
				return err
			}
		}
		more = cut
	}
	return nil
}

// window reads the next items of a directory in order, those after last.
func (l *listing) window(dir *handle, at view, last string, size int) (items []item, cut bool, err error) {
	order := func(a, b item) int { return strings.Compare(a.key, b.key) }
	trim := func() {
		sorted.By(items, order)
		if len(items) > size {
			clear(items[size:])
			items, cut = items[:size], true
		}
	}
	ceiling := "" // once cut: nothing from here on is kept
	add := func(it item) {
		if it.key <= last || (cut && it.key >= ceiling) {
			return
		}
		if items = append(items, it); len(items) >= 2*size {
			trim()
			ceiling = items[size-1].key
		}
	}
	seen := 0
	err = readDir(dir.fd, func(d dirent) error {
		if seen++; seen%1024 == 0 && l.ctx.Err() != nil {
			return l.ctx.Err()
		}
		if d.name[0] == '.' && (!l.hidden || isTempName(d.name) || isPartName(d.name)) { // ours are on their way to another name
			return nil
		}
		told, err := at.name(l.ctx, dir, d)
		if err != nil {
			return err
		}
		if l.glob == nil || l.glob.Match(told) {
			add(item{key: told, name: d.name})
		}
		if l.recursive && d.isDir(dir.fd) {
			add(item{key: told + "/", name: d.name, enter: true})
		}
		return nil
	})
	trim()
	return items, cut, err
}

// enter lists a subdirectory. One that can't be opened any more is left out.
func (l *listing) enter(dir *handle, it item, prefix string, above []string, at view, depth int) error {
	name := it.name
	fd, err := openDir(dir.fd, name)
	if err != nil {
		if err == unix.EMFILE || err == unix.ENFILE || err == unix.ENOMEM {
			return err
		}
		return nil
	}
	sub := handle{fd: fd, owned: true}
	defer sub.close()
	st, err := fstat(fd)
	if err != nil {
		return err
	}
	sub.id = identOf(&st)
	if l.root.never.blocks(dir.id, name, sub.id, func() (int64, error) { return fsType(fd) }) {
		return nil
	}
	below := append(slices.Clip(above), name)
	path := prefix + shown(strings.TrimSuffix(it.key, "/"))
	if depth+1 >= maxListDepth || utf8.RuneCountInString(path) >= wire.MaxPath {
		l.answer.Truncated = true // what lies deeper is left out
		return nil
	}
	return l.dir(&sub, below, path, at.enter(name, sub.id, fd), depth+1)
}

// entry lists one entry. One that is gone by now is left out.
func (l *listing) entry(dir *handle, it item, prefix string, above []string) error {
	name := it.name
	var st unix.Stat_t
	if err := lstatat(dir.fd, name, &st); err != nil {
		if err == unix.ENOENT || err == unix.EACCES {
			return nil
		}
		return err
	}
	if l.root.blocked(dir, name, &st) {
		return nil
	}
	if len(l.answer.Entries) == l.most {
		return errEnough
	}
	e := wire.FileEntry{
		Name: shown(it.key), Path: prefix + shown(it.key),
		SizeBytes: st.Size, MTime: seconds(st.Mtim),
	}
	if l.bytes += entryBytes(&e); l.bytes > maxListBytes {
		return errEnough
	}
	kind := kindOf(&st)
	if kind == unix.S_IFLNK {
		e.IsSymlink = true
		kind = l.target(above, name)
	}
	e.IsFile, e.IsDir = kind == unix.S_IFREG, kind == unix.S_IFDIR
	l.answer.Entries = append(l.answer.Entries, e)
	return nil
}

// target is the kind of what a link leads to, 0 if it isn't in the root.
func (l *listing) target(above []string, name string) uint32 {
	w := walk{root: l.root, ctx: l.ctx, asked: asked{key: "path", path: name}, follow: true, top: l.top}
	w.restart(append(slices.Clip(above), name))
	p, err := w.run()
	if err != nil {
		w.dir.close()
		return 0
	}
	defer p.close()
	if !p.exists {
		return 0
	}
	return kindOf(&p.st)
}

// entryBytes is a bound on the JSON of an entry: its strings with six bytes for
// what may have to be escaped, and 192 for keys and numbers.
func entryBytes(e *wire.FileEntry) int {
	return 192 + jsonBytes(e.Name) + jsonBytes(e.Path)
}

func jsonBytes(s string) int {
	n := len(s)
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20, c == '"', c == '\\', c == '<', c == '>', c == '&', c == 0x7f:
			n += 5
		}
	}
	return n
}
