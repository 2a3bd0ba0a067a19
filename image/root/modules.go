package root

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// trimModules takes away the modules that no machine with this image can use,
// unless one that stays needs them, and writes the index of those that stay. More
// are the beginnings of what stays beyond a Raspberry Pi's.
func trimModules(ctx context.Context, tree, release string, more []string) error {
	if err := depmod(ctx, tree, release); err != nil {
		return err
	}
	dir := filepath.Join(tree, "usr/lib/modules", release)
	needs, err := dependencies(filepath.Join(dir, "modules.dep"))
	if err != nil {
		return err
	}
	all := append(slices.Clone(moduleRules), rules(map[bool][]string{true: more})...)
	keep := make(map[string]bool)
	for name, others := range needs {
		if keepModule(all, strings.TrimPrefix(name, "kernel/")) {
			keep[name] = true
			for _, o := range others { // all that it needs, and those need
				keep[o] = true
			}
		}
	}
	for name := range needs {
		if !keep[name] {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	if err := removeEmpty(filepath.Join(dir, "kernel")); err != nil {
		return err
	}
	return depmod(ctx, tree, release)
}

// depmod writes the modules' index.
func depmod(ctx context.Context, tree, release string) error {
	if out, err := exec.CommandContext(ctx, "depmod", "-b", tree, release).CombinedOutput(); err != nil {
		return fmt.Errorf("depmod: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// dependencies reads modules.dep (depmod(8)): a module a line, its path below
// the release's folder, and after a colon all that it needs.
func dependencies(file string) (map[string][]string, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := make(map[string][]string)
	for line := range strings.Lines(string(b)) {
		name, needs, ok := strings.Cut(strings.TrimSpace(line), ":")
		if ok {
			all[name] = strings.Fields(needs)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s names no modules", file)
	}
	return all, nil
}

// keepModule decides on one module by its path below kernel/. The longest rule
// that matches wins, of two the later one.
func keepModule(all []moduleRule, rel string) bool {
	best, keep := -1, true
	for _, r := range all {
		if len(r.prefix) >= best && (strings.HasPrefix(rel, r.prefix)) {
			best, keep = len(r.prefix), r.keep
		}
	}
	return keep
}

type moduleRule struct {
	prefix string
	keep   bool
}

var moduleRules = rules(map[bool][]string{
	false: {
		"sound/", "samples/", "drivers/media/", "drivers/infiniband/", "drivers/isdn/", "drivers/firewire/", "drivers/gpu/", "drivers/video/",
		"drivers/scsi/", "drivers/ata/", "drivers/md/", "drivers/mtd/", "drivers/nvdimm/", "drivers/staging/", "drivers/accel/", "drivers/edac/",
		"drivers/target/", "drivers/vdpa/", "drivers/vfio/", "drivers/vhost/", "drivers/crypto/", "drivers/comedi/", "drivers/fpga/",
		"drivers/message/", "drivers/xen/", "drivers/hv/", "drivers/s390/", "drivers/char/ipmi/", "drivers/char/tpm/", "drivers/ntb/",
		"drivers/net/", "drivers/block/", "drivers/nvme/target/", "drivers/nvme/host/nvme-", "drivers/interconnect/", "drivers/soundwire/", "drivers/slimbus/",
		"drivers/clk/", "drivers/pinctrl/", "drivers/phy/", "drivers/soc/", "drivers/remoteproc/", "drivers/rpmsg/", "drivers/iommu/",
		"drivers/regulator/", "drivers/power/", "drivers/mfd/", "drivers/extcon/", "drivers/platform/", "drivers/perf/", "drivers/hwtracing/",
		"drivers/input/", "drivers/hid/", "drivers/iio/", "drivers/bluetooth/", "drivers/nfc/", "drivers/spmi/", "drivers/memory/", "drivers/devfreq/",
		"drivers/thermal/", "drivers/cpufreq/", "drivers/dma/", "drivers/i2c/busses/", "drivers/i2c/muxes/", "drivers/spi/", "drivers/mmc/host/",
		"drivers/usb/gadget/udc/", "drivers/usb/atm/", "drivers/usb/image/", "drivers/usb/misc/", "drivers/usb/typec/", "drivers/usb/phy/",
		"drivers/watchdog/", "drivers/rtc/", "drivers/pwm/", "drivers/gpio/", "drivers/hwmon/", "drivers/tty/", "drivers/leds/", "drivers/misc/",
		"drivers/nvmem/", "drivers/reset/", "drivers/mailbox/", "drivers/firmware/", "drivers/pci/", "drivers/uio/", "drivers/mux/", "drivers/ptp/",
		"drivers/pcmcia/", "drivers/parport/", "drivers/cdx/", "drivers/dca/", "drivers/dpll/", "drivers/greybus/", "drivers/bus/", "drivers/android/", "drivers/dax/",
		"drivers/acpi/", "arch/x86/kvm/", "drivers/virt/", "drivers/counter/", "drivers/opp/", "drivers/cpuidle/", "drivers/powercap/", "drivers/resctrl/", "drivers/mcb/", "drivers/ufs/", "drivers/mmc/core/sdio_uart",
		"fs/", "net/",
	},
	true: {
		// Display: the boards' and the emulator's, and what they stand on.
		"drivers/gpu/drm/vc4/", "drivers/gpu/drm/virtio/", "drivers/gpu/drm/drm", "drivers/gpu/drm/display/", "drivers/gpu/drm/scheduler/", "drivers/gpu/drm/clients/", "drivers/gpu/drm/v3d/",
		"drivers/video/fbdev/core/",
		// Disks: SD, USB, NVMe on a Pi 5, the emulator's.
		"drivers/scsi/scsi_mod", "drivers/scsi/scsi_common", "drivers/scsi/sd_mod", "drivers/scsi/sg", "drivers/nvme/host/nvme.", "drivers/nvme/host/nvme-core", "drivers/nvme/common/",
		"drivers/block/virtio_blk", "drivers/block/loop", "drivers/block/zram/",
		"drivers/mmc/host/sdhci.", "drivers/mmc/host/sdhci-pltfm", "drivers/mmc/host/sdhci-iproc", "drivers/mmc/host/sdhci-brcmstb", "drivers/mmc/host/sdhci-of-dwcmshc", "drivers/mmc/host/bcm2835", "drivers/mmc/host/cqhci",
		// Network: the boards' own, the usual USB adapters and phones, the emulator's.
		"drivers/net/ethernet/broadcom/genet/", "drivers/net/ethernet/broadcom/unimac", "drivers/net/ethernet/cadence/", "drivers/net/usb/", "drivers/net/phy/", "drivers/net/mdio/", "drivers/net/mii", "drivers/net/pcs/",
		"drivers/net/wireless/broadcom/brcm80211/brcmfmac/", "drivers/net/wireless/broadcom/brcm80211/brcmutil/", "drivers/net/wireless/virtual/",
		"drivers/net/virtio_net", "drivers/net/net_failover", "drivers/net/tun", "drivers/net/bridge", "drivers/net/dummy", "drivers/net/wireguard/", "drivers/net/veth",
		// The SoCs.
		"drivers/clk/bcm/", "drivers/clk/clk-rp1", "drivers/clk/clk-raspberrypi", "drivers/pinctrl/bcm/", "drivers/pinctrl/pinctrl-rp1", "drivers/pinctrl/core", "drivers/phy/broadcom/", "drivers/soc/bcm/",
		"drivers/regulator/gpio-regulator", "drivers/regulator/fixed", "drivers/regulator/rpi", "drivers/mfd/simple-mfd", "drivers/mfd/bcm", "drivers/thermal/broadcom/", "drivers/cpufreq/raspberrypi", "drivers/dma/bcm2835", "drivers/dma/dw-axi",
		"drivers/i2c/busses/i2c-bcm2835", "drivers/i2c/busses/i2c-brcmstb", "drivers/i2c/busses/i2c-designware", "drivers/i2c/busses/i2c-gpio", "drivers/i2c/busses/i2c-tiny-usb", "drivers/i2c/busses/i2c-cp2615", "drivers/i2c/busses/i2c-mcp2221", "drivers/i2c/busses/i2c-stub", "drivers/i2c/muxes/i2c-mux",
		"drivers/spi/spi-bcm2835", "drivers/spi/spi-dw", "drivers/spi/spi-gpio", "drivers/spi/spi-bitbang", "drivers/spi/spidev",
		"drivers/reset/reset-raspberrypi", "drivers/reset/reset-brcm", "drivers/firmware/raspberrypi", "drivers/mailbox/bcm", "drivers/nvmem/raspberrypi", "drivers/nvmem/rp1", "drivers/pci/controller/pcie-brcmstb", "drivers/misc/rp1/", "drivers/misc/eeprom/at24", "drivers/misc/eeprom/at25", "drivers/misc/eeprom/eeprom_93cx6",
		"drivers/watchdog/bcm2835", "drivers/watchdog/softdog", "drivers/watchdog/i6300esb", "drivers/rtc/rtc-rpi", "drivers/rtc/rtc-ds1307", "drivers/rtc/rtc-ds3232", "drivers/rtc/rtc-pcf85", "drivers/rtc/rtc-rv",
		"drivers/pwm/pwm-bcm2835", "drivers/pwm/pwm-raspberrypi", "drivers/pwm/pwm-rp1", "drivers/pwm/pwm-gpio", "drivers/gpio/gpio-raspberrypi", "drivers/gpio/gpio-bcm-virt", "drivers/gpio/gpio-brcmstb", "drivers/gpio/gpio-sim", "drivers/gpio/gpio-pca953x", "drivers/gpio/gpio-mcp", "drivers/gpio/gpio-aggregator", "drivers/gpio/gpio-ftdi", "drivers/gpio/gpio-generic",
		"drivers/hwmon/raspberrypi", "drivers/hwmon/lm75", "drivers/hwmon/drivetemp", "drivers/hwmon/gpio-fan", "drivers/hwmon/pwm-fan", "drivers/leds/leds-gpio", "drivers/leds/led-class",
		"drivers/tty/serial/8250/", "drivers/tty/serial/amba", "drivers/tty/serial/sc16is7xx", "drivers/tty/n_gsm", "drivers/w1/",
		// USB: what is plugged into a board. HID is what hidraw stands on.
		"drivers/usb/", "drivers/hid/hid.", "drivers/hid/hid-generic", "drivers/hid/usbhid/", "drivers/hid/hid-cp2112", "drivers/hid/hid-mcp2221", "drivers/hid/hid-ft260", "drivers/input/evdev", "drivers/input/input-leds", "drivers/input/joydev",
		"drivers/usb/gadget/udc/dummy_hcd", "drivers/usb/phy/phy-generic", "drivers/usb/misc/",
		"drivers/virtio/", "drivers/char/hw_random/", "drivers/pps/", "drivers/ptp/",
		// Files: ours, and sticks and cards of others.
		"fs/ext4/", "fs/jbd2/", "fs/mbcache", "fs/fat/", "fs/nls/nls_", "fs/squashfs/", "fs/erofs/", "fs/netfs/", "fs/overlayfs/", "fs/fuse/", "fs/exfat/", "fs/ntfs3/", "fs/isofs/", "fs/udf/", "fs/configfs/", "fs/pstore/", "fs/autofs/", "fs/binfmt_misc", "fs/f2fs/",
		// Protocols.
		"net/wireless/", "net/mac80211/", "net/rfkill/", "net/802/", "net/8021q/", "net/bridge/", "net/llc/", "net/netfilter/", "net/ipv4/netfilter/", "net/ipv6/netfilter/", "net/ipv6/ipv6", "net/ipv4/", "net/core/", "net/packet/", "net/unix/", "net/dns_resolver/", "net/can/", "drivers/net/can/usb/", "drivers/net/can/slcan", "drivers/net/can/spi/", "drivers/net/can/dev/", "drivers/net/can/vcan", "drivers/net/can/vxcan", "net/sched/sch_fq_codel",
	},
})

func rules(m map[bool][]string) []moduleRule {
	var all []moduleRule
	for _, keep := range []bool{false, true} { // of two that are the same, what is kept comes later
		for _, p := range m[keep] {
			all = append(all, moduleRule{p, keep})
		}
	}
	return all
}

// removeEmpty removes the directories below dir that hold nothing.
func removeEmpty(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeEmpty(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	entries, err = os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		return err
	}
	return os.Remove(dir)
}

// trimFirmware leaves of the firmware that drivers load what keep says.
func trimFirmware(tree string, keep func(name string) bool) error {
	dir := filepath.Join(tree, "usr/lib/firmware")
	err := filepath.WalkDir(dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return err
		}
		rel, _ := filepath.Rel(dir, name)
		if strings.HasPrefix(rel, "regulatory.db") || keep != nil && keep(rel) {
			return nil
		}
		return os.Remove(name)
	})
	if err != nil {
		return err
	}
	if err := removeEmpty(dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
