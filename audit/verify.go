package audit

import (
	"context"
	"crypto/hmac"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"farhand/internal/atomicfile"
	"farhand/wire"
)

// Report is what Verify found.
type Report struct {
	OK       bool     `json:"ok"`
	Seq      int64    `json:"seq"`  // of the last record
	HMAC     string   `json:"hmac"` // of the last record
	Records  int64    `json:"records"`
	Files    []string `json:"files"`    // in the order of their records
	Problems []string `json:"problems"` // empty if OK; at most maxProblems
	Notes    []string `json:"notes"`    // what happened and is no problem: crashes survived, files pruned
}

// maxProblems bounds a report: a log with another key has a problem a record.
const maxProblems = 100

// Verify reads the whole log, rotated files included, in constant memory, and
// holds it against the sealed head and against anchors taken earlier (those with
// sequence number 0 say nothing). It changes nothing and may run beside the
// daemon that writes the log. An error means that it couldn't be read, not that
// it isn't good.
func Verify(ctx context.Context, path string, key []byte, anchors ...wire.Anchor) (Report, error) {
	v := verifier{path: path, key: key, anchors: anchors}
	// The head first: what it seals is in the files by then, and what is
	// appended later doesn't matter.
	h, _, err := readHead(path, key)
	switch {
	case errors.Is(err, errNoHead), errors.Is(err, errBadHead):
		v.problem("%v (%s)", err, filepath.Base(headPath(path)))
	case err != nil:
		return Report{}, err
	default:
		v.head = &h
	}
	files, err := openAll(path)
	defer closeAll(files)
	if err != nil {
		return Report{}, fmt.Errorf("audit log: %w", err)
	}
	if len(files) == 0 && v.head == nil {
		return Report{}, fmt.Errorf("audit log %s: %w", path, fs.ErrNotExist)
	}
	for i, f := range files {
		v.report.Files = append(v.report.Files, filepath.Base(f.Name()))
		if err := v.file(ctx, f, i == len(files)-1); err != nil {
			return Report{}, fmt.Errorf("audit log: %w", err)
		}
	}
	v.finish()
	return v.report, nil
}

// openAll opens the rotated files in order and then the current one.
func openAll(path string) ([]*os.File, error) {
	var files []*os.File
	// The current one first: what is rotated away from then on is still this
	// open file, and everything before it is found in the listing.
	current, err := atomicfile.Open(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	old, err := rotatedFiles(path)
	if err != nil {
		closeAll([]*os.File{current})
		return nil, err
	}
	for _, s := range old {
		f, err := atomicfile.Open(s.path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // pruned meanwhile
		}
		if err != nil {
			closeAll(append(files, current))
			return nil, err
		}
		if same(f, current) {
			f.Close()
			break // rotated since we opened it: it is the last one we look at
		}
		files = append(files, f)
	}
	if current != nil {
		files = append(files, current)
	}
	return files, nil
}

func same(a, b *os.File) bool {
	if b == nil {
		return false
	}
	fa, errA := a.Stat()
	fb, errB := b.Stat()
	return errA == nil && errB == nil && os.SameFile(fa, fb)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

type verifier struct {
	path    string
	key     []byte
	head    *head
	anchors []wire.Anchor
	report  Report
	seq     int64
	mac     string
	begun   bool
	more    int
}

func (v *verifier) problem(format string, args ...any) {
	if len(v.report.Problems) == maxProblems {
		v.more++
		return
	}
	v.report.Problems = append(v.report.Problems, fmt.Sprintf(format, args...))
}

func (v *verifier) note(format string, args ...any) {
	if len(v.report.Notes) < maxProblems {
		v.report.Notes = append(v.report.Notes, fmt.Sprintf(format, args...))
	}
}

func (v *verifier) file(ctx context.Context, f *os.File, last bool) error {
	name := filepath.Base(f.Name())
	lines := newLineReader(f)
	for n := 1; ; n++ {
		if n%256 == 1 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		line, err := lines.next()
		if errors.Is(err, errTornLine) && last {
			line, err = awaitLine(ctx, lines)
		}
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, errTornLine):
			v.problem("%s line %d is torn: it has no end", name, n)
			return nil
		case errors.Is(err, errLongLine):
			v.problem("%s line %d: %v", name, n, err)
		case err != nil:
			return err
		default:
			v.line(name, n, line)
		}
	}
}

