package files

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"farhand/internal/pathglob"
	"farhand/wire"
)

// Private is what the owner of the machine marked private: no operation of a Root
// that was opened with it lets its content out, nor its names. It is safe for
// concurrent use. A nil Private marks nothing.
//
// A place is private by its canonical path, and by identity: what a pattern
// without wildcards leads to is the same wherever it is moved or mounted, and a
// file with several names is private if one of them is. It is looked up anew for
// each operation.
type Private struct {
	rules []PrivateRule
	rests []pathglob.Pattern // of the rules, what comes after their prefixes
	key   []byte             // of aliases and digests

	many   func(fd int) bool // manySpellings, but for tests
	losing func()            // for tests: called before a name goes

	mu sync.Mutex
	// tops are the directories that such patterns ever led to, with the time of
	// their birth: an inode's number is used again. The value is a rule's number.
	tops map[ident]birth
	// named are the newest such files, as far as their time of birth is known: whoever
	// edits one makes a new one, and may keep the old one under another name.
	named   map[ident]birth
	leaving map[ident]leaving // see lose
	mounts  mounts
}

type birth struct {
	rule int
	at   unix.StatxTimestamp
}

// What is remembered of directories and files that a pattern led to.
const (
	maxTops  = 1024
	maxNamed = 256
)

// NewPrivate makes a Private with a key of its own; nil without rules.
func NewPrivate(rules []PrivateRule) *Private {
	if len(rules) == 0 {
		return nil
	}
	p := &Private{rules: rules, many: manySpellings, key: make([]byte, sha256.Size), tops: make(map[ident]birth), named: make(map[ident]birth)}
	rand.Read(p.key) // never fails (crypto/rand)
	for _, r := range rules {
		p.rests = append(p.rests, r.Pattern.Rest())
	}
	p.look() // remembers where the rules lead
	return p
}

// Close gives up what is held of the system. A nil Private has nothing.
func (p *Private) Close() error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.mounts.close()
}

// mac is the digest of parts under the key of this start. No two lists of parts
// have the same text.
func (p *Private) mac(parts ...string) []byte {
	h := hmac.New(sha256.New, p.key)
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(part)))) // never fails
		h.Write([]byte(part))
	}
	return h.Sum(nil)
}

// aliasPrefix begins the names that stand for those that aren't told; 16
// characters follow.
const aliasPrefix = "private-"

// aliasDigits are base32's in lower case: no file system takes two aliases for
// one.
var aliasDigits = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// alias stands for the name in a directory. It doesn't change when the file is
// replaced, and is another for the same name in another directory: who makes files
// can't find out which name an alias stands for.
func (p *Private) alias(dir ident, name string) string {
	sum := p.mac("alias", fmt.Sprint(dir.dev, " ", dir.ino), name)
	return aliasPrefix + aliasDigits.EncodeToString(sum[:10])
}

func isAlias(name string) bool {
	digits, ok := strings.CutPrefix(name, aliasPrefix)
	if !ok || len(digits) != 16 {
		return false
	}
	for _, c := range []byte(digits) {
		if (c < 'a' || c > 'z') && (c < '2' || c > '7') {
			return false
		}
	}
	return true
}

// territory is what is private at one moment, for one operation.
type territory struct {
	p       *Private
	ways    []way
	tops    map[ident]int      // rules without wildcards lead to these
	anchors map[ident][]int    // from here on the rest of a rule is matched
	holders map[ident]struct{} // the directories and links on the way to all of them
	second  []second           // where there are other paths of places
	linked  *linked            // nil: not looked yet
}

// way is a rule's pattern, with links in its prefix followed or not.
type way struct {
	glob pathglob.Pattern
	rule int
}

// look finds what is private now; nil if nothing ever is.
func (p *Private) look() *territory {
	if p == nil {
		return nil
	}
	t := &territory{p: p, tops: make(map[ident]int), anchors: make(map[ident][]int), holders: make(map[ident]struct{})}
	p.mu.Lock()
	t.second = p.mounts.look()
	p.mu.Unlock()
	for i := range p.rules {
		t.follow(i)
	}
	return t
}

