// Package initramfs makes the archive that the kernel starts from: the program
// init, the modules that reach the card, and nothing else.
package initramfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"farhand/internal/newc"
)

// Options say what goes in.
type Options struct {
	Root   string // the unpacked root, with usr/lib/modules/Kernel
	Kernel string // the kernel's release
	Init   string // the program, static, for the image's architecture
	// Modules are those by which a kind of machine reaches its disk, beyond those
	// of every image.
	Modules []string
	Epoch   time.Time
}

// modules are what it takes to reach a disk that every kind of machine has or
// that an emulator shows, and to mount what is on it. What they need comes with
// them; what a kernel has built in or a trimmed tree lacks is passed over.
func modules() []string {
	return []string{
		// what is on a card
		"squashfs", "erofs", "ext4",
		// the emulator's disk
		"virtio_pci", "virtio_mmio", "virtio_blk",
		// USB disks and NVMe
		"xhci_pci", "xhci_plat_hcd", "usb_storage", "uas", "sd_mod", "nvme",
		// the emulator's random bytes and its watchdog, as early as can be
		"virtio_rng", "i6300esb",
	}
}

// Build writes the archive, compressed with zstd.
func Build(ctx context.Context, o Options, w io.Writer) error {
	dir := filepath.Join(o.Root, "usr/lib/modules", o.Kernel)
	index, err := readIndex(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return err
	}
	z, err := zstd.NewWriter(w, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return err
	}
	a := newc.NewWriter(z)
	for _, d := range []string{"dev", "proc", "sys", "run", "newroot"} {
		if err := a.Dir(d); err != nil {
			return err
		}
	}
	// The kernel opens it for the first program before there is a /dev.
	if err := a.Char("dev/console", 0o600, 5, 1); err != nil {
		return err
	}
	if err := a.File("init", 0o755, o.Init); err != nil {
		return err
	}
	if err := a.Bytes("epoch", 0o644, strconv.AppendInt(nil, o.Epoch.Unix(), 10)); err != nil {
		return err
	}
	var list strings.Builder
	for _, file := range index.order(append(o.Modules[:len(o.Modules):len(o.Modules)], modules()...)) {
		ko, err := readModule(ctx, filepath.Join(dir, file))
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		name, _, _ := strings.Cut(filepath.Base(file), ".ko")
		if err := a.Bytes("lib/modules/"+name+".ko", 0o644, ko); err != nil {
			return err
		}
		fmt.Fprintf(&list, "%s.ko\n", name)
	}
	if err := a.Bytes("lib/modules/list", 0o644, []byte(list.String())); err != nil {
		return err
	}
	return errors.Join(a.End(), z.Close())
}

// index is modules.dep (depmod(8)).
type index struct {
	files map[string]string   // by the module's name
	needs map[string][]string // files that a file needs, the nearest first
}

func readIndex(file string) (index, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return index{}, err
	}
	x := index{files: make(map[string]string), needs: make(map[string][]string)}
	for line := range strings.Lines(string(b)) {
		name, needs, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		short, _, _ := strings.Cut(filepath.Base(name), ".ko")
		x.files[strings.ReplaceAll(short, "-", "_")] = name
		x.needs[name] = strings.Fields(needs)
	}
	return x, nil
}

// order lists the files of modules and of what they need, each after what it
// needs.
func (x index) order(names []string) []string {
	var all []string
	seen := make(map[string]bool)
	add := func(file string) {
		if !seen[file] {
			seen[file] = true
			all = append(all, file)
		}
	}
	for _, name := range names {
		file, ok := x.files[name]
		if !ok {
			continue
		}
		needs := x.needs[file]
		for i := len(needs) - 1; i >= 0; i-- { // the last needs nothing of the others
			add(needs[i])
		}
		add(file)
	}
	return all
}

// readModule is a module as the kernel takes it from an archive. Debian
// compresses them with xz.
func readModule(ctx context.Context, file string) ([]byte, error) {
	if !strings.HasSuffix(file, ".xz") {
		return os.ReadFile(file)
	}
	return exec.CommandContext(ctx, "xz", "-dc", file).Output()
}
