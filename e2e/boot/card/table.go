package card

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Partition is a part of a card.
type Partition struct {
	Type         byte  // of the MBR: 0x0c is FAT, 0x83 Linux, 0x0f extended
	Offset, Size int64 // in bytes
}

const (
	sector = 512
	// maxLogical bounds the chain of logical partitions.
	maxLogical = 16
)

// table reads an MBR and its logical partitions, which are numbered from 5.
func table(r io.ReaderAt) (map[int]Partition, error) {
	all := make(map[int]Partition)
	entries, err := record(r, 0)
	if err != nil {
		return nil, err
	}
	for i, e := range entries {
		if e.Type == 0 {
			continue
		}
		all[i+1] = e
		if e.Type == 0x05 || e.Type == 0x0f {
			if err := logical(r, e, all); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// logical follows the chain in an extended partition: each record has the
// partition, relative to itself, and the next record, relative to the first.
func logical(r io.ReaderAt, extended Partition, all map[int]Partition) error {
	at := extended.Offset
	for n := range maxLogical {
		entries, err := record(r, at)
		if err != nil {
			return fmt.Errorf("logical partition %d: %w", 5+n, err)
		}
		if p := entries[0]; p.Type != 0 {
			p.Offset += at
			all[5+n] = p
		}
		next := entries[1]
		if next.Type == 0 {
			return nil
		}
		at = extended.Offset + next.Offset
	}
	return errors.New("the logical partitions don't end")
}

// record is one table of four partitions.
func record(r io.ReaderAt, at int64) (entries [4]Partition, err error) {
	var b [sector]byte
	if _, err := r.ReadAt(b[:], at); err != nil {
		return entries, err
	}
	if b[510] != 0x55 || b[511] != 0xaa {
		return entries, fmt.Errorf("no partition table at %d", at)
	}
	for i := range entries {
		e := b[446+16*i:]
		entries[i] = Partition{
			Type:   e[4],
			Offset: int64(binary.LittleEndian.Uint32(e[8:])) * sector,
			Size:   int64(binary.LittleEndian.Uint32(e[12:])) * sector,
		}
	}
	return entries, nil
}