// follow walks along the part of a rule in which nothing is to be matched.
func (t *territory) follow(rule int) {
	glob := t.p.rules[rule].Pattern
	t.ways = append(t.ways, way{glob, rule})
	at, err := rootSlash()
	if err != nil {
		return
	}
	defer func() { at.close() }()
	ahead, links := glob.Prefix(), 0
	var done []string
	t.hold(at.id)
	for len(ahead) > 0 {
		name, rest := ahead[0], ahead[1:]
		if name == ".." {
			t.restart(&at, &done, &ahead, rest)
			continue
		}
		next, target, err := lookAt(&at, name)
		if err != nil {
			break // the rest isn't there
		}
		t.hold(next.id)
		switch {
		case target != "" && links < MaxLinks:
			next.close()
			links++
			ahead = join(split(target), rest)
			if target[0] == '/' {
				done = nil
				if !t.toSlash(&at) {
					return
				}
			}
		case target != "":
			next.close()
			return
		default:
			at.close()
			at, done, ahead = next, append(done, name), rest
		}
	}
	if canonical := join(done, ahead); !slices.Equal(canonical, glob.Prefix()) {
		t.ways = append(t.ways, way{glob.At(canonical), rule})
	}
	switch {
	case len(ahead) > 0:
	case glob.Literal():
		t.tops[at.id] = rule
		t.remember(&at, rule)
	default:
		t.anchors[at.id] = append(t.anchors[at.id], rule)
	}
}

func (t *territory) hold(id ident) { t.holders[id] = struct{}{} }

func (t *territory) toSlash(at *handle) bool {
	at.close()
	slash, err := rootSlash()
	if err != nil {
		return false
	}
	*at = slash
	return true
}

// restart goes on from "/" without the last of the names that are done.
func (t *territory) restart(at *handle, done, ahead *[]string, rest []string) {
	back := (*done)[:max(len(*done)-1, 0)]
	*ahead, *done = join(back, rest), nil
	if !t.toSlash(at) {
		*ahead = nil
	}
}

// lookAt opens name, whatever it is, and reads it if it is a link.
func lookAt(at *handle, name string) (next handle, target string, err error) {
	fd, err := openat(at.fd, name, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return handle{}, "", err
	}
	next = handle{fd: fd, owned: true}
	st, err := fstat(fd)
	if err == nil && kindOf(&st) == unix.S_IFLNK {
		target, err = readlinkat(fd, "")
	}
	if err != nil {
		next.close()
		return handle{}, "", err
	}
	next.id = identOf(&st)
	return next, target, nil
}

// remember notes a directory or file that a rule leads to.
func (t *territory) remember(at *handle, rule int) {
	st, err := fstat(at.fd)
	if err != nil {
		return
	}
	switch p := t.p; kindOf(&st) {
	case unix.S_IFDIR:
		p.mu.Lock()
		defer p.mu.Unlock()
		if _, known := p.tops[at.id]; !known {
			note(p.tops, maxTops, at.id, birth{rule, bornAt(at.fd)})
		}
	case unix.S_IFREG:
		born := bornAt(at.fd)
		p.mu.Lock()
		defer p.mu.Unlock()
		if was, known := p.named[at.id]; born != (unix.StatxTimestamp{}) && (!known || was.at != born) {
			note(p.named, maxNamed, at.id, birth{rule, born})
		}
	}
}

// note adds one to those that are remembered, in the place of another if there are so
// many.
func note[T any](all map[ident]T, most int, id ident, what T) {
	if _, known := all[id]; !known && len(all) >= most {
		for other := range all {
			delete(all, other)
			break
		}
	}
	all[id] = what
}

// bornAt is when an object was made; zero where the file system doesn't know.
func bornAt(fd int) unix.StatxTimestamp {
	var st unix.Statx_t
	err := retry(func() error { return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_BTIME, &st) })
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		return unix.StatxTimestamp{}
	}
	return st.Btime
}

// top says which rule led to the directory fd, now or earlier.
func (t *territory) top(id ident, fd int) (rule int, ok bool) {
	if rule, ok = t.tops[id]; ok {
		return rule, true
	}
	t.p.mu.Lock()
	was, known := t.p.tops[id]
	t.p.mu.Unlock()
	return was.rule, known && bornAt(fd) == was.at
}

