package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"farhand/internal/atomicfile"
	"farhand/internal/sorted"
)

// rotatedName is what follows "audit.log." in the name of a rotated file.
var rotatedName = regexp.MustCompile(`^\d{8}-\d{6}(-\d+)?$`)

// segment is one rotated file.
type segment struct {
	path  string
	first int64 // sequence number of its first readable record; math.MaxInt64 if none
	size  int64
}

// rotatedFiles lists the rotated files beside path in the order of their
// records. The order of their names is that of the clock, which on a board
// without one may go backwards.
func rotatedFiles(path string) ([]segment, error) {
	dir, base := filepath.Split(path)
	if dir == "" {
		dir = "."
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var all []segment
	for _, e := range entries {
		suffix, ok := strings.CutPrefix(e.Name(), base+".")
		if !ok || !rotatedName.MatchString(suffix) || !e.Type().IsRegular() {
			continue
		}
		s := segment{path: filepath.Join(dir, e.Name())}
		if err := s.inspect(); err != nil {
			if errors.Is(err, fs.ErrNotExist) { // pruned meanwhile
				continue
			}
			return nil, err
		}
		all = append(all, s)
	}
	sorted.By(all, func(a, b segment) int {
		if a.first != b.first {
			if a.first < b.first {
				return -1
			}
			return 1
		}
		return strings.Compare(a.path, b.path)
	})
	return all, nil
}

func (s *segment) inspect() error {
	f, err := atomicfile.Open(s.path)
	if err != nil {
		return err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return err
	}
	s.size = fi.Size()
	r, _, err := firstRecord(f, s.size)
	if err != nil {
		return err
	}
	s.first = math.MaxInt64
	if r != nil {
		s.first = r.seq
	}
	return nil
}

// firstRecord is the first line of f that can be read as a record, or nil.
func firstRecord(f *os.File, size int64) (*record, time.Time, error) {
	lines := newLineReader(io.NewSectionReader(f, 0, size))
	for {
		line, err := lines.next()
		if err == io.EOF || errors.Is(err, errTornLine) {
			return nil, time.Time{}, nil
		}
		if errors.Is(err, errLongLine) {
			continue
		}
		if err != nil {
			return nil, time.Time{}, err
		}
		if r, err := parseRecord(line); err == nil {
			return &r, time.UnixMicro(int64(r.ts * 1e6)), nil
		}
	}
}

// lastGood finds the last whole line in the first size bytes of f that carries
// the key's seal, and the offset after it.
func lastGood(f *os.File, size int64, key []byte) (r record, end int64, ok bool, err error) {
	for end = size; end > 0; {
		nl, err := lastNewline(f, end)
		if err != nil || nl < 0 {
			return record{}, 0, false, err
		}
		start, err := lastNewline(f, nl)
		if err != nil {
			return record{}, 0, false, err
		}
		start++
		if nl-start <= maxRecord {
			line := make([]byte, nl-start)
			if _, err := f.ReadAt(line, start); err != nil {
				return record{}, 0, false, err
			}
			if r, err := parseRecord(line); err == nil && sign(key, r.canonical) == r.mac {
				return r, nl + 1, true, nil
			}
		}
		end = start
	}
	return record{}, 0, false, nil
}

// lastNewline is the offset of the last newline before end, or -1.
func lastNewline(f *os.File, end int64) (int64, error) {
	buf := make([]byte, 8<<10)
	for end > 0 {
		n := min(int64(len(buf)), end)
		if _, err := f.ReadAt(buf[:n], end-n); err != nil {
			return -1, err
		}
		if i := bytes.LastIndexByte(buf[:n], '\n'); i >= 0 {
			return end - n + int64(i), nil
		}
		end -= n
	}
	return -1, nil
}

var (
	errTornLine = errors.New("last line not ended")
	errLongLine = fmt.Errorf("line longer than %d bytes", maxRecord)
)

// lineReader reads lines in constant memory.
type lineReader struct {
	r    io.Reader
	buf  []byte
	pos  int // what was read and not yet returned is buf[pos:len]
	long bool
	read int64 // bytes returned and skipped so far
}

func newLineReader(r io.Reader) *lineReader {
	return &lineReader{r: r, buf: make([]byte, 0, 64<<10)}
}

// next returns the next line without its newline, valid until the next call. A
// line longer than maxRecord is errLongLine, and reading can go on after it; a
// last line without a newline is errTornLine, and more may follow later.
func (l *lineReader) next() ([]byte, error) {
	from := l.pos
	for {
		if i := bytes.IndexByte(l.buf[from:], '\n'); i >= 0 {
			line := l.buf[l.pos : from+i]
			l.read += int64(len(line)) + 1
			l.pos = from + i + 1
			if l.long {
				l.long = false
				return nil, errLongLine
			}
			return line, nil
		}
		if len(l.buf)-l.pos > maxRecord { // drop it, and remember that we did
			l.read += int64(len(l.buf) - l.pos)
			l.buf, l.pos, l.long = l.buf[:0], 0, true
		}
		from = len(l.buf)
		if err := l.fill(&from); err != nil {
			if err == io.EOF && (len(l.buf) > l.pos || l.long) {
				return nil, errTornLine
			}
			return nil, err
		}
	}
}

func (l *lineReader) fill(from *int) error {
	if l.pos > 0 && len(l.buf) == cap(l.buf) {
		n := copy(l.buf, l.buf[l.pos:])
		l.buf = l.buf[:n]
		*from -= l.pos
		l.pos = 0
	}
	if len(l.buf) == cap(l.buf) {
		l.buf = slices.Grow(l.buf, cap(l.buf))
	}
	n, err := l.r.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+n]
	if n > 0 {
		return nil
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}
