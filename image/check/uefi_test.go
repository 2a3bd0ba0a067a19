package check

import (
	"encoding/binary"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"farhand/image/disk"
	"farhand/image/initramfs/table"
	"farhand/image/layout"
	"farhand/internal/testenv"
	"farhand/provision/grubenv"
)

// program is the shortest one for UEFI: the headers of a PE file.
func program(machine uint16) string {
	b := make([]byte, 512)
	copy(b, "MZ")
	b[0x3c] = 0x40
	copy(b[0x40:], "PE\x00\x00")
	binary.LittleEndian.PutUint16(b[0x44:], machine)
	return string(b)
}

const amd64, arm64 = 0x8664, 0xaa64

func firstUEFI() tree {
	return tree{
		"EFI/BOOT/BOOTX64.EFI": program(amd64), "EFI/BOOT/grubx64.efi": program(amd64), "EFI/debian/grub.cfg": "farhand.env $from/boot.cfg",
		grubenv.File: string(grubenv.Choice{Slot: "a"}.Marshal()), "farhand.toml": "# claim_key = \"\"\n",
	}
}

func slotUEFI() tree {
	return tree{"vmlinuz": program(amd64), "initrd.img": "x", "boot.cfg": "linux $from/vmlinuz farhand.slot=$slot panic=10\ninitrd $from/initrd.img\n"}
}

func buildUEFI(t *testing.T, first, slot tree, plan func(*disk.Plan)) string {
	t.Helper()
	needTools(t)
	dir := t.TempDir()
	a, b, s := filepath.Join(dir, "a"), filepath.Join(dir, "b"), filepath.Join(dir, "s")
	p := disk.Plan{Signature: layout.Signature, GUID: true, Partitions: []disk.Partition{
		{Number: 1, Type: table.EFI, Size: boot, From: a}, {Number: 2, Type: table.FAT, Size: boot, From: b}, {Number: 3, Type: table.FAT, Size: boot, From: b},
		{Number: 5, Type: table.Linux, Size: system, From: s}, {Number: 6, Type: table.Linux, Size: system, From: s}, {Number: 7, Type: table.Linux, Size: 2 * mib, Blank: mib},
	}}
	if plan != nil {
		plan(&p)
	}
	card := filepath.Join(dir, "card")
	for _, err := range []error{
		disk.MakeFAT(t.Context(), disk.FAT{Bits: 32, Label: layout.AutobootLabel, Size: boot, Tree: first.write(t, t.TempDir()), Epoch: epoch}, a),
		disk.MakeFAT(t.Context(), disk.FAT{Bits: 32, Label: layout.BootLabel, Size: boot, Tree: slot.write(t, t.TempDir()), Epoch: epoch}, b),
		disk.MakeSquashFS(t.Context(), root().write(t, t.TempDir()), epoch, s),
		disk.Write(p, card),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return card
}

// What an image brings on its data partition is looked through, too.
func TestGivenData(t *testing.T) {
	_, err := exec.LookPath("mke2fs")
	testenv.Need(t, "e2fsprogs", err == nil, "no mke2fs")
	for content, want := range map[string]string{"x": "", "fh_ck_" + strings.Repeat("aZ0_", 12): "token or claim key"} {
		data := filepath.Join(t.TempDir(), "data")
		err := disk.MakeExt4(t.Context(), disk.Ext4{
			Label: layout.GivenDataLabel, UUID: "fa44a17d-0000-4000-8000-0000000000da", Size: 8 * mib, Tree: tree{"ollama/x": content}.write(t, t.TempDir()), Epoch: epoch,
		}, data)
		if err != nil {
			t.Fatal(err)
		}
		image := buildUEFI(t, firstUEFI(), slotUEFI(), func(p *disk.Plan) {
			last := &p.Partitions[len(p.Partitions)-1]
			last.Size, last.From, last.Blank = 8*mib, data, 0
		})
		if err := File(t.Context(), image, UEFI("x64")); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("with %.8q it says %v", content, err)
		}
	}
}

func TestUEFI(t *testing.T) {
	sound := buildUEFI(t, firstUEFI(), slotUEFI(), nil)
	if err := File(t.Context(), sound, UEFI("x64")); err != nil {
		t.Error(err)
	}
	if err := File(t.Context(), sound, Pi()); err == nil || !strings.Contains(err.Error(), "GUID") {
		t.Errorf("it is taken for a Pi's: %v", err)
	}
	if err := File(t.Context(), sound, UEFI("aa64")); err == nil || !strings.Contains(err.Error(), "BOOTAA64.EFI") {
		t.Errorf("it is taken for 64-bit Arm's: %v", err)
	}
	with := func(f tree, name, text string) tree { f = maps.Clone(f); f[name] = text; return f }
	for name, c := range map[string]struct {
		want        string
		first, slot tree
		plan        func(*disk.Plan)
	}{
		"another machine's loader": {want: "for machines of type 0xaa64", first: with(firstUEFI(), "EFI/BOOT/grubx64.efi", program(arm64))},
		"no loader":                {want: "BOOTX64.EFI is no program", first: with(firstUEFI(), "EFI/BOOT/BOOTX64.EFI", "x")},
		"another slot":             {want: "chooses {Slot:b", first: with(firstUEFI(), grubenv.File, string(grubenv.Choice{Slot: "b"}.Marshal()))},
		"no choice":                {want: "farhand.env chooses", first: with(firstUEFI(), grubenv.File, "x")},
		"no configuration":         {want: "grub.cfg doesn't say", first: with(firstUEFI(), "EFI/debian/grub.cfg", "x")},
		"a card's own settings":    {want: "rpi-preseed.toml", first: with(firstUEFI(), "rpi-preseed.toml", "x")},
		"no kernel":                {want: "vmlinuz is no program", slot: with(slotUEFI(), "vmlinuz", "x")},
		"a kernel that isn't told": {want: "farhand.slot", slot: with(slotUEFI(), "boot.cfg", "linux $from/vmlinuz panic=10\ninitrd $from/initrd.img\n")},
		"no initramfs":             {want: "no initrd.img", slot: with(slotUEFI(), "initrd.img", "")},
		"no EFI partition":         {want: "partition 1 is of type", plan: func(p *disk.Plan) { p.Partitions[0].Type = table.FAT }},
	} {
		t.Run(name, func(t *testing.T) {
			first, slot := firstUEFI(), slotUEFI()
			if c.first != nil {
				first = c.first
			}
			if c.slot != nil {
				slot = c.slot
			}
			if err := File(t.Context(), buildUEFI(t, first, slot, c.plan), UEFI("x64")); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it says %v, not %q", err, c.want)
			}
		})
	}
}
