// Package check reads a finished image back and says what is wrong with it: a
// partition that isn't where an updater will look for it, slots that differ, a
// file that a board needs to boot, or something that no two cards may share. It
// mounts nothing; the system's tree is listed by unsquashfs.
package check

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"farhand/image/fat"
	"farhand/image/initramfs/table"
	"farhand/image/layout"
)

const (
	mib = 1 << 20
	// MaxSlot is the most that a partition with a copy may have: so a decoder
	// that may use 1 GiB has room for a dictionary that reaches the copy.
	MaxSlot = 448 * mib
)

// card is an image that is being checked.
type card struct {
	path  string
	f     *os.File
	kind  Kind
	parts map[int]table.Partition
	wrong []error
}

// Kind is what an image is for.
type Kind struct {
	guid bool // it has a GUID partition table
	// types are those of the partitions, as an MBR has them.
	types map[int]byte
	// first and boot check the first partition and slot A's boot partition; B's is
	// the same.
	first, boot func(*card, *fat.Volume)
}

// Pi is Raspberry Pis.
func Pi() Kind {
	return Kind{first: (*card).autoboot, boot: (*card).piBoot, types: map[int]byte{
		layout.Autoboot: table.FAT, layout.BootA: table.FAT, layout.BootB: table.FAT, 4: 0x0f,
		layout.SystemA: table.Linux, layout.SystemB: table.Linux, layout.Data: table.Linux,
	}}
}

func (c *card) fail(format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Errorf(format, args...))
}

// File checks the image of a card. The error joins everything that is wrong.
func File(ctx context.Context, path string, kind Kind) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	t, err := table.Read(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	c := &card{path: path, f: f, kind: kind, parts: make(map[int]table.Partition)}
	for _, p := range t.Partitions {
		c.parts[p.Number] = p
	}
	if t.Signature != layout.Signature {
		c.fail("the disk's signature is %#x, not %#x, by which the initramfs finds it", t.Signature, uint32(layout.Signature))
	}
	if t.GUID() != kind.guid {
		c.fail("it has a GUID partition table: %t, which is wrong", t.GUID())
	}
	if c.places(); len(c.wrong) > 0 {
		return errors.Join(c.wrong...)
	}
	for _, one := range []func(context.Context){c.slots, c.first, c.boot, c.data, c.system, c.secrets} {
		one(ctx)
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(c.wrong...)
}

// places checks that the partitions are what and where they must be.
func (c *card) places() {
	gap := int64(mib) // between two logical partitions of an MBR: the second's record
	if c.kind.guid {
		gap = 0
	}
	for n, kind := range c.kind.types {
		if p, ok := c.parts[n]; !ok || p.Type != kind {
			c.fail("partition %d is of type %#x, not %#x", n, p.Type, kind)
		}
	}
	if len(c.parts) != len(c.kind.types) {
		c.fail("there are %d partitions, not %d", len(c.parts), len(c.kind.types))
	}
	for _, pair := range [][3]int64{{layout.BootA, layout.BootB, 0}, {layout.SystemA, layout.SystemB, gap}} {
		a, b := c.parts[int(pair[0])], c.parts[int(pair[1])]
		if a.Size != b.Size || b.Start != a.Start+a.Size+pair[2]/table.Sector {
			c.fail("partitions %d and %d are not of one size and next to each other", a.Number, b.Number)
		}
		if a.Size*table.Sector > MaxSlot {
			c.fail("partition %d has %d MiB, more than %d", a.Number, a.Size*table.Sector/mib, MaxSlot/mib)
		}
	}
}

func (c *card) part(n int) *io.SectionReader {
	p := c.parts[n]
	return io.NewSectionReader(c.f, p.Start*table.Sector, p.Size*table.Sector)
}

// slots checks that B is A (field case 59: an old bootloader takes B).
func (c *card) slots(ctx context.Context) {
	for _, pair := range [][2]int{{layout.BootA, layout.BootB}, {layout.SystemA, layout.SystemB}} {
		a, b := c.part(pair[0]), c.part(pair[1])
		x, y := make([]byte, mib), make([]byte, mib)
		for at := int64(0); at < a.Size() && ctx.Err() == nil; at += mib {
			n, err := a.ReadAt(x, at)
			m, err2 := b.ReadAt(y, at)
			if n != m || !bytes.Equal(x[:n], y[:m]) || n == 0 {
				c.fail("partitions %d and %d differ in the MiB at %d: %w", pair[0], pair[1], at, errors.Join(err, err2))
				break
			}
		}
	}
}

// data checks that the initramfs will find nothing where it makes the file
// system, also on a card that held one; or one that it knows for the image's.
func (c *card) data(context.Context) {
	b := make([]byte, mib)
	_, err := c.part(layout.Data).ReadAt(b, 0)
	if err != nil || !bytes.Equal(b, make([]byte, mib)) && !given(b) {
		c.fail("partition %d begins neither with 1 MiB of zeros nor with a file system called %s", layout.Data, layout.GivenDataLabel)
	}
}

// given says whether an ext4 file system came with the image: its superblock at
// byte 1024 has the magic number 56 bytes in, and the label of 16 bytes at 120
// (fs/ext4/ext4.h).
func given(b []byte) bool {
	label, _, _ := bytes.Cut(b[1024+120:1024+136], []byte{0})
	return b[1024+56] == 0x53 && b[1024+57] == 0xef && string(label) == layout.GivenDataLabel
}

// readOnly is a partition as a FAT's storage.
type readOnly struct{ *io.SectionReader }

func (readOnly) WriteAt([]byte, int64) (int, error) { return 0, errors.ErrUnsupported }

func (c *card) fat(n int, label string) *fat.Volume {
	v, err := fat.Open(readOnly{c.part(n)}, c.part(n).Size())
	if err != nil {
		c.fail("partition %d: %w", n, err)
		return nil
	}
	if v.Label() != label {
		c.fail("partition %d is called %q, not %q", n, v.Label(), label)
	}
	return v
}
