package terminal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"time"

	"farhand/stream"
	"farhand/wire"
)

// journal is what the next process must know of a terminal that outlives this
// one: what it wrote, and how far each writer came. It is a file in memory. All
// numbers have 8 bytes, little endian; of two the first is of out, the second of
// err:
//
//	0      how much was written
//	16     how much was when what is in the scratch was read
//	64     for each writer how far it came, and 64 bytes for its name
//	4096   two scratches of 16 KiB, into which is read
//	36864  two rings of 1 MiB: each byte at its offset modulo that
//
// A process that is killed after it has read something and before it has noted
// that leaves it in the scratch. How much it is shows by what was there before: a
// pattern that output hardly ever has.
//
// A nil journal takes everything and keeps nothing.
type journal struct {
	f      *os.File
	mapped []byte // all before the rings
}

const (
	journalBase    = 16
	journalWriters = 64
	writerSize     = 8 + maxWriterName
	journalScratch = 4096
	scratchSize    = 16 << 10
	journalRings   = journalScratch + 2*scratchSize
	journalSize    = journalRings + 2*wire.TerminalRing
)

// openJournal maps a journal, which it takes over also if it fails. fresh makes
// it empty.
func openJournal(f *os.File, fresh bool) (*journal, error) {
	if fresh {
		if err := f.Truncate(journalSize); err != nil {
			f.Close()
			return nil, fmt.Errorf("memory for a terminal: %w", err)
		}
	}
	st, err := f.Stat()
	if err == nil && st.Size() != journalSize {
		err = fmt.Errorf("%d bytes long", st.Size())
	}
	var mapped []byte
	if err == nil {
		mapped, err = mapFile(f, journalRings)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("journal of a terminal: %w", err)
	}
	j := &journal{f, mapped}
	if fresh {
		for n := range 2 {
			blank(j.scratch(n))
		}
	}
	return j, nil
}

// pattern is what a byte of the scratch is when nothing was read there.
func pattern(i int) byte { return byte(uint32(i+1) * 2654435761 >> 24) } // Knuth's multiplicative hash

// blank fills the beginning of a scratch.
func blank(b []byte) {
	for i := range b {
		b[i] = pattern(i)
	}
}

func (j *journal) scratch(n int) []byte {
	return j.mapped[journalScratch+n*scratchSize : journalScratch+(n+1)*scratchSize]
}

func (j *journal) number(at int) int64 {
	return max(int64(binary.LittleEndian.Uint64(j.mapped[at:])), 0)
}

func (j *journal) note(at int, n int64) { binary.LittleEndian.PutUint64(j.mapped[at:], uint64(n)) }

// close is for when nobody reads into it any more.
func (j *journal) close() {
	if j != nil {
		unmap(j.mapped)
		j.f.Close()
	}
}

// buffer is what is to be read into, and keep is told how much was. n is 0 for
// out, 1 for err; one goroutine uses each.
func (j *journal) buffer(n int) (buf []byte, keep func(read int)) {
	if j == nil {
		return make([]byte, chunk), func(int) {}
	}
	buf = j.scratch(n)
	next := j.number(8 * n)
	j.note(journalBase+8*n, next)
	return buf, func(read int) {
		j.append(n, next, buf[:read])
		next += int64(read)
		blank(buf[:read])
		j.note(journalBase+8*n, next) // from here on it is something new that stands in the scratch
	}
}

// append puts b, which comes at next, into a ring.
func (j *journal) append(n int, next int64, b []byte) {
	at := next % wire.TerminalRing
	base := int64(journalRings + n*wire.TerminalRing)
	first := min(int64(len(b)), wire.TerminalRing-at)
	j.put(b[:first], base+at)
	j.put(b[first:], base)
	j.note(8*n, next+int64(len(b)))
}

// salvage appends what was read and not noted.
func (j *journal) salvage(n int) {
	scratch, next := j.scratch(n), j.number(8*n)
	if j.number(journalBase+8*n) == next {
		read := len(scratch)
		for read > 0 && scratch[read-1] == pattern(read-1) {
			read--
		}
		j.append(n, next, scratch[:read])
	}
	blank(scratch)
}

// put writes to memory, which fails only for want of it: then the next process
// finds less than there was.
func (j *journal) put(b []byte, at int64) {
	if len(b) > 0 {
		_, _ = j.f.WriteAt(b, at)
	}
}

// wrote notes how far a writer came.
func (j *journal) wrote(slot int, name string, next int64) {
	if j == nil {
		return
	}
	b := make([]byte, writerSize)
	binary.LittleEndian.PutUint64(b, uint64(next))
	copy(b[8:], name)
	j.put(b, journalWriters+int64(slot)*writerSize)
}

// restore fills a ring with what the journal holds.
func (j *journal) restore(n int, to *stream.Shared) error {
	j.salvage(n)
	next := j.number(8 * n)
	begin := max(next-wire.TerminalRing, 0)
	to.Skip(begin)
	base := int64(journalRings + n*wire.TerminalRing)
	buf := make([]byte, chunk)
	for at := begin; at < next; {
		place := at % wire.TerminalRing
		b := buf[:min(int64(len(buf)), next-at, wire.TerminalRing-place)]
		if _, err := j.f.ReadAt(b, base+place); err != nil {
			return fmt.Errorf("what a terminal wrote: %w", err)
		}
		_, _ = to.Write(b) // fails only after the end
		at += int64(len(b))
	}
	return nil
}

// writers are those that the journal knows.
func (j *journal) writers() map[string]*writer {
	all := make(map[string]*writer)
	for slot := range maxWriters {
		b := j.mapped[journalWriters+slot*writerSize:][:writerSize]
		name, next := string(bytes.TrimRight(b[8:], "\x00")), int64(binary.LittleEndian.Uint64(b))
		if name == "" || next < 0 {
			break // slots are taken in order
		}
		all[name] = &writer{next: next, used: time.Now(), slot: slot}
	}
	return all
}
