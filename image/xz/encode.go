package xz

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Extent is a range of bytes of the image.
type Extent struct{ Start, Length int64 }

// Copy is a range whose bytes are those at Of.
type Copy struct {
	Extent
	Of int64
}

// Options say what is known of an image.
type Options struct {
	Size int64
	// Content are the ranges that aren't only zeros, in order.
	Content []Extent
	// Copies are checked: a range that differs from what it should copy fails.
	Copies []Copy
	// Level is the xz program's, 0 to 9.
	Level int
	// Workers is how many of its processes run at once, 0: one. Each takes up
	// to 11 times Segment of memory.
	Workers int
	// Segment is how many bytes are compressed apart from the rest, 0: 32 MiB,
	// at least 128 KiB.
	Segment int64
}

// Result is what became of it.
type Result struct {
	Compressed int64
	Dict       int64    // bytes of the dictionary that a decoder needs
	Sum        [32]byte // SHA-256 of the image
}

// Encode writes the image as one xz stream with one block. The same image and
// options, and the same version of the xz program, give the same bytes. It needs
// that program.
func Encode(ctx context.Context, w io.Writer, image io.ReaderAt, o Options) (Result, error) {
	if o.Segment == 0 {
		o.Segment = 32 << 20
	}
	o.Segment = max(o.Segment, 128<<10)
	pieces, err := cut(image, o)
	if err != nil {
		return Result{}, err
	}
	reach := o.Segment
	for _, c := range o.Copies {
		reach = max(reach, c.Start-c.Of)
	}
	dict, size, err := dictByte(reach)
	if err != nil {
		return Result{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	sums := startSums(ctx, image, o.Size)
	packed := startPacking(ctx, image, pieces, o)
	out := &counter{w: w}
	err = writeBlock(out, image, pieces, packed, dict)
	if err != nil {
		cancel()
	}
	packed.wait()
	sum := <-sums
	if err = errors.Join(err, sum.err); err != nil {
		return Result{}, err
	}
	unpadded := out.n - int64(len(streamHeader())) + int64(len(sum.check))
	out.write(make([]byte, (4-out.n%4)%4))
	out.write(sum.check)
	out.write(trailer(unpadded, o.Size))
	return Result{Compressed: out.n, Dict: size, Sum: sum.image}, out.err
}

// counter remembers the first failure.
type counter struct {
	w   io.Writer
	n   int64
	err error
}

func (c *counter) write(b []byte) {
	if c.err == nil {
		var n int
		n, c.err = c.w.Write(b)
		c.n += int64(n)
	}
}

// writeBlock writes everything up to the end of the chunks.
func writeBlock(out *counter, image io.ReaderAt, pieces []piece, packed *packing, dict byte) error {
	out.write(streamHeader())
	out.write(blockHeader(dict))
	first := true
	for _, p := range pieces {
		var err error
		switch {
		case p.copyOf >= 0:
			if err = same(image, p); err == nil {
				repeat(out, p.Length, func(n int) []byte { return run(p.Start-p.copyOf, n) })
			}
		case p.hole:
			repeat(out, p.Length, hole)
		default:
			var chunks []byte
			if chunks, err = packed.next(); err == nil {
				err = startOver(chunks, first)
				out.write(chunks)
			}
		}
		if err = errors.Join(err, out.err); err != nil {
			return fmt.Errorf("bytes from %d: %w", p.Start, err)
		}
		first = false
	}
	out.write([]byte{0})
	return out.err
}

// repeat writes the chunks of a piece; all but the last are the same.
func repeat(out *counter, length int64, make func(n int) []byte) {
	var whole []byte
	for length > 0 {
		n := min(length, maxChunk)
		if rest := length - n; rest > 0 && rest < minRun {
			n -= minRun
		}
		if n == maxChunk {
			if whole == nil {
				whole = make(maxChunk)
			}
			out.write(whole)
		} else {
			out.write(make(int(n)))
		}
		length -= n
	}
}

// same checks that a copy is one.
func same(image io.ReaderAt, p piece) error {
	a, b := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := int64(0); at < p.Length; at += int64(len(a)) {
		n := min(int64(len(a)), p.Length-at)
		if _, err := image.ReadAt(a[:n], p.Start+at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if _, err := image.ReadAt(b[:n], p.copyOf+at); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return fmt.Errorf("not the same as those from %d, which they should be a copy of", p.copyOf)
		}
	}
	return nil
}

// piece is a range that is encoded in one way.
type piece struct {
	Extent
	hole   bool
	copyOf int64 // -1: no copy
}

// cut divides the image into pieces, in order.
func cut(image io.ReaderAt, o Options) ([]piece, error) {
	copies := slices.SortedFunc(slices.Values(o.Copies), func(a, b Copy) int { return int(min(max(a.Start-b.Start, -1), 1)) })
	var out []piece
	at := int64(0)
	upTo := func(end int64) { // content and holes before end
		for _, x := range o.Content {
			from, to := max(x.Start, at), min(x.Start+x.Length, end)
			if from >= to {
				continue
			}
			if from > at {
				out = append(out, piece{Extent{at, from - at}, true, -1})
			}
			for from < to {
				end := to
				if to-from > o.Segment {
					end = seam(image, from+o.Segment)
				}
				out = append(out, piece{Extent{from, end - from}, false, -1})
				from = end
			}
			at = to
		}
		if at < end {
			out = append(out, piece{Extent{at, end - at}, true, -1})
			at = end
		}
	}
	for _, c := range copies {
		if c.Start < at || c.Of < 0 || c.Of >= c.Start || c.Start+c.Length > o.Size || c.Length < minRun {
			return nil, fmt.Errorf("a copy of %d bytes at %d of those at %d can't be", c.Length, c.Start, c.Of)
		}
		upTo(c.Start)
		out = append(out, piece{c.Extent, false, c.Of})
		at = c.Start + c.Length
	}
	upTo(o.Size)
	if len(out) == 0 || out[0].hole {
		return nil, errors.New("an image begins with content")
	}
	for _, p := range out {
		if p.hole && p.Length < minRun || p.Start%16 != 0 {
			return nil, fmt.Errorf("a range at %d isn't a multiple of 16 bytes", p.Start)
		}
	}
	return out, nil
}

// seam finds a place at or a little before at whose preceding byte looks like a
// zero to the coder of literals (see pack).
func seam(image io.ReaderAt, at int64) int64 {
	const look, step = 64 << 10, 16
	b := make([]byte, look)
	if at < look {
		return at
	}
	if _, err := image.ReadAt(b, at-look); err != nil {
		return at // who packs it meets the error again
	}
	for i := look; i > look/2; i -= step {
		if b[i-1]>>5 == 0 {
			return at - int64(look-i)
		}
	}
	return at
}
