package card

import (
	"bytes"
	"encoding/binary"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"farhand/e2e/boot/writelog"
	"farhand/image/initramfs/table"
	"farhand/internal/testenv"
)

const mib = 1 << 20

// entry puts a partition into a table, in sectors.
func entry(b []byte, n int, kind byte, start, size uint32) {
	e := b[446+16*n:]
	e[4] = kind
	binary.LittleEndian.PutUint32(e[8:], start)
	binary.LittleEndian.PutUint32(e[12:], size)
	b[510], b[511] = 0x55, 0xaa
}

// image is a disk of 16 MiB: FAT of 4 MiB at 1 MiB, logical partitions of 2 MiB.
func image(t *testing.T) string {
	t.Helper()
	b := make([]byte, 16*mib)
	entry(b, 0, 0x0c, 2048, 8192)
	entry(b, 3, 0x0f, 16384, 16384)
	entry(b[8*mib:], 0, 0x83, 2048, 4096)
	entry(b[8*mib:], 1, 0x05, 8192, 8192)
	entry(b[12*mib:], 0, 0x83, 2048, 6144)
	copy(b[13*mib:], "data")
	path := filepath.Join(t.TempDir(), "image")
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func need(t *testing.T, pkg, program string) {
	t.Helper()
	_, err := exec.LookPath(program)
	testenv.Need(t, pkg, err == nil, program+" is not installed")
}

func TestTable(t *testing.T) {
	c, err := Open(image(t), 32*mib)
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]Partition{
		1: {0x0c, 1 * mib, 4 * mib}, 4: {0x0f, 8 * mib, 8 * mib},
		5: {0x83, 9 * mib, 2 * mib}, 6: {0x83, 13 * mib, 3 * mib},
	}
	if len(c.Partitions) != len(want) {
		t.Errorf("the partitions are %v", c.Partitions)
	}
	for n, p := range want {
		if c.Partitions[n] != p {
			t.Errorf("partition %d is %v", n, c.Partitions[n])
		}
	}
	out := filepath.Join(t.TempDir(), "part")
	if err := c.Extract(t.Context(), 6, out); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(out); err != nil || len(b) != 3*mib || !bytes.HasPrefix(b, []byte("data")) {
		t.Errorf("partition 6 has %d bytes, %.8q, %v", len(b), b, err)
	}
	if err := c.Extract(t.Context(), 2, out); err == nil {
		t.Error("a partition that isn't there was copied")
	}
}

func TestTableRefused(t *testing.T) {
	b := make([]byte, 2*mib)
	if _, err := partitions(bytes.NewReader(b)); err == nil {
		t.Error("zeros are a table")
	}
	entry(b, 0, 0x0f, 8, 16)
	entry(b[8*table.Sector:], 1, 0x05, 0, 16) // the next record is the first
	if _, err := partitions(bytes.NewReader(b)); err == nil {
		t.Error("a circle of records ends")
	}
	if _, err := Open(image(t), mib); err == nil {
		t.Error("an image fits on a card that is smaller")
	}
}

func TestFiles(t *testing.T) {
	need(t, "mtools", "mcopy")
	c, err := Open(image(t), 16*mib)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := mtools(t.Context(), "mformat", "-i", c.Path+"@@1M", "-T", "8192"); err != nil {
		t.Fatal(err)
	}
	empty, err := c.Files(t.Context(), 1, filepath.Join(t.TempDir(), "empty"))
	if err != nil {
		t.Fatal(err)
	}
	if all, err := fs.ReadDir(empty, "."); err != nil || len(all) != 0 {
		t.Errorf("an empty file system has %v, %v", all, err)
	}
	if err := c.Put(t.Context(), 1, "PAIR.TXT", []byte("code")); err != nil {
		t.Fatal(err)
	}
	some, err := c.Files(t.Context(), 1, filepath.Join(t.TempDir(), "some"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := fs.ReadFile(some, "PAIR.TXT"); err != nil || string(b) != "code" {
		t.Errorf("the file has %q, %v", b, err)
	}
}

// What a board writes is seen while it is on, and is on the card when it is off.
func TestInserted(t *testing.T) {
	need(t, "qemu-utils", "qemu-io")
	c, err := Open(image(t), 16*mib)
	if err != nil {
		t.Fatal(err)
	}
	write := func(i *Inserted, commands ...string) {
		t.Helper()
		args := []string{"--image-opts", i.Drive()}
		for _, c := range commands {
			args = append(args, "-c", c)
		}
		if out, err := exec.CommandContext(t.Context(), "qemu-io", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	content := func(extract func(path string) error) string {
		t.Helper()
		path := filepath.Join(t.TempDir(), "part")
		if err := extract(path); err != nil {
			t.Fatal(err)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:2]) + string(b[512:514])
	}
	onCard := func(path string) error { return c.Extract(t.Context(), 6, path) }
	i, err := c.Insert(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if n, err := i.Events(); n != 0 || err != nil {
		t.Errorf("before the first write there are %d, %v", n, err)
	}
	write(i, "write -P 0x61 13M 512", "flush", "write -P 0x62 13632000 512")
	now := content(func(path string) error { return i.Extract(t.Context(), 6, Everything, path) })
	if before := content(onCard); now != "aabb" || before != "da\x00\x00" {
		t.Errorf("while the board is on the card has %q and is to have %q", before, now)
	}
	lost := func(l *writelog.Log) []writelog.Write {
		return l.Cut(2, rand.New(rand.NewPCG(1, 1))) // the first write and the flush
	}
	if err := i.Eject(lost); err != nil {
		t.Fatal(err)
	}
	if after := content(onCard); after != "aa\x00\x00" {
		t.Errorf("after a power cut the card has %q", after)
	}
	if i, err = c.Insert(t.Context(), t.TempDir()); err != nil {
		t.Fatal(err)
	}
	write(i, "write -P 0x63 13632000 512")
	if err := i.Eject(Everything); err != nil {
		t.Fatal(err)
	}
	if after := content(onCard); after != "aacc" {
		t.Errorf("after an orderly end the card has %q", after)
	}
}
