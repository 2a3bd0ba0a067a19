// Package image builds the flashable image: it makes the root's tree, the
// archive that the kernel starts from and the boot partition's files, lays them
// out as a card, and compresses that.
package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"farhand/image/disk"
	"farhand/image/firmware"
	"farhand/image/initramfs"
	"farhand/image/initramfs/table"
	"farhand/image/layout"
	"farhand/image/payload"
	"farhand/image/root"
	"farhand/image/spec"
	"farhand/image/target"
)

// Options say what is built, of what.
type Options struct {
	Target  target.Target
	Spec    spec.Spec
	Version string
	Epoch   time.Time // of every file; the same inputs and epoch give the same image
	Daemon  string    // farhandd for the board
	Init    string    // image/initramfs/init for the board
	Work    string    // a folder for what comes and goes
	Cache   string    // packages, kept between builds
	Out     string    // the image's file
	From    string    // the URL of the folder where people will find it; empty: of Out's
	Log     io.Writer
}

// Built is what came out.
type Built struct {
	Path   string
	Kernel string
	Root   root.Result
	Plan   disk.Plan
}

// The volume ids of the FAT file systems. They are fixed, so that a build gives
// the same bytes each time, and differ, so that a desktop shows both.
const (
	autobootVolume = 0xfa440001
	bootVolume     = 0xfa440002
)

// dataUUID is that of the data file system of an image that brings one; on a
// machine it gets another.
const dataUUID = "fa44a17d-0000-4000-8000-0000000000da"

const mib = 1 << 20

// Build builds an image. It must run as root.
func Build(ctx context.Context, o Options) (Built, error) {
	b := builder{Options: o}
	for _, dir := range []string{o.Cache, filepath.Dir(o.Out)} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return Built{}, err
		}
	}
	if err := os.RemoveAll(o.Work); err != nil {
		return Built{}, err
	}
	if err := os.MkdirAll(o.Work, 0o755); err != nil {
		return Built{}, err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"root", b.makeRoot}, {"initramfs", b.makeInitramfs}, {"boot partition", b.makeBoot}, {"system partition", b.makeSystem}, {"data partition", b.makeData}, {"card", b.makeCard},
	} {
		start := time.Now()
		if err := step.do(ctx); err != nil {
			return Built{}, fmt.Errorf("%s: %w", step.what, err)
		}
		fmt.Fprintf(o.Log, "image: %s, %.1f s\n", step.what, time.Since(start).Seconds())
	}
	return Built{Path: o.Out, Kernel: b.root.Kernel, Root: b.root, Plan: b.plan}, nil
}

type builder struct {
	Options
	root root.Result
	data disk.Partition
	plan disk.Plan
}

func (b *builder) at(name string) string { return filepath.Join(b.Work, name) }

func (b *builder) makeRoot(ctx context.Context) (err error) {
	b.root, err = root.Build(ctx, root.Options{
		Machine: b.Target.Root, Tree: b.at("tree"), Boot: b.at("parts"), Cache: b.Cache, Version: b.Version, Epoch: b.Epoch,
		Daemon: b.Daemon, Packages: b.Spec.Packages, Files: b.Spec.Files, Relay: b.Spec.Relay, Log: b.Log,
	})
	return err
}

func (b *builder) makeInitramfs(ctx context.Context) error {
	f, err := os.Create(b.at("initrd.img"))
	if err != nil {
		return err
	}
	err = initramfs.Build(ctx, initramfs.Options{Root: b.at("tree"), Kernel: b.root.Kernel, Init: b.Init, Modules: b.Target.Initramfs, Epoch: b.Epoch}, f)
	return errors.Join(err, f.Close())
}

func (b *builder) makeBoot(ctx context.Context) error {
	err := b.Target.Stage(ctx, firmware.Options{Boot: b.at("parts"), Initrd: b.at("initrd.img"), Out: b.at("stage"), Version: b.Version, Epoch: b.Epoch})
	if err != nil {
		return err
	}
	err = disk.MakeFAT(ctx, disk.FAT{Bits: b.Target.FirstBits, Label: layout.AutobootLabel, Volume: autobootVolume, Size: int64(b.Target.FirstMiB) * mib, Tree: b.at("stage/autoboot"), Epoch: b.Epoch}, b.at("autoboot.fat"))
	if err != nil {
		return err
	}
	return disk.MakeFAT(ctx, disk.FAT{Bits: 32, Label: layout.BootLabel, Volume: bootVolume, Size: int64(b.Spec.Sizes.Boot) * mib, Tree: b.at("stage/boot"), Epoch: b.Epoch}, b.at("boot.fat"))
}

