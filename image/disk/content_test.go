package disk

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"farhand/internal/testenv"
)

// A zero within a file is written: a card that held something else would show
// it there. The free space of a FAT isn't.
func TestContent(t *testing.T) {
	_, err := exec.LookPath("mkfs.vfat")
	testenv.Need(t, "mkfs.vfat", err == nil, "dosfstools makes a partition")
	_, err = exec.LookPath("mcopy")
	testenv.Need(t, "mcopy", err == nil, "mtools fills a partition")
	dir := t.TempDir()
	system := filepath.Join(dir, "system")
	content := append(append([]byte("begin"), make([]byte, 600<<10)...), "end"...)
	tree := filepath.Join(dir, "tree")
	boot := filepath.Join(dir, "boot")
	for _, err := range []error{
		os.WriteFile(system, content, 0o600), os.Mkdir(tree, 0o700),
		os.WriteFile(filepath.Join(tree, "zeros"), make([]byte, 300<<10), 0o600),
		MakeFAT(t.Context(), FAT{Bits: 16, Label: "FARBOOT", Size: 16 * mib, Tree: tree, Epoch: time.Unix(1_800_000_000, 0)}, boot),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	plan := Plan{Signature: 1, Partitions: []Partition{
		{Number: 2, Type: 0x0c, Size: 16 * mib, From: boot}, {Number: 3, Type: 0x0c, Size: 16 * mib, From: boot},
		{Number: 5, Type: 0x83, Size: 2 * mib, From: system}, {Number: 6, Type: 0x83, Size: 2 * mib, From: system}, {Number: 7, Type: 0x83, Size: 3 * mib, Blank: mib},
	}}
	all, err := plan.Content()
	if err != nil {
		t.Fatal(err)
	}
	spans, size, err := plan.Spans()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "card")
	if err := Write(plan, path); err != nil {
		t.Fatal(err)
	}
	card, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	// A card that held something else, with the content over it.
	old := bytes.Repeat([]byte{0xee}, int(size))
	last := int64(-1)
	for _, x := range all {
		if x.Start%Block != 0 || x.Length%Block != 0 || x.Start <= last {
			t.Errorf("%+v isn't in order or not in blocks", x)
		}
		last = x.Start + x.Length
		copy(old[x.Start:last], card[x.Start:last])
	}
	for _, s := range spans {
		switch s.Number {
		case 5, 6:
			if !bytes.Equal(old[s.Start:][:len(content)], content) {
				t.Errorf("partition %d isn't what went into it", s.Number)
			}
		case 7:
			if !bytes.Equal(old[s.Start:][:mib], make([]byte, mib)) {
				t.Error("the data partition doesn't begin with zeros")
			}
		}
	}
	if n := bytes.Count(old[spans[0].Start:][:spans[0].Size], []byte{0xee}); n < 12*mib {
		t.Errorf("only %d bytes of a nearly empty FAT are left out", n)
	}
	copies, err := plan.Copies()
	if err != nil || len(copies) != 2 {
		t.Fatalf("copies: %+v, %v", copies, err)
	}
	for _, c := range copies {
		if !bytes.Equal(card[c.Start:c.Start+c.Length], card[c.Of:c.Of+c.Length]) {
			t.Errorf("%+v: not the same", c)
		}
	}
}
