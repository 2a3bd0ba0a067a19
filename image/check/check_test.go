package check

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"farhand/image/disk"
	"farhand/image/fat"
	"farhand/image/layout"
	"farhand/internal/testenv"
)

var epoch = time.Unix(1_790_000_000, 0)

const boot, system = 36 * mib, 2 * mib

// tree is files by name.
type tree map[string]string

func (f tree) write(t *testing.T, dir string) string {
	t.Helper()
	for name, text := range f {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func first() tree {
	return tree{
		"autoboot.txt": "[all]\ntryboot_a_b=1\nboot_partition=2\n[tryboot]\nboot_partition=3\n", "bootcode.bin": "x",
		"farhand.toml": "# claim_key = \"\"\n", "README.TXT": "x",
	}
}

const config = "arm_64bit=1\nkernel=kernel8.img\nupstream_kernel=1\ninclude farhand-hw.txt\n[cm5]\ndevice_tree=bcm2712-rpi-5-b.dtb\n"

func slot() tree {
	f := tree{"config.txt": config, "tryboot.txt": config, "cmdline.txt": "quiet\n", "kernel8.img": "x", "initrd.img": "x", "farhand-hw.txt": ""}
	for _, b := range boards() {
		for _, name := range append(b.files, b.trees...) {
			if b.name != "CM5" {
				f[name] = "x"
			}
		}
	}
	return f
}

func root() tree {
	return tree{
		"etc/machine-id": "", "etc/ssh/sshd_config": "x", "usr/bin/farhandd": "begins with fh_ck_ and -----BEGIN PRIVATE KEY-----\n",
		"usr/lib/systemd/systemd-random-seed": "x",
	}
}

func needTools(t *testing.T) {
	t.Helper()
	for _, tool := range []string{"mkfs.vfat", "mcopy", "mksquashfs", "unsquashfs"} {
		_, err := exec.LookPath(tool)
		testenv.Need(t, tool, err == nil, "an image is made and read back")
	}
}

// build makes the image of a card.
func build(t *testing.T, first, slot, root tree) string {
	t.Helper()
	needTools(t)
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, b, s := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "s")
	card := filepath.Join(dir, "card")
	for _, err := range []error{
		disk.MakeFAT(ctx, disk.FAT{Bits: 16, Label: layout.AutobootLabel, Size: 16 * mib, Tree: first.write(t, t.TempDir()), Epoch: epoch}, a),
		disk.MakeFAT(ctx, disk.FAT{Bits: 32, Label: layout.BootLabel, Size: boot, Tree: slot.write(t, t.TempDir()), Epoch: epoch}, b),
		disk.MakeSquashFS(ctx, root.write(t, t.TempDir()), epoch, s),
		disk.Write(plan(a, b, s), card),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return card
}

func plan(a, b, s string) disk.Plan {
	return disk.Plan{Signature: layout.Signature, Partitions: []disk.Partition{
		{Number: 1, Type: 0x0c, Size: 16 * mib, From: a}, {Number: 2, Type: 0x0c, Size: boot, From: b}, {Number: 3, Type: 0x0c, Size: boot, From: b},
		{Number: 5, Type: 0x83, Size: system, From: s}, {Number: 6, Type: 0x83, Size: system, From: s}, {Number: 7, Type: 0x83, Size: 2 * mib, Blank: mib},
	}}
}

func TestSound(t *testing.T) {
	if err := File(t.Context(), build(t, first(), slot(), root()), Pi()); err != nil {
		t.Error(err)
	}
}

// Whatever is wrong with an image, it is said.
func TestRefused(t *testing.T) {
	good := build(t, first(), slot(), root())
	with := func(f tree, name, text string) tree { f = maps.Clone(f); f[name] = text; return f }
	secret := strings.Repeat("aZ0_", 12)
	for name, c := range map[string]struct {
		want  string
		first tree
		slot  tree
		root  tree
		edit  func(t *testing.T, f *os.File)
	}{
		"field case 66: firmware on the first partition": {want: "start4.elf: the firmware would boot from it", first: with(first(), "START4.ELF", "x")},
		"config.txt on the first partition":              {want: "config.txt: the firmware would boot from it", first: with(first(), "config.txt", "x")},
		"no bootcode.bin":                                {want: "no bootcode.bin", first: with(first(), "bootcode.bin", "")},
		"a long autoboot.txt":                            {want: "more than 512", first: with(first(), "autoboot.txt", first()["autoboot.txt"]+strings.Repeat("#", 512))},
		"another choice of slots":                        {want: "[tryboot] boot_partition", first: with(first(), "autoboot.txt", "[all]\ntryboot_a_b=1\nboot_partition=2\n")},
		"a card's own settings":                          {want: "rpi-preseed.toml", first: with(first(), "rpi-preseed.toml", "x")},
		"a claim key":                                    {want: "claim_key", first: with(first(), "farhand.toml", "claim_key = \"x\"\n")},
		"field case 68: no tree for a Pi 5":              {want: "bcm2712-d-rpi-5-b.dtb, which Pi 5 needs", slot: with(slot(), "bcm2712-d-rpi-5-b.dtb", "")},
		"no tree for a CM5":                              {want: "bcm2712-rpi-cm5-cm5io.dtb", slot: with(slot(), "config.txt", strings.Replace(config, "[cm5]", "[cm4]", 1))},
		"a fixup without its firmware":                   {want: "start.elf, which Zero 2 W needs", slot: with(slot(), "start.elf", "")},
		"field case 60: another tryboot.txt":             {want: "tryboot.txt isn't config.txt", slot: with(slot(), "tryboot.txt", "x")},
		"an include that isn't there":                    {want: "other.txt", slot: with(slot(), "config.txt", config+"include other.txt\n")},
		"32 bit":                                         {want: "arm_64bit", slot: with(slot(), "config.txt", strings.Replace(config, "arm_64bit=1", "", 1))},
		"field case 80: SSH host key":                    {want: "SSH host key", root: with(root(), "etc/ssh/ssh_host_ed25519_key.pub", "x")},
		"field case 80: machine-id":                      {want: "machine-id", root: with(root(), "etc/machine-id", "0123\n")},
		"field case 80: random seed":                     {want: "random seed", root: with(root(), "var/lib/systemd/random-seed", "x")},
		"ModemManager":                                   {want: "ModemManager: it takes serial ports", root: with(root(), "usr/sbin/ModemManager", "x")},
		"brltty":                                         {want: "brltty: it takes serial ports", root: with(root(), "usr/bin/brltty", "x")},
		"a token in the root":                            {want: "token or claim key", root: with(root(), "etc/x", "token = fh_rt_"+secret)},
		"a claim key among the boot files":               {want: "token or claim key", slot: with(slot(), "cmdline.txt", "farhand.claim=fh_ck_"+secret)},
		"a private key":                                  {want: "a private key", root: with(root(), "etc/x", "-----BEGIN EC PRIVATE KEY-----\n"+strings.Repeat("MHcCAQ", 10)+"\n")},
		"field case 59: slots differ": {want: "partitions 5 and 6 differ", edit: func(t *testing.T, f *os.File) {
			put(t, f, []byte{1}, start(t, layout.SystemB)+system-1)
		}},
		"another signature": {want: "signature", edit: func(t *testing.T, f *os.File) { put(t, f, []byte{1, 2, 3, 4}, 440) }},
		"a type":            {want: "of type", edit: func(t *testing.T, f *os.File) { put(t, f, []byte{0x83}, 446+16+4) }},
		"not adjacent":      {want: "next to each other", edit: func(t *testing.T, f *os.File) { put(t, f, []byte{0xff}, 446+16+8) }},
		"old data":          {want: "neither with 1 MiB of zeros", edit: func(t *testing.T, f *os.File) { put(t, f, []byte{1}, start(t, layout.Data)+1080) }},
		"no SquashFS": {want: "SquashFS", edit: func(t *testing.T, f *os.File) {
			put(t, f, []byte("x"), start(t, layout.SystemA))
			put(t, f, []byte("x"), start(t, layout.SystemB))
		}},
		"a FAT is gone": {want: "partition 2", edit: func(t *testing.T, f *os.File) {
			put(t, f, make([]byte, 512), start(t, layout.BootA))
			put(t, f, make([]byte, 512), start(t, layout.BootB))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "card")
			if c.root == nil {
				clone(t, good, path)
			} else {
				path = build(t, first(), slot(), c.root)
			}
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if c.edit != nil {
				c.edit(t, f)
			}
			change(t, f, start(t, layout.Autoboot), 16*mib, first(), c.first)
			change(t, f, start(t, layout.BootA), boot, slot(), c.slot)
			change(t, f, start(t, layout.BootB), boot, slot(), c.slot)
			if err := File(t.Context(), path, Pi()); err == nil || !strings.Contains(strings.ToLower(err.Error()), strings.ToLower(c.want)) {
				t.Errorf("it says %v, not %q", err, c.want)
			}
		})
	}
}

func start(t *testing.T, n int) int64 {
	t.Helper()
	spans, _, err := plan("", "", "").Spans()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range spans {
		if s.Number == n {
			return s.Start
		}
	}
	t.Fatalf("no partition %d", n)
	return 0
}

func put(t *testing.T, f *os.File, b []byte, at int64) {
	t.Helper()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// change makes the files of a FAT those of now.
func change(t *testing.T, f *os.File, at, size int64, was, now tree) {
	t.Helper()
	if now == nil {
		return
	}
	v, err := fat.Open(window{f, at}, size)
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range now {
		if old, there := was[name]; there && old == text {
			continue
		}
		if err := v.WriteFile(name, []byte(text), epoch); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Flush(); err != nil {
		t.Fatal(err)
	}
}

type window struct {
	f  *os.File
	at int64
}

func (w window) ReadAt(b []byte, off int64) (int, error)  { return w.f.ReadAt(b, w.at+off) }
func (w window) WriteAt(b []byte, off int64) (int, error) { return w.f.WriteAt(b, w.at+off) }

func clone(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestNoImage(t *testing.T) {
	if err := File(t.Context(), filepath.Join(t.TempDir(), "none"), Pi()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an image that isn't there: %v", err)
	}
	if err := File(t.Context(), os.DevNull, Pi()); err == nil {
		t.Error("an empty image is sound")
	}
}
