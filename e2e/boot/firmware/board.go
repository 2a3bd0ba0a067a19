package firmware

// Board is a model, as the firmware sees it.
type Board struct {
	Name    string   // "3b"
	Model   string   // what the device tree says
	Filters []string // the conditional sections of config.txt that apply, beside [all]
	// DTB is the device tree's file, by its upstream name; "" if the emulator
	// makes the device tree itself.
	DTB string
	// Firmware is what must lie beside config.txt, or the partition counts as not
	// bootable. The Pi 5 has its firmware in EEPROM.
	Firmware []string
	// Kernels are the files that are looked for, the first that is there counts.
	Kernels []string
}

// The boards that an image has to boot on. Device trees and files: Raspberry
// Pi's documentation of the boot partition, and arch/arm64/boot/dts/broadcom of
// Linux.
var (
	rom     = []string{"start.elf", "fixup.dat"}
	eeprom4 = []string{"start4.elf", "fixup4.dat"}
	usual   = []string{"kernel8.img"}
)

// Pi3B is the one that QEMU emulates.
func Pi3B() Board {
	return Board{Name: "3b", Model: "Raspberry Pi 3 Model B", Filters: []string{"pi3"}, DTB: "bcm2837-rpi-3-b.dtb", Firmware: rom, Kernels: usual}
}

// Virt is QEMU's own machine. It has no firmware of Raspberry Pi's; it takes
// what every board takes.
func Virt() Board {
	return Board{Name: "virt", Model: "linux,dummy-virt", Kernels: usual}
}

// Boards are the models that the image is for.
func Boards() []Board {
	return []Board{
		Pi3B(),
		{Name: "3b+", Model: "Raspberry Pi 3 Model B+", Filters: []string{"pi3", "pi3+"}, DTB: "bcm2837-rpi-3-b-plus.dtb", Firmware: rom, Kernels: usual},
		{Name: "3a+", Model: "Raspberry Pi 3 Model A+", Filters: []string{"pi3", "pi3+"}, DTB: "bcm2837-rpi-3-a-plus.dtb", Firmware: rom, Kernels: usual},
		{Name: "cm3", Model: "Raspberry Pi Compute Module 3", Filters: []string{"pi3"}, DTB: "bcm2837-rpi-cm3-io3.dtb", Firmware: rom, Kernels: usual},
		{Name: "zero2w", Model: "Raspberry Pi Zero 2 W", Filters: []string{"pi02", "pi3"}, DTB: "bcm2837-rpi-zero-2-w.dtb", Firmware: rom, Kernels: usual},
		{Name: "4b", Model: "Raspberry Pi 4 Model B", Filters: []string{"pi4"}, DTB: "bcm2711-rpi-4-b.dtb", Firmware: eeprom4, Kernels: usual},
		{Name: "400", Model: "Raspberry Pi 400", Filters: []string{"pi4", "pi400"}, DTB: "bcm2711-rpi-400.dtb", Firmware: eeprom4, Kernels: usual},
		{Name: "cm4", Model: "Raspberry Pi Compute Module 4", Filters: []string{"pi4", "cm4"}, DTB: "bcm2711-rpi-cm4-io.dtb", Firmware: eeprom4, Kernels: usual},
		{Name: "5", Model: "Raspberry Pi 5 Model B", Filters: []string{"pi5"}, DTB: "bcm2712-rpi-5-b.dtb", Kernels: []string{"kernel_2712.img", "kernel8.img"}},
		{Name: "5d0", Model: "Raspberry Pi 5 Model B, stepping D0", Filters: []string{"pi5"}, DTB: "bcm2712-d-rpi-5-b.dtb", Kernels: []string{"kernel_2712.img", "kernel8.img"}},
	}
}
