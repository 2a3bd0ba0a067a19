package card

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"

	"farhand/e2e/boot/writelog"
)

// Inserted is a card in a board that is on, or was until just now.
type Inserted struct {
	card         *Card
	overlay, log string
}

// Insert puts the card into a board. The card itself doesn't change before
// Eject. dir is for files of that time.
func (c *Card) Insert(ctx context.Context, dir string) (*Inserted, error) {
	i := &Inserted{card: c, overlay: filepath.Join(dir, "overlay.qcow2"), log: filepath.Join(dir, "writes.log")}
	base, err := filepath.Abs(c.Path)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, i.overlay)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("qemu-img (of Debian's qemu-utils): %w: %s", err, errs.String())
	}
	return i, os.WriteFile(i.log, nil, 0o600)
}

// Drive is QEMU's option -drive for it, to which the caller adds how it is
// wired (if=). Flushes aren't passed on to the host's disk: that the log tells
// of them is enough.
func (i *Inserted) Drive() string {
	return fmt.Sprintf("driver=blklogwrites,file.driver=qcow2,file.file.driver=file,file.file.filename=%s,file.cache.no-flush=on,"+
		"log.driver=file,log.filename=%s,log.cache.no-flush=on,log-super-update-interval=1", i.overlay, i.log)
}

// withLog calls f with what was written so far.
func (i *Inserted) withLog(f func(*writelog.Log) error) error {
	file, err := os.Open(i.log)
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	l, err := writelog.Read(file, info.Size())
	if err != nil {
		return err
	}
	return f(l)
}

// Choice is which writes the card is to get.
type Choice func(*writelog.Log) []writelog.Write

// Everything is what a card holds after an orderly end, or a reset.
func Everything(l *writelog.Log) []writelog.Write { return l.All() }

// Eject makes the chosen writes on the card, once the board is off, and drops
// the rest.
func (i *Inserted) Eject(choose Choice) error {
	f, err := os.OpenFile(i.card.Path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	err = i.withLog(func(l *writelog.Log) error {
		return l.Apply(writelog.File{File: f}, choose(l), 0, info.Size())
	})
	if err := errors.Join(err, f.Close(), os.Remove(i.log), os.Remove(i.overlay)); err != nil {
		return err
	}
	return i.card.Reread()
}

// Events is how many writes and flushes there were so far.
func (i *Inserted) Events() (n int, err error) {
	err = i.withLog(func(l *writelog.Log) error { n = l.Len(); return nil })
	return n, err
}

// Extract copies a partition, as it would be with the chosen writes, into a file
// of its own. The partition is the one that the card has without them, unless
// the writes change the table: then it is as large as there.
func (i *Inserted) Extract(ctx context.Context, number int, choose Choice, path string) error {
	return i.withLog(func(l *writelog.Log) error {
		writes := choose(l)
		p, err := i.now(l, writes, number)
		if err != nil {
			return err
		}
		now := &Card{Path: i.card.Path, Partitions: map[int]Partition{number: p}}
		if err := now.Extract(ctx, number, path); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := l.Apply(writelog.File{File: f}, writes, p.Offset, p.Offset+p.Size); err != nil {
			return err
		}
		return f.Close()
	})
}

// now is a partition with the writes made.
func (i *Inserted) now(l *writelog.Log, writes []writelog.Write, number int) (Partition, error) {
	f, err := os.Open(i.card.Path)
	if err != nil {
		return Partition{}, err
	}
	defer f.Close()
	all, err := partitions(&patched{base: f, log: l, writes: writes})
	if err != nil {
		return Partition{}, err
	}
	p, ok := all[number]
	if !ok {
		return p, fmt.Errorf("there is no partition %d", number)
	}
	return p, nil
}

// patched reads a disk with writes made on it.
type patched struct {
	base   *os.File
	log    *writelog.Log
	writes []writelog.Write
}

func (p *patched) ReadAt(b []byte, at int64) (int, error) {
	n, err := p.base.ReadAt(b, at)
	if err != nil {
		return n, err
	}
	return n, p.log.Apply(memory(b), p.writes, at, at+int64(len(b)))
}

// memory is a disk.
type memory []byte

func (m memory) WriteAt(p []byte, at int64) (int, error) { return copy(m[at:], p), nil }
func (m memory) Zero(at, n int64) error                  { clear(m[at : at+n]); return nil }

// Files copies what is on a FAT partition, with every write until now, into dir
// and shows it.
func (i *Inserted) Files(ctx context.Context, number int, dir string) (fs.FS, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	image := filepath.Join(dir, "partition")
	if err := i.Extract(ctx, number, Everything, image); err != nil {
		return nil, err
	}
	return files(ctx, image, filepath.Join(dir, "files"))
}
