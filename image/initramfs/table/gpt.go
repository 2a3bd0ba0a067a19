package table

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"unicode/utf16"
)

// A GUID partition table is that of the UEFI specification 2.10, chapter 5.3:
// sector 0 is an MBR that protects it, sector 1 its header, which says where the
// entries lie; a copy of both ends with the disk's last sector.
const (
	protective = 0xee
	headerSize = 92
	gptEntry   = 128 // bytes
	gptEntries = 128
	gptSectors = gptEntries * gptEntry / Sector
	// The entries lie in one of two places after the header, and are written anew
	// to the other: so one sector, the header, decides between old and new.
	firstPlace  = 2
	secondPlace = firstPlace + gptSectors
	// farthest is more than any disk has, and far from what an int64 holds.
	farthest = 1 << 48
)

// Sectors that a GUID partition table takes at a disk's beginning and its copy at
// the end.
const (
	Head = secondPlace + gptSectors
	Tail = gptSectors + 1
)

// Types of partitions as an MBR has them. A GUID partition table has GUIDs that
// mean the same.
const (
	EFI   = 0xef // where UEFI firmware looks for a boot loader
	FAT   = 0x0c // addressed by LBA
	Linux = 0x83
)

// guid is one as it stands on a disk, with the lowest byte of each of its first
// three groups first.
type guid [16]byte

// guids are the types that a table of ours has.
func guids() map[byte]guid {
	return map[byte]guid{
		// C12A7328-F81F-11D2-BA4B-00A0C93EC93B
		EFI: {0x28, 0x73, 0x2a, 0xc1, 0x1f, 0xf8, 0xd2, 0x11, 0xba, 0x4b, 0x00, 0xa0, 0xc9, 0x3e, 0xc9, 0x3b},
		// EBD0A0A2-B9E5-4433-87C0-68B6B72699C7, Microsoft's basic data
		FAT: {0xa2, 0xa0, 0xd0, 0xeb, 0xe5, 0xb9, 0x33, 0x44, 0x87, 0xc0, 0x68, 0xb6, 0xb7, 0x26, 0x99, 0xc7},
		// 0FC63DAF-8483-4772-8E79-3D69D8477DE4, Linux file system data
		Linux: {0xaf, 0x3d, 0xc6, 0x0f, 0x83, 0x84, 0x72, 0x47, 0x8e, 0x79, 0x3d, 0x69, 0xd8, 0x47, 0x7d, 0xe4},
	}
}

// own is a GUID of a disk, n being 0, or of its partition n. All disks with one
// signature have the same: what is written to them is the same to the bit.
func own(signature uint32, n int) (g guid) {
	binary.LittleEndian.PutUint32(g[:], signature)
	g[7], g[8] = 0x40, 0x80 // version and variant of a random one (RFC 9562)
	g[15] = byte(n)
	return g
}

// gpt is a table's header and entries.
type gpt struct {
	header  [Sector]byte
	entries [gptEntries * gptEntry]byte
}

func (g *gpt) u64(at int) int64 { return int64(binary.LittleEndian.Uint64(g.header[at:])) }

// Fields of the header.
const (
	atSum       = 16
	atSelf      = 24
	atCopy      = 32
	atFirst     = 40
	atLast      = 48
	atGUID      = 56
	atEntries   = 72
	atCount     = 80
	atEntrySize = 84
	atSumOfAll  = 88
)

// Fields of an entry.
const (
	atUnique = 16
	atStart  = 32
	atEnd    = 40
	atName   = 56
)

// readGPT reads the table that sector 1 begins. The copy at the disk's end is
// for firmware and for people: a half written table is never left.
func readGPT(d io.ReaderAt) (Table, error) {
	g := new(gpt)
	if _, err := d.ReadAt(g.header[:], Sector); err != nil {
		return Table{}, err
	}
	count, size := binary.LittleEndian.Uint32(g.header[atCount:]), binary.LittleEndian.Uint32(g.header[atEntrySize:])
	if string(g.header[:8]) != "EFI PART" || binary.LittleEndian.Uint32(g.header[12:]) != headerSize || count != gptEntries || size != gptEntry {
		return Table{}, fmt.Errorf("%w: the GUID partition table isn't of the form that an image has", ErrNone)
	}
	place := g.u64(atEntries)
	if place != firstPlace && place != secondPlace {
		return Table{}, fmt.Errorf("%w: its entries lie at sector %d", ErrNone, place)
	}
	if _, err := d.ReadAt(g.entries[:], place*Sector); err != nil {
		return Table{}, err
	}
	was := *g
	if g.sum(); was.header != g.header {
		return Table{}, fmt.Errorf("%w: the GUID partition table's checksum is wrong", ErrNone)
	}
	t := Table{Signature: binary.LittleEndian.Uint32(g.header[atGUID:]), gpt: g}
	types := guids()
	for i := range gptEntries {
		e := g.entries[i*gptEntry:][:gptEntry]
		if guid(e[:16]) == (guid{}) {
			continue
		}
		start, end := int64(binary.LittleEndian.Uint64(e[atStart:])), int64(binary.LittleEndian.Uint64(e[atEnd:]))
		if start < Head || end < start || end > min(g.u64(atLast), farthest) {
			return Table{}, fmt.Errorf("%w: partition %d lies from sector %d to %d", ErrNone, i+1, start, end)
		}
		p := Partition{Number: i + 1, Type: unknown, Start: start, Size: end - start + 1}
		for kind, id := range types {
			if id == guid(e[:16]) {
				p.Type = kind
			}
		}
		t.Partitions = append(t.Partitions, p)
	}
	if len(t.Partitions) == 0 {
		return Table{}, ErrNone
	}
	return t, nil
}

