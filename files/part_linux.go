package files

import (
	"context"
	"encoding"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"farhand/internal/atomicfile"
)

// partPrefix begins the name of what has come of an upload that can go on; its
// id follows, 32 hexadecimal digits.
const partPrefix = ".farhand-part-"

// partAge is how long what is left of an upload is kept.
const partAge = 7 * 24 * time.Hour

func partName(id string) string { return partPrefix + id }

func isPartName(name string) bool {
	id, ok := strings.CutPrefix(name, partPrefix)
	return ok && isUploadID(id)
}

func isUploadID(id string) bool {
	_, err := hex.DecodeString(id)
	return err == nil && len(id) == 32
}

// part says whether t is what an upload can go on with.
func (t *temp) part() bool { return isPartName(t.name) }

// newPart makes the file of an upload. Of what has its name nothing is known, or
// it would have been opened: a killed daemon left it.
func newPart(dir int, id string, mode uint32) (*temp, error) {
	name := partName(id)
	for {
		fd, err := openat(dir, name, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_RDWR, mode)
		if err == nil {
			return lock(&temp{dir: dir, fd: fd, name: name}), nil
		}
		if err != unix.EEXIST {
			return nil, err
		}
		if err := unlinkat(dir, name, 0); err != nil && err != unix.ENOENT {
			return nil, err
		}
	}
}

// partRecord is what is known of an upload: its first Offset bytes are on the disk,
// and Sum is the state of their hash.
type partRecord struct {
	id     string
	part   bool
	Inode  uint64 `json:"inode"`
	Offset int64  `json:"offset"`
	Sum    []byte `json:"sum"`
}

// record is how far an upload is. Called with it locked.
func (up *upload) record() partRecord {
	rec := partRecord{id: up.id, part: up.temp.part(), Offset: up.got}
	rec.Sum, _ = up.sum.(encoding.BinaryMarshaler).MarshalBinary() // SHA-256's never fails
	return rec
}

// save makes the first bytes of the file fd durable, and then that they are.
func (u *Uploads) save(rec partRecord, fd int) error {
	if err := retry(func() error { return unix.Fdatasync(fd) }); err != nil || !rec.part {
		return err
	}
	st, err := fstat(fd)
	if err != nil {
		return err
	}
	rec.Inode = st.Ino
	b, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	return atomicfile.Write(u.recordPath(rec.id), b, 0o600)
}

func (u *Uploads) recordPath(id string) string { return filepath.Join(u.opt.Dir, id) }

// load reads what save wrote. What can't be read is as good as nothing.
func (u *Uploads) load(id string) (partRecord, bool) {
	var rec partRecord
	b, err := os.ReadFile(u.recordPath(id))
	if err == nil {
		err = json.Unmarshal(b, &rec)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		u.opt.Log.Warn("what is known of a transfer can't be read: it begins anew", "error", err)
	}
	return rec, err == nil && rec.Offset > 0
}

func (u *Uploads) remove(id string) {
	if err := os.Remove(u.recordPath(id)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		u.opt.Log.Warn("what is known of a transfer can't be removed", "error", err)
	}
}

// Sweep forgets uploads that nobody went on with for a week. What came of them is
// removed by Root.Sweep.
func (u *Uploads) Sweep(ctx context.Context) error {
	entries, err := os.ReadDir(u.opt.Dir)
	if err != nil {
		return err
	}
	before := time.Now().Add(-partAge)
	for _, e := range entries {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		info, err := e.Info()
		if err == nil && info.ModTime().Before(before) {
			u.remove(e.Name())
		}
	}
	return nil
}
