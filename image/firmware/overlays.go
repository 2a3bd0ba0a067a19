package firmware

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"farhand/provision/hardware"
)

// overlays are named BUS-SOC.dts, or BUS.dts where one serves every SoC that has
// no source of its own. They refer to nodes by the labels of the kernel's trees.
//
//go:embed overlays/*.dts
var overlays embed.FS

// source is the text of the overlay that switches a bus on.
func source(bus, soc string) ([]byte, error) {
	b, err := overlays.ReadFile("overlays/" + hardware.Overlay(bus, soc) + ".dts")
	if errors.Is(err, fs.ErrNotExist) {
		b, err = overlays.ReadFile("overlays/" + bus + ".dts")
	}
	return b, err
}

// compile writes every overlay that package hardware can name into dir.
func compile(ctx context.Context, dir string) error {
	for _, bus := range hardware.Buses() {
		for _, soc := range bus.SoCs {
			name := hardware.Overlay(bus.Name, soc)
			text, err := source(bus.Name, soc)
			if err != nil {
				return fmt.Errorf("overlay %s: %w", name, err)
			}
			// -@: references to labels are kept for whoever applies it.
			if err := run(ctx, text, "dtc", "-@", "-I", "dts", "-O", "dtb", "-o", filepath.Join(dir, name+".dtbo"), "-"); err != nil {
				return fmt.Errorf("overlay %s: %w", name, err)
			}
		}
	}
	return nil
}

// fits applies all overlays of a board's SoC to its tree, at once: none may lack
// a node there, or stand in another's way.
func fits(ctx context.Context, tree, soc, dir string) error {
	out, err := os.CreateTemp("", "farhand-*.dtb")
	if err != nil {
		return err
	}
	defer os.Remove(out.Name())
	if err := out.Close(); err != nil {
		return err
	}
	args := []string{"-i", tree, "-o", out.Name()}
	for _, bus := range hardware.Buses() {
		name := filepath.Join(dir, hardware.Overlay(bus.Name, soc)+".dtbo")
		if _, err := os.Stat(name); err == nil {
			args = append(args, name)
		}
	}
	return run(ctx, nil, "fdtoverlay", args...)
}

func run(ctx context.Context, in []byte, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = bytes.NewReader(in)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s of Debian's device-tree-compiler: %w: %s", name, err, strings.TrimSpace(string(out)))
	}
	return nil
}
