package firmware

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Facts are what the firmware adds to the device tree.
type Facts struct {
	Serial    string // of the board, 16 hexadecimal digits
	Model     string // "" leaves the tree's own
	Partition int
	Tryboot   bool
	// BuildTimestamp of the bootloader, in seconds since 1970; 0 for none.
	BuildTimestamp int64
}

// DeviceTree makes of a device tree the one that Linux is given: with overlays,
// and with what the firmware says of itself in /chosen/bootloader (Raspberry
// Pi's documentation, "Configuration properties in chosen": big-endian u32). It
// needs fdtoverlay and fdtput of the package device-tree-compiler.
func DeviceTree(ctx context.Context, tree []byte, overlays []Overlay, f Facts) ([]byte, error) {
	dir, err := os.MkdirTemp("", "farhand-dtb-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "tree.dtb")
	if err := os.WriteFile(file, tree, 0o600); err != nil {
		return nil, err
	}
	if len(overlays) > 0 {
		args := []string{"-i", file, "-o", filepath.Join(dir, "merged.dtb")}
		for i, o := range overlays {
			at := filepath.Join(dir, strconv.Itoa(i)+".dtbo")
			if err := os.WriteFile(at, o.Data, 0o600); err != nil {
				return nil, err
			}
			args = append(args, at)
		}
		if err := run(ctx, "fdtoverlay", args...); err != nil {
			return nil, fmt.Errorf("applying %s: %w", names(overlays), err)
		}
		file = filepath.Join(dir, "merged.dtb")
	}
	tryboot := "0"
	if f.Tryboot {
		tryboot = "1"
	}
	puts := [][]string{
		{"-p", "-t", "i", file, "/chosen/bootloader", "partition", strconv.Itoa(f.Partition)},
		{"-t", "i", file, "/chosen/bootloader", "tryboot", tryboot},
	}
	if f.BuildTimestamp != 0 {
		puts = append(puts, []string{"-t", "i", file, "/chosen/bootloader", "build-timestamp", strconv.FormatInt(f.BuildTimestamp, 10)})
	}
	if f.Serial != "" {
		puts = append(puts, []string{"-t", "s", file, "/", "serial-number", f.Serial})
	}
	if f.Model != "" {
		puts = append(puts, []string{"-t", "s", file, "/", "model", f.Model})
	}
	for _, args := range puts {
		if err := run(ctx, "fdtput", args...); err != nil {
			return nil, err
		}
	}
	return os.ReadFile(file)
}

func names(overlays []Overlay) string {
	var all []string
	for _, o := range overlays {
		all = append(all, o.Name)
	}
	return strings.Join(all, ", ")
}

func run(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &errs, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s (of Debian's device-tree-compiler): %w: %s", name, err, strings.TrimSpace(errs.String()))
	}
	return nil
}
