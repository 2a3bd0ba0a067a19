// Package emulator finds the QEMU that the boot test needs: the machine's own if
// it is new enough, else that of a newer Debian, fetched by apt into a folder of
// its own, so that nothing of the machine's packages changes.
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

	"farhand/internal/apt"
	"farhand/internal/qemu"
)

// Program is an emulator.
type Program struct {
	Path    string
	Args    []string // that come before all others
	Data    []string // that a machine needs besides
	Env     []string // added to ours
	Version string
}

// Oldest is the first major version that has all of a Raspberry Pi 3B that the
// test uses: its I2C controllers came with QEMU 9. AnyVersion is for the machine
// virt alone.
const (
	Oldest     = 9
	AnyVersion = 7
)

// Machine is QEMU's name of an architecture, and Debian's package that emulates it.
type Machine struct{ Name, Package string }

// Arm64 and AMD64 are the machines that images are for.
func Arm64() Machine { return Machine{"aarch64", "qemu-system-arm"} }

// AMD64 is a PC.
func AMD64() Machine { return Machine{"x86_64", "qemu-system-x86"} }

// Locate finds an emulator of at least that major version. What it has to fetch
// goes to cache; progress to log.
func Locate(ctx context.Context, machine Machine, oldest int, cache string, log io.Writer) (Program, error) {
	path, err := qemu.Find(machine.Name)
	if err == nil {
		p := Program{Path: path}
		if ok, err := p.check(ctx, oldest); ok || err != nil {
			return p, err
		}
	}
	tree := filepath.Join(cache, machine.Package)
	if _, err := os.Stat(tree); errors.Is(err, os.ErrNotExist) {
		if err := fetch(ctx, machine.Package, (*apt.Apt).Resolve, cache, tree, log); err != nil {
			return Program{}, fmt.Errorf("fetching QEMU %d or later: %w", oldest, err)
		}
	}
	p := unpacked(tree, machine)
	if ok, err := p.check(ctx, oldest); err != nil {
		return p, err
	} else if !ok {
		return p, fmt.Errorf("%s is QEMU %s, but %d or later is needed: remove %s", p.Path, p.Version, oldest, tree)
	}
	return p, nil
}

var versionPattern = regexp.MustCompile(`version (\d+)(\.[0-9.]+)?`)

// check asks the program for its version and says whether it will do.
func (p *Program) check(ctx context.Context, oldest int) (bool, error) {
	cmd := p.command(ctx, "--version")
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

func (p Program) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.Path, append(p.Args[:len(p.Args):len(p.Args)], args...)...)
	cmd.Env = p.Environ()
	return cmd
}

// Run runs the program to its end, and has what it said in the error.
func (p Program) Run(ctx context.Context, args ...string) error {
	if out, err := p.command(ctx, append(p.Data[:len(p.Data):len(p.Data)], args...)...).CombinedOutput(); err != nil {
		return fmt.Errorf("QEMU: %w: %s", err, out)
	}
	return nil
}
