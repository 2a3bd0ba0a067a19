// Package firmware makes the files of the boot partition, which a Raspberry Pi's
// firmware reads, and of the small partition before it, which says which of the
// two boot partitions that is.
package firmware

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"farhand/provision/hardware"
)

// Options say what there is.
type Options struct {
	Boot    string // vmlinuz, dtb/ and raspi-firmware/ of the packages
	Initrd  string
	Out     string // gets boot/ and autoboot/
	Version string
	Epoch   time.Time
}

const config = `# What is on this partition is replaced as a whole by an update. The buses of
# the header are switched in farhand.toml; farhand-hw.txt follows that.
arm_64bit=1
kernel=kernel8.img
initramfs initrd.img followkernel
upstream_kernel=1
enable_uart=1
disable_splash=1
include farhand-hw.txt
`

// No console is named: the kernel takes the screen, and the serial port that
// the board's device tree says.
const cmdline = "8250.nr_uarts=4 panic=10 quiet loglevel=4 systemd.show_status=0 consoleblank=0 vt.global_cursor_default=0\n"

const autoboot = "[all]\ntryboot_a_b=1\nboot_partition=2\n[tryboot]\nboot_partition=3\n"

// Stage writes Out/boot and Out/autoboot.
func Stage(ctx context.Context, o Options) error {
	boot, auto := filepath.Join(o.Out, "boot"), filepath.Join(o.Out, "autoboot")
	for _, dir := range []string{boot, auto, filepath.Join(boot, "overlays")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for name, text := range map[string]string{
		filepath.Join(boot, "config.txt"): config, filepath.Join(boot, "tryboot.txt"): config, filepath.Join(boot, "cmdline.txt"): cmdline,
		filepath.Join(boot, "farhand-hw.txt"): string(hardware.Include(hardware.Defaults())), filepath.Join(auto, "autoboot.txt"): autoboot,
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if err := compress(filepath.Join(o.Boot, "vmlinuz"), filepath.Join(boot, "kernel8.img")); err != nil {
		return err
	}
	if err := copyFile(o.Initrd, filepath.Join(boot, "initrd.img")); err != nil {
		return err
	}
	for _, name := range []string{"start.elf", "fixup.dat", "start4.elf", "fixup4.dat"} {
		if err := copyFile(filepath.Join(o.Boot, "raspi-firmware", name), filepath.Join(boot, name)); err != nil {
			return err
		}
	}
	if err := copyFile(filepath.Join(o.Boot, "raspi-firmware/bootcode.bin"), filepath.Join(auto, "bootcode.bin")); err != nil {
		return err
	}
	trees, err := filepath.Glob(filepath.Join(o.Boot, "dtb/broadcom/bcm2*-rpi-*.dtb"))
	if err != nil {
		return err
	}
	for _, t := range trees {
		if strings.Contains(t, "rpi-2-b") {
			continue
		}
		if err := copyFile(t, filepath.Join(boot, filepath.Base(t))); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// compress makes a kernel that the firmware unpacks itself.
func compress(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	z, err := gzip.NewWriterLevel(out, 6)
	if err != nil {
		return fmt.Errorf("compressing %s: %w", from, err)
	}
	_, err = io.Copy(z, in)
	return errors.Join(err, z.Close(), out.Close())
}
