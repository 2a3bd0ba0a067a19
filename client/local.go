package client

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"farhand/wire"
)

// LocalSource is a file of this machine, to be copied to another.
func LocalSource(name string) (Source, error) {
	abs, err := filepath.Abs(name)
	if err != nil {
		return Source{}, err
	}
	return localSource(abs, func() (*os.File, error) { return os.Open(name) })
}

// localSource opens the file now, to see what it is, and again to read it.
func localSource(name string, open func() (*os.File, error)) (Source, error) {
	f, err := open()
	if err != nil {
		return Source{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return Source{}, err
	case info.IsDir():
		return Source{}, wire.Errorf(wire.InternalError, "%s is a directory", name).With("path", name).With("reason", "is_a_directory")
	case !info.Mode().IsRegular():
		return Source{}, wire.Errorf(wire.InternalError, "%s is not a regular file", name).With("path", name).With("reason", "not_a_regular_file")
	}
	same := func(f *os.File) error {
		now, err := f.Stat()
		if err == nil && (!os.SameFile(info, now) || now.Size() != info.Size() || !now.ModTime().Equal(info.ModTime())) {
			err = changedSource(name)
		}
		return err
	}
	key := sha256.Sum256(fmt.Appendf(nil, "%q %d %d", name, info.Size(), info.ModTime().UnixNano()))
	return Source{
		Size: info.Size(), Key: hex.EncodeToString(key[:16]), Mode: info.Mode().Perm(), HasMode: true, ModTime: info.ModTime(),
		Open: func(_ context.Context, offset int64) (io.ReadCloser, error) {
			f, err := open()
			if err == nil {
				err = same(f)
			}
			if err == nil {
				_, err = f.Seek(offset, io.SeekStart)
			}
			if err != nil {
				if f != nil {
					f.Close()
				}
				return nil, err
			}
			return f, nil
		},
		Check: func(context.Context) error {
			f, err := open()
			if err != nil {
				return err
			}
			defer f.Close()
			return same(f)
		},
	}, nil
}

// partAge is how long what is left of a file that didn't come to its end is kept.
const partAge = 7 * 24 * time.Hour

// partPrefix begins the name of what has come of a file; 16 characters follow.
const partPrefix = ".farhand-get-"

// PutLocal copies a file into a directory of this machine, under a name that may
// have slashes but never leads out of it. The file takes its place in one step
// when all of it has come. What came of the same source earlier, and still is what
// the source has, is gone on with; it is kept beside the file for a week.
func PutLocal(ctx context.Context, dir *os.Root, name string, src Source, o PutOptions) (Sent, error) {
	name = filepath.ToSlash(name)
	old, err := dir.Stat(name)
	if err != nil {
		old = nil
	}
	switch {
	case err == nil && !old.Mode().IsRegular():
		return Sent{}, wire.Errorf(wire.InternalError, "%s is not a regular file", name).With("path", name).With("reason", "not_a_regular_file")
	case err == nil && o.UnlessSame && old.Size() == src.Size && old.ModTime().Equal(src.ModTime):
		if src.HasMode && old.Mode().Perm() != src.Mode {
			err = dir.Chmod(name, src.Mode)
		}
		return Sent{Bytes: src.Size, Same: true}, err
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return Sent{}, err
	}
	if o.CreateParents {
		if err := dir.MkdirAll(path.Dir(name), 0o777); err != nil {
			return Sent{}, err
		}
	}
	sweepParts(dir, path.Dir(name))
	p := localPart{dir: dir, name: path.Join(path.Dir(name), partName(name, src)), src: src}
	first := fs.FileMode(0o600) // nobody else reads what comes before its mode is known
	if old == nil && !src.HasMode {
		first = 0o666
	}
	if err := p.open(first); err != nil {
		return Sent{}, err
	}
	sent, err := p.fill(ctx, o.Tell)
	if err == nil {
		err = p.place(name, old)
	}
	if err != nil {
		p.leave(err)
		return Sent{}, err
	}
	return sent, nil
}

// partName is where the content of a source is collected on its way to name.
func partName(name string, src Source) string {
	key := src.Key
	if key == "" {
		key = rand.Text()
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %d %q", name, src.Size, key))
	return partPrefix + hex.EncodeToString(sum[:8])
}

// sweepParts removes what nobody went on with for a week, as far as it may.
func sweepParts(dir *os.Root, in string) {
	d, err := dir.Open(in)
	if err != nil {
		return
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(1000)
		for _, e := range entries {
			if len(e.Name()) != len(partPrefix)+16 || !strings.HasPrefix(e.Name(), partPrefix) {
				continue
			}
			if info, err := e.Info(); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > partAge {
				dir.Remove(path.Join(in, e.Name()))
			}
		}
		if err != nil {
			return
		}
	}
}

// localPart is a file on its way to its name.
type localPart struct {
	dir  *os.Root
	name string
	src  Source
	file *os.File
}

// open opens what is left of an earlier attempt, or begins. Who has it holds a lock
// on it. A part that another copy of the same file is at work on is left to that:
// this one then collects for itself, and the last to come to its end has the name.
func (p *localPart) open(mode fs.FileMode) error {
	for {
		if info, err := p.dir.Lstat(p.name); err == nil && (!info.Mode().IsRegular() || p.src.Key == "") {
			if err := p.dir.Remove(p.name); err != nil {
				return err
			}
		}
		f, err := p.dir.OpenFile(p.name, os.O_RDWR|os.O_CREATE, mode)
		if err != nil {
			return err
		}
		mine := lockPart(f)
		if mine && p.has(f) {
			p.file = f
			return p.dir.Chtimes(p.name, time.Time{}, time.Now()) // somebody goes on with it
		}
		f.Close()
		if !mine {
			p.src.Key = ""
			p.name = path.Join(path.Dir(p.name), partName(p.name, p.src))
		}
	}
}

// has says whether the part is still the file that was opened: whoever had the lock
// before may have given it its name, or removed it.
func (p *localPart) has(f *os.File) bool {
	opened, err := f.Stat()
	if err != nil {
		return false
	}
	named, err := p.dir.Lstat(p.name)
	return err == nil && os.SameFile(opened, named)
}

// fill brings what is missing.
func (p *localPart) fill(ctx context.Context, tell Progress) (Sent, error) {
	at, err := p.checked(ctx)
	if err != nil {
		return Sent{}, err
	}
	if err := p.file.Truncate(at); err != nil {
		return Sent{}, err
	}
	if _, err := p.file.Seek(at, io.SeekStart); err != nil {
		return Sent{}, err
	}
	r, err := p.src.Open(ctx, at)
	if err != nil {
		return Sent{}, err
	}
	w := &told{p.file, at, p.src.Size, tell}
	n, err := io.Copy(w, r)
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	if err == nil && p.src.Size >= 0 && at+n != p.src.Size {
		err = changedSource(p.name)
	}
	if err == nil && p.src.Check != nil {
		err = p.src.Check(ctx)
	}
	return Sent{Bytes: at + n, Resumed: at}, err
}

// checked is how much of what is there the source still has.
func (p *localPart) checked(ctx context.Context) (int64, error) {
	info, err := p.file.Stat()
	if err != nil || info.Size() == 0 || p.src.Hash == nil || p.src.Size < 0 {
		return 0, err
	}
	there := min(info.Size(), p.src.Size)
	for at := int64(0); at < there; {
		n := min(there-at, wire.TransferHashMost)
		h := sha256.New()
		if _, err := io.Copy(h, io.NewSectionReader(p.file, at, n)); err != nil {
			return 0, err
		}
		theirs, err := p.src.Hash(ctx, at, n)
		if err != nil {
			return 0, err
		}
		if theirs != hex.EncodeToString(h.Sum(nil)) {
			return at, nil
		}
		at += n
	}
	return there, nil
}

// place gives the file its mode, time and name.
func (p *localPart) place(name string, old fs.FileInfo) error {
	mode := fs.FileMode(0)
	switch {
	case p.src.HasMode:
		mode = p.src.Mode
	case old != nil:
		mode = old.Mode().Perm()
	}
	err := p.file.Sync()
	if closed := p.closeFor(renameOpen); err == nil {
		err = closed
	}
	if err == nil && mode != 0 {
		err = p.dir.Chmod(p.name, mode)
	}
	if err == nil {
		err = p.dir.Rename(p.name, name)
	}
	if closed := p.closeFor(!renameOpen); err == nil {
		err = closed
	}
	// Only now: under its first name an old file would look like one that nobody went
	// on with for a week, and another transfer into this directory would remove it.
	if err == nil && !p.src.ModTime.IsZero() {
		err = p.dir.Chtimes(name, time.Time{}, p.src.ModTime)
	}
	return err
}

// closeFor closes the file, and with it gives the lock back, unless that is to wait.
func (p *localPart) closeFor(wait bool) error {
	if wait {
		return nil
	}
	return p.file.Close()
}

// leave keeps what came if another attempt can go on with it.
func (p *localPart) leave(why error) {
	p.file.Close() // perhaps once more
	if p.src.Key == "" || p.src.Hash == nil || errors.Is(why, wire.SourceChanged) {
		p.dir.Remove(p.name)
	}
}

// told is a file that tells how much was written to it.
type told struct {
	*os.File
	at, total int64
	tell      Progress
}

func (t *told) Write(b []byte) (int, error) {
	n, err := t.File.Write(b)
	t.at += int64(n)
	if t.tell != nil {
		t.tell(t.at, t.total)
	}
	return n, err
}

// ReadFrom hides that of os.File, which would tell nothing.
func (t *told) ReadFrom(r io.Reader) (int64, error) { return io.Copy(struct{ io.Writer }{t}, r) }

// replayBytes is how much of a stream can be sent again: a daemon that is killed
// asks for at most 16 MiB, and what was under way comes on top.
const (
	replayBytes = 18 << 20
	replaySlack = 4 << 20 // so that what is kept is seldom moved
)

// StreamSource is a source that can be read only once, as standard input. What was
// read last is kept, so that a lost link can be gone on after.
func StreamSource(r io.Reader) Source {
	s := &replay{from: r}
	return Source{Size: -1, Key: rand.Text(), Open: s.open}
}

// replay is a stream whose end so far is kept.
type replay struct {
	from io.Reader
	kept []byte
	end  int64 // the offset behind kept
}

func (s *replay) open(_ context.Context, offset int64) (io.ReadCloser, error) {
	if offset > s.end || offset < s.end-int64(len(s.kept)) {
		return nil, errors.New("more of the transfer was lost than can be sent again of what can be read only once")
	}
	return &replayed{s, offset}, nil
}

type replayed struct {
	*replay
	at int64
}

func (r *replayed) Read(b []byte) (int, error) {
	if back := r.end - r.at; back > 0 {
		n := copy(b, r.kept[int64(len(r.kept))-back:])
		r.at += int64(n)
		return n, nil
	}
	n, err := r.from.Read(b[:min(len(b), replaySlack)])
	if r.kept == nil {
		r.kept = make([]byte, 0, replayBytes+replaySlack)
	}
	if len(r.kept)+n > cap(r.kept) {
		r.kept = append(r.kept[:0], r.kept[len(r.kept)-replayBytes:]...)
	}
	r.kept = append(r.kept, b[:n]...)
	r.end, r.at = r.end+int64(n), r.at+int64(n)
	return n, err
}

// Close leaves the stream open.
func (r *replayed) Close() error { return nil }
