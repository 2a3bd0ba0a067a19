// Package hardware says which buses the header of a Raspberry Pi can carry, and
// which device tree overlays of the image switch them on: the content of the
// include file that the firmware reads from the boot partition.
//
// The kernel comes with almost no overlays of its own. Nodes and pins differ
// between the families of SoCs, so there is an overlay for each.
package hardware

import (
	"fmt"
	"slices"
	"strings"
)

// IncludeFile is the file's name on a boot partition; config.txt ends with
// "include farhand-hw.txt".
const IncludeFile = "farhand-hw.txt"

// A family of SoCs, by the name that its overlays carry.
const (
	BCM2837 = "bcm2837" // Pi 3, 3+, CM3, Zero 2 W
	BCM2711 = "bcm2711" // Pi 4, 400, CM4
	BCM2712 = "bcm2712" // Pi 5, 500, CM5: the header hangs on the RP1
)

// Bus is one bus of the header.
type Bus struct {
	Name    string // as in farhand.toml
	Doc     string // pins included
	Default bool
	SoCs    []string // those whose header has it
	// On are the SoCs whose device trees have it on by themselves, so that it
	// takes an overlay to free the pins.
	On []string
}

// Buses lists the buses, sorted by name. Pins are GPIO numbers (Raspberry Pi
// documentation, "GPIO pin alternative functions").
//
// On a Pi 5 the kernel (Debian's 7.3) drives the RP1's I2C and GPIO and nothing
// else of its header: it is built without SPI_DW_MMIO and PWM_RP1, and the RP1's
// node has no serial ports.
func Buses() []Bus {
	every := []string{BCM2837, BCM2711, BCM2712}
	older := []string{BCM2837, BCM2711}
	pi4 := []string{BCM2711}
	return []Bus{
		{"i2c1", "I2C on GPIO 2 and 3", true, every, older},
		{"pwm", "two PWM channels on GPIO 12 and 13", false, older, nil},
		{"spi0", "SPI on GPIO 9 to 11, chip selects on 8 and 7", true, older, nil},
		{"spi1", "SPI on GPIO 19 to 21, chip selects on 18, 17 and 16", false, older, nil},
		{"uart2", "serial port on GPIO 0 and 1", false, pi4, nil},
		{"uart3", "serial port on GPIO 4 and 5", false, pi4, nil},
		{"uart4", "serial port on GPIO 8 and 9", false, pi4, nil},
		{"uart5", "serial port on GPIO 12 and 13", false, pi4, nil},
		{"w1", "1-Wire on GPIO 4", false, every, nil},
	}
}

// Find is the bus of that name.
func Find(name string) (Bus, bool) {
	buses := Buses()
	i := slices.IndexFunc(buses, func(b Bus) bool { return b.Name == name })
	if i < 0 {
		return Bus{}, false
	}
	return buses[i], true
}

// Defaults are the buses that an image switches on.
func Defaults() map[string]bool {
	d := make(map[string]bool)
	for _, b := range Buses() {
		d[b.Name] = b.Default
	}
	return d
}

// Overlay is the name of the overlay that switches a bus on, without the .dtbo
// of its file in overlays/.
func Overlay(bus, soc string) string { return bus + "-" + soc }

// OffOverlay is the name of the overlay that switches a bus off.
func OffOverlay(bus, soc string) string { return "no-" + Overlay(bus, soc) }

// Overlays lists every overlay that Include can name, sorted.
func Overlays() []string {
	var all []string
	for _, b := range Buses() {
		for _, soc := range b.SoCs {
			all = append(all, Overlay(b.Name, soc))
		}
		for _, soc := range b.On {
			all = append(all, OffOverlay(b.Name, soc))
		}
	}
	slices.Sort(all)
	return all
}

// filters are config.txt's names of the models that have a SoC (Raspberry Pi
// documentation, config.txt, "Conditional filters").
func filters(soc string) []string {
	switch soc {
	case BCM2837:
		return []string{"pi3", "pi02"}
	case BCM2711:
		return []string{"pi4"}
	default:
		return []string{"pi5"}
	}
}

// Include is the content of the include file for the wanted buses; a bus that
// isn't mentioned is as in Defaults. The same wish gives the same bytes on every
// board, so that an image can carry the file of its defaults.
func Include(wanted map[string]bool) []byte {
	on := Defaults()
	for name, want := range wanted {
		on[name] = want
	}
	var b strings.Builder
	b.WriteString("# The buses of the header. Written from [buses] of farhand.toml; changes here are undone.\n")
	for _, soc := range []string{BCM2837, BCM2711, BCM2712} {
		for _, filter := range filters(soc) {
			fmt.Fprintf(&b, "[%s]\n", filter)
			for _, bus := range Buses() {
				switch {
				case on[bus.Name] && slices.Contains(bus.SoCs, soc):
					fmt.Fprintf(&b, "dtoverlay=%s\n", Overlay(bus.Name, soc))
				case !on[bus.Name] && slices.Contains(bus.On, soc):
					fmt.Fprintf(&b, "dtoverlay=%s\n", OffOverlay(bus.Name, soc))
				}
			}
		}
	}
	b.WriteString("[all]\n")
	return []byte(b.String())
}

// SoC is the family that a device tree's compatible property names (strings
// with a NUL each); empty for a board that is no Raspberry Pi.
func SoC(compatible []byte) string {
	for name := range strings.SplitSeq(string(compatible), "\x00") {
		if soc, ok := strings.CutPrefix(name, "brcm,"); ok && slices.Contains([]string{BCM2837, BCM2711, BCM2712}, soc) {
			return soc
		}
	}
	return ""
}

// Missing are the wanted buses that a SoC's header doesn't have, sorted.
func Missing(wanted map[string]bool, soc string) []string {
	var missing []string
	for name, want := range wanted {
		if bus, known := Find(name); want && known && !slices.Contains(bus.SoCs, soc) {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}
