package flash

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/internal/testenv"
)

// kernel is a tree like the kernel's of a machine with a system disk, a card, a
// reader without one, and a disk below an encrypted one.
func kernel(t *testing.T) system {
	t.Helper()
	root := t.TempDir()
	s := system{filepath.Join(root, "sys"), filepath.Join(root, "proc")}
	file := func(path, text string) {
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(text+"\n"), 0o644))
	}
	disk := func(name, number, size string, more map[string]string) {
		dir := filepath.Join(s.sys, "devices", name)
		file(filepath.Join(dir, "dev"), number)
		file(filepath.Join(dir, "size"), size)
		file(filepath.Join(dir, "ro"), "0")
		file(filepath.Join(dir, "removable"), "0")
		for n, text := range more {
			file(filepath.Join(dir, n), text)
		}
		must(t, os.MkdirAll(filepath.Join(s.sys, "dev/block"), 0o755))
		must(t, os.Symlink("../../devices/"+name, filepath.Join(s.sys, "dev/block", number)))
	}
	disk("sda", "8:0", "1000", map[string]string{"sda1/partition": "1", "sda1/dev": "8:1"})
	disk("sdb", "8:16", "62333952", map[string]string{"removable": "1", "device/vendor": "SanDisk ", "device/model": "Ultra  USB", "sdb1/partition": "1", "sdb1/dev": "8:17"})
	must(t, os.Symlink("../../devices/sdb/sdb1", filepath.Join(s.sys, "dev/block/8:17")))
	disk("sdc", "8:32", "0", map[string]string{"removable": "1"})
	disk("sdd", "8:48", "1000", map[string]string{"sdd2/partition": "2", "sdd2/dev": "8:50", "sdd2/holders/dm-0/x": ""})
	disk("sde", "8:64", "1000", map[string]string{"sde1/partition": "1", "sde1/dev": "8:65"})
	disk("sdf", "8:80", "1000", map[string]string{"ro": "1"})
	disk("sdg", "8:96", "1000", map[string]string{"sdg1/partition": "1", "sdg1/dev": "8:97"})
	disk("mmcblk0", "179:0", "15333376", map[string]string{"device/name": "SC16G"})
	file(filepath.Join(s.proc, "self/mountinfo"), `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:20 / /proc rw - proc proc rw
25 22 0:45 / /containers rw - overlay overlay rw,lowerdir=`+strings.Repeat("/layer:", 20_000)+`
24 22 0:44 / /srv rw - btrfs /dev/sdg1 rw`)
	file(filepath.Join(s.proc, "swaps"), "Filename\tType\tSize\tUsed\tPriority\n/dev/sde1 partition 100 0 -2")
	return s
}

func TestDisks(t *testing.T) {
	s := kernel(t)
	card, err := s.disk("/dev/sdb", "8:16")
	if want := (Target{"/dev/sdb", true, true, 62333952 * 512, "SanDisk Ultra USB", true}); err != nil || card != want {
		t.Errorf("a card: %+v, %v", card, err)
	}
	card, err = s.disk("/dev/mmcblk0", "179:0")
	if err != nil || !card.Removable || card.Model != "SC16G" {
		t.Errorf("a card in a slot: %+v, %v", card, err)
	}
	for number, want := range map[string]string{
		"8:0": "sda1 is mounted at /", "8:17": "the whole disk, /dev/sdb", "8:32": "holds no card", "8:48": "sdd2 belongs to dm-0",
		"8:64": "sde1 is swap space", "8:80": "read-only", "8:96": "sdg1 is mounted at /srv", "9:9": "no such file",
	} {
		if _, err := s.disk("/dev/x", number); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", number, err, want)
		}
	}
}

// loop makes a real block device of a file.
func loop(t *testing.T, size int64) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "backing")
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Truncate(file, size))
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "losetup", "--find", "--show", file).CombinedOutput()
	testenv.Need(t, "loop", err == nil, "a loop device, as root: "+strings.TrimSpace(string(out)))
	dev := strings.TrimSpace(string(out))
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if out, err := exec.CommandContext(ctx, "losetup", "--detach", dev).CombinedOutput(); err != nil {
			t.Errorf("losetup --detach %s: %v: %s", dev, err, out)
		}
	})
	return dev
}

func TestBlockDevice(t *testing.T) {
	i := build(t)
	dev := loop(t, 64*mib)
	where, err := InspectTarget(dev)
	must(t, err)
	if !where.Device || where.Size != 64*mib {
		t.Errorf("%+v", where)
	}
	old, err := os.OpenFile(dev, os.O_RDWR, 0)
	must(t, err)
	_, err = old.WriteAt(bytes.Repeat([]byte{0xee}, 40*mib), 0)
	must(t, err)
	must(t, old.Close())
	r, err := write(t.Context(), t, i.packed, "", dev, settings(), nil)
	must(t, err)
	if r.Size != int64(len(i.bytes)) || r.Written >= r.Size {
		t.Errorf("%+v", r)
	}
	i.check(t, dev, settings())
}

// A device that is too small keeps what it has.
func TestTooSmall(t *testing.T) {
	i := build(t)
	dev := loop(t, 8*mib)
	must(t, os.WriteFile(dev, bytes.Repeat([]byte{0xee}, mib), 0))
	_, err := write(t.Context(), t, i.packed, "", dev, settings(), nil)
	if err == nil || !strings.Contains(err.Error(), "use a larger one") {
		t.Fatalf("it says %v", err)
	}
	f, err := os.Open(dev)
	must(t, err)
	defer f.Close()
	b := make([]byte, mib)
	if _, err := f.ReadAt(b, 0); err != nil || !bytes.Equal(b, bytes.Repeat([]byte{0xee}, mib)) {
		t.Errorf("what it had is gone: %v", err)
	}
	// Where nothing says how large the image is, it shows at the end.
	alone := filepath.Join(t.TempDir(), "alone.img.xz")
	must(t, os.Link(i.packed, alone))
	if _, err := write(t.Context(), t, alone, "", dev, nil, nil); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("it says %v", err)
	}
}

// While a card is written nobody else has it.
func TestExclusive(t *testing.T) {
	dev := loop(t, 8*mib)
	where, err := InspectTarget(dev)
	must(t, err)
	f, err := OpenTarget(where)
	must(t, err)
	defer f.Close()
	if g, err := OpenTarget(where); err == nil {
		g.Close()
		t.Error("a second one opens it")
	} else if !strings.Contains(err.Error(), unix.EBUSY.Error()) {
		t.Error(err)
	}
}
