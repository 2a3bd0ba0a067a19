package terminal

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"time"

	"farhand/stream"
	"farhand/wire"
)

// journal is what the next process must know of a terminal that outlives this
// one: what it wrote, and how far each writer came. It is a file in memory:
//
//	0      how much was written to out, and to err: 8 bytes each, little endian
//	64     for each writer 8 bytes, how far it came, and 64 for its name
//	4096   the newest MiB of out, each byte at its offset modulo a MiB; then err
//
// A nil journal takes everything and keeps nothing.
type journal struct{ f *os.File }

const (
	journalWriters = 64
	writerSize     = 8 + maxWriterName
	journalRings   = 4096
	journalSize    = journalRings + 2*wire.TerminalRing
)

func (j *journal) close() {
	if j != nil {
		j.f.Close()
	}
}

// out and err take what was written, by one goroutine each.
func (j *journal) out() func([]byte) { return j.ring(0) }
func (j *journal) err() func([]byte) { return j.ring(1) }

func (j *journal) ring(n int) func([]byte) {
	if j == nil {
		return func([]byte) {}
	}
	next := j.number(int64(8 * n))
	return func(b []byte) {
		at := next % wire.TerminalRing
		base := int64(journalRings + n*wire.TerminalRing)
		first := min(int64(len(b)), wire.TerminalRing-at)
		j.put(b[:first], base+at)
		j.put(b[first:], base)
		next += int64(len(b))
		j.put(binary.LittleEndian.AppendUint64(nil, uint64(next)), int64(8*n))
	}
}

// put writes to memory, which fails only for want of it: then the next process
// finds less than there was.
func (j *journal) put(b []byte, at int64) {
	if len(b) > 0 {
		_, _ = j.f.WriteAt(b, at)
	}
}

func (j *journal) number(at int64) int64 {
	var b [8]byte
	if _, err := j.f.ReadAt(b[:], at); err != nil {
		return 0
	}
	return max(int64(binary.LittleEndian.Uint64(b[:])), 0)
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
	next := j.number(int64(8 * n))
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
		b := make([]byte, writerSize)
		if _, err := io.ReadFull(io.NewSectionReader(j.f, journalWriters+int64(slot)*writerSize, writerSize), b); err != nil {
			break
		}
		name, next := string(bytes.TrimRight(b[8:], "\x00")), int64(binary.LittleEndian.Uint64(b))
		if name == "" || next < 0 {
			break // slots are taken in order
		}
		all[name] = &writer{next: next, used: time.Now(), slot: slot}
	}
	return all
}
