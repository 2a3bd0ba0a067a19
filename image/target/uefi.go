package target

import (
	"strings"

	"farhand/image/check"
	"farhand/image/firmware"
	"farhand/image/initramfs/table"
	"farhand/image/root"
)

// uefi is what machines with UEFI have in common. Arch is GRUB's name of the
// architecture, as in x86_64-efi, and suffix UEFI's, as in BOOTX64.EFI.
func uefi(name, suffix, debian, arch, efi, cmdline string) Target {
	return Target{
		Name: name, Suffix: suffix, GUID: true,
		// Firmware may want a FAT32 of a disk that can't be taken out; 64 MiB is enough
		// for one.
		FirstType: table.EFI, FirstMiB: 64, FirstBits: 32,
		Stage: firmware.UEFI{Suffix: efi, Cmdline: cmdline}.Stage, Check: check.UEFI(efi),
		Root: root.Machine{
			Architecture: debian,
			Unpacked:     []string{"shim-signed", "grub-efi-" + debian + "-signed", "firmware-realtek/" + root.Release + "-backports"},
			Boot: map[string]string{
				"usr/lib/shim/shim" + efi + ".efi.signed":                         "shim.efi",
				"usr/lib/grub/" + arch + "-efi-signed/grub" + efi + ".efi.signed": "grub.efi",
			},
			Firmware: realtek,
		},
	}
}

// realtek says whether a network chip of Realtek's loads a file: on mainboards, on
// small boards, and in most Wi-Fi sticks. Other makers' firmware is large, and
// comes by the packages of a spec.
func realtek(name string) bool {
	for _, folder := range []string{"rtl_nic/", "rtlwifi/", "rtw88/"} {
		if strings.HasPrefix(name, folder) {
			return true
		}
	}
	return false
}

// generic is for machines with 64-bit Arm and UEFI: virtual ones, servers, and
// boards whose U-Boot offers UEFI and a device tree.
func generic() Target {
	t := uefi("generic", "generic", "arm64", "arm64", "aa64", "")
	t.Root.Modules = append(pcModules(), boardModules()...)
	t.Initramfs = append(pcDisks(), boardDisks()...)
	return t
}

// amd64 is for PCs and virtual machines. Their firmware doesn't say which serial
// port is the console; who has none isn't disturbed by it.
func amd64() Target {
	t := uefi("amd64", "amd64", "amd64", "x86_64", "x64", "console=ttyS0,115200 console=tty0")
	t.Root.Modules = pcModules()
	t.Initramfs = pcDisks()
	return t
}

// pcDisks are modules of the disks of PCs, servers and virtual machines.
func pcDisks() []string {
	return []string{
		"ahci", "ata_piix", "sr_mod",
		"sdhci_pci", "sdhci_acpi", "mmc_block",
		"virtio_scsi", "vmw_pvscsi", "hv_storvsc", "mptspi", "xen_blkfront",
		"ehci_pci", "ohci_pci", "uhci_hcd",
		"iTCO_wdt", "sp5100_tco", "wdat_wdt", "sbsa_gwdt",
	}
}