// keeps says whether the directory fd is where a rule leads, or on the way there.
func (t *territory) keeps(id ident, fd int) bool {
	if t == nil {
		return false
	}
	if _, on := t.holders[id]; on {
		return true
	}
	_, is := t.top(id, fd)
	return is
}

// verdict is what the rules say of one place. The zero value: it isn't private.
type verdict struct {
	deep    int // with so many of its names what is private begins; 0: it isn't
	closest int // with so many the rule whose options hold
	named   bool
	shown   bool
	literal bool // what begins there is what a rule without wildcards names
}

func (v verdict) private() bool { return v.deep > 0 }

// hides says whether the name of a place n names deep isn't told: those that the
// owner's own configuration spells are.
func (v verdict) hides(n int, isDir bool) bool {
	return v.private() && !v.shown && !(v.literal && isDir && v.deep == n)
}

// add takes in that a rule fits from the first n names on. Of several the options
// of the closest count, and of those that are as close the stricter ones.
func (v *verdict) add(n int, r *PrivateRule) {
	literal := r.Pattern.Literal()
	switch {
	case v.deep == 0 || n < v.deep:
		v.deep, v.literal = n, literal
	case n == v.deep:
		v.literal = v.literal || literal
	}
	switch {
	case n > v.closest:
		v.closest, v.named, v.shown = n, r.Named, r.Shown
	case n == v.closest:
		v.named, v.shown = v.named && r.Named, v.shown && r.Shown
	}
}

// spot is a directory on a walk as the rules see it. The zero value is one where
// nothing is private.
type spot struct {
	t     *territory
	names []string // from "/"
	marks []mark   // which rules fit by identity
	bases []mark   // from where on the rest of a rule is matched
	is    verdict
}

// mark is a rule that has to do with the first n names.
type mark struct{ n, rule int }

// entry is what the rules say of name in s by its path.
func (s *spot) entry(name string) verdict {
	if s.t == nil {
		return verdict{}
	}
	return s.judge(append(slices.Clip(s.names), name))
}

func (s *spot) judge(names []string) (v verdict) {
	rules := s.t.p.rules
	for _, w := range s.t.ways {
		if n := w.glob.Match(names); n > 0 {
			v.add(n, &rules[w.rule])
		}
	}
	for _, b := range s.bases {
		if n := s.t.p.rests[b.rule].Match(names[b.n:]); n > 0 {
			v.add(b.n+n, &rules[b.rule])
		}
	}
	for _, m := range s.marks {
		v.add(m.n, &rules[m.rule])
	}
	s.t.others(names, func(other []string, own int) {
		for _, w := range s.t.ways {
			if n := w.glob.Match(other); n > 0 {
				v.add(max(n-len(other)+len(names), own, 1), &rules[w.rule])
			}
		}
	})
	return v
}

// below says whether a rule could fit something below the directory with these
// names, of which s is the beginning.
func (s *spot) below(names []string) bool {
	for _, w := range s.t.ways {
		if w.glob.Below(names) {
			return true
		}
	}
	found := false
	s.t.others(names, func(other []string, _ int) {
		found = found || slices.ContainsFunc(s.t.ways, func(w way) bool { return w.glob.Below(other) })
	})
	if found {
		return true
	}
	for _, b := range s.bases {
		if s.t.p.rests[b.rule].Below(names[b.n:]) {
			return true
		}
	}
	return false
}

// enter is the directory name in s, which is open as fd.
func (s *spot) enter(name string, id ident, fd int) spot {
	if s.t == nil {
		return spot{}
	}
	next := spot{t: s.t, names: append(slices.Clip(s.names), name), marks: s.marks, bases: s.bases}
	next.arrive(id, fd)
	return next
}

