package firmware

import (
	"context"
	"fmt"
	"path/filepath"

	"farhand/provision/hardware"
)

// board is a device tree of the kernel's and the names that it is put under.
type board struct {
	soc, tree string
	also      []string
}

// boards are the models that the image is for. With upstream_kernel=1 the
// firmware asks for the kernel's own names, and if there is none, for Raspberry
// Pi's: those are what also lists for the boards whose bootloader isn't on the
// card and so is of any age.
//
// The kernel has no tree for a CM5 or a Pi 500. A Pi 5's stands in for them,
// since a bootloader that finds no tree for its board refuses to start anything
// (field case 68); what differs (a CM5's carrier, a 500's keyboard) isn't proven.
func boards() []board {
	return []board{
		{hardware.BCM2837, "bcm2837-rpi-3-a-plus.dtb", nil},
		{hardware.BCM2837, "bcm2837-rpi-3-b.dtb", nil},
		{hardware.BCM2837, "bcm2837-rpi-3-b-plus.dtb", nil},
		{hardware.BCM2837, "bcm2837-rpi-cm3-io3.dtb", nil},
		{hardware.BCM2837, "bcm2837-rpi-zero-2-w.dtb", nil},
		{hardware.BCM2711, "bcm2711-rpi-4-b.dtb", nil},
		{hardware.BCM2711, "bcm2711-rpi-400.dtb", nil},
		{hardware.BCM2711, "bcm2711-rpi-cm4-io.dtb", []string{"bcm2711-rpi-cm4.dtb"}},
		{hardware.BCM2712, "bcm2712-rpi-5-b.dtb", []string{"bcm2712-rpi-cm5-cm5io.dtb", "bcm2712-rpi-cm5l-cm5io.dtb", "bcm2712-rpi-500.dtb"}},
		{hardware.BCM2712, "bcm2712-d-rpi-5-b.dtb", []string{"bcm2712d0-rpi-5-b.dtb"}},
	}
}

// putTrees copies the boards' trees to the partition and tries the overlays on
// each.
func putTrees(ctx context.Context, from, to, overlays string) error {
	for _, b := range boards() {
		tree := filepath.Join(from, b.tree)
		for _, name := range append([]string{b.tree}, b.also...) {
			if err := copyFile(tree, filepath.Join(to, name)); err != nil {
				return fmt.Errorf("device tree %s: %w", name, err)
			}
		}
		if err := fits(ctx, tree, b.soc, overlays); err != nil {
			return fmt.Errorf("overlays on %s: %w", b.tree, err)
		}
	}
	return nil
}
