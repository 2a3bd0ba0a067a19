package image

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"farhand/image/disk"
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
	o, err := options(b.Plan)
	if err != nil {
		return Compressed{}, err
	}
	o.Level, o.Workers = 6, workers
	path := b.Path + ".xz"
	out, err := os.Create(path + ".part")
	if err != nil {
		return Compressed{}, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	r, err := xz.Encode(ctx, out, f, o)
	if err := errors.Join(err, out.Close()); err != nil {
		return Compressed{}, fmt.Errorf("compressing %s: %w", filepath.Base(b.Path), err)
	}
	if err := os.Rename(out.Name(), path); err != nil {
		return Compressed{}, err
	}
	return Compressed{Path: path, Size: o.Size, Packed: r.Compressed, Sum: r.Sum}, nil
}

// options are what a plan says of the image: its own word rather than the holes
// of the file, which depend on the file system that it lies on.
func options(p disk.Plan) (xz.Options, error) {
	_, size, err := p.Spans()
	if err != nil {
		return xz.Options{}, err
	}
	content, err := p.Content()
	if err != nil {
		return xz.Options{}, err
	}
	copies, err := p.Copies()
	if err != nil {
		return xz.Options{}, err
	}
	o := xz.Options{Size: size}
	for _, x := range content {
		o.Content = append(o.Content, xz.Extent(x))
	}
	for _, c := range copies {
		o.Copies = append(o.Copies, xz.Copy{Extent: xz.Extent(c.Extent), Of: c.Of})
	}
	return o, nil
}