// pcModules are those of PCs, servers and virtual machines.
func pcModules() []string {
	return []string{
		// disks
		"drivers/ata/ahci", "drivers/ata/libahci", "drivers/ata/libata", "drivers/ata/ata_piix", "drivers/scsi/sr_mod", "drivers/cdrom/",
		"drivers/scsi/virtio_scsi", "drivers/scsi/vmw_pvscsi", "drivers/scsi/hv_storvsc", "drivers/scsi/scsi_transport_spi", "drivers/scsi/scsi_transport_fc",
		"drivers/message/fusion/mptspi", "drivers/message/fusion/mptscsih", "drivers/message/fusion/mptbase", "drivers/block/xen-blkfront",
		"drivers/mmc/host/sdhci-pci", "drivers/mmc/host/sdhci-acpi", "drivers/mmc/host/rtsx", "drivers/misc/cardreader/", "drivers/nvme/host/nvme",
		// network: what mainboards and clouds have
		"drivers/net/ethernet/intel/e1000", "drivers/net/ethernet/intel/e1000e/", "drivers/net/ethernet/intel/igb/", "drivers/net/ethernet/intel/igc/",
		"drivers/net/ethernet/intel/ixgbe", "drivers/net/ethernet/intel/libie", "drivers/net/ethernet/intel/libeth",
		"drivers/net/ethernet/realtek/", "drivers/net/ethernet/broadcom/tg3", "drivers/net/ethernet/broadcom/bnx", "drivers/net/ethernet/atheros/",
		"drivers/net/ethernet/marvell/sk", "drivers/net/ethernet/aquantia/", "drivers/net/ethernet/amazon/", "drivers/net/ethernet/google/",
		"drivers/net/ethernet/microsoft/", "drivers/net/ethernet/amd/pcnet32", "drivers/net/vmxnet3/", "drivers/net/hyperv/", "drivers/net/xen-netfront",
		// Wi-Fi; the firmware of most of it comes by the spec's packages
		"drivers/net/wireless/intel/iwlwifi/", "drivers/net/wireless/realtek/", "drivers/net/wireless/ath/", "drivers/net/wireless/mediatek/",
		// what the kernel of a virtual machine talks to its host by
		"drivers/hv/", "drivers/xen/", "drivers/misc/vmw_", "drivers/gpu/drm/tiny/", "drivers/gpu/drm/vmwgfx/", "drivers/gpu/drm/ttm/",
		// the board: buses that sensors hang on, fans, heat, power
		"drivers/i2c/busses/i2c-i801", "drivers/i2c/busses/i2c-piix4", "drivers/i2c/busses/i2c-amd", "drivers/i2c/busses/i2c-scmi",
		"drivers/mfd/lpc_", "drivers/mfd/intel", "drivers/mfd/mfd-core", "drivers/pinctrl/intel/", "drivers/pinctrl/pinctrl-amd", "drivers/gpio/gpio-ich", "drivers/gpio/gpio-amd",
		"drivers/gpio/gpio-f7188x", "drivers/gpio/gpio-it87", "drivers/spi/spi-pxa2xx", "drivers/spi/spi-intel", "drivers/pwm/pwm-lpss", "drivers/parport/", "drivers/char/ppdev",
		"drivers/hwmon/coretemp", "drivers/hwmon/k10temp", "drivers/hwmon/nct", "drivers/hwmon/it87", "drivers/hwmon/hwmon-vid", "drivers/thermal/intel/",
		"drivers/acpi/", "drivers/cpufreq/", "drivers/platform/x86/intel/pmc", "drivers/power/supply/", "drivers/input/keyboard/", "drivers/input/serio/", "drivers/watchdog/",
		"drivers/rtc/", "drivers/char/tpm/", "drivers/thunderbolt/", "drivers/usb/typec/", "drivers/firmware/", "fs/efivarfs/",
	}
}

// boardDisks are modules of the disks of boards with 64-bit Arm.
func boardDisks() []string {
	return []string{
		// clocks, pins, power and buses of SoCs, before what hangs on them
		"rk8xx_i2c", "rk8xx_spi", "rk808_regulator", "fan53555", "axp20x_i2c", "axp20x_rsb", "axp20x_regulator", "pwm_regulator", "gpio_regulator", "fixed",
		"i2c_rk3x", "i2c_mv64xxx", "i2c_meson", "i2c_imx", "pl330",
		"phy_rockchip_emmc", "phy_rockchip_inno_usb2", "phy_rockchip_naneng_combphy", "phy_rockchip_usbdp", "phy_rockchip_pcie", "phy_sun4i_usb",
		"phy_meson_gxl_usb2", "phy_meson_g12a_usb2", "phy_meson_g12a_usb3_pcie", "phy_fsl_imx8mq_usb",
		// SD and eMMC
		"dw_mmc_pltfm", "dw_mmc_rockchip", "sdhci_of_dwcmshc", "sdhci_of_arasan", "sunxi_mmc", "meson_gx_mmc", "sdhci_esdhc_imx", "sdhci_tegra", "sdhci_am654", "sdhci_msm", "sdhci_xenon",
		// PCIe and USB of the same
		"pcie_rockchip_host", "pcie_dw_rockchip", "dwc3", "dwc3_of_simple", "dwc3_meson_g12a", "dwc3_imx8mp", "dwc2", "ehci_platform", "ohci_platform", "sunxi_wdt", "dw_wdt", "meson_gxbb_wdt", "imx2_wdt",
	}
}

// boardModules are those of boards with 64-bit Arm: whatever drives a SoC, since
// there is no end of them and they are small.
func boardModules() []string {
	return []string{
		"drivers/clk/", "drivers/pinctrl/", "drivers/phy/", "drivers/soc/", "drivers/regulator/", "drivers/mfd/", "drivers/mmc/", "drivers/i2c/busses/", "drivers/spi/", "drivers/pwm/",
		"drivers/gpio/", "drivers/dma/", "drivers/reset/", "drivers/mailbox/", "drivers/nvmem/", "drivers/interconnect/", "drivers/iommu/", "drivers/memory/", "drivers/thermal/",
		"drivers/pci/", "drivers/extcon/", "drivers/devfreq/", "drivers/perf/", "drivers/bus/", "drivers/remoteproc/", "drivers/rpmsg/", "drivers/hwspinlock/", "drivers/leds/",
		"drivers/net/ethernet/stmicro/", "drivers/net/ethernet/allwinner/", "drivers/net/ethernet/freescale/", "drivers/net/ethernet/ti/", "drivers/net/ethernet/marvell/",
		"drivers/net/ethernet/hisilicon/", "drivers/net/ethernet/apm/", "drivers/net/ethernet/mediatek/", "drivers/usb/phy/", "drivers/tty/serial/",
	}
}
