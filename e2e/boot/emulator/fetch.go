package emulator

import (
	"context"
	"debug/elf"
	"errors"
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

// Firmware is a UEFI firmware of QEMU's machines: the Debian package, and the
// files in it, first below the root and, once located, where they are.
type Firmware struct {
	Package    string
	Code, Vars string // the program, and its variables on a new machine
}

// Locate finds the firmware on this machine, or fetches it.
func (f Firmware) Locate(ctx context.Context, cache string, log io.Writer) (Firmware, error) {
	at := func(tree string) Firmware {
		return Firmware{f.Package, filepath.Join(tree, f.Code), filepath.Join(tree, f.Vars)}
	}
	missing := func(f Firmware) error {
		_, err := os.Stat(f.Code)
		_, err2 := os.Stat(f.Vars)
		return errors.Join(err, err2)
	}
	if own := at("/"); missing(own) == nil {
		return own, nil
	}
	tree := filepath.Join(cache, f.Package)
	if _, err := os.Stat(tree); errors.Is(err, os.ErrNotExist) {
		if err := fetch(ctx, f.Package, (*apt.Apt).Candidates, cache, tree, log); err != nil {
			return f, fmt.Errorf("fetching %s: %w", f.Package, err)
		}
	}
	fetched := at(tree)
	return fetched, missing(fetched)
}

// fetch downloads a package with what resolve says that it needs, the C library
// too, so that it runs on whatever this machine is, and unpacks it into tree.
func fetch(ctx context.Context, name string, resolve func(*apt.Apt, context.Context, ...string) ([]apt.Package, error), cache, tree string, log io.Writer) error {
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
	packages, err := resolve(a, ctx, name)
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "fetching %s from Debian %s\n", name, suite)
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
func unpacked(tree string, machine Machine) Program {
	program := filepath.Join(tree, "usr/bin/qemu-system-"+machine.Name)
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
