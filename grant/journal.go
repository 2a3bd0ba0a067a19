package grant

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"farhand/internal/atomicfile"
	"farhand/wire"
)

// line is one line of the file: a binding as it was made, or, without root and
// grant, what else is known of the session at that revision.
type line struct {
	Binding  wire.SessionBinding `json:"binding"`
	Detached bool                `json:"detached,omitempty"`
}

// maxLine bounds a line when reading; the longest grant and path, escaped, take
// less than half of it.
const maxLine = 256 << 10

// journal is a file of lines that grows until it is rewritten as a whole. A line
// is one write; of a line that a crash cut short nothing is kept.
type journal struct {
	path  string
	f     *os.File
	size  int64 // up to the last whole line
	lines int
	torn  bool
	// closed ends it; a nil f alone has still to be opened after a rewrite.
	closed bool
}

// openJournal reads the file into replay and opens it for appending.
func openJournal(path string, replay func(line), log *slog.Logger) (*journal, error) {
	if err := atomicfile.RemoveStale(path); err != nil {
		return nil, err
	}
	f, err := atomicfile.OpenFile(path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{path: path, f: f}
	if err := j.load(replay, log); err != nil {
		f.Close()
		return nil, err
	}
	return j, nil
}

func (j *journal) load(replay func(line), log *slog.Logger) error {
	r := bufio.NewReaderSize(j.f, maxLine)
	tooLong, part := false, int64(0)
	for {
		text, err := r.ReadSlice('\n')
		part += int64(len(text))
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			tooLong = true
			continue
		case err == io.EOF && part == 0:
			return atomicfile.SyncDir(filepath.Dir(j.path))
		case err == io.EOF: // cut short by a crash, so never answered
			return j.f.Truncate(j.size)
		case err != nil:
			return err
		}
		j.size += part
		j.lines++
		var l line
		if tooLong || json.Unmarshal(text, &l) != nil || l.Binding.SessionID == "" || l.Binding.Revision < 1 {
			log.Warn("root grants: a line can't be read and is left out", "path", j.path, "line", j.lines)
		} else {
			replay(l)
		}
		tooLong, part = false, 0
	}
}

// append writes one line; with durable it is on the disk afterwards. After an
// error the line is not there.
func (j *journal) append(l line, durable bool) error {
	text, err := encodeLine(l)
	if err != nil {
		return err
	}
	if err := j.reopen(); err != nil {
		return err
	}
	if j.torn {
		if err := j.f.Truncate(j.size); err != nil {
			return err
		}
		j.torn = false
	}
	_, err = j.f.Write(text)
	if err == nil && durable {
		err = j.f.Sync()
	}
	if err != nil {
		j.torn = true
		if j.f.Truncate(j.size) == nil {
			j.torn = false
		}
		return err
	}
	j.size += int64(len(text))
	j.lines++
	return nil
}

// rewrite replaces the whole file.
func (j *journal) rewrite(lines []line) error {
	var all bytes.Buffer
	for _, l := range lines {
		text, err := encodeLine(l)
		if err != nil {
			return err
		}
		all.Write(text)
	}
	if err := atomicfile.Write(j.path, all.Bytes(), 0o600); err != nil {
		return err
	}
	// The descriptor is of a file without a name now.
	j.f.Close()
	j.f, j.size, j.lines, j.torn = nil, int64(all.Len()), len(lines), false
	return j.reopen()
}

// reopen opens the file that a rewrite put in place.
func (j *journal) reopen() error {
	if j.closed {
		return os.ErrClosed
	}
	if j.f != nil {
		return nil
	}
	f, err := atomicfile.OpenFile(j.path, os.O_RDWR|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	j.f = f
	return nil
}

func encodeLine(l line) ([]byte, error) {
	text, err := json.Marshal(l)
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

func (j *journal) close() error {
	j.closed = true
	if j.f == nil {
		return nil
	}
	f := j.f
	j.f = nil
	return errors.Join(f.Sync(), f.Close())
}
