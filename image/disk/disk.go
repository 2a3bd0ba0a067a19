// Package disk writes the image of a card into a sparse file: a partition table,
// partitions whose content is another file's, and nothing where nothing is.
// It needs neither loop devices nor mounts, and the same plan gives the same
// bytes.
package disk

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"farhand/image/initramfs/table"
)

// Partition is one to be made. They lie in the order of the plan, each at a
// whole MiB; in an MBR numbers from 5 on are logical ones, of which a plan has
// none or one chain at its end.
type Partition struct {
	Number int
	Type   byte   // as an MBR has it; a GUID partition table has those of package table
	Name   string // in a GUID partition table
	Size   int64  // bytes, whole MiB
	From   string // the file with its content, which may be shorter; empty: Blank alone
	Blank  int64  // bytes of zeros at its beginning that are content, so that they are written over what a card held before
}

// Plan is a card.
type Plan struct {
	Signature  uint32
	GUID       bool // a GUID partition table instead of an MBR
	Partitions []Partition
}

const (
	mib = 1 << 20
	// begin leaves the place before the first partition that cards are erased by.
	begin = 4 * mib
)

// Span is where a partition lies, in bytes.
type Span struct {
	Partition
	Start int64
}

// Spans says where each partition lies, and how large the card is.
func (p Plan) Spans() (spans []Span, size int64, err error) {
	at := int64(begin)
	for i, q := range p.Partitions {
		switch {
		case q.Size <= 0 || q.Size%mib != 0:
			return nil, 0, fmt.Errorf("partition %d has %d bytes, no whole MiB", q.Number, q.Size)
		case i > 0 && q.Number <= p.Partitions[i-1].Number, q.Number < 1, q.Number == 4:
			return nil, 0, fmt.Errorf("partition %d is out of order", q.Number)
		}
		if q.Number >= 5 && !p.GUID {
			at += mib // the sector that its place in the chain is written in
		}
		spans = append(spans, Span{q, at})
		at += q.Size
	}
	if p.GUID {
		at += mib // the table's copy ends the disk
	}
	return spans, at, nil
}

// tables are where a table lies, in bytes.
func (p Plan) tables(spans []Span, size int64) []Extent {
	if p.GUID {
		return []Extent{{0, table.Head * table.Sector}, {size - table.Tail*table.Sector, table.Tail * table.Sector}}
	}
	all := []Extent{{0, table.Sector}}
	for _, s := range spans {
		if s.Number >= 5 {
			all = append(all, Extent{s.Start - mib, table.Sector})
		}
	}
	return all
}

// Write makes the card's file, with holes where Content lists nothing. The
// copies of one file are the same to the byte.
func Write(p Plan, path string) error {
	spans, size, err := p.Spans()
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Truncate(size); err != nil {
		return err
	}
	for _, s := range spans {
		if err := fill(f, s); err != nil {
			return fmt.Errorf("partition %d: %w", s.Number, err)
		}
	}
	write := writeMBR
	if p.GUID {
		write = writeGUID
	}
	if err := write(f, p.Signature, spans, size); err != nil {
		return err
	}
	return f.Close()
}

func writeGUID(f io.WriterAt, signature uint32, spans []Span, size int64) error {
	var all []table.Named
	for _, s := range spans {
		all = append(all, table.Named{
			Partition: table.Partition{Number: s.Number, Type: s.Type, Start: s.Start / table.Sector, Size: s.Size / table.Sector},
			Name:      s.Name,
		})
	}
	return table.WriteGPT(f, signature, all, size/table.Sector)
}

const (
	extended = 0x0f // the chain, in the MBR
	link     = 0x05 // to the next, within the chain
)

// writeMBR writes the MBR and the chain of logical partitions.
func writeMBR(f io.WriterAt, signature uint32, spans []Span, size int64) error {
	mbr := newSector()
	binary.LittleEndian.PutUint32(mbr[440:], signature)
	var logical []Span
	for _, s := range spans {
		if s.Number >= 5 {
			logical = append(logical, s)
			continue
		}
		put(mbr, s.Number-1, s.Type, s.Start, s.Size)
	}
	if len(logical) > 0 {
		start := logical[0].Start - mib
		put(mbr, 3, extended, start, size-start)
		for i, s := range logical {
			ebr := newSector()
			at := s.Start - mib
			put(ebr, 0, s.Type, s.Start-at, s.Size)
			if i+1 < len(logical) {
				next := logical[i+1]
				put(ebr, 1, link, next.Start-mib-start, next.Size+mib)
			}
			if _, err := f.WriteAt(ebr, at); err != nil {
				return err
			}
		}
	}
	_, err := f.WriteAt(mbr, 0)
	return err
}

func newSector() []byte {
	s := make([]byte, table.Sector)
	s[510], s[511] = 0x55, 0xaa
	return s
}

// put writes an entry; start and size are in bytes. Its places in cylinders are
// those that say that only sectors count.
func put(s []byte, i int, kind byte, start, size int64) {
	e := s[446+16*i:]
	copy(e, []byte{0, 0xfe, 0xff, 0xff, kind, 0xfe, 0xff, 0xff})
	binary.LittleEndian.PutUint32(e[8:], uint32(start/table.Sector))
	binary.LittleEndian.PutUint32(e[12:], uint32(size/table.Sector))
}
