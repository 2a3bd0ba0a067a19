package schema

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"unicode/utf8"

	"farhand/wire"
)

// MaxScan is how much of a file is looked at, in bytes.
const MaxScan = 64 << 20

// piece is how much is read between two looks at the context, and how much of the
// begin decides what kind of content it is.
const piece = 64 << 10

// Options say what is known of a file.
type Options struct {
	// MIMEType is what the file's name says that it is; "" if it says nothing. It
	// settles what the content leaves open, and is never believed against it.
	MIMEType string
	// Named shows the keys of JSON's objects, and the header of a table whose file
	// name says that it is one.
	Named bool
}

// Preview tells how the content of a file of this size is built. A file that is
// shorter by the time it is read ends where it ends. It fails only if the file
// can't be read, or with ctx; the error names no file, and quotes none. It may be
// called from any goroutine.
func Preview(ctx context.Context, r io.ReaderAt, size int64, o Options) (wire.SchemaPreview, error) {
	return preview(ctx, r, size, MaxScan, o)
}

func preview(ctx context.Context, r io.ReaderAt, size, most int64, o Options) (wire.SchemaPreview, error) {
	s := &source{r: r, size: size, end: min(size, most), buf: make([]byte, piece)}
	head, err := s.head(ctx)
	if err != nil {
		return wire.SchemaPreview{}, err
	}
	p, err := s.classify(ctx, head, o)
	p.ScannedBytes, p.Complete = s.end, s.end == s.size
	return p, err
}

func (s *source) classify(ctx context.Context, head []byte, o Options) (wire.SchemaPreview, error) {
	if len(head) == 0 {
		return wire.SchemaPreview{Kind: wire.SchemaEmpty}, nil
	}
	if format := imageFormat(head); format != "" {
		return wire.SchemaPreview{Kind: wire.SchemaImage, Format: format}, nil
	}
	more := int64(len(head)) < s.end
	head = bytes.Clone(s.text(head[s.start:]))
	if !isText(head) {
		return wire.SchemaPreview{Kind: wire.SchemaBinary}, nil
	}
	p := wire.SchemaPreview{Kind: wire.SchemaText, Encoding: s.encoding}
	if p.Encoding == "" {
		if p.Encoding = "8-bit"; utf8.Valid(wholeRunes(head)) {
			p.Encoding = "utf-8"
		}
	}
	if mayBeJSON(head, o.MIMEType) {
		j := newScanner(o.Named)
		if err := s.each(ctx, j.write); err != nil {
			return p, err
		}
		if value := j.result(s.end < s.size); value != nil {
			p.Kind, p.Value = wire.SchemaJSON, value
			if j.values > 1 {
				p.Kind = wire.SchemaJSONLines
			}
			return p, nil
		}
	}
	table := newTable(head, more, o)
	lines := lines{bytewise: p.Encoding == "8-bit"}
	err := s.each(ctx, func(b []byte) bool {
		lines.write(b)
		if table != nil {
			table.write(b)
		}
		return true
	})
	if err != nil {
		return p, err
	}
	if table != nil {
		if p.Table = table.result(s.end < s.size); p.Table != nil {
			p.Kind = wire.SchemaCSV
			return p, nil
		}
	}
	p.Lines, p.LongestLine = lines.result()
	return p, nil
}

// source is a file that is read from its begin in pieces, as UTF-8 if it says
// that it is UTF-16.
type source struct {
	r         io.ReaderAt
	size, end int64 // end: of what is looked at
	buf       []byte

	start    int64  // after the mark of byte order
	encoding string // by that mark; "": there is none
	decoded  []byte
}

// head is the begin of the file, its mark of byte order included.
func (s *source) head(ctx context.Context) ([]byte, error) {
	head, err := s.read(ctx, make([]byte, min(piece, s.end)), 0)
	switch {
	case bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		s.start, s.encoding = 3, "utf-8"
	case bytes.HasPrefix(head, []byte("\xff\xfe")):
		s.start, s.encoding = 2, "utf-16le"
	case bytes.HasPrefix(head, []byte("\xfe\xff")):
		s.start, s.encoding = 2, "utf-16be"
	}
	return head, err
}

// read is what there is at off, up to the length of buf. A file that has become
// shorter ends there.
func (s *source) read(ctx context.Context, buf []byte, off int64) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	n, err := s.r.ReadAt(buf, off)
	if n == len(buf) {
		return buf, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		s.end = off + int64(n)
		s.size = s.end
		return buf[:n], nil
	}
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		err = of.Err // the name is nobody's business
	}
	return nil, fmt.Errorf("read at byte %d: %w", off, err)
}

// each hands the content to f in order, until f wants no more.
func (s *source) each(ctx context.Context, f func([]byte) bool) error {
	for off := s.start; off < s.end; off += piece {
		b, err := s.read(ctx, s.buf[:min(piece, s.end-off)], off)
		if err != nil {
			return err
		}
		if !f(s.text(b)) {
			return nil
		}
	}
	return nil
}

// text is a piece that begins at a character, as UTF-8. It lasts until the next.
func (s *source) text(b []byte) []byte {
	var order binary.ByteOrder = binary.LittleEndian
	switch s.encoding {
	case "utf-16be":
		order = binary.BigEndian
	case "utf-16le":
	default:
		return b
	}
	s.decoded = s.decoded[:0]
	for ; len(b) >= 2; b = b[2:] {
		switch r := rune(order.Uint16(b)); {
		case r >= 0xd800 && r < 0xdc00: // the one after it counts for both
		default:
			s.decoded = utf8.AppendRune(s.decoded, r) // of the second of a pair, U+FFFD
		}
	}
	return s.decoded
}
