package files

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Sealed says whether nobody but the daemon's user and root can read what is
// private: what the rules lead to is theirs and closed to others, nobody else can
// put something in its place, and no file in it has another name that is open to
// others. With mend, what the daemon's user owns is closed here and now; mended says
// that something was open until then. The error is a *NotSealed, or the context's.
//
// A rule with wildcards is never sealed: whoever runs commands can make files that
// it fits, and those that it fits may be anybody's.
func (p *Private) Sealed(ctx context.Context, mend bool) (mended bool, err error) {
	if p == nil {
		return false, nil
	}
	for i := range p.rules {
		r := &p.rules[i]
		if !r.Pattern.Literal() {
			return mended, &NotSealed{Rule: r.Pattern.String(), Told: p.told(i), Why: "has wildcards, so what it fits can't be closed to others once and for all", Do: "name the directory itself in privacy.private"}
		}
		s := seal{rule: r.Pattern.String(), told: p.told(i), mend: mend}
		err := s.walk(r.Pattern.Prefix())
		mended = mended || s.mended
		if err != nil {
			return mended, err
		}
	}
	t := p.look()
	for _, w := range t.ways {
		if at := t.mountedElsewhere(w.glob.Prefix()); at != nil {
			path := shown("/" + strings.Join(at, "/"))
			return mended, &NotSealed{
				Rule: p.rules[w.rule].Pattern.String(), Told: p.told(w.rule), Why: "a part of it is mounted at " + path + ", too, where it isn't closed", Do: "umount " + quoted(path),
			}
		}
	}
	return mended, p.sealedLinks(ctx)
}

// told is what others may be told of a rule: where it leads, if that is a directory,
// whose name is no secret; else what is above.
func (p *Private) told(rule int) string {
	glob := p.rules[rule].Pattern
	names := glob.Prefix()
	var st unix.Stat_t
	if glob.Literal() && retry(func() error { return unix.Stat(glob.String(), &st) }) == nil && kindOf(&st) == unix.S_IFDIR {
		return shown(glob.String())
	}
	if glob.Literal() {
		names = names[:len(names)-1]
	}
	return shown("/" + strings.Join(append(slices.Clip(names), hidden), "/"))
}

// seal looks at one path from "/" on.
type seal struct {
	rule  string
	told  string
	mend  bool
	links int

	mended bool
}

func (s *seal) not(do, format string, args ...any) error {
	return &NotSealed{Rule: s.rule, Told: s.told, Why: fmt.Sprintf(format, args...), Do: do}
}

// own says whether an object belongs to root or to the daemon's user.
func own(st *unix.Stat_t) bool { return st.Uid == 0 || int(st.Uid) == unix.Geteuid() }

func (s *seal) walk(ahead []string) error {
	at, err := rootSlash()
	if err != nil {
		return err
	}
	defer func() { at.close() }()
	var done []string
	for len(ahead) > 0 {
		name, rest := ahead[0], ahead[1:]
		if name == ".." {
			return s.walk(join(done[:max(len(done)-1, 0)], rest))
		}
		path := "/" + strings.Join(append(done[:len(done):len(done)], name), "/")
		next, target, err := lookAt(&at, name)
		if err != nil {
			return s.not("install -d -m 700 "+quoted(s.rule), "%s can't be looked at: %v", shown(path), err)
		}
		above, err := fstat(at.fd)
		var st unix.Stat_t
		if err == nil {
			st, err = fstat(next.fd)
		}
		if err != nil {
			next.close()
			return s.not("", "%s can't be looked at: %v", shown(path), err)
		}
		if err := s.held(&above, &st, path); err != nil {
			next.close()
			return err
		}
		if target != "" {
			next.close()
			if s.links++; s.links > MaxLinks {
				return s.not("", "%s leads through too many links", shown(path))
			}
			names := join(split(target), rest)
			if target[0] != '/' {
				names = join(done, names)
			}
			return s.walk(names)
		}
		at.close()
		at, done, ahead = next, append(done, name), rest
	}
	return s.closed(&at, "/"+strings.Join(done, "/"))
}

// held says whether nobody else can put something in the place of an object: the
// directory above is root's or ours, and others can't write in it, or are kept by
// its sticky bit from what isn't theirs.
func (s *seal) held(above, st *unix.Stat_t, path string) error {
	dir := path[:max(strings.LastIndexByte(path, '/'), 1)]
	switch {
	case !own(above):
		return s.not("chown root: "+quoted(dir), "%s belongs to user %d, who can put something else in its place", shown(dir), above.Uid)
	case above.Mode&0o022 == 0, above.Mode&unix.S_ISVTX != 0 && own(st):
		return nil
	}
	return s.not("chmod go-w "+quoted(dir), "others can write in %s and put something in the place of %s", shown(dir), shown(path))
}

// closed says whether the object at the end of the path is closed to others, and
// closes it where we may.
func (s *seal) closed(at *handle, path string) error {
	st, err := fstat(at.fd)
	if err != nil {
		return s.not("", "%s can't be looked at: %v", shown(path), err)
	}
	if !own(&st) {
		return s.not(fmt.Sprintf("chown -R %d: %s", unix.Geteuid(), quoted(path)), "%s belongs to user %d", shown(path), st.Uid)
	}
	// The bits of the group also are the most that an access list allows (acl(5)).
	if st.Mode&0o077 == 0 {
		return nil
	}
	if s.mend && int(st.Uid) == unix.Geteuid() {
		mode := st.Mode & 0o7700
		err = retry(func() error { return unix.Fchmodat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", at.fd), mode, 0) })
		if st, e := fstat(at.fd); err == nil && e == nil && st.Mode&0o077 == 0 {
			s.mended = true
			return nil
		}
	}
	return s.not("chmod go-rwx "+quoted(path), "%s has mode %04o", shown(path), st.Mode&0o7777)
}

// sealedLinks says whether no private file has another name by which others may
// read it.
func (p *Private) sealedLinks(ctx context.Context) error {
	t := p.look()
	search := &linkSearch{ctx: ctx, t: t, found: &linked{files: make(map[ident]int), open: true}, until: deadline()}
	if err := search.run(); err != nil {
		return err
	}
	rule := func(i int) string { return p.rules[i].Pattern.String() }
	if search.found.all {
		return &NotSealed{Rule: rule(0), Told: p.told(0), Why: "there is more below than can be looked through"}
	}
	for _, i := range search.found.files {
		return &NotSealed{Rule: rule(i), Told: p.told(i), Why: "a file in it has another name and is open to others", Do: "chmod -R go-rwx " + quoted(rule(i))}
	}
	return nil
}

// quoted is a path as a shell takes it.
func quoted(path string) string {
	if strings.Trim(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-") == "" {
		return path
	}
	return "'" + strings.ReplaceAll(shown(path), "'", `'\''`) + "'"
}
