package firmware

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
)

// Boot is what Linux is started with.
type Boot struct {
	Partition      int
	Kernel, Initrd []byte // the kernel unpacked
	DTB            []byte // as it lies on the partition; nil if the board has no file
	Overlays       []Overlay
	Cmdline        string
	ConfigFile     string // "config.txt" or "tryboot.txt"
	KernelFile     string
}

// Overlay is one to apply to the device tree.
type Overlay struct {
	Name string
	Data []byte
}

// Disk gives the files of a FAT partition, by its number.
type Disk func(partition int) (fs.FS, error)

// maxPartition is the last that the firmware looks at.
const maxPartition = 4

// Run makes the choice.
func Run(disk Disk, board Board, s Start) (Boot, error) {
	first, err := disk(1)
	if err != nil {
		return Boot{}, fmt.Errorf("partition 1: %w", err)
	}
	n, tryFile, err := choose(first, s)
	if err != nil {
		return Boot{}, err
	}
	if n == 0 { // nothing says which: the first that could be booted
		if n, err = search(disk, board); err != nil {
			return Boot{}, err
		}
	}
	files, err := disk(n)
	if err != nil {
		return Boot{}, fmt.Errorf("partition %d: %w", n, err)
	}
	b, err := load(files, board, n, s, tryFile)
	if err != nil {
		return Boot{}, fmt.Errorf("board %s, partition %d: %w", board.Name, n, err)
	}
	return b, nil
}

// search finds the first partition that counts as bootable.
func search(disk Disk, board Board) (int, error) {
	for n := 1; n <= maxPartition; n++ {
		files, err := disk(n)
		if err != nil {
			continue // no FAT
		}
		if bootable(files, board) == nil {
			return n, nil
		}
	}
	return 0, fmt.Errorf("no partition can be booted by board %s", board.Name)
}

func bootable(files fs.FS, board Board) error {
	for _, name := range append([]string{"config.txt"}, board.Firmware...) {
		if _, err := fs.Stat(files, name); err != nil {
			return fmt.Errorf("can't be booted: %w", err)
		}
	}
	return nil
}

func load(files fs.FS, board Board, partition int, s Start, tryFile bool) (Boot, error) {
	if err := bootable(files, board); err != nil {
		return Boot{}, err
	}
	b := Boot{Partition: partition, ConfigFile: "config.txt"}
	if tryFile {
		b.ConfigFile = "tryboot.txt"
	}
	c := config{values: make(map[string]string)}
	r := reader{files: files, board: board, partition: partition, tryboot: s.Tryboot && !s.OldBootloader, into: &c}
	if err := r.file(b.ConfigFile, 0); err != nil {
		return b, err
	}
	if err := b.kernel(files, board, c); err != nil {
		return b, err
	}
	if err := b.initrd(files, c); err != nil {
		return b, err
	}
	if err := b.deviceTree(files, board, c); err != nil {
		return b, err
	}
	name := c.values["cmdline"]
	if name == "" {
		name = "cmdline.txt"
	}
	text, err := fs.ReadFile(files, c.prefixed(name))
	if err != nil {
		return b, err
	}
	line, _, _ := strings.Cut(string(text), "\n") // the firmware takes one line
	b.Cmdline = strings.TrimSpace(line)
	return b, nil
}

func (b *Boot) kernel(files fs.FS, board Board, c config) error {
	names := board.Kernels
	if k := c.values["kernel"]; k != "" {
		names = []string{k}
	}
	var packed []byte
	err := errors.New("the board has no kernel")
	for _, name := range names {
		b.KernelFile = c.prefixed(name)
		if packed, err = fs.ReadFile(files, b.KernelFile); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	b.Kernel = packed
	if bytes.HasPrefix(packed, []byte{0x1f, 0x8b}) { // gzip, RFC 1952
		z, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			return fmt.Errorf("%s: %w", b.KernelFile, err)
		}
		if b.Kernel, err = io.ReadAll(io.LimitReader(z, 256<<20)); err != nil {
			return fmt.Errorf("%s: %w", b.KernelFile, err)
		}
	}
	// The Image's header (Linux, Documentation/arch/arm64/booting.rst) has this at 56.
	if len(b.Kernel) < 64 || string(b.Kernel[56:60]) != "ARM\x64" {
		return fmt.Errorf("%s is no kernel for arm64", b.KernelFile)
	}
	return nil
}

func (b *Boot) initrd(files fs.FS, c config) (err error) {
	args := strings.Fields(c.values["initramfs"])
	if len(args) == 0 {
		return nil
	}
	if len(args) > 1 && args[1] != "followkernel" && args[1] != "0" {
		return fmt.Errorf("initramfs is put at %s, not after the kernel", args[1])
	}
	b.Initrd, err = fs.ReadFile(files, c.prefixed(args[0]))
	return err
}

func (b *Boot) deviceTree(files fs.FS, board Board, c config) (err error) {
	name := board.DTB
	if set := c.values["device_tree"]; set != "" {
		name = set
	}
	if board.DTB == "" {
		return nil // overlays are for the boards that have a file
	}
	if b.DTB, err = fs.ReadFile(files, c.prefixed(name)); err != nil {
		return err
	}
	for _, name := range c.overlays {
		file, err := c.overlayFile(name)
		if err != nil {
			return err
		}
		data, err := fs.ReadFile(files, file)
		if err != nil {
			return err
		}
		b.Overlays = append(b.Overlays, Overlay{Name: name, Data: data})
	}
	return nil
}
