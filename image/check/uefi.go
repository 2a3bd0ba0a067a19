package check

import (
	"bytes"
	"debug/pe"
	"strings"

	"farhand/image/fat"
	"farhand/image/initramfs/table"
	"farhand/image/layout"
	"farhand/provision/grubenv"
)

// UEFI is machines with UEFI. The suffix is the specification's for the
// architecture, as in BOOTX64.EFI, in lower case.
func UEFI(suffix string) Kind {
	machine := map[string]uint16{"x64": pe.IMAGE_FILE_MACHINE_AMD64, "aa64": pe.IMAGE_FILE_MACHINE_ARM64}[suffix]
	return Kind{
		guid: true,
		types: map[int]byte{
			layout.Autoboot: table.EFI, layout.BootA: table.FAT, layout.BootB: table.FAT,
			layout.SystemA: table.Linux, layout.SystemB: table.Linux, layout.Data: table.Linux,
		},
		first: func(c *card, v *fat.Volume) {
			for _, name := range []string{"EFI/BOOT/BOOT" + strings.ToUpper(suffix) + ".EFI", "EFI/BOOT/grub" + suffix + ".efi"} {
				c.program(v, layout.Autoboot, name, machine)
			}
			c.says(v, layout.Autoboot, "EFI/debian/grub.cfg", grubenv.File, "/boot.cfg")
			text, _ := v.ReadFile(grubenv.File) // nothing is no choice
			if choice, ok := grubenv.Parse(text); !ok || choice != (grubenv.Choice{Slot: "a"}) {
				c.fail("partition 1: %s chooses %+v instead of slot a", grubenv.File, choice)
			}
		},
		boot: func(c *card, v *fat.Volume) {
			c.program(v, layout.BootA, "vmlinuz", machine)
			c.file(v, "initrd.img", "boot.cfg")
			c.says(v, layout.BootA, "boot.cfg", "$from/vmlinuz", "$from/initrd.img", " farhand.slot=$slot ", " panic=")
		},
	}
}

// says checks that GRUB finds a file and in it what it needs there.
func (c *card) says(v *fat.Volume, partition int, name string, words ...string) {
	text, err := v.ReadFile(name)
	if err != nil {
		c.fail("partition %d has no %s, which GRUB goes by: %w", partition, name, err)
		return
	}
	for _, word := range words {
		if !bytes.Contains(text, []byte(word)) {
			c.fail("partition %d: %s doesn't say %q", partition, name, word)
		}
	}
}

// program checks that a file is one that UEFI firmware of that kind of machine
// can start. A kernel is, too.
func (c *card) program(v *fat.Volume, partition int, name string, machine uint16) {
	b, err := v.ReadFile(name)
	if err != nil {
		c.fail("partition %d has no %s, which the firmware or GRUB starts: %w", partition, name, err)
		return
	}
	p, err := pe.NewFile(bytes.NewReader(b))
	if err != nil {
		c.fail("partition %d: %s is no program for UEFI: %w", partition, name, err)
		return
	}
	defer p.Close()
	if p.Machine != machine {
		c.fail("partition %d: %s is for machines of type %#x, not %#x", partition, name, p.Machine, machine)
	}
}
