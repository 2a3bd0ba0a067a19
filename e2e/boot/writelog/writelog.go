// Package writelog reads the log that QEMU's blklogwrites driver writes of a
// disk (the format is that of the kernel's dm-log-writes, admin-guide/
// device-mapper/log-writes, as QEMU's block/blklogwrites.c writes it) and makes
// of it what the disk holds if the power goes at some moment: everything up to
// the last flush, and of what was written after it an arbitrary part.
package writelog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
)

// magic and version begin the log's superblock.
const (
	magic   = 0x6a736677736872
	version = 1
)

// The flags of an entry.
const (
	flagFlush   = 1 << 0
	flagFUA     = 1 << 1
	flagDiscard = 1 << 2
	flagMark    = 1 << 3
)

// maxEntries bounds what a damaged log can make us read. The emulated SD card
// writes a sector at a time.
const maxEntries = 1 << 24

// Write is one that the disk was given.
type Write struct {
	Offset, Length int64 // on the disk, in bytes
	Discard        bool  // the disk may forget the range: it has no data
	durable        bool  // by itself (FUA)
	at             int64 // of its data, in the log
}

// Log is what a disk was told, in that order.
type Log struct {
	Sector int64 // the size of a sector, in bytes: what is never torn
	data   io.ReaderAt
	events []event
}

// event is a write or, without one, a flush.
type event struct{ write *Write }

// Read reads the log in r as far as it was written. It ends, without an error,
// where the machine that wrote it was killed: the superblock's count of entries
// may be older than that and is not asked, and what has no superblock yet is an
// empty log.
func Read(r io.ReaderAt, size int64) (*Log, error) {
	var super [28]byte
	if size == 0 {
		return &Log{Sector: 512, data: r}, nil
	}
	if _, err := r.ReadAt(super[:], 0); err != nil {
		return nil, fmt.Errorf("the write log's superblock: %w", err)
	}
	if binary.LittleEndian.Uint64(super[:]) != magic || binary.LittleEndian.Uint64(super[8:]) != version {
		return nil, errors.New("this is no write log of version 1")
	}
	l := &Log{Sector: int64(binary.LittleEndian.Uint32(super[24:])), data: r}
	if l.Sector < 512 || l.Sector > 1<<16 || l.Sector&(l.Sector-1) != 0 {
		return nil, fmt.Errorf("the write log's sectors have %d bytes", l.Sector)
	}
	for at := l.Sector; ; {
		if len(l.events) == maxEntries {
			return nil, fmt.Errorf("the write log has more than %d entries", maxEntries)
		}
		next, err := l.entry(at, size)
		if err != nil || next == 0 {
			return l, err
		}
		at = next
	}
}

// entry reads the one at an offset and returns where the next is, or 0 if there
// is none.
func (l *Log) entry(at, size int64) (int64, error) {
	var head [32]byte
	if at+l.Sector > size {
		return 0, nil
	}
	if _, err := l.data.ReadAt(head[:], at); errors.Is(err, io.EOF) {
		return 0, nil
	} else if err != nil {
		return 0, fmt.Errorf("the write log at %d: %w", at, err)
	}
	sector, count := binary.LittleEndian.Uint64(head[:]), binary.LittleEndian.Uint64(head[8:])
	flags := binary.LittleEndian.Uint64(head[16:])
	at += l.Sector
	switch {
	case sector == 0 && count == 0 && flags == 0:
		return 0, nil // was never written
	case flags&flagMark != 0:
		return 0, fmt.Errorf("the write log at %d has a mark, which QEMU never makes", at)
	case sector > 1<<40 || count > 1<<40:
		return 0, fmt.Errorf("the write log at %d tells of %d sectors at %d", at, count, sector)
	}
	if flags&flagFlush != 0 { // it comes before the entry's own data
		l.events = append(l.events, event{})
	}
	if count == 0 {
		return at, nil
	}
	w := &Write{
		Offset: int64(sector) * l.Sector, Length: int64(count) * l.Sector,
		Discard: flags&flagDiscard != 0, durable: flags&flagFUA != 0, at: at,
	}
	if !w.Discard {
		if at += w.Length; at > size {
			return 0, nil // its data was cut off
		}
	}
	l.events = append(l.events, event{w})
	return at, nil
}

// Len is how many writes and flushes there were.
func (l *Log) Len() int { return len(l.events) }

// Flushes is how many of the first n events are flushes.
func (l *Log) Flushes(n int) int {
	k := 0
	for _, e := range l.events[:n] {
		if e.write == nil {
			k++
		}
	}
	return k
}

// All is every write: what the disk holds after an orderly end.
func (l *Log) All() []Write {
	var all []Write
	for _, e := range l.events {
		if e.write != nil {
			all = append(all, *e.write)
		}
	}
	return all
}

// Cut is what the disk holds if the power goes after the first n events: every
// write before the last flush among them, and of each later one nothing, all, or
// as many of its first sectors as chance has it.
func (l *Log) Cut(n int, chance *rand.Rand) []Write {
	last := -1
	for i, e := range l.events[:n] {
		if e.write == nil {
			last = i
		}
	}
	return l.cut(n, last, chance)
}

// CutUncached is the same of a disk that answers a write when it is done, as an
// SD card does: the first n are there, whoever made them may have been told, and
// only the next one is in doubt.
func (l *Log) CutUncached(n int, chance *rand.Rand) []Write {
	return l.cut(min(n+1, len(l.events)), n-1, chance)
}

// cut has the events up to last durable.
func (l *Log) cut(n, last int, chance *rand.Rand) []Write {
	var kept []Write
	for i, e := range l.events[:n] {
		if e.write == nil {
			continue
		}
		w := *e.write
		if i > last && !w.durable {
			switch p := chance.IntN(8); {
			case p < 3:
				continue
			case p < 5 && w.Length > l.Sector:
				w.Length = l.Sector * chance.Int64N(w.Length/l.Sector)
			}
		}
		if w.Length > 0 {
			kept = append(kept, w)
		}
	}
	return kept
}

// Disk is what writes are applied to.
type Disk interface {
	io.WriterAt
	// Zero makes a range zeros.
	Zero(offset, length int64) error
}

// Apply makes writes on disk, in their order. What was discarded stays as it
// is: a disk may keep it. Only the part of a write that lies in [from, to) is
// made, from being the disk's first byte.
func (l *Log) Apply(disk Disk, writes []Write, from, to int64) error {
	buf := make([]byte, 1<<20)
	for _, w := range writes {
		if w.Discard {
			continue
		}
		start, end := max(w.Offset, from), min(w.Offset+w.Length, to)
		for start < end {
			part := buf[:min(end-start, int64(len(buf)))]
			if _, err := l.data.ReadAt(part, w.at+start-w.Offset); err != nil {
				return fmt.Errorf("the write log at %d: %w", w.at, err)
			}
			if err := put(disk, part, start-from); err != nil {
				return fmt.Errorf("replaying a write of %d bytes at %d: %w", w.Length, w.Offset, err)
			}
			start += int64(len(part))
		}
	}
	return nil
}

// put keeps a sparse disk sparse: file systems are made mostly of zeros.
func put(disk Disk, p []byte, at int64) error {
	for _, b := range p {
		if b != 0 {
			_, err := disk.WriteAt(p, at)
			return err
		}
	}
	return disk.Zero(at, int64(len(p)))
}
