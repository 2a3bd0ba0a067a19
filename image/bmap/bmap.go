// Package bmap is the block map of an image: which of its blocks have content,
// and their checksums, in the format of bmaptool, version 2.0. With it an image
// is written without its holes and checked on the card.
package bmap

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Map lists the blocks of an image that have content.
type Map struct {
	ImageSize int64 // bytes; the last block may end after it
	BlockSize int64 // bytes
	Ranges    []Range
}

// Range is blocks in a row.
type Range struct {
	First, Last int64 // both belong to it
	Sum         [32]byte
}

// Span is where the blocks of a range lie, in bytes.
func (m Map) Span(r Range) (start, length int64) {
	start = r.First * m.BlockSize
	return start, min((r.Last+1)*m.BlockSize, m.ImageSize) - start
}

// Mapped is how many bytes have content.
func (m Map) Mapped() (n int64) {
	for _, r := range m.Ranges {
		_, length := m.Span(r)
		n += length
	}
	return n
}

// Extent is a range of bytes.
type Extent struct{ Start, Length int64 }

// most bounds a range, so that what is wrong on a card is found early and said
// where.
const most = 16 << 20

// Make sums the ranges of an image up, which are whole blocks in order.
func Make(ctx context.Context, image io.ReaderAt, size, blockSize int64, content []Extent) (Map, error) {
	m := Map{ImageSize: size, BlockSize: blockSize}
	for _, x := range content {
		if x.Start%blockSize != 0 || x.Length%blockSize != 0 && x.Start+x.Length != size || x.Length <= 0 {
			return Map{}, fmt.Errorf("content at %d isn't in whole blocks", x.Start)
		}
		for at, end := x.Start, x.Start+x.Length; at < end; at += most {
			n := min(most, end-at)
			sum := sha256.New()
			if got, err := io.Copy(sum, io.NewSectionReader(image, at, n)); err != nil || got < n {
				return Map{}, fmt.Errorf("image at %d: %w", at, errors.Join(err, ctx.Err(), io.ErrUnexpectedEOF))
			}
			if err := ctx.Err(); err != nil {
				return Map{}, err
			}
			m.Ranges = append(m.Ranges, Range{at / blockSize, (at + n - 1) / blockSize, [32]byte(sum.Sum(nil))})
		}
	}
	return m, m.check()
}

// check holds what a map must be.
func (m Map) check() error {
	if m.ImageSize <= 0 || m.BlockSize < 512 || m.BlockSize > 1<<20 || m.BlockSize&(m.BlockSize-1) != 0 {
		return fmt.Errorf("block map: an image of %d bytes in blocks of %d", m.ImageSize, m.BlockSize)
	}
	next := int64(0)
	for _, r := range m.Ranges {
		if r.First < next || r.Last < r.First || r.Last > (m.ImageSize-1)/m.BlockSize {
			return fmt.Errorf("block map: the range %d-%d is out of order or outside of the image", r.First, r.Last)
		}
		next = r.Last + 1
	}
	return nil
}

const head = `<?xml version="1.0" ?>
<!-- The blocks of an image that have content: bmaptool copy and farhand flash
     write only these. -->
<bmap version="2.0">
`

// Marshal is the map as a file.
func (m Map) Marshal() []byte {
	var b strings.Builder
	blocks := func(size int64) int64 { return (size + m.BlockSize - 1) / m.BlockSize }
	zeros := strings.Repeat("0", 64)
	b.WriteString(head)
	field := func(name string, v any) { fmt.Fprintf(&b, "    <%s> %v </%s>\n", name, v, name) }
	field("ImageSize", m.ImageSize)
	field("BlockSize", m.BlockSize)
	field("BlocksCount", blocks(m.ImageSize))
	mapped := int64(0)
	for _, r := range m.Ranges {
		mapped += r.Last - r.First + 1
	}
	field("MappedBlocksCount", mapped)
	field("ChecksumType", "sha256")
	field("BmapFileChecksum", zeros)
	b.WriteString("    <BlockMap>\n")
	for _, r := range m.Ranges {
		span := strconv.FormatInt(r.First, 10)
		if r.Last > r.First {
			span += "-" + strconv.FormatInt(r.Last, 10)
		}
		fmt.Fprintf(&b, "        <Range chksum=%q> %s </Range>\n", hex.EncodeToString(r.Sum[:]), span)
	}
	b.WriteString("    </BlockMap>\n</bmap>\n")
	// The sum is over the text with zeros in its place.
	sum := sha256.Sum256([]byte(b.String()))
	return []byte(strings.Replace(b.String(), zeros, hex.EncodeToString(sum[:]), 1))
}

// MaxFile bounds a map that is read.
const MaxFile = 16 << 20

// Parse reads a map and checks it against its own checksum.
func Parse(b []byte) (Map, error) {
	if len(b) > MaxFile {
		return Map{}, errors.New("block map: too long")
	}
	var raw struct {
		Version   string `xml:"version,attr"`
		ImageSize string
		BlockSize string
		Type      string `xml:"ChecksumType"`
		Sum       string `xml:"BmapFileChecksum"`
		Ranges    []struct {
			Sum  string `xml:"chksum,attr"`
			Text string `xml:",chardata"`
		} `xml:"BlockMap>Range"`
	}
	if err := xml.Unmarshal(b, &raw); err != nil {
		return Map{}, fmt.Errorf("block map: %w", err)
	}
	trim := strings.TrimSpace
	if v := trim(raw.Version); v != "2.0" && v != "1.4" || trim(raw.Type) != "sha256" {
		return Map{}, fmt.Errorf("block map: version %.20q with %.20q; this reads 2.0 with sha256", v, trim(raw.Type))
	}
	if sum := trim(raw.Sum); !intact(string(b), sum) {
		return Map{}, errors.New("block map: it isn't what its own checksum says; fetch it again")
	}
	var m Map
	var err error
	number := func(s string) int64 {
		n, bad := strconv.ParseInt(trim(s), 10, 64)
		if bad != nil {
			err = fmt.Errorf("block map: %w", bad)
		}
		return n
	}
	m.ImageSize, m.BlockSize = number(raw.ImageSize), number(raw.BlockSize)
	for _, x := range raw.Ranges {
		first, last, two := strings.Cut(x.Text, "-")
		r := Range{First: number(first)}
		if r.Last = r.First; two {
			r.Last = number(last)
		}
		n, bad := hex.Decode(r.Sum[:], []byte(trim(x.Sum)[:min(64, len(trim(x.Sum)))]))
		if bad != nil || n != len(r.Sum) {
			err = errors.New("block map: a range without a SHA-256")
		}
		m.Ranges = append(m.Ranges, r)
	}
	if err != nil {
		return Map{}, err
	}
	return m, m.check()
}

// intact checks the checksum of the file.
func intact(text, sum string) bool {
	if len(sum) != 64 || strings.Count(text, sum) != 1 {
		return false
	}
	want, err := hex.DecodeString(sum)
	if err != nil {
		return false
	}
	got := sha256.Sum256([]byte(strings.Replace(text, sum, strings.Repeat("0", 64), 1)))
	return string(got[:]) == string(want)
}