// arrive sees what its identity says of the directory that s is now.
func (s *spot) arrive(id ident, fd int) {
	n := len(s.names)
	if rule, ok := s.t.top(id, fd); ok {
		s.marks = append(slices.Clip(s.marks), mark{n, rule})
	}
	for _, rule := range s.t.anchors[id] {
		s.bases = append(slices.Clip(s.bases), mark{n, rule})
	}
	s.is = s.judge(s.names)
	if !s.is.private() {
		s.closeSpellings(fd)
	}
}

// closeSpellings makes the directory fd private if a rule has something to match in
// it and names have other spellings there, by which the rule would not know them.
func (s *spot) closeSpellings(fd int) {
	n, rules := len(s.names), make(map[int]bool)
	for _, w := range s.t.ways {
		if !w.glob.Literal() && len(w.glob.Prefix()) <= n && w.glob.Below(s.names) {
			rules[w.rule] = true
		}
	}
	for _, b := range s.bases {
		if s.t.p.rests[b.rule].Below(s.names[b.n:]) {
			rules[b.rule] = true
		}
	}
	if len(rules) == 0 || !s.t.p.many(fd) {
		return
	}
	for rule := range rules {
		s.marks = append(slices.Clip(s.marks), mark{n, rule})
	}
	s.is = s.judge(s.names)
}

// manySpellings says whether a file in the directory fd may be known by names that
// aren't listed: shortened to eight letters, with a point at the end, composed in
// another way. Case alone does no harm, since patterns disregard it. Of file systems
// that aren't known to take each name as it is that is assumed: there are many, and
// those of networks and of FUSE do as another machine or program likes.
func manySpellings(fd int) bool {
	magic, err := fsType(fd)
	if err != nil {
		return true
	}
	switch uint32(magic) {
	case unix.EXT4_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.BCACHEFS_SUPER_MAGIC:
		return folds(fd)
	case unix.BTRFS_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.OVERLAYFS_SUPER_MAGIC, unix.SQUASHFS_MAGIC, unix.EROFS_SUPER_MAGIC_V1,
		unix.RAMFS_MAGIC, unix.JFFS2_SUPER_MAGIC, unix.NILFS_SUPER_MAGIC, unix.CRAMFS_MAGIC, ubifsMagic:
		return false
	}
	return true
}

// Numbers that golang.org/x/sys doesn't have (Linux: fs/ubifs/ubifs.h,
// include/uapi/linux/fs.h).
const (
	ubifsMagic = 0x24051905
	casefold   = 0x40000000 // FS_CASEFOLD_FL
)

// folds says whether the directory fd takes names of the same letters for one, as
// Unicode has it, which is more than case. Of one that may only be passed through
// nobody knows; those that hold files of ours may be listed.
func folds(fd int) bool {
	dir, err := openDir(fd, ".")
	if err != nil {
		return false
	}
	defer unix.Close(dir)
	flags, err := unix.IoctlGetInt(dir, unix.FS_IOC_GETFLAGS)
	return err == nil && flags&casefold != 0
}

// top is where walks of r begin, as the rules see it at this moment.
func (r *Root) top() spot {
	t := r.private.look()
	if t == nil {
		return spot{}
	}
	s := spot{t: t, names: slices.Clip(r.names)}
	for i, id := range r.line { // as it was when the root was opened
		s.stand(i, id, -1)
	}
	r.ancestors(func(up int, id ident, fd int) { s.stand(max(len(r.names)-up, 0), id, fd) })
	s.arrive(r.self.id, r.self.fd)
	return s
}

// stand notes what its identity says of a directory above the one that s is.
func (s *spot) stand(n int, id ident, fd int) {
	rule, ok := s.t.tops[id]
	if !ok && fd >= 0 {
		rule, ok = s.t.top(id, fd)
	}
	if ok {
		s.marks = append(s.marks, mark{max(n, 1), rule})
	}
	for _, rule := range s.t.anchors[id] {
		s.bases = append(s.bases, mark{n, rule})
	}
}

// ancestors goes up from the root as far as that can be done: it may have been
// moved since it was opened.
func (r *Root) ancestors(each func(up int, id ident, fd int)) {
	at := handle{fd: r.self.fd, id: r.self.id}
	defer func() { at.close() }()
	for up := 1; up < maxSteps; up++ {
		above, err := at.down("..")
		if err != nil || above.id == at.id {
			above.close()
			return
		}
		at.close()
		at = above
		each(up, at.id, at.fd)
	}
}

