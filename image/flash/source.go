package flash

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/therootcompany/xz"

	"farhand/image/bmap"
	"farhand/image/fat"
	"farhand/image/initramfs/table"
	"farhand/image/layout"
)

// Source is an image, unpacked as it is read.
type Source struct {
	io.Reader
	// Map is the image's block map, nil if there is none beside it.
	Map *bmap.Map
	// Size is that of the unpacked image; 0 if it isn't known before the end.
	Size int64

	f       *os.File
	files   []os.FileInfo // what it is read from: the image, its map and its checksum
	mapName string

	sumName string // the file with its checksum; empty if there is none
	sum     [sha256.Size]byte

	looked bool
	lacks  error // why it takes no settings
}

// maxDict is the longest dictionary of an xz stream that is unpacked: so much
// memory it may take.
const maxDict = 512 << 20

// OpenSource opens an image: plain, or packed by xz or gzip, as its first bytes
// say. The block map is that in the file named, else NAME.bmap or, without what
// it is packed by, NAME.img.bmap if there is one; the checksum of its file is that
// in NAME.sha256 if there is one.
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
	if err := s.findSum(name); err != nil {
		f.Close()
		return nil, err
	}
	return s, nil
}

func (s *Source) open() error {
	info, err := s.f.Stat()
	if err != nil {
		return err
	}
	s.files = append(s.files, info)
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
		s.Reader, s.Size = r, info.Size()
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
		b, info, err := readBeside(n, bmap.MaxFile)
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
		s.Map, s.Size, s.mapName, s.files = &m, m.ImageSize, n, append(s.files, info)
		return nil
	}
	return nil
}

// Reads says whether the image, its map or its checksum is read from a file, which
// then can't be what is written.
func (s *Source) Reads(path string) bool {
	info, err := os.Stat(path)
	return err == nil && slices.ContainsFunc(s.files, func(f os.FileInfo) bool { return os.SameFile(f, info) })
}

const (
	// tableEnd is where a partition table of either kind ends at the latest.
	tableEnd = 64 << 10
	// farthestFirst is more than what lies before an image's first partition.
	farthestFirst = 16 << 20
	// mostCompared is how much of that partition is compared with the block map.
	mostCompared = 8 << 20
)

// TakesSettings looks at the beginning of an image, before anything is overwritten
// for it: without our first partition there is no place for a card's settings, an
// image that ends before its partitions do was cut off, and what a block map of
// another version says of the first files is something else.
func (s *Source) TakesSettings() error {
	if !s.looked {
		s.looked = true
		s.lacks = s.look()
	}
	return s.lacks
}

func (s *Source) look() error {
	var head []byte
	rest := s.Reader
	more := func(to int64) error {
		b, err := io.ReadAll(io.LimitReader(rest, to-int64(len(head))))
		head = append(head, b...)
		s.Reader = io.MultiReader(bytes.NewReader(head), rest)
		if err != nil {
			return fmt.Errorf("%w (%w)", ErrCorrupt, err)
		}
		return nil
	}
	if err := more(tableEnd); err != nil {
		return err
	}
	// A chain of logical partitions goes on far behind; the first one is known by then.
	t, err := table.Read(bytes.NewReader(head))
	p, err := firstPartition(t, err)
	if err != nil {
		return err
	}
	if s.Size != 0 {
		if err := holds(t, s.Size); err != nil {
			return err
		}
	}
	at := p.Start * table.Sector
	if at > farthestFirst {
		return fmt.Errorf("%w: its first partition begins at byte %d", errForeign, at)
	}
	if err := more(at + table.Sector); err != nil {
		return err
	}
	if int64(len(head)) < at+table.Sector {
		return fmt.Errorf("%w (it ends after %d bytes)", ErrCorrupt, len(head))
	}
	label, err := fat.Label(head[at:], p.Size*table.Sector)
	if err := rightLabel(label, err); err != nil || s.Map == nil {
		return err
	}
	limit := at + min(p.Size*table.Sector, mostCompared)
	for _, r := range s.Map.Ranges {
		start, length := s.Map.Span(r)
		if start+length > limit {
			break
		}
		if err := more(max(start+length, int64(len(head)))); err != nil {
			return err
		}
		if int64(len(head)) < start+length || sha256.Sum256(head[start:start+length]) != r.Sum {
			return fmt.Errorf("%w, or %s is another image's (at byte %d)", ErrCorrupt, s.mapName, start)
		}
	}
	return nil
}

var errForeign = errors.New("this is no image of farhand's: it has no place for a card's settings")

// firstPartition is where a card's settings lie, of a table as table.Read gave it.
func firstPartition(t table.Table, err error) (table.Partition, error) {
	if len(t.Partitions) == 0 || t.Partitions[0].Number != layout.Autoboot {
		if err == nil {
			err = table.ErrNone
		}
		return table.Partition{}, fmt.Errorf("%w (%w)", errForeign, err)
	}
	return t.Partitions[0], nil
}

func rightLabel(label string, err error) error {
	if err == nil && label != layout.AutobootLabel {
		err = fmt.Errorf("its first partition is called %q", label)
	}
	if err != nil {
		return fmt.Errorf("%w (%w)", errForeign, err)
	}
	return nil
}

// holds says whether an image of size bytes holds its partitions. A plain image
// without a block map has nothing else that tells half of a download from all of it.
func holds(t table.Table, size int64) error {
	for _, p := range t.Partitions {
		if end := (p.Start + p.Size) * table.Sector; end > size {
			return fmt.Errorf("%w (it has %d bytes, its partitions reach to byte %d)", ErrCorrupt, size, end)
		}
	}
	return nil
}

// Close closes the image's file.
func (s *Source) Close() error { return s.f.Close() }
