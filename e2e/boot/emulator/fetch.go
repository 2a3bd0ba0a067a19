package emulator

import (
	"context"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"farhand/internal/apt"
)

// suite is Debian's release that QEMU is taken from: it has version 10.
const suite = "trixie"

// fetch downloads QEMU with everything that it needs, the C library too, so that
// it runs on whatever this machine is, and unpacks it into tree.
func fetch(ctx context.Context, cache, tree string, log io.Writer) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	a, err := apt.Open(ctx, apt.Config{Dir: work, Architecture: runtime.GOARCH, Suites: []string{suite}})
	if err != nil {
		return err
	}
	packages, err := a.Resolve(ctx, "qemu-system-arm")
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "fetching QEMU from Debian %s\n", suite)
	debs, next := filepath.Join(work, "debs"), filepath.Join(work, "tree")
	if err := a.Download(ctx, debs, packages...); err != nil {
		return err
	}
	if err := os.Mkdir(next, 0o755); err != nil {
		return err
	}
	for _, p := range packages {
		file := filepath.Join(debs, p.File)
		if err := apt.Verify(file, p); err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, "dpkg-deb", "-x", file, next).CombinedOutput(); err != nil {
			return fmt.Errorf("unpacking %s: %w: %s", p.File, err, strings.TrimSpace(string(out)))
		}
	}
	if err := os.Rename(next, tree); err != nil {
		if _, gone := os.Stat(tree); gone != nil {
			return err
		}
		// Another run was faster.
	}
	return nil
}

// unpacked is what Debian's packages become below a folder: a program that is
// started by their own dynamic linker, with their own libraries.
func unpacked(tree string) Program {
	program := filepath.Join(tree, "usr/bin/qemu-system-aarch64")
	p := Program{Path: program, Data: []string{
		"-L", filepath.Join(tree, "usr/share/qemu"), "-L", filepath.Join(tree, "usr/lib/ipxe/qemu"), "-L", filepath.Join(tree, "usr/share/seabios"),
	}}
	linker, err := interpreter(program)
	if err != nil {
		return p // it isn't there, or no program: to run it will tell
	}
	libs, err := filepath.Glob(filepath.Join(tree, "usr/lib/*-linux-gnu*"))
	if err != nil || len(libs) == 0 {
		return p
	}
	var all []string
	for _, dir := range libs {
		all = append(all, dir, filepath.Join(dir, "pulseaudio"), filepath.Join(dir, "blas"), filepath.Join(dir, "lapack"))
		p.Env = append(p.Env, "QEMU_MODULE_DIR="+filepath.Join(dir, "qemu"))
	}
	p.Path = filepath.Join(tree, linker)
	if _, err := os.Stat(p.Path); err != nil { // /lib is a link to usr/lib in the packages' system
		p.Path = filepath.Join(tree, "usr", linker)
	}
	p.Args = []string{"--library-path", strings.Join(all, ":"), program}
	return p
}

// interpreter is the dynamic linker that a program names.
func interpreter(program string) (string, error) {
	f, err := elf.Open(program)
	if err != nil {
		return "", err
	}
	defer f.Close()
	section := f.Section(".interp")
	if section == nil {
		return "", fmt.Errorf("%s names no dynamic linker", program)
	}
	b, err := section.Data()
	return strings.TrimRight(string(b), "\x00"), err
}
