// Package emulator finds the QEMU that the boot test needs: the machine's own if
// it is new enough, else Debian's backport, fetched by apt into a folder of its
// own, so that nothing of the machine's packages changes.
package emulator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"

	"farhand/internal/qemu"
)

// Program is an emulator.
type Program struct {
	Path    string
	Args    []string // that it always needs
	Env     []string // likewise, added to ours; nil if none
	Version string
}

// Oldest is the first major version that has all of a Raspberry Pi 3B that the
// test uses: its I2C controllers came with QEMU 9. AnyVersion is for the machine
// virt alone.
const (
	Oldest     = 9
	AnyVersion = 7
)

// Locate finds an emulator of at least that major version. What it has to fetch
// goes to cache; progress to log.
func Locate(ctx context.Context, oldest int, cache string, log io.Writer) (Program, error) {
	path, err := qemu.Find("aarch64")
	if err == nil {
		p := Program{Path: path}
		if ok, err := p.check(ctx, oldest); ok || err != nil {
			return p, err
		}
	}
	tree := filepath.Join(cache, "qemu")
	p := unpacked(tree)
	if _, err := os.Stat(p.Path); errors.Is(err, os.ErrNotExist) {
		if err := fetch(ctx, cache, tree, log); err != nil {
			return p, fmt.Errorf("fetching QEMU %d or later: %w", oldest, err)
		}
	}
	if ok, err := p.check(ctx, oldest); err != nil {
		return p, err
	} else if !ok {
		return p, fmt.Errorf("%s is QEMU %s, but %d or later is needed: remove %s", p.Path, p.Version, oldest, tree)
	}
	return p, nil
}

// unpacked is what Debian's packages become below a folder.
func unpacked(tree string) Program {
	p := Program{Path: filepath.Join(tree, "usr/bin/qemu-system-aarch64"), Args: []string{
		"-L", filepath.Join(tree, "usr/share/qemu"),
		// A network card's boot ROM, which nothing boots from, lies elsewhere.
		"-L", filepath.Join(tree, "usr/lib/ipxe/qemu"), "-L", "/usr/lib/ipxe/qemu",
	}}
	libs := ""
	for _, dir := range []string{"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"} {
		dir = filepath.Join(tree, dir)
		if _, err := os.Stat(dir); err != nil {
			continue
		}
		libs += dir + ":"
		if _, err := os.Stat(filepath.Join(dir, "qemu")); err == nil {
			p.Env = append(p.Env, "QEMU_MODULE_DIR="+filepath.Join(dir, "qemu"))
		}
	}
	p.Env = append(p.Env, "LD_LIBRARY_PATH="+libs+os.Getenv("LD_LIBRARY_PATH"))
	return p
}

var versionPattern = regexp.MustCompile(`version (\d+)(\.[0-9.]+)?`)

// check asks the program for its version and says whether it will do.
func (p *Program) check(ctx context.Context, oldest int) (bool, error) {
	cmd := exec.CommandContext(ctx, p.Path, "--version")
	cmd.Env = p.Environ()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return false, fmt.Errorf("%s: %w: %s", p.Path, err, out)
	}
	m := versionPattern.FindSubmatch(out)
	if m == nil {
		return false, fmt.Errorf("%s says no version: %s", p.Path, out)
	}
	p.Version = string(m[1]) + string(m[2])
	major, err := strconv.Atoi(string(m[1]))
	return major >= oldest, err
}

// Environ is our environment with what the program needs.
func (p Program) Environ() []string { return append(os.Environ(), p.Env...) }

// Run runs the program to its end, and has what it said in the error.
func (p Program) Run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, p.Path, args...)
	cmd.Env = p.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(p.Path), err, out)
	}
	return nil
}