// unknown is the type of a partition whose GUID is none of ours.
const unknown = 0xff

// sum puts the checksums in.
func (g *gpt) sum() {
	binary.LittleEndian.PutUint32(g.header[atSumOfAll:], crc32.ChecksumIEEE(g.entries[:]))
	clear(g.header[atSum : atSum+4])
	binary.LittleEndian.PutUint32(g.header[atSum:], crc32.ChecksumIEEE(g.header[:headerSize]))
}

// at moves the table to a disk of so many sectors, its entries to place.
func (g *gpt) at(sectors, place int64) {
	binary.LittleEndian.PutUint64(g.header[atSelf:], 1)
	binary.LittleEndian.PutUint64(g.header[atCopy:], uint64(sectors-1))
	binary.LittleEndian.PutUint64(g.header[atFirst:], Head)
	binary.LittleEndian.PutUint64(g.header[atLast:], uint64(sectors-1-Tail))
	binary.LittleEndian.PutUint64(g.header[atEntries:], uint64(place))
	g.sum()
}

// write writes the copy at the disk's end and then the table. What decides is
// written last.
func (g *gpt) write(d io.WriterAt, sync func() error) error {
	end := *g
	last := g.u64(atCopy)
	binary.LittleEndian.PutUint64(end.header[atSelf:], uint64(last))
	binary.LittleEndian.PutUint64(end.header[atCopy:], 1)
	binary.LittleEndian.PutUint64(end.header[atEntries:], uint64(last-gptSectors))
	end.sum()
	for _, w := range []struct {
		b  []byte
		at int64
	}{
		{end.entries[:], last - gptSectors}, {end.header[:], last},
		{g.entries[:], g.u64(atEntries)}, {g.header[:], 1},
	} {
		if _, err := d.WriteAt(w.b, w.at*Sector); err != nil {
			return err
		}
		if err := sync(); err != nil {
			return err
		}
	}
	return nil
}

// Named is a partition with the name that people read in a GUID partition table.
type Named struct {
	Partition
	Name string
}

// WriteGPT writes a GUID partition table of partitions, whose types are among
// those above, onto a disk of so many sectors. The signature begins its GUIDs,
// which are the same each time.
func WriteGPT(d io.WriterAt, signature uint32, partitions []Named, sectors int64) error {
	g := new(gpt)
	copy(g.header[:], "EFI PART")
	binary.LittleEndian.PutUint32(g.header[8:], 0x00010000) // revision 1.0
	binary.LittleEndian.PutUint32(g.header[12:], headerSize)
	disk := own(signature, 0)
	copy(g.header[atGUID:], disk[:])
	binary.LittleEndian.PutUint32(g.header[atCount:], gptEntries)
	binary.LittleEndian.PutUint32(g.header[atEntrySize:], gptEntry)
	for _, p := range partitions {
		kind, ok := guids()[p.Type]
		if !ok || p.Number < 1 || p.Number > gptEntries || p.Start < Head || p.Start+p.Size > sectors-Tail {
			return fmt.Errorf("partition %d of type %#x can't be in a GUID partition table from sector %d on", p.Number, p.Type, p.Start)
		}
		id := own(signature, p.Number)
		e := g.entries[(p.Number-1)*gptEntry:][:gptEntry]
		copy(e, kind[:])
		copy(e[atUnique:], id[:])
		binary.LittleEndian.PutUint64(e[atStart:], uint64(p.Start))
		binary.LittleEndian.PutUint64(e[atEnd:], uint64(p.Start+p.Size-1))
		for i, c := range utf16.Encode([]rune(p.Name)) {
			if atName+2*i+2 > gptEntry {
				return fmt.Errorf("the name %q of partition %d is too long", p.Name, p.Number)
			}
			binary.LittleEndian.PutUint16(e[atName+2*i:], c)
		}
	}
	g.at(sectors, firstPlace)
	mbr := make([]byte, Sector)
	mbr[510], mbr[511] = 0x55, 0xaa
	// As large as an entry can say, so that it holds for a disk of any size.
	copy(mbr[entries:], []byte{0, 0, 2, 0, protective, 0xff, 0xff, 0xff, 1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	if _, err := d.WriteAt(mbr, 0); err != nil {
		return err
	}
	return g.write(d, func() error { return nil })
}

// grow is Grow for such a table.
func (g *gpt) grow(d Disk, last Partition, sectors int64, sync func() error) (bool, error) {
	end := (sectors - Tail) / align * align
	if end <= last.Start+last.Size {
		return false, nil
	}
	next := *g
	e := next.entries[(last.Number-1)*gptEntry:]
	binary.LittleEndian.PutUint64(e[atEnd:], uint64(end-1))
	place := int64(firstPlace)
	if g.u64(atEntries) == firstPlace {
		place = secondPlace
	}
	next.at(sectors, place)
	return true, next.write(d, sync)
}
