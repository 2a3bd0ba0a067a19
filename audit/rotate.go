package audit

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"farhand/internal/atomicfile"
)

func (l *Log) rotationDue(now time.Time) bool {
	if l.size == 0 {
		return false
	}
	if now.Before(l.rotateAt) {
		return false
	}
	return l.size >= l.opt.MaxBytes || now.Sub(l.first) >= l.opt.MaxAge
}

// rotate gives the current file a name with the date and goes on in a new one,
// whose first record says where it came from. Until the last step nothing has
// changed: the new file is complete and on the disk before it takes the name.
func (l *Log) rotate(now time.Time) (err error) {
	path := l.opt.Path
	if err := l.fsync(l.f); err != nil {
		l.syncErr = err
		return err
	}
	l.onDisk()
	name, err := freeName(path + "." + now.UTC().Format("20060102-150405"))
	if err != nil {
		return err
	}
	next, err := os.OpenFile(path+nextSuffix, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			next.Close()
			os.Remove(path + nextSuffix)
		}
	}()
	link := Entry{Op: OpRotated, Details: []Field{
		String("previous_file", filepath.Base(name)), Int("previous_seq", l.seq), textOrNull("previous_hmac", l.mac),
	}, Result: Result{OK: true}}
	line, mac, err := l.enc.encode(&link, seconds(now), l.seq+1, l.mac)
	if err != nil {
		return err
	}
	if n, err := l.write(next, line); err != nil {
		return err
	} else if n < len(line) {
		return io.ErrShortWrite
	}
	if err := l.fsync(next); err != nil {
		return err
	}
	if err := swap(path, name); err != nil {
		return err
	}
	// From here on the new file is the log, whatever else fails.
	l.f.Close()
	l.f = next
	l.seq++
	l.mac = mac
	l.size = int64(len(line))
	l.first = now
	l.onDisk()
	if err := atomicfile.SyncDir(filepath.Dir(path)); err != nil {
		l.opt.Log.Warn("audit log's directory not synced", "path", path, "err", err)
	}
	if err := l.seal(l.seq, l.mac); err != nil {
		return nil // reported by seal; nothing is removed unsealed
	}
	if err := l.prune(now); err != nil {
		l.opt.Log.Warn("old audit files not removed", "path", path, "err", err)
	}
	return nil
}

// swap lets name stand for the current file and path for the prepared one. With
// hard links path is never without a file.
func swap(path, name string) error {
	if err := os.Link(path, name); err != nil {
		if err := os.Rename(path, name); err != nil {
			return err
		}
		if err := os.Rename(path+nextSuffix, path); err != nil {
			return errors.Join(err, os.Rename(name, path))
		}
		return nil
	}
	if err := os.Rename(path+nextSuffix, path); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}

func freeName(base string) (string, error) {
	name := base
	for i := 1; ; i++ {
		_, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return name, nil
		}
		if err != nil {
			return "", err
		}
		name = base + "-" + strconv.Itoa(i)
	}
}

// finishRotation completes or undoes a rotation that a crash cut short.
func finishRotation(path string) error {
	current, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(path + nextSuffix); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return os.Rename(path+nextSuffix, path) // complete before the old one lost its name
	}
	if err != nil {
		return err
	}
	if err := os.Remove(path + nextSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	old, err := rotatedFiles(path)
	if err != nil {
		return err
	}
	for _, s := range old {
		if fi, err := os.Lstat(s.path); err == nil && os.SameFile(fi, current) {
			return os.Remove(s.path)
		}
	}
	return nil
}

// prune removes the oldest rotated files beyond the bound. The record and the
// seal come first, so that Verify never takes a removal of ours for one of
// somebody else.
func (l *Log) prune(now time.Time) error {
	if l.opt.MaxTotal < 0 {
		return nil
	}
	old, err := rotatedFiles(l.opt.Path)
	if err != nil {
		return err
	}
	current := l.seq // the AUDIT_ROTATED with which the current file begins
	var total int64
	for _, s := range old {
		total += s.size
	}
	for i := 0; i < len(old) && total > l.opt.MaxTotal; i++ {
		total -= old[i].size
		oldest := current
		if i+1 < len(old) {
			oldest = old[i+1].first
		}
		if err := l.removeSegment(old[i], oldest, now); err != nil {
			return fmt.Errorf("%s: %w", old[i].path, err)
		}
	}
	return nil
}

func (l *Log) removeSegment(s segment, oldest int64, now time.Time) error {
	note := Entry{Op: OpPruned, Details: []Field{
		String("file", filepath.Base(s.path)), Int("first_seq", s.first), Int("last_seq", oldest-1),
	}, Result: Result{OK: true}}
	if err := l.put(&note, now); err != nil {
		return err
	}
	if err := l.fsync(l.f); err != nil {
		l.syncErr = err
		return err
	}
	l.onDisk()
	l.headMu.Lock()
	l.oldest = oldest
	l.headMu.Unlock()
	if err := l.seal(l.seq, l.mac); err != nil {
		return err
	}
	return os.Remove(s.path)
}
