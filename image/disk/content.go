package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"farhand/image/fat"
)

// Extent is a range of bytes of a card.
type Extent struct{ Start, Length int64 }

// Block is the unit of Content, bytes. It is that of a block map, and no file
// system on the card has smaller ones that matter.
const Block = 4096

// Content lists what of the card has a meaning, in whole Blocks, in order. What
// lies between may keep what a card held before: the free space of a FAT, what a
// partition is larger than its content. A zero within content is content.
func (p Plan) Content() ([]Extent, error) {
	spans, size, err := p.Spans()
	if err != nil {
		return nil, err
	}
	all := p.tables(spans, size)
	for _, s := range spans {
		if s.Blank > 0 {
			all = append(all, Extent{s.Start, s.Blank})
		}
		parts, err := used(s)
		if err != nil {
			return nil, fmt.Errorf("partition %d: %w", s.Number, err)
		}
		for _, x := range parts {
			all = append(all, Extent{s.Start + x.Start, x.Length})
		}
	}
	return round(all, size), nil
}

// used are the ranges of a partition's file that mean something.
func used(s Span) ([]Extent, error) {
	if s.From == "" {
		return nil, nil
	}
	f, err := os.OpenFile(s.From, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > s.Size {
		return nil, fmt.Errorf("%d bytes don't fit into %d", info.Size(), s.Size)
	}
	v, err := fat.Open(f, info.Size())
	if err != nil { // a file system of another kind: all of it
		return []Extent{{0, info.Size()}}, nil
	}
	var all []Extent
	for _, x := range v.Used() {
		all = append(all, Extent(x))
	}
	return all, nil
}

// round widens ranges to whole blocks, and joins those that then touch.
func round(all []Extent, size int64) []Extent {
	slices.SortFunc(all, func(a, b Extent) int { return int(min(max(a.Start-b.Start, -1), 1)) })
	var out []Extent
	for _, x := range all {
		start := x.Start / Block * Block
		end := min((x.Start+x.Length+Block-1)/Block*Block, size)
		if n := len(out); n > 0 && start <= out[n-1].Start+out[n-1].Length {
			out[n-1].Length = max(out[n-1].Length, end-out[n-1].Start)
			continue
		}
		out = append(out, Extent{start, end - start})
	}
	return out
}

// fill copies a partition's content. What is none stays a hole.
func fill(f *os.File, s Span) error {
	if s.Blank > 0 {
		if _, err := f.WriteAt(make([]byte, s.Blank), s.Start); err != nil {
			return err
		}
	}
	parts, err := used(s)
	if err != nil || len(parts) == 0 {
		return err
	}
	from, err := os.Open(s.From)
	if err != nil {
		return err
	}
	defer from.Close()
	block := make([]byte, 64<<10)
	for _, x := range parts {
		for at, end := x.Start, x.Start+x.Length; at < end; {
			n, err := from.ReadAt(block[:min(int64(len(block)), end-at)], at)
			if n == 0 && errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			} else if n == 0 {
				return err
			}
			if _, err := f.WriteAt(block[:n], s.Start+at); err != nil {
				return err
			}
			at += int64(n)
		}
	}
	return nil
}

// Copy says that a range holds the same bytes as an earlier one.
type Copy struct {
	Extent
	Of int64
}

// Copies lists the partitions that hold the same as the one before them, which
// is how an encoder comes by slot B for nothing.
func (p Plan) Copies() ([]Copy, error) {
	spans, _, err := p.Spans()
	if err != nil {
		return nil, err
	}
	var all []Copy
	for i := 1; i < len(spans); i++ {
		if a, b := spans[i-1], spans[i]; b.From != "" && a.From == b.From && a.Size == b.Size {
			all = append(all, Copy{Extent{b.Start, b.Size}, a.Start})
		}
	}
	return all, nil
}
