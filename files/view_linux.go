package files

import (
	"context"

	"golang.org/x/sys/unix"
)

// view is an open directory as it may be told of.
type view struct {
	spot
	top spot // the root
}

// into is the view of the directory that p is, open as fd.
func (p *place) into(fd int) view {
	if p.spot.t == nil || p.name == "" {
		return view{p.spot, p.top}
	}
	return view{p.spot.enter(p.name, identOf(&p.st), fd), p.top}
}

func (v view) enter(name string, id ident, fd int) view {
	return view{v.spot.enter(name, id, fd), v.top}
}

// name is what is told of an entry's name.
func (v view) name(ctx context.Context, dir *handle, d dirent) (string, error) {
	if v.t == nil {
		return d.name, nil
	}
	is := v.entry(d.name)
	isDir := d.isDir(dir.fd)
	if !is.private() && !isDir {
		var st unix.Stat_t
		if err := lstatat(dir.fd, d.name, &st); err == nil && kindOf(&st) == unix.S_IFREG {
			if err := v.byLinks(ctx, &is, &st, dir.fd, d.name); err != nil {
				return "", err
			}
		}
	}
	return v.named(is, dir.id, d.name, isDir), nil
}

// byLinks adds what the rules say of the file name in dir by what it is.
func (s *spot) byLinks(ctx context.Context, is *verdict, st *unix.Stat_t, dir int, name string) error {
	rule, err := s.t.ofFile(ctx, st, dir, name)
	if rule != nil {
		is.add(len(s.names)+1, rule)
		is.literal = false // it has this name by somebody else's doing
	}
	return err
}

// ofFile is the rule that closes the file name in dir by what it is, nil if none does.
func (t *territory) ofFile(ctx context.Context, st *unix.Stat_t, dir int, name string) (*PrivateRule, error) {
	id := identOf(st)
	rule, yes := t.tops[id]
	if !yes && st.Nlink > 1 {
		var err error
		if rule, yes, err = t.isLinked(ctx, id); err != nil {
			return nil, err
		}
	}
	if yes {
		return &t.p.rules[rule], nil
	}
	return t.p.kept(id, dir, name), nil
}

// mayTell says whether the target of the link name in v gives nothing away: it
// leads to something that isn't private, and by a way that isn't.
func (r *Root) mayTell(ctx context.Context, v *view, name string) bool {
	if v.t == nil {
		return true
	}
	if v.entry(name).private() {
		return false
	}
	below := v.names[len(r.names):]
	w := walk{root: r, ctx: ctx, asked: asked{key: "path", path: name}, follow: true, top: v.top}
	w.restart(append(below[:len(below):len(below)], name))
	p, err := w.finish()
	defer w.dir.close()
	return err == nil && !p.touched
}
