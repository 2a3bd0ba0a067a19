package flash

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/therootcompany/xz"

	"farhand/image/bmap"
)

// Source is an image, unpacked as it is read.
type Source struct {
	io.Reader
	// Map is the image's block map, nil if there is none beside it.
	Map *bmap.Map
	// Size is that of the unpacked image; 0 if it isn't known before the end.
	Size int64

	f *os.File
}

// maxDict is the longest dictionary of an xz stream that is unpacked: so much
// memory it may take.
const maxDict = 512 << 20

// OpenSource opens an image: plain, or packed by xz or gzip, as its first bytes
// say. The block map is that in the file named, else NAME.bmap or, without what
// it is packed by, NAME.img.bmap if there is one.
func OpenSource(name, mapName string) (*Source, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	s := &Source{f: f}
	if err := s.open(); err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := s.findMap(name, mapName); err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

func (s *Source) open() error {
	r := bufio.NewReaderSize(s.f, 1<<20)
	head, err := r.Peek(6)
	if err != nil {
		return fmt.Errorf("no image: %w", err)
	}
	switch {
	case bytes.Equal(head, []byte("\xfd7zXZ\x00")):
		s.Reader, err = xz.NewReader(r, maxDict)
	case bytes.HasPrefix(head, []byte{0x1f, 0x8b}):
		s.Reader, err = gzip.NewReader(r)
	case bytes.HasPrefix(head, []byte{0x28, 0xb5, 0x2f, 0xfd}), bytes.HasPrefix(head, []byte("PK")):
		return errors.New("packed by zstd or zip; this reads xz, gzip and plain images: unpack it first")
	default:
		s.Reader = r
		var info os.FileInfo
		if info, err = s.f.Stat(); err == nil {
			s.Size = info.Size()
		}
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil
}

func (s *Source) findMap(name, mapName string) error {
	names := []string{mapName}
	if mapName == "" {
		names = []string{name + ".bmap", strings.TrimSuffix(strings.TrimSuffix(name, ".xz"), ".gz") + ".bmap",
			strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, ".xz"), ".gz"), ".img") + ".bmap"}
	}
	for _, n := range names {
		b, err := readMap(n)
		if errors.Is(err, fs.ErrNotExist) && mapName == "" {
			continue
		} else if err != nil {
			return err
		}
		m, err := bmap.Parse(b)
		if err != nil {
			return fmt.Errorf("%s: %w", n, err)
		}
		if s.Size != 0 && s.Size != m.ImageSize {
			return fmt.Errorf("%s is for an image of %d bytes; this one has %d", n, m.ImageSize, s.Size)
		}
		s.Map, s.Size = &m, m.ImageSize
		return nil
	}
	return nil
}

func readMap(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, bmap.MaxFile+1))
}

// Close closes the image's file.
func (s *Source) Close() error { return s.f.Close() }
