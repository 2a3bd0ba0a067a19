package flash

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"time"

	"farhand/image/bmap"
	"farhand/image/fat"
	"farhand/image/initramfs/table"
)

const (
	// headSize is what is written last.
	headSize = 4096
	step     = 1 << 20
	// flushed is how much is written before the card is waited for, so that
	// progress tells the truth and a cancellation is prompt.
	flushed = 64 << 20
	// ownRange is checked at once where no block map says what.
	ownRange = 16 << 20
)

// Card is what Write writes.
type Card struct {
	Image *Source
	// Files, if not nil, are put onto the first partition, a FAT called FARHAND. They
	// are asked for when the image is written and read back.
	Files func(context.Context) (map[string][]byte, error)
	When  time.Time // of those files
	// Progress may be nil.
	Progress Progress
}

// Result is what Write did.
type Result struct {
	Size    int64 // of the image
	Written int64 // of it
}

// Write writes a card to an open target, which OpenTarget gave. After a failure,
// or a cancellation, the target has no partition table.
func Write(ctx context.Context, t *os.File, c Card) (Result, error) {
	if c.Progress == nil {
		c.Progress = func(Phase, int64, int64) {}
	}
	w := writer{ctx: ctx, t: t, tell: c.Progress, head: make([]byte, headSize)}
	if c.Files != nil {
		if err := c.Image.TakesSettings(); err != nil {
			return Result{}, err
		}
	}
	if err := w.room(c.Image.Size); err != nil {
		return Result{}, err
	}
	if _, err := t.WriteAt(make([]byte, headSize), 0); err != nil {
		return Result{}, fmt.Errorf("write: %w", err)
	}
	m, err := w.copy(c.Image)
	if err != nil {
		return Result{}, err
	}
	if w.plain { // a hole at its end is part of it
		if err := t.Truncate(m.ImageSize); err != nil {
			return Result{}, fmt.Errorf("write: %w", err)
		}
	}
	if err := w.verify(m); err != nil {
		return Result{}, err
	}
	if c.Files != nil {
		files, err := c.Files(ctx)
		if err != nil {
			return Result{}, err
		}
		if err := w.customise(files, c.When, m.ImageSize); err != nil {
			return Result{}, err
		}
	}
	if err := w.finish(); err != nil {
		return Result{}, err
	}
	return Result{m.ImageSize, m.Mapped()}, nil
}

type writer struct {
	ctx  context.Context
	t    *os.File
	tell Progress
	head []byte // the first block, kept back

	plain bool // a file rather than a device

	unflushed int64
}

// room empties a file, and refuses a device that is too small.
func (w *writer) room(size int64) error {
	info, err := w.t.Stat()
	if err != nil {
		return err
	}
	if w.plain = info.Mode().IsRegular(); w.plain {
		return w.t.Truncate(0)
	}
	have, err := w.t.Seek(0, io.SeekEnd)
	if err != nil {
		return fmt.Errorf("size of the card: %w", err)
	}
	if have < size {
		return fmt.Errorf("the card has %d MB, the image takes %d: use a larger one", have/1e6, (size+1e6-1)/1e6)
	}
	return nil
}

// WriteAt keeps the first block back.
func (w *writer) WriteAt(b []byte, off int64) (int, error) {
	n := 0
	if off < headSize {
		n = copy(w.head[off:], b)
	}
	if n < len(b) {
		m, err := w.t.WriteAt(b[n:], off+int64(n))
		if err != nil {
			return n + m, fmt.Errorf("write: %w", err)
		}
	}
	if w.unflushed += int64(len(b)); w.unflushed >= flushed {
		w.unflushed = 0
		return len(b), w.sync()
	}
	return len(b), nil
}

// ReadAt reads what will be there.
func (w *writer) ReadAt(b []byte, off int64) (int, error) {
	n := 0
	if off < headSize {
		n = copy(b, w.head[off:])
	}
	if n == len(b) {
		return n, nil
	}
	m, err := w.t.ReadAt(b[n:], off+int64(n))
	return n + m, err
}

