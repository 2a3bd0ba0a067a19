// Package target is the machines that an image can be made for, and all that
// differs between them. The rest of the recipe, and of the card, is the same.
package target

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"farhand/image/check"
	"farhand/image/firmware"
	"farhand/image/initramfs/table"
	"farhand/image/root"
)

// Target is a kind of machine.
type Target struct {
	Name string // as the builder's command takes it
	// Suffix ends the names of an image's files, before the dot.
	Suffix string
	Root   root.Machine
	// Initramfs are the modules by which the kernel reaches a disk, beyond those
	// that every image has.
	Initramfs []string
	// Stage makes the content of the boot partitions and of the first one.
	Stage func(context.Context, firmware.Options) error
	// GUID says that a card has a GUID partition table. FirstType, FirstMiB and
	// FirstBits are the type and size of its first partition, and of the FAT in it.
	GUID      bool
	FirstType byte
	FirstMiB  int
	FirstBits int
	Check     check.Kind
	// Imager says that Raspberry Pi Imager offers the image.
	Imager bool
}

// All are the targets; the first is the default.
func All() []Target { return []Target{pi(), generic(), amd64()} }

// Find is the target of that name.
func Find(name string) (Target, error) {
	all := All()
	i := slices.IndexFunc(all, func(t Target) bool { return t.Name == name })
	if i < 0 {
		return Target{}, fmt.Errorf("there is no target %q: it is one of %s", name, strings.Join(Names(), ", "))
	}
	return all[i], nil
}

// Names are the targets' names.
func Names() (names []string) {
	for _, t := range All() {
		names = append(names, t.Name)
	}
	return names
}

// pi is for Raspberry Pis with 64 bits.
func pi() Target {
	return Target{
		Name: "pi", Suffix: "arm64", FirstType: table.FAT, FirstMiB: 32, FirstBits: 16, Stage: firmware.Stage, Check: check.Pi(), Imager: true,
		Root: root.Machine{
			Architecture: "arm64",
			Unpacked:     []string{"raspi-firmware", "firmware-brcm80211/" + root.Release + "-backports"},
			Boot:         map[string]string{"usr/lib/raspi-firmware": "raspi-firmware", "usr/lib/modules/KERNEL/dtb": "dtb"},
			Firmware:     piRadio,
		},
		Initramfs: []string{
			// SD: Pi 3, Zero 2 W, Pi 4, Pi 5
			"bcm2835_dma", "sdhci_iproc", "bcm2835", "sdhci_brcmstb", "sdhci_of_dwcmshc",
			// what those hang on
			"clk_raspberrypi", "gpio_raspberrypi_exp", "gpio_regulator", "fixed", "reset_raspberrypi", "pinctrl_bcm2835",
			// USB disks
			"phy_generic", "dwc2", "pcie_brcmstb",
			// Pi 5: the chip that USB hangs on
			"rp1_pci", "clk_rp1", "pinctrl_rp1",
			// the first random bytes
			"bcm2835_rng", "iproc_rng200",
			// the hardware watchdog, as early as can be
			"bcm2835_wdt",
		},
	}
}

// piRadio says whether a Raspberry Pi's radio loads a file.
func piRadio(name string) bool {
	for _, chip := range []string{"43430", "43436", "43455", "43456", "cyfmac43430", "cyfmac43455"} {
		if strings.HasSuffix(name, ".txt") && !strings.Contains(strings.ToLower(name), "raspberry") {
			return false // another maker's board
		}
		if strings.HasPrefix(name, "brcm/brcmfmac"+chip) || strings.HasPrefix(name, "cypress/"+chip) || strings.HasPrefix(name, "cypress/cyfmac"+chip) {
			return true
		}
	}
	return false
}
