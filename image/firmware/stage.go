// Package firmware makes the files of the boot partition, which a machine's
// firmware or its boot loader reads, and of the small partition before it, which
// says which of the two boot partitions that is: for Raspberry Pis, and for
// machines with UEFI.
package firmware

import (
	"bytes"
	"compress/gzip"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"farhand/provision/hardware"
)

// Options say what there is.
type Options struct {
	Boot    string // vmlinuz and what else there is of packages
	Initrd  string
	Out     string // gets boot/ and autoboot/
	Version string
	Epoch   time.Time // of every file
}

// files are those with a fixed text. cmdline.txt names no console: the kernel
// takes the screen, and the serial port that the board's device tree says; a name
// would be another port's on another board.
//
//go:embed files
var files embed.FS

// Stage writes Out/boot, the content of both boot partitions, and Out/autoboot,
// that of the first partition, for Raspberry Pis. Boot has dtb/ and
// raspi-firmware/. It needs dtc and fdtoverlay of Debian's device-tree-compiler.
func Stage(ctx context.Context, o Options) error {
	boot, auto := filepath.Join(o.Out, "boot"), filepath.Join(o.Out, "autoboot")
	over := filepath.Join(boot, "overlays")
	for _, dir := range []string{over, auto} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := putTexts(boot, auto, o.Version); err != nil {
		return err
	}
	if err := compile(ctx, over); err != nil {
		return err
	}
	if err := putTrees(ctx, filepath.Join(o.Boot, "dtb/broadcom"), boot, over); err != nil {
		return err
	}
	if err := putFirmware(filepath.Join(o.Boot, "raspi-firmware"), boot, auto); err != nil {
		return err
	}
	if err := copyFile(o.Initrd, filepath.Join(boot, "initrd.img")); err != nil {
		return err
	}
	if err := compress(filepath.Join(o.Boot, "vmlinuz"), filepath.Join(boot, "kernel8.img")); err != nil {
		return err
	}
	return settle(o.Out, o.Epoch)
}

func putTexts(boot, auto, version string) error {
	buses := bytes.NewBuffer(append(text("farhand.toml"), "\n# [buses]\n"...))
	for _, b := range hardware.Buses() {
		fmt.Fprintf(buses, "# %-5s = %-5t  # %s\n", b.Name, b.Default, b.Doc)
	}
	for name, content := range map[string][]byte{
		filepath.Join(boot, "config.txt"): text("boot/config.txt"),
		// What an old bootloader reads in a trial, whichever slot it tries (field
		// case 60).
		filepath.Join(boot, "tryboot.txt"):        text("boot/config.txt"),
		filepath.Join(boot, "cmdline.txt"):        text("boot/cmdline.txt"),
		filepath.Join(boot, hardware.IncludeFile): hardware.Include(hardware.Defaults()),
		filepath.Join(auto, "autoboot.txt"):       text("autoboot/autoboot.txt"),
		filepath.Join(auto, "README.TXT"):         readme("autoboot", version),
		filepath.Join(auto, "farhand.toml"):       buses.Bytes(),
	} {
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// text is one of the files; a name that is missing makes an empty one, which the
// test sees.
func text(name string) []byte {
	b, _ := files.ReadFile("files/" + name)
	return b
}

func readme(of, version string) []byte {
	return bytes.Replace(text(of+"/README.TXT"), []byte("VERSION"), []byte(version), 1)
}

// putFirmware copies what starts the boards up to a Pi 4. A start*.elf and its
// fixup*.dat are a pair. The first partition gets bootcode.bin alone, which a Pi
// 3's mask ROM reads there; with a start.elf the firmware would take it for a
// partition to boot from (field case 66). Updates of a bootloader's EEPROM, which
// stop a board that finds them on a boot partition (field case 61), aren't there.
func putFirmware(from, boot, auto string) error {
	for _, name := range []string{"start.elf", "fixup.dat", "start4.elf", "fixup4.dat"} {
		if err := copyFile(filepath.Join(from, name), filepath.Join(boot, name)); err != nil {
			return err
		}
	}
	return copyFile(filepath.Join(from, "bootcode.bin"), filepath.Join(auto, "bootcode.bin"))
}

func copyFile(from, to string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o644)
}

// compress makes a kernel that the firmware unpacks itself. The header has
// neither a name nor a time.
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
	defer out.Close()
	z, err := gzip.NewWriterLevel(out, 6)
	if err != nil {
		return err
	}
	_, err = io.Copy(z, in)
	if err := errors.Join(err, z.Close(), out.Close()); err != nil {
		return fmt.Errorf("compressing %s: %w", from, err)
	}
	return nil
}

// settle gives every file the same time.
func settle(dir string, epoch time.Time) error {
	return filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Chtimes(name, epoch, epoch)
	})
}