func (b *builder) makeSystem(ctx context.Context) error {
	return disk.MakeSquashFS(ctx, b.at("tree"), b.Epoch, b.at("system.squashfs"))
}

// makeData makes what the data partition brings, if it brings anything.
func (b *builder) makeData(ctx context.Context) error {
	size := int64(b.Spec.Sizes.Data) * mib
	b.data = disk.Partition{Number: layout.Data, Type: table.Linux, Size: max(size, spec.DataMiB*mib)}
	if b.Spec.Ollama.Tarball == "" {
		// The first start makes the file system; the zeros are what it knows by that
		// there is none, also on a card that held another.
		b.data.Blank = mib
		return nil
	}
	tree := b.at("data")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return err
	}
	if err := payload.Ollama(ctx, b.Spec.Ollama, tree, b.Epoch); err != nil {
		return err
	}
	if size == 0 {
		used, err := payload.Size(tree)
		if err != nil {
			return err
		}
		// What a file system takes for itself, with room for a first start.
		b.data.Size = (used + used/10 + 2*spec.DataMiB*mib) / mib * mib
	}
	b.data.From = b.at("data.ext4")
	return disk.MakeExt4(ctx, disk.Ext4{Label: layout.GivenDataLabel, UUID: dataUUID, Size: b.data.Size, Tree: tree, Epoch: b.Epoch}, b.data.From)
}

func (b *builder) makeCard(context.Context) error {
	boot, system := int64(b.Spec.Sizes.Boot)*mib, int64(b.Spec.Sizes.System)*mib
	b.plan = disk.Plan{Signature: layout.Signature, GUID: b.Target.GUID, Partitions: []disk.Partition{
		{Number: layout.Autoboot, Type: b.Target.FirstType, Size: int64(b.Target.FirstMiB) * mib, From: b.at("autoboot.fat")},
		{Number: layout.BootA, Type: table.FAT, Size: boot, From: b.at("boot.fat")},
		{Number: layout.BootB, Type: table.FAT, Size: boot, From: b.at("boot.fat")},
		{Number: layout.SystemA, Type: table.Linux, Size: system, From: b.at("system.squashfs")},
		{Number: layout.SystemB, Type: table.Linux, Size: system, From: b.at("system.squashfs")},
		b.data,
	}}
	for i, p := range b.plan.Partitions {
		b.plan.Partitions[i].Name = layout.Names()[p.Number]
	}
	return disk.Write(b.plan, b.Out)
}

// tools are the programs that a build runs, and the Debian packages that have
// them.
func tools() [][2]string {
	return [][2]string{
		{"dpkg-deb", "dpkg"}, {"apt-get", "apt"}, {"xz", "xz-utils"}, {"depmod", "kmod"}, {"mksquashfs", "squashfs-tools"},
		{"mkfs.vfat", "dosfstools"}, {"mcopy", "mtools"}, {"dtc", "device-tree-compiler"}, {"mke2fs", "e2fsprogs"},
	}
}

// Prepare installs the packages with the programs that a build needs and this
// machine lacks.
func Prepare(ctx context.Context, log io.Writer) error {
	if os.Geteuid() != 0 {
		return errors.New("an image is built as root, since its files belong to several users")
	}
	missing := make(map[string]bool)
	var names []string
	for _, t := range tools() {
		if _, err := exec.LookPath(t[0]); err != nil && !missing[t[1]] {
			missing[t[1]] = true
			names = append(names, t[1])
		}
	}
	if _, err := os.Stat("/usr/share/keyrings/debian-archive-keyring.gpg"); err != nil {
		names = append(names, "debian-archive-keyring")
	}
	if len(names) == 0 {
		return nil
	}
	fmt.Fprintf(log, "image: installing %s\n", strings.Join(names, ", "))
	for _, args := range [][]string{{"update", "-q"}, append([]string{"install", "-y", "-q", "--no-install-recommends"}, names...)} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