// named is the name that a place has in what is told: an alias, if its own isn't.
func (s *spot) named(v verdict, dir ident, name string, isDir bool) string {
	if s.t == nil || !v.hides(len(s.names)+1, isDir) {
		return name
	}
	return s.t.p.alias(dir, name)
}

// isPrivate refuses an operation on something private.
func (r *Root) isPrivate(a asked) *wire.Error {
	return blocked(a, "private", "%s is private", a.shown()).
		With("hint", `have the local model work on it: FILE_READ with mode "stub", then LOCAL_LLM_TURN`)
}

// manyNames says whether a place is a private file with other names, which would
// no longer be known for private once this one is gone.
func (p *place) manyNames() bool {
	return p.private() && p.exists && kindOf(&p.st) != unix.S_IFDIR && p.st.Nlink > 1
}

func (r *Root) manyNames(a asked) *wire.Error {
	return blocked(a, "hard_links", "%s is private and has other names, which would give it away", a.shown())
}

// holdsPrivate refuses what would move or remove something private along with
// what holds it.
func (r *Root) holdsPrivate(a asked) *wire.Error {
	return blocked(a, "holds_private", "%s holds something private, or could", a.shown())
}

func blocked(a asked, reason, format string, args ...any) *wire.Error {
	return a.fail(wire.PrivacyModeBlocked, reason, format, args...)
}

// CheckRoot fails with PRIVACY_MODE_BLOCKED if path, which is canonical, has a name
// that isn't told, and so can't be a root.
func (p *Private) CheckRoot(path string) error {
	t := p.look()
	if t == nil {
		return nil
	}
	at, err := rootSlash()
	if err != nil {
		return err
	}
	defer func() { at.close() }()
	s := spot{t: t}
	s.arrive(at.id, at.fd)
	for _, name := range split(path) {
		next, err := at.down(name)
		if err != nil {
			return fault(asked{key: "path", path: path}, "look at", err)
		}
		s = s.enter(name, next.id, next.fd)
		at.close()
		at = next
		if s.is.hides(len(s.names), true) {
			return wire.Errorf(wire.PrivacyModeBlocked, "the directory is private").With("reason", "private")
		}
	}
	return nil
}

// mask is what is shown of a path before it has been walked: the names up to the
// first that a rule hides.
func (r *Root) mask(path string) string {
	names := split(path)
	switch {
	case strings.HasPrefix(path, "/"):
	case path == "~" || strings.HasPrefix(path, "~/"):
		names = join(split(r.home), names[1:])
	default:
		names = join(r.names, names)
	}
	var clean []string
	for _, name := range names {
		if name != ".." {
			clean = append(clean, name)
		} else if len(clean) > 0 {
			clean = clean[:len(clean)-1]
		}
	}
	for i := range clean {
		var v verdict
		for j := range r.private.rules {
			if n := r.private.rules[j].Pattern.Match(clean[:i+1]); n > 0 {
				v.add(n, &r.private.rules[j])
			}
		}
		if v.hides(i+1, i+1 < len(clean)) {
			return shown("/" + strings.Join(append(slices.Clip(clean[:i]), hidden), "/"))
		}
	}
	return shown(path)
}

// hidden stands for names that are left out.
const hidden = "…"

// ask is a path that was asked for.
func (r *Root) ask(key, path string) asked {
	a := asked{key: key, path: path}
	if r.private != nil {
		text := r.mask(path)
		a.as = &text
	}
	return a
}

// Shown is path as it may stand in the record: with aliases for the names that
// aren't told.
func (r *Root) Shown(ctx context.Context, path string) string {
	if r.private == nil || path == "" {
		return path
	}
	a := r.ask("path", path)
	if err := r.enter(ctx); err != nil {
		return a.shown()
	}
	defer r.leave()
	p, err := r.resolve(ctx, a, false)
	if err != nil {
		return a.shown()
	}
	defer p.close()
	if !p.touched {
		return path
	}
	return p.path(r)
}
