package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"farhand/image/layout"
	"farhand/image/root"
	"farhand/internal/testenv"
)

// What commands can't fill is the group's that the daemon has.
func TestReserveIsTheDaemons(t *testing.T) {
	if want := fmt.Sprintf(",resgid=%d", root.FarhandID); !strings.Contains(dataOptions, want) {
		t.Errorf("%s lacks %s", dataOptions, want)
	}
}

func TestSlot(t *testing.T) {
	for name, c := range map[string]struct {
		partition uint32
		want      slot
	}{
		"a":         {2, slot{Name: "a", System: 5, Boot: 2, Source: "bootloader", Mode: 1}},
		"b":         {3, slot{Name: "b", System: 6, Boot: 3, Source: "bootloader", Mode: 1}},
		"says none": {0, slot{Name: "a", System: 5, Boot: 2, Source: "default", Mode: 1}},
		"another's": {7, slot{Name: "a", System: 5, Boot: 2, Source: "default", Mode: 1}},
	} {
		tree := t.TempDir()
		dir := filepath.Join(tree, "chosen/bootloader")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for file, n := range map[string]uint32{"partition": c.partition, "boot-mode": modeSD} {
			if err := os.WriteFile(filepath.Join(dir, file), binary.BigEndian.AppendUint32(nil, n), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got := readSlot(tree); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	if got := readSlot(t.TempDir()); got.Name != "a" || got.Source != "default" {
		t.Errorf("no device tree: %+v", got)
	}
}

func TestPartitionNames(t *testing.T) {
	for disk, want := range map[string]string{"/dev/mmcblk0": "/dev/mmcblk0p7", "/dev/nvme0n1": "/dev/nvme0n1p7", "/dev/sda": "/dev/sda7", "/dev/vda": "/dev/vda7"} {
		if got := partition(disk, 7); got != want {
			t.Errorf("%s is %s", want, got)
		}
	}
	if order("sda", modeUSB) >= order("mmcblk0", modeUSB) || order("mmcblk0", 0) >= order("sda", 0) {
		t.Error("the disk that the firmware started from comes second")
	}
}

// The data file system is made on what the image has, finished where it was
// begun, mended where it was made, and never put over anything else.
func TestPrepare(t *testing.T) {
	_, err := exec.LookPath("/usr/sbin/mke2fs")
	testenv.Need(t, "e2fsprogs", err == nil, "no mke2fs")
	device := filepath.Join(t.TempDir(), "data")
	blank := func() {
		t.Helper()
		if err := os.WriteFile(device, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(device, 64<<20); err != nil {
			t.Fatal(err)
		}
	}
	patch := func(at int64, b []byte) {
		t.Helper()
		f, err := os.OpenFile(device, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	head := func() []byte {
		t.Helper()
		b, err := os.ReadFile(device)
		if err != nil {
			t.Fatal(err)
		}
		return b[:lookAt]
	}
	uuid := func() string { return string(head()[superblock+104 : superblock+120]) }

	blank()
	if err := prepare(device); err != nil {
		t.Fatal(err)
	}
	if label := head()[labelAt : labelAt+8]; string(label) != "fardata\x00" {
		t.Errorf("it is called %q", label)
	}
	made := uuid()
	if err := prepare(device); err != nil || uuid() != made {
		t.Errorf("the second start makes another: %v", err)
	}
	// The power went before it had its name.
	if err := run("/usr/sbin/tune2fs", "-L", "farnew", device); err != nil {
		t.Fatal(err)
	}
	if err := prepare(device); err != nil || uuid() == made {
		t.Errorf("what was begun isn't made anew: %v", err)
	}
	// The power went before it had a superblock, when the rest was there.
	made = uuid()
	patch(superblock, make([]byte, 1024))
	patch(64<<20-layout.BegunBack, []byte(layout.Begun))
	if err := prepare(device); err != nil || uuid() == made {
		t.Errorf("what was begun and has no superblock isn't made anew: %v", err)
	}
	// A superblock that is gone: the copies bring it back, also if they are from
	// before it had its name.
	if err := run("/usr/sbin/tune2fs", "-L", "farnew", device); err != nil {
		t.Fatal(err)
	}
	made = uuid()
	patch(labelAt, []byte("fardata")) // and the checksum is still another's
	if err := prepare(device); err != nil || uuid() != made || string(head()[labelAt:labelAt+8]) != "fardata\x00" {
		t.Errorf("half a superblock: %v, it is called %q", err, head()[labelAt:labelAt+8])
	}
	made = uuid()
	patch(superblock, make([]byte, 1024))
	patch(0, []byte("not blank"))
	if err := prepare(device); err != nil {
		t.Errorf("a damaged one isn't mended: %v", err)
	}
	if uuid() != made {
		t.Error("a damaged one is replaced")
	}
	// One that came with the image becomes this machine's, with what is in it; after
	// a power cut it is finished.
	if out, err := exec.CommandContext(t.Context(), "/usr/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-b", "4096", "-O", "metadata_csum_seed", "-L", "fargiven", "-d", ".", device).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for range 2 {
		made = uuid()
		if err := prepare(device); err != nil || uuid() == made || labelled(head()) != "fardata" {
			t.Errorf("one that came with the image is called %q, %v", labelled(head()), err)
		}
		if out, err := exec.CommandContext(t.Context(), "/usr/sbin/debugfs", "-R", "stat doc.go", device).CombinedOutput(); err != nil || !bytes.Contains(out, []byte("Type: regular")) {
			t.Errorf("what was in it is gone: %v: %s", err, out)
		}
		if err := run("/usr/sbin/tune2fs", "-L", "fargiven", device); err != nil {
			t.Fatal(err)
		}
	}
	// Something else altogether.
	blank()
	other := bytes.Repeat([]byte("somebody's "), 9000)
	patch(0, other)
	if err := prepare(device); err == nil {
		t.Error("what isn't ours is taken for ours")
	}
	if !bytes.Equal(head(), other[:lookAt]) {
		t.Error("what isn't ours is written over")
	}
}

// Whatever the card's size, mke2fs leaves the mark.
func TestMarkStays(t *testing.T) {
	_, err := exec.LookPath("/usr/sbin/mke2fs")
	testenv.Need(t, "e2fsprogs", err == nil, "no mke2fs")
	for _, size := range []int64{64 << 20, 900<<20 + 512, 1<<30 + 127<<20 + 4096, 3<<30 - 512, 13_870 << 20, 28_400<<20 + 3584, 57_000 << 20} {
		device := filepath.Join(t.TempDir(), "data")
		if err := os.WriteFile(device, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(device, size); err != nil {
			t.Fatal(err)
		}
		if err := mark(device, []byte(layout.Begun)); err != nil {
			t.Fatal(err)
		}
		if err := makeData(device); err != nil {
			t.Fatal(err)
		}
		if begun, err := isBegun(device); !begun || err != nil {
			t.Errorf("of %d bytes: the mark is gone (%v)", size, err)
		}
	}
}

func TestStore(t *testing.T) {
	at := filepath.Join(t.TempDir(), "x")
	if err := store(at, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at+".new", []byte("half of what was to come"), 0o600); err != nil { // a power cut's
		t.Fatal(err)
	}
	if err := store(at, []byte("2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(at); err != nil || string(b) != "2" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestFloor(t *testing.T) {
	name := filepath.Join(t.TempDir(), "clock")
	if err := os.WriteFile(name, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kept := time.Unix(1800000000, 0)
	if err := os.Chtimes(name, kept, kept); err != nil {
		t.Fatal(err)
	}
	if got, stands := floor("1790000000\n", name, name+".none"); !got.Equal(kept) || stands != "saved" {
		t.Errorf("the clock begins at %v (%s), it stood at %v", got, stands, kept)
	}
	if got, stands := floor("1900000000", name); got.Unix() != 1900000000 || stands != "floor" {
		t.Errorf("the clock begins at %v (%s), before the image was built", got, stands)
	}
	if got, _ := floor("?", name+".none"); !got.IsZero() {
		t.Errorf("of nothing it begins at %v", got)
	}
}
