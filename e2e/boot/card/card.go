// Package card is an SD card in a sparse file, for an emulated board. While a
// board is on, every write that it makes goes to a log and nothing reaches the
// card; when it goes off the card gets what a real one would hold then. So a
// power cut is more than a killed emulator: what was not flushed may be lost, in
// part or out of order. The files on its FAT partitions are read by mtools.
package card

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Card is one card. It isn't safe for concurrent use.
type Card struct {
	Path       string
	Partitions map[int]Partition // by number; as the image has them, until Reread
}

// Open takes a file for a card of that size, in bytes: what is missing to it is
// zeros.
func Open(path string, size int64) (*Card, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > size {
		return nil, fmt.Errorf("%s has %d bytes, the card only %d", path, info.Size(), size)
	}
	if info.Size() < size {
		if err := os.Truncate(path, size); err != nil {
			return nil, err
		}
	}
	c := &Card{Path: path}
	return c, c.Reread()
}

// Reread reads the partition table again.
func (c *Card) Reread() (err error) {
	f, err := os.Open(c.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	c.Partitions, err = partitions(f)
	if err != nil {
		return fmt.Errorf("%s: %w", c.Path, err)
	}
	return nil
}

// Extract copies a partition into a file of its own.
func (c *Card) Extract(ctx context.Context, number int, path string) error {
	p, err := c.Partition(number)
	if err != nil {
		return err
	}
	from, err := os.Open(c.Path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer to.Close()
	if err := sparse(ctx, from, p.Offset, p.Size, to); err != nil {
		return fmt.Errorf("copying partition %d: %w", number, err)
	}
	return errors.Join(to.Truncate(p.Size), to.Close())
}

// Wipe makes a partition one of zeros.
func (c *Card) Wipe(number int) error {
	p, err := c.Partition(number)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(c.Path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	// A hole is zeros.
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, p.Offset, p.Size)
	return errors.Join(err, f.Close())
}

// Partition is the one of that number.
func (c *Card) Partition(number int) (Partition, error) {
	p, ok := c.Partitions[number]
	if !ok {
		return p, fmt.Errorf("%s has no partition %d", filepath.Base(c.Path), number)
	}
	return p, nil
}

// sparse copies length bytes at offset of from to the beginning of to, but for
// holes.
func sparse(ctx context.Context, from *os.File, offset, length int64, to *os.File) error {
	end := offset + length
	for at := offset; at < end; {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		data, err := from.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil // a hole up to the end
		} else if err != nil {
			return err
		}
		if data >= end {
			return nil
		}
		hole, err := from.Seek(data, unix.SEEK_HOLE)
		if err != nil {
			return err
		}
		at = min(hole, end)
		if _, err := io.Copy(io.NewOffsetWriter(to, data-offset), io.NewSectionReader(from, data, at-data)); err != nil {
			return err
		}
	}
	return nil
}
