package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"farhand/image/disk"
	"farhand/image/layout"
	"farhand/image/xz"
)

// Compressed is what Compress made.
type Compressed struct {
	Path   string
	Size   int64    // of the image
	Packed int64    // of the file
	Sum    [32]byte // SHA-256 of the image
}

// Compress writes an image beside itself as .xz. It is told what of the card is
// a copy, so that slot B costs almost nothing.
func Compress(ctx context.Context, b Built, workers int) (Compressed, error) {
	f, err := os.Open(b.Path)
	if err != nil {
		return Compressed{}, err
	}
	defer f.Close()
	spans, size, err := b.Plan.Spans()
	if err != nil {
		return Compressed{}, err
	}
	content, err := extents(f, size)
	if err != nil {
		return Compressed{}, fmt.Errorf("finding the holes of %s: %w", b.Path, err)
	}
	path := b.Path + ".xz"
	out, err := os.Create(path + ".part")
	if err != nil {
		return Compressed{}, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	r, err := xz.Encode(ctx, out, f, xz.Options{Size: size, Content: content, Copies: copies(spans), Level: 6, Workers: workers})
	if err := errors.Join(err, out.Close()); err != nil {
		return Compressed{}, fmt.Errorf("compressing %s: %w", filepath.Base(b.Path), err)
	}
	if err := os.Rename(out.Name(), path); err != nil {
		return Compressed{}, err
	}
	return Compressed{Path: path, Size: size, Packed: r.Compressed, Sum: r.Sum}, nil
}

// copies are slot B's partitions.
func copies(spans []disk.Span) []xz.Copy {
	by := make(map[int]disk.Span)
	for _, s := range spans {
		by[s.Number] = s
	}
	var all []xz.Copy
	for b, a := range map[int]int{layout.BootB: layout.BootA, layout.SystemB: layout.SystemA} {
		all = append(all, xz.Copy{Extent: xz.Extent{Start: by[b].Start, Length: by[b].Size}, Of: by[a].Start})
	}
	return all
}

// extents are the parts of a sparse file that aren't holes.
func extents(f *os.File, size int64) ([]xz.Extent, error) {
	var all []xz.Extent
	for at := int64(0); at < size; {
		start, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break
		} else if err != nil {
			return nil, err
		}
		end, err := f.Seek(start, unix.SEEK_HOLE)
		if err != nil {
			return nil, err
		}
		all = append(all, xz.Extent{Start: start, Length: end - start})
		at = end
	}
	_, err := f.Seek(0, io.SeekStart)
	return all, err
}