func (w *writer) sync() error {
	if err := w.t.Sync(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	return w.ctx.Err()
}

// copy writes the image and answers what it wrote: the image's map, or one of
// all that there is.
func (w *writer) copy(s *Source) (bmap.Map, error) {
	m, known := bmap.Map{BlockSize: headSize}, s.Map != nil
	if known {
		m = *s.Map
	}
	at, done := int64(0), int64(0)
	total := s.Size
	if known {
		total = m.Mapped()
	}
	for i := 0; !known || i < len(m.Ranges); i++ {
		want, length := at, int64(ownRange)
		if known {
			want, length = m.Span(m.Ranges[i])
		}
		if err := w.skip(s, want-at); err != nil {
			return m, err
		}
		n, sum, err := w.one(s, want, length, func(n int64) { w.tell(Writing, done+n, total) })
		if err != nil {
			return m, err
		}
		at, done = want+n, done+n
		switch {
		case known && (n < length || sum != m.Ranges[i].Sum):
			return m, fmt.Errorf("%w (at byte %d)", ErrCorrupt, want)
		case !known && n > 0:
			m.Ranges = append(m.Ranges, bmap.Range{First: want / headSize, Last: (at - 1) / headSize, Sum: sum})
		}
		if !known && n < length {
			break
		}
	}
	rest, err := io.Copy(io.Discard, &cancelled{w.ctx, s}) // to the checksum at its end
	if err != nil {
		return m, corrupt(w.ctx, err)
	}
	if at += rest; !known {
		m.ImageSize = at
	}
	if at != m.ImageSize || at == 0 {
		return m, fmt.Errorf("%w (it has %d bytes, its map says %d)", ErrCorrupt, at, m.ImageSize)
	}
	return m, w.sync()
}

func (w *writer) skip(s *Source, n int64) error {
	if _, err := io.CopyN(io.Discard, &cancelled{w.ctx, s}, n); err != nil {
		return corrupt(w.ctx, err)
	}
	return nil
}

// one writes a range, or what there is of it.
func (w *writer) one(s io.Reader, at, length int64, tell func(int64)) (n int64, sum [32]byte, err error) {
	h := sha256.New()
	b := make([]byte, step)
	for n < length {
		if err := w.ctx.Err(); err != nil {
			return n, sum, err
		}
		got, err := io.ReadFull(s, b[:min(step, length-n)])
		if got > 0 {
			h.Write(b[:got])
			if _, err := w.WriteAt(b[:got], at+n); err != nil {
				return n, sum, err
			}
			n += int64(got)
			tell(n)
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		} else if err != nil {
			return n, sum, corrupt(w.ctx, err)
		}
	}
	return n, [32]byte(h.Sum(nil)), nil
}

func corrupt(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("%w (%w)", ErrCorrupt, err)
}

// cancelled reads until the context ends.
type cancelled struct {
	ctx context.Context
	r   io.Reader
}

func (c *cancelled) Read(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(b)
}

// verify reads everything back, from the card rather than from memory.
func (w *writer) verify(m bmap.Map) error {
	forget(w.t)
	done := int64(0)
	b := make([]byte, step)
	for _, r := range m.Ranges {
		start, length := m.Span(r)
		h := sha256.New()
		for at := int64(0); at < length; {
			if err := w.ctx.Err(); err != nil {
				return err
			}
			n, err := w.ReadAt(b[:min(step, length-at)], start+at)
			if n == 0 {
				return fmt.Errorf("%w (byte %d: %w)", ErrVerify, start+at, err)
			}
			h.Write(b[:n])
			at += int64(n)
			w.tell(Verifying, done+at, m.Mapped())
		}
		if [32]byte(h.Sum(nil)) != r.Sum {
			return fmt.Errorf("%w (bytes %d to %d)", ErrVerify, start, start+length-1)
		}
		done += length
	}
	return nil
}

// customise puts files onto the first partition of an image of imageSize bytes and
// reads them back.
func (w *writer) customise(files map[string][]byte, when time.Time, imageSize int64) error {
	t, err := table.Read(w)
	p, err := firstPartition(t, err)
	if err == nil {
		err = holds(t, imageSize) // a packed one's size is known only now
	}
	if err != nil {
		return err
	}
	part, size := window{w, p.Start * table.Sector}, p.Size*table.Sector
	v, err := fat.Open(part, size)
	if err != nil {
		return rightLabel("", err)
	}
	if err := rightLabel(v.Label(), nil); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := v.WriteFile(name, files[name], when); err != nil {
			return err
		}
	}
	if err := errors.Join(v.Flush(), w.sync()); err != nil {
		return err
	}
	forget(w.t)
	if v, err = fat.Open(part, size); err != nil {
		return fmt.Errorf("%w (%w)", ErrVerify, err)
	}
	for name, want := range files {
		if got, err := v.ReadFile(name); err != nil {
			return fmt.Errorf("%w (%w)", ErrVerify, err)
		} else if string(got) != string(want) {
			return fmt.Errorf("%w (%s)", ErrVerify, name)
		}
	}
	return nil
}

// finish writes the first block.
func (w *writer) finish() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	if _, err := w.t.WriteAt(w.head, 0); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := w.t.Sync(); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	forget(w.t)
	got := make([]byte, headSize)
	if _, err := w.t.ReadAt(got, 0); err != nil || string(got) != string(w.head) {
		return fmt.Errorf("%w (its first block)", ErrVerify)
	}
	reread(w.t)
	return nil
}

// window is a part of a card.
type window struct {
	w  *writer
	at int64
}

func (x window) ReadAt(b []byte, off int64) (int, error)  { return x.w.ReadAt(b, x.at+off) }
func (x window) WriteAt(b []byte, off int64) (int, error) { return x.w.WriteAt(b, x.at+off) }
