// Package table reads the partition table of a card and makes the last partition
// as large as the card.
//
// A card for a Raspberry Pi has the PC's MBR with an extended partition: sector 0 has
// four entries, the fourth of type 0x0f is a chain of sectors of the same form,
// each with one logical partition and the place of the next (fs in Linux:
// block/partitions/msdos.c). Places in an entry count from its own sector for
// the partition, and from the extended partition's first sector for the next.
// One for a machine with UEFI has a GUID partition table.
package table

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Sector is the size of a sector, bytes.
const Sector = 512

const (
	entries   = 446 // offset of the first entry
	entrySize = 16
	extended  = 0x0f // type of an extended partition that is addressed by LBA
	align     = 2048 // sectors: partitions end at whole MiB
	most      = 1<<32 - align
)

// Disk is what holds the table.
type Disk interface {
	io.ReaderAt
	io.WriterAt
}

// Partition is a place on the disk, in sectors.
type Partition struct {
	Number int
	Type   byte
	Start  int64
	Size   int64
}

// Table is a disk's table as it was read.
type Table struct {
	Signature  uint32
	Partitions []Partition // by number; logical ones from 5

	start int64 // of the extended partition
	ebrs  []int64
	gpt   *gpt // instead
}

// GUID says whether it is a GUID partition table.
func (t Table) GUID() bool { return t.gpt != nil }

// ErrNone says that there is no such table.
var ErrNone = errors.New("no partition table of an image")

// maxLogical bounds a chain that leads in a circle.
const maxLogical = 16

// Read reads a table.
func Read(d io.ReaderAt) (Table, error) {
	var t Table
	s, err := sector(d, 0)
	if err != nil {
		return t, err
	}
	if entry(s, 0).Type == protective {
		return readGPT(d)
	}
	t.Signature = binary.LittleEndian.Uint32(s[440:])
	for i := range 4 {
		p := entry(s, i)
		p.Number = i + 1
		if p.Type == 0 || p.Size == 0 {
			continue
		}
		if p.Type == extended {
			t.start = p.Start
		}
		t.Partitions = append(t.Partitions, p)
	}
	if t.start == 0 {
		return t, ErrNone
	}
	for at := t.start; at != 0; {
		if len(t.ebrs) == maxLogical {
			return t, fmt.Errorf("more than %d logical partitions", maxLogical)
		}
		s, err := sector(d, at)
		if err != nil {
			return t, fmt.Errorf("logical partition %d: %w", 5+len(t.ebrs), err)
		}
		p := entry(s, 0)
		p.Number, p.Start = 5+len(t.ebrs), p.Start+at
		t.ebrs = append(t.ebrs, at)
		t.Partitions = append(t.Partitions, p)
		next := entry(s, 1)
		if next.Type == 0 || next.Size == 0 {
			break
		}
		at = t.start + next.Start
	}
	return t, nil
}

func sector(d io.ReaderAt, at int64) ([]byte, error) {
	s := make([]byte, Sector)
	if _, err := d.ReadAt(s, at*Sector); err != nil {
		return nil, err
	}
	if s[510] != 0x55 || s[511] != 0xaa {
		return nil, ErrNone
	}
	return s, nil
}

func entry(s []byte, i int) Partition {
	e := s[entries+i*entrySize:]
	return Partition{Type: e[4], Start: int64(binary.LittleEndian.Uint32(e[8:])), Size: int64(binary.LittleEndian.Uint32(e[12:]))}
}

// Last is the partition that Grow makes larger.
func (t Table) Last() Partition { return t.Partitions[len(t.Partitions)-1] }

// Grow lets the last partition, which in an MBR must be a logical one, end where
// the disk of so many sectors does. It writes one sector after the other, each of which
// leaves a table that says the truth about every other partition; what a power
// cut left undone the next call does. sync is called after each. It answers
// whether it wrote anything. It never makes a partition smaller.
func Grow(d Disk, sectors int64, sync func() error) (bool, error) {
	t, err := Read(d)
	if err != nil {
		return false, err
	}
	if t.gpt != nil {
		return t.gpt.grow(d, t.Last(), sectors, sync)
	}
	last, ebr := t.Last(), t.ebrs[len(t.ebrs)-1]
	end := min(sectors, most) / align * align
	size := max(last.Size, end-last.Start)
	end = last.Start + size
	changed := false
	// The partition itself, then the link to it, then what holds both.
	type change struct {
		at    int64
		entry int
		size  int64
	}
	changes := []change{{ebr, 0, size}}
	if n := len(t.ebrs); n > 1 {
		changes = append(changes, change{t.ebrs[n-2], 1, end - ebr})
	}
	changes = append(changes, change{0, t.extended(), end - t.start})
	for _, c := range changes {
		s, err := sector(d, c.at)
		if err != nil {
			return changed, err
		}
		was := bytes.Clone(s)
		binary.LittleEndian.PutUint32(s[entries+c.entry*entrySize+12:], uint32(c.size))
		if bytes.Equal(was, s) {
			continue
		}
		if _, err := d.WriteAt(s, c.at*Sector); err != nil {
			return changed, err
		}
		changed = true
		if err := sync(); err != nil {
			return changed, err
		}
	}
	return changed, nil
}

// extended is the index of the extended partition's entry.
func (t Table) extended() int {
	for _, p := range t.Partitions {
		if p.Type == extended && p.Start == t.start {
			return p.Number - 1
		}
	}
	return 3
}
