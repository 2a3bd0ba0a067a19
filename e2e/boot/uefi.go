package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"farhand/e2e/boot/emulator"
	"farhand/e2e/boot/firmware"
	"farhand/e2e/boot/guest"
	"farhand/image/layout"
	"farhand/provision/grubenv"
)

// pi is the target of the Raspberry Pis' image, which also boots on virt by what
// their firmware would take from it.
const pi = "pi"

// machine is what the image's machines are emulated by.
func (r *run) machine() emulator.Machine {
	if r.target == "amd64" {
		return emulator.AMD64()
	}
	return emulator.Arm64()
}

// unchanging are files of the image's first partition that no board changes.
func (r *run) unchanging() []string {
	switch r.target {
	case "amd64":
		return []string{"EFI/BOOT/BOOTX64.EFI", "EFI/BOOT/grubx64.efi", "EFI/debian/grub.cfg"}
	case "generic":
		return []string{"EFI/BOOT/BOOTAA64.EFI", "EFI/BOOT/grubaa64.efi", "EFI/debian/grub.cfg"}
	}
	return []string{"autoboot.txt", "bootcode.bin"}
}

// uefiSteps are an owner's first day with a machine that starts by its own
// firmware, and the trials of an update.
func uefiSteps(d *device) []step {
	display := "virtio-gpu-pci"
	if d.kind == guest.PC {
		display = "VGA"
	}
	d.board.Extra = append(d.board.Extra, "-device", "virtio-rng-pci", "-device", "qemu-xhci,id=usb", "-device", display)
	p := &pairing{device: d}
	next := func(c grubenv.Choice, starts string) func(context.Context) error {
		return func(ctx context.Context) error { return d.choose(ctx, c, starts) }
	}
	steps := append(p.pair(!d.quick),
		step{"a command, as a user who may do nothing else", time.Minute, d.commands},
		step{"files there and back", time.Minute, d.files},
		step{"lines of gpio-sim", 2 * time.Minute, d.lines},
		step{"the firmware's choice, its signatures and the disk that grew", time.Minute, d.started},
		step{"a local model runs where the image brings one", time.Minute, d.model},
		step{"else one is installed, updated and removed", 5 * time.Minute, d.ollama},
		step{"nothing else has failed", time.Minute, d.healthy},
		step{"a trial: it restarts from slot B", d.longestBoot(), next(grubenv.Choice{Slot: "a", Trial: "b"}, "b")},
		step{"the trial was no choice: it restarts from slot A", d.longestBoot(), next(grubenv.Choice{Slot: "a"}, "a")},
	)
	if d.quick {
		return steps
	}
	return append(steps,
		step{"slot B is committed", d.longestBoot(), next(grubenv.Choice{Slot: "b"}, "b")},
		step{"nothing else has failed after all that", time.Minute, d.healthy},
		step{"boot and system partitions are as they were", time.Minute, d.untouched},
		step{"slot B's boot partition is empty: it starts slot A", d.longestBoot(), d.broken},
	)
}

// choose has the system say which slot starts, as an updater would, and restarts.
func (d *device) choose(ctx context.Context, c grubenv.Choice, starts string) error {
	if _, err := d.root(ctx, fmt.Sprintf(`m=$(mktemp -d); mount -t vfat /dev/disk/by-partlabel/%s $m
echo %s | base64 -d | dd of=$m/%s conv=notrunc,fsync status=none; umount $m; rmdir $m`,
		layout.Names()[layout.Autoboot], base64.StdEncoding.EncodeToString(c.Marshal()), grubenv.File)); err != nil {
		return err
	}
	if err := d.reboot(firmware.Start{}, "slot "+starts)(ctx); err != nil {
		return err
	}
	if err := d.slot(ctx, starts); err != nil {
		return err
	}
	// What GRUB left of it.
	return d.onCard(ctx, d.m.Card, func(files fs.FS) error {
		text, err := fs.ReadFile(files, grubenv.File)
		if left, ok := grubenv.Parse(text); err != nil || !ok || left != (grubenv.Choice{Slot: c.Slot}) {
			return unlike(err, "%s says %+v afterwards (%t)", grubenv.File, left, ok)
		}
		return nil
	})
}

// started looks at how the machine came up.
func (d *device) started(ctx context.Context) error {
	if err := d.slot(ctx, "a"); err != nil {
		return err
	}
	out, err := d.root(ctx, `ls -d /sys/firmware/efi; df -BM --output=size /data | tail -1; cat /proc/consoles
modprobe efivarfs; v=$(mktemp -d); mount -t efivarfs none $v; echo secure=$(od -An -tu1 -j4 $v/SecureBoot-*); umount $v`)
	if err != nil {
		return err
	}
	d.out.say(d.name, "it says: %s", strings.Join(strings.Fields(out), " "))
	secure := strings.HasSuffix(strings.ReplaceAll(out, " ", ""), "secure=1")
	if want := d.kind == guest.PC; secure != want {
		return fmt.Errorf("the firmware has Secure Boot on: %t, should be: %t\n%s", secure, want, out)
	}
	if p, err := d.card.Partition(layout.Data); err != nil || p.Size > d.cardSize()/2 {
		return unlike(err, "the data partition had %d bytes before the first start", p.Size)
	}
	return nil
}

// model looks at Ollama, which an image has if its spec says so.
func (d *device) model(ctx context.Context) error {
	out, err := d.root(ctx, `systemctl show -P ActiveState ollama; if [ -e /data/ollama/current ]; then
echo there; ps -o user= -p $(systemctl show -P MainPID ollama); stat -c %U /data/ollama/current/bin/ollama /data/ollama/models; tune2fs -l $(findmnt -no SOURCE /data) | grep -E 'name|UUID'; fi`)
	if err != nil {
		return err
	}
	said := strings.Join(strings.Fields(out), " ")
	d.out.say(d.name, "Ollama: %s", said)
	if want := "active there ollama root ollama Filesystem volume name: " + layout.DataLabel; said != "inactive" && !strings.HasPrefix(said, want) {
		return fmt.Errorf("the local model should be %q or not be there, but is %q", want, said)
	}
	return nil
}

// broken takes slot B's kernel away, which is the committed one.
func (d *device) broken(ctx context.Context) error {
	if d.m != nil {
		return errors.New("the board is on")
	}
	if err := d.card.Wipe(layout.BootB); err != nil {
		return err
	}
	if err := d.again(firmware.Start{}, "after slot B is lost")(ctx); err != nil {
		return err
	}
	return d.slot(ctx, "a")
}
