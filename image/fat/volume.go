package fat

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
)

// Volume is an open file system.
type Volume struct {
	s     Storage
	wide  bool  // FAT32
	unit  int64 // bytes of a cluster
	start int64 // of the table, in bytes
	fats  int64 // copies of the table
	span  int64 // bytes of one copy
	root  int64 // FAT16: start of the root directory
	rootN int64 // FAT16: its bytes
	rootC uint32
	data  int64 // start of cluster 2
	info  int64 // FAT32: where the count of free clusters stands, 0: nowhere
	label string

	table []uint32 // an entry for each cluster, the first two included
	next  uint32   // where the search for a free cluster begins
	dirty bool
}

// Open reads the parameters and the table of the file system in s, which has
// size bytes. Nothing is written.
func Open(s Storage, size int64) (*Volume, error) {
	b := make([]byte, sector)
	if _, err := s.ReadAt(b, 0); err != nil {
		return nil, fmt.Errorf("boot sector: %w", err)
	}
	v, err := parse(b, size)
	if err != nil {
		return nil, err
	}
	v.s = s
	return v, v.readTable()
}

// parse takes the boot sector apart (section 3.1 to 3.3).
func parse(b []byte, size int64) (*Volume, error) {
	le := binary.LittleEndian
	if b[510] != 0x55 || b[511] != 0xaa || le.Uint16(b[11:]) != sector {
		return nil, fmt.Errorf("%w: no boot sector of 512-byte sectors", ErrFormat)
	}
	per, reserved, fats := int64(b[13]), int64(le.Uint16(b[14:])), int64(b[16])
	total, span := int64(le.Uint16(b[19:])), int64(le.Uint16(b[22:]))
	if total == 0 {
		total = int64(le.Uint32(b[32:]))
	}
	wide := span == 0
	if wide {
		span = int64(le.Uint32(b[36:]))
	}
	rootN := (int64(le.Uint16(b[17:]))*entry + sector - 1) / sector * sector
	if per == 0 || per&(per-1) != 0 || reserved == 0 || fats == 0 || fats > 2 || span == 0 || total*sector > size {
		return nil, fmt.Errorf("%w: impossible parameters in the boot sector", ErrFormat)
	}
	v := &Volume{
		wide: wide, unit: per * sector, start: reserved * sector, fats: fats, span: span * sector,
		root: (reserved + fats*span) * sector, rootN: rootN,
	}
	v.data = v.root + rootN
	count := (total*sector - v.data) / v.unit
	label := b[43:54]
	if wide {
		label = b[71:82]
		v.rootC = le.Uint32(b[44:])
		if at := int64(le.Uint16(b[48:])); at > 0 && at < reserved {
			v.info = at * sector
		}
	}
	v.label = string(bytes.TrimRight(label, " \x00"))
	width := int64(2)
	if wide {
		width = 4
	}
	switch {
	case count < least16, count > clusters, wide != (count >= least32), v.span/width < count+2:
		return nil, fmt.Errorf("%w: %d clusters", ErrFormat, count)
	case wide && (rootN != 0 || v.rootC < 2 || int64(v.rootC) >= count+2), !wide && rootN == 0:
		return nil, fmt.Errorf("%w: no root directory", ErrFormat)
	}
	v.table = make([]uint32, count+2)
	v.next = 2
	return v, nil
}

// Label is the name of the file system whose boot sector b begins with, in size
// bytes, of which the rest isn't needed.
func Label(b []byte, size int64) (string, error) {
	if len(b) < sector {
		return "", fmt.Errorf("%w: %d bytes", ErrFormat, len(b))
	}
	v, err := parse(b, size)
	if err != nil {
		return "", err
	}
	return v.label, nil
}

// Label is the volume's name as the boot sector says it.
func (v *Volume) Label() string { return v.label }

// ClusterSize is the unit of allocation in bytes.
func (v *Volume) ClusterSize() int64 { return v.unit }

// Free is how many bytes are free.
func (v *Volume) Free() int64 { return int64(v.free()) * v.unit }

func (v *Volume) free() (n uint32) {
	for _, e := range v.table[2:] {
		if e == 0 {
			n++
		}
	}
	return n
}

func (v *Volume) at(cluster uint32) int64 { return v.data + int64(cluster-2)*v.unit }

func (v *Volume) writeAt(b []byte, off int64) error {
	if _, err := v.s.WriteAt(b, off); err != nil {
		return fmt.Errorf("write at %d: %w", off, err)
	}
	return nil
}

func (v *Volume) readAt(b []byte, off int64) error {
	if n, err := v.s.ReadAt(b, off); n < len(b) {
		return fmt.Errorf("read at %d: %w", off, err)
	}
	return nil
}

// blocks is how many clusters size bytes take.
func (v *Volume) blocks(size int64) int { return int((size + v.unit - 1) / v.unit) }

const (
	mask28 = 0x0fffffff
	end    = math.MaxUint32 // the last cluster of a chain, as kept in memory
)
