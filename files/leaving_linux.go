package files

import (
	"golang.org/x/sys/unix"
)

// maxLeaving bounds the files that are remembered because they got another name while
// theirs was taken. Somebody on the machine makes each of them.
const maxLeaving = 4096

// leaving is a file that is losing its name, or lost it while it got another one.
type leaving struct {
	born unix.StatxTimestamp // an inode's number is used again
	by   int                 // operations
}

// lose does what takes its name from a private file, which was found to have no other
// one. Whoever gives it one at that very moment would have it be public, so it is
// private by what it is from now on, and if it has a name left in the end it gets its
// own again by back, and the operation is refused. A file that isn't private just
// loses its name.
func (r *Root) lose(a asked, p *place, act func() error, back func(fd int) error) error {
	if !p.private() {
		return act()
	}
	fd, err := r.reopen(p, unix.O_PATH)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	secrets := r.private
	id := identOf(&p.st)
	secrets.keep(id, bornAt(fd))
	if secrets.losing != nil {
		secrets.losing()
	}
	if err := act(); err != nil {
		secrets.forget(id) // it has its name
		return err
	}
	st, err := fstat(fd)
	if err == nil && st.Nlink == 0 {
		secrets.forget(id)
		return nil
	}
	if err == nil {
		err = back(fd)
	}
	if err != nil {
		return r.manyNames(a).With("hint", "it is no longer where it was, and private until the daemon starts again")
	}
	return r.manyNames(a)
}

// keep has a file be private by what it is.
func (p *Private) keep(id ident, born unix.StatxTimestamp) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.leaving == nil {
		p.leaving = make(map[ident]leaving)
	}
	note(p.leaving, maxLeaving, id, leaving{born, p.leaving[id].by + 1})
}

func (p *Private) forget(id ident) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.leaving[id]
	if was.by--; was.by > 0 {
		p.leaving[id] = was
	} else {
		delete(p.leaving, id)
	}
}

// kept is the rule that closes the file name in dir, which is id, for what it was: a
// rule led to it, or it was losing its name. It is asked after all else: who was looking
// for its other names may have come too late to see them.
func (p *Private) kept(id ident, dir int, name string) *PrivateRule {
	p.mu.Lock()
	lost, losing := p.leaving[id]
	was, named := p.named[id]
	p.mu.Unlock()
	if !losing && !named {
		return nil
	}
	var st unix.Statx_t
	err := retry(func() error { return unix.Statx(dir, name, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &st) })
	if err != nil || st.Mask&unix.STATX_BTIME == 0 {
		st.Btime = unix.StatxTimestamp{}
	}
	switch { // one that can't be told apart is it
	case losing && (err != nil || st.Btime == lost.born):
		return &PrivateRule{Pattern: p.rules[0].Pattern}
	case named && (err != nil || st.Btime == was.at):
		return &p.rules[was.rule]
	}
	return nil
}
