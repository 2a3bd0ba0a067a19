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

// overlays are named BUS-SOC.dts, or BUS.dts (no-BUS.dts for off) where one serves every SoC that has
// no source of its own. They refer to nodes by the labels of the kernel's trees.
//
//go:embed overlays/*.dts
var overlays embed.FS

// source is the text of an overlay of package hardware.
func source(name string) ([]byte, error) {
	b, err := overlays.ReadFile("overlays/" + name + ".dts")
	if errors.Is(err, fs.ErrNotExist) {
		every := name[:strings.LastIndexByte(name, '-')]
		b, err = overlays.ReadFile("overlays/" + every + ".dts")
	}
	return b, err
}

// compile writes every overlay that package hardware can name into dir.
func compile(ctx context.Context, dir string) error {
	for _, name := range hardware.Overlays() {
		text, err := source(name)
		if err != nil {
			return fmt.Errorf("overlay %s: %w", name, err)
		}
		// -@: references to labels are kept for whoever applies it.
		if err := run(ctx, text, "dtc", "-@", "-I", "dts", "-O", "dtb", "-o", filepath.Join(dir, name+".dtbo"), "-"); err != nil {
			return fmt.Errorf("overlay %s: %w", name, err)
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
	for _, name := range hardware.Overlays() {
		if strings.HasSuffix(name, "-"+soc) {
			args = append(args, filepath.Join(dir, name+".dtbo"))
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