// awaitLine gives a daemon that is writing the line a moment to end it.
func awaitLine(ctx context.Context, lines *lineReader) ([]byte, error) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 10 {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if line, err := lines.next(); !errors.Is(err, errTornLine) {
			return line, err
		}
	}
	return nil, errTornLine
}

func (v *verifier) line(name string, n int, line []byte) {
	r, err := parseRecord(line)
	if err != nil {
		v.problem("%s line %d: %v", name, n, err)
		return
	}
	v.report.Records++
	if !hmac.Equal([]byte(sign(v.key, r.canonical)), []byte(r.mac)) {
		v.problem("record %d (%s line %d): changed since it was written (hmac mismatch)", r.seq, name, n)
	}
	v.chain(&r, name)
	v.seq, v.mac, v.begun = r.seq, r.mac, true
	if v.head != nil && r.seq == v.head.seq && r.mac != v.head.mac {
		v.problem("record %d isn't the one that was sealed", r.seq)
	}
	for _, a := range v.anchors {
		if a.Seq > 0 && r.seq == a.Seq && r.mac != a.HMAC {
			v.problem("record %d isn't the one that was anchored", r.seq)
		}
	}
	switch r.op {
	case OpGap:
		v.problem("record %d: the daemon found at its start that records were missing or the seal was gone (%s)", r.seq, OpGap)
	case OpRecovered:
		v.note("record %d: what a crash left of an unfinished record was set aside", r.seq)
	case OpPruned:
		v.note("record %d: the oldest file was removed to keep the bound", r.seq)
	}
}

// chain checks that r follows the record before it.
func (v *verifier) chain(r *record, name string) {
	if !v.begun {
		oldest := v.oldest(r.seq)
		switch {
		case r.seq > oldest:
			v.problem("records %d to %d are missing: the log begins with %s", oldest, r.seq-1, name)
		case r.seq == 1 && r.prev != "":
			v.problem("record 1 names a predecessor")
		}
		return
	}
	switch {
	case r.seq == v.seq+2:
		v.problem("record %d is missing (before %s)", v.seq+1, name)
	case r.seq > v.seq+1:
		v.problem("records %d to %d are missing (before %s)", v.seq+1, r.seq-1, name)
	case r.seq <= v.seq:
		v.problem("record %d follows record %d (%s)", r.seq, v.seq, name)
	case r.prev != v.mac:
		v.problem("record %d doesn't belong after record %d: the chain is broken (%s)", r.seq, v.seq, name)
	}
}

// oldest is the record with which the log has to begin.
func (v *verifier) oldest(found int64) int64 {
	if v.head == nil {
		return 1
	}
	if found > v.head.from { // the daemon may have pruned since we read the head
		if h, _, err := readHead(v.path, v.key); err == nil {
			return h.from
		}
	}
	return v.head.from
}

func (v *verifier) finish() {
	if v.head != nil && v.seq < v.head.seq {
		v.problem("the log ends with record %d, but record %d was on the disk: its end was cut off", v.seq, v.head.seq)
	}
	for _, a := range v.anchors {
		if a.Seq > v.seq {
			v.problem("the log ends with record %d, but record %d was anchored: it was cut or rolled back", v.seq, a.Seq)
		}
	}
	if v.more > 0 {
		v.report.Problems = append(v.report.Problems, fmt.Sprintf("and %d more", v.more))
	}
	v.report.Seq, v.report.HMAC = v.seq, v.mac
	v.report.OK = len(v.report.Problems) == 0
}
