// Package ustar reads the plainest form of tar archives (POSIX.1-1988), for where
// an archive comes from somebody who is not trusted: it knows files, directories
// and links to what lies in the same directory or below, and refuses everything
// else, and every name that leads out of the archive, before anything is made.
package ustar

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
)

const block = 512

// Kind is what an entry is.
type Kind byte

// The kinds that there are.
const (
	File      Kind = '0'
	Link      Kind = '2' // symbolic
	Directory Kind = '5'
)

// Entry is one of an archive.
type Entry struct {
	Name       string // as io/fs has paths: relative, with slashes, without dots
	Kind       Kind
	Size       int64 // bytes, of a file
	Executable bool  // of a file
	// Target is that of a link: a path as Name is, from the link's directory on.
	Target string
}

// Reader reads an archive. It is for one goroutine.
type Reader struct {
	r    io.Reader
	left int64 // bytes of the current file
	pad  int64 // bytes between it and the next header
}

// NewReader reads from r, which it never reads beyond the archive's end.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next is the next entry, whose content Read reads. The error is io.EOF after the
// last, io.ErrUnexpectedEOF if the archive ends in the middle.
func (r *Reader) Next() (Entry, error) {
	if _, err := io.CopyN(io.Discard, r.r, r.left+r.pad); err != nil {
		return Entry{}, cutOff(err)
	}
	r.left, r.pad = 0, 0
	var h [block]byte
	if _, err := io.ReadFull(r.r, h[:]); err != nil {
		return Entry{}, cutOff(err)
	}
	if h == [block]byte{} { // two of them end it
		if _, err := io.ReadFull(r.r, h[:]); err != nil {
			return Entry{}, cutOff(err)
		}
		if h != [block]byte{} {
			return Entry{}, errors.New("the archive goes on after its end")
		}
		return Entry{}, io.EOF
	}
	e, err := parse(&h)
	if err != nil {
		return Entry{}, err
	}
	r.left, r.pad = e.Size, -e.Size&(block-1)
	return e, nil
}

// Read reads the content of the current entry; io.EOF at its end.
func (r *Reader) Read(b []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n, err := r.r.Read(b[:min(int64(len(b)), r.left)])
	r.left -= int64(n)
	if err != nil && r.left > 0 {
		return n, cutOff(err)
	}
	return n, nil
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// parse reads a header: name 100, mode 8, uid 8, gid 8, size 12, mtime 12,
// checksum 8, type 1, link 100, magic 8, user 32, group 32, device 16, prefix 155.
func parse(h *[block]byte) (Entry, error) {
	if string(h[257:265]) != "ustar\x0000" {
		return Entry{}, errors.New("it is no archive of the plain kind (ustar)")
	}
	if sum, err := octal(h[148:156]); err != nil || sum != checksum(h) {
		return Entry{}, errors.New("an entry's header is damaged")
	}
	e := Entry{Name: text(h[:100]), Kind: Kind(h[156])}
	if prefix := text(h[345:500]); prefix != "" {
		e.Name = prefix + "/" + e.Name
	}
	if e.Kind == Directory {
		e.Name = strings.TrimSuffix(e.Name, "/")
	}
	if !fs.ValidPath(e.Name) || e.Name == "." {
		return Entry{}, fmt.Errorf("the name %q leads elsewhere", e.Name)
	}
	mode, err := octal(h[100:108])
	if err != nil {
		return Entry{}, fmt.Errorf("%s: its mode: %w", e.Name, err)
	}
	if e.Size, err = octal(h[124:136]); err != nil {
		return Entry{}, fmt.Errorf("%s: its size: %w", e.Name, err)
	}
	switch e.Kind {
	case File:
		e.Executable = mode&0o111 != 0
		return e, nil
	case Link:
		// Up again is refused as a whole: what a link leads over may be one, too.
		if e.Target = text(h[157:257]); !fs.ValidPath(e.Target) || e.Target == "." {
			return Entry{}, fmt.Errorf("%s: it is a link to %q, which isn't beside or below it", e.Name, e.Target)
		}
	case Directory:
	default:
		return Entry{}, fmt.Errorf("%s: it is of type %q", e.Name, e.Kind)
	}
	if e.Size != 0 {
		return Entry{}, fmt.Errorf("%s: it has a content, and is no file", e.Name)
	}
	return e, nil
}

// text is a field's text: up to the first zero.
func text(b []byte) string {
	s, _, _ := bytes.Cut(b, []byte{0})
	return string(s)
}

// octal is a field's number: eleven digits at most.
func octal(b []byte) (int64, error) {
	s := strings.Trim(string(b), " \x00")
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 8, 33)
	if err != nil {
		return 0, fmt.Errorf("%q is no number", s)
	}
	return int64(n), nil
}

// checksum is the sum of a header's bytes, its own field read as spaces.
func checksum(h *[block]byte) (sum int64) {
	for i, b := range h {
		if i >= 148 && i < 156 {
			b = ' '
		}
		sum += int64(b)
	}
	return sum
}
