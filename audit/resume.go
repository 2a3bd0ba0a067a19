package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"farhand/internal/atomicfile"
)

// nextSuffix names the file that a rotation prepares.
const nextSuffix = ".next"

// resume opens the files and finds where the chain goes on.
func (l *Log) resume() error {
	path := l.opt.Path
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := errors.Join(atomicfile.RemoveStale(path), atomicfile.RemoveStale(headPath(path)), finishRotation(path)); err != nil {
		return err
	}
	sealed, slot, headErr := readHead(path, l.opt.Key)
	if headErr != nil && !errors.Is(headErr, errNoHead) && !errors.Is(headErr, errBadHead) {
		return headErr
	}
	old, err := rotatedFiles(path)
	if err != nil {
		return err
	}
	if err := l.openCurrent(); err != nil {
		return err
	}
	was, end, err := l.findEnd(old)
	if err != nil {
		return err
	}
	fi, err := l.f.Stat()
	if err != nil {
		return err
	}
	fresh := fi.Size() == 0 && len(old) == 0
	if was == nil && headErr != nil && !(fresh && errors.Is(headErr, errNoHead)) {
		return errors.New("nothing in it carries the seal of the audit key: either the key is another one, or the log is destroyed and has to be moved away by hand")
	}

	var notes []Entry
	if was != nil {
		l.seq, l.mac = was.seq, was.mac
	}
	if gap := l.compare(sealed, headErr, fresh); gap != nil {
		notes = append(notes, *gap)
	}
	if torn := fi.Size() - end; torn > 0 {
		saved, err := l.setAside(end, torn, l.seq)
		if err != nil {
			return fmt.Errorf("set aside what a crash left after record %d: %w", l.seq, err)
		}
		notes = append(notes, Entry{Op: OpRecovered, Details: []Field{
			Int("torn_bytes", torn), textOrNull("saved_as", saved),
		}, Result: Result{OK: true}})
	}
	l.size = end
	if r, first, err := firstRecord(l.f, l.size); err != nil {
		return err
	} else if r != nil {
		l.first = first
	}
	l.oldest = oldestRecord(sealed, headErr, old)
	return l.start(sealed, headErr == nil, slot, notes)
}

// start writes what resuming has to say, and seals.
func (l *Log) start(sealed head, good bool, slot int, notes []Entry) error {
	for i := range notes {
		if err := l.put(&notes[i], l.opt.Now()); err != nil {
			return err
		}
	}
	if err := errors.Join(l.fsync(l.f), atomicfile.SyncDir(filepath.Dir(l.opt.Path))); err != nil {
		return err
	}
	l.onDisk()
	now := head{seq: l.seq, mac: l.mac, from: l.oldest}
	hf, err := openHeadFile(l.opt.Path, l.opt.Key, good, slot, now)
	if err != nil {
		return err
	}
	l.head = hf
	hf.last = now
	if good && sealed != now {
		hf.last = sealed
		return l.seal(now.seq, now.mac)
	}
	return nil
}

func (l *Log) openCurrent() error {
	f, err := atomicfile.OpenFile(l.opt.Path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	l.f = f
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	if fi.Mode().Perm()&0o077 != 0 {
		return f.Chmod(0o600)
	}
	return nil
}

// findEnd finds the last good record and the offset in the current file after
// which nothing is good.
func (l *Log) findEnd(old []segment) (*record, int64, error) {
	fi, err := l.f.Stat()
	if err != nil {
		return nil, 0, err
	}
	r, end, ok, err := lastGood(l.f, fi.Size(), l.opt.Key)
	if err != nil {
		return nil, 0, err
	}
	if ok {
		return &r, end, nil
	}
	for _, s := range slices.Backward(old) {
		f, err := atomicfile.Open(s.path)
		if err != nil {
			return nil, 0, err
		}
		r, _, ok, err := lastGood(f, s.size, l.opt.Key)
		f.Close()
		if err != nil {
			return nil, 0, err
		}
		if ok {
			return &r, 0, nil
		}
	}
	return nil, 0, nil
}

// compare holds the seal against the last good record. If something is missing
// it returns the record that says so, and lets the chain go on after the sealed
// record, so that no sequence number is ever used twice.
func (l *Log) compare(sealed head, headErr error, fresh bool) *Entry {
	gap := func(reason string) *Entry {
		return &Entry{Op: OpGap, Details: []Field{
			String("reason", reason), Int("found_seq", l.seq), Int("sealed_seq", sealed.seq),
			textOrNull("sealed_hmac", sealed.mac),
		}}
	}
	switch {
	case fresh && errors.Is(headErr, errNoHead):
		return nil
	case errors.Is(headErr, errNoHead):
		return gap("head_missing")
	case errors.Is(headErr, errBadHead):
		return gap("head_unreadable")
	case sealed.seq > l.seq:
		g := gap("records_missing")
		l.seq, l.mac = sealed.seq, sealed.mac
		return g
	case sealed.seq == l.seq && sealed.mac != l.mac:
		return gap("head_mismatch")
	default:
		return nil
	}
}

func textOrNull(key, s string) Field {
	if s == "" {
		return Null(key)
	}
	return String(key, s)
}

// setAside moves the n bytes after end out of the current file. On a full disk
// they are lost, since otherwise nothing could be recorded any more; the name
// is empty then.
func (l *Log) setAside(end, n, seq int64) (name string, err error) {
	saved, err := createTorn(l.opt.Path, seq)
	if err == nil {
		name = filepath.Base(saved.Name())
		_, err = io.Copy(saved, io.NewSectionReader(l.f, end, n))
		if err = errors.Join(err, saved.Sync(), saved.Close()); err != nil {
			name = ""
			os.Remove(saved.Name())
		}
	}
	if err != nil && !atomicfile.Full(err) {
		return "", err
	}
	return name, errors.Join(l.f.Truncate(end), l.fsync(l.f))
}

func createTorn(path string, seq int64) (*os.File, error) {
	name := fmt.Sprintf("%s.torn-%d", path, seq)
	for i := 1; ; i++ {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if !errors.Is(err, fs.ErrExist) {
			return f, err
		}
		name = fmt.Sprintf("%s.torn-%d-%d", path, seq, i)
	}
}

// oldestRecord is the sequence number with which the log has to begin.
func oldestRecord(sealed head, headErr error, old []segment) int64 {
	switch {
	case headErr == nil:
		return sealed.from
	case len(old) > 0:
		return old[0].first
	default:
		return 1
	}
}
