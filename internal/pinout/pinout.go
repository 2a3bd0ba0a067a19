// Package pinout is what stands where on the 40-pin header of a Raspberry Pi,
// and what each of its GPIO pins can be switched to: pure data, for the names of
// lines and for drawing.
//
// The header is the same on every board that has one (J8, Raspberry Pi hardware
// documentation, "GPIO and the 40-pin header"). What a pin can do besides GPIO
// depends on the chip behind it.
package pinout

import (
	"slices"
	"strconv"
	"strings"
)

// Kind says what a pin is.
type Kind string

// The kinds.
const (
	GPIO   Kind = "gpio"
	Power3 Kind = "3v3"
	Power5 Kind = "5v"
	Ground Kind = "ground"
)

// Pin is one pin of the header.
type Pin struct {
	Number int // 1 to 40; odd ones stand on the inner row
	Kind   Kind
	BCM    int    // the GPIO's number; -1 if it is none
	Name   string // GPIO17, 3V3, 5V, GND
	Usual  string // what it is mostly used for besides GPIO: SDA1, TXD0, ID_SD; may be empty
}

// bcm is the GPIO number of each pin, or one of the three below.
const (
	v3  = -3
	v5  = -5
	gnd = -1
)

var bcm = [40]int{
	v3, v5,
	2, v5,
	3, gnd,
	4, 14,
	gnd, 15,
	17, 18,
	27, gnd,
	22, 23,
	v3, 24,
	10, gnd,
	9, 25,
	11, 8,
	gnd, 7,
	0, 1,
	5, gnd,
	6, 12,
	13, gnd,
	19, 16,
	26, 20,
	gnd, 21,
}

// usual is what the header's documentation prints beside the numbers.
var usual = map[int]string{
	0: "ID_SD", 1: "ID_SC", 2: "SDA1", 3: "SCL1", 4: "GPCLK0", 7: "SPI0_CE1", 8: "SPI0_CE0", 9: "SPI0_MISO",
	10: "SPI0_MOSI", 11: "SPI0_SCLK", 12: "PWM0", 13: "PWM1", 14: "TXD0", 15: "RXD0", 18: "PCM_CLK", 19: "PCM_FS",
	20: "PCM_DIN", 21: "PCM_DOUT",
}

// Header is the 40 pins in order.
func Header() []Pin {
	pins := make([]Pin, len(bcm))
	for i := range bcm {
		pins[i], _ = ByNumber(i + 1)
	}
	return pins
}

// ByNumber is the pin with this number, 1 to 40.
func ByNumber(n int) (Pin, bool) {
	if n < 1 || n > len(bcm) {
		return Pin{BCM: -1}, false
	}
	switch b := bcm[n-1]; b {
	case v3:
		return Pin{Number: n, Kind: Power3, BCM: -1, Name: "3V3"}, true
	case v5:
		return Pin{Number: n, Kind: Power5, BCM: -1, Name: "5V"}, true
	case gnd:
		return Pin{Number: n, Kind: Ground, BCM: -1, Name: "GND"}, true
	default:
		return Pin{Number: n, Kind: GPIO, BCM: b, Name: "GPIO" + strconv.Itoa(b), Usual: usual[b]}, true
	}
}

// ByBCM is the pin of this GPIO number, 0 to 27.
func ByBCM(n int) (Pin, bool) {
	if i := slices.Index(bcm[:], n); i >= 0 && n >= 0 {
		return ByNumber(i + 1)
	}
	return Pin{BCM: -1}, false
}

// Board is a model of the Raspberry Pi with the header.
type Board struct {
	Name  string // Raspberry Pi 4
	SoC   SoC
	Label string // of the GPIO chip that the header hangs on
}

// SoC is the chip behind the header, as far as what its pins can do differs.
type SoC string

// The chips.
const (
	BCM2837 SoC = "bcm2837" // Pi 3, Zero 2 W; the same pins as BCM2835 and BCM2836
	BCM2711 SoC = "bcm2711" // Pi 4, CM4
	RP1     SoC = "rp1"     // Pi 5, CM5
)

// The labels are those that the kernel's pinctrl drivers give their chips.
var boards = []struct {
	begins string // of /proc/device-tree/model
	Board
}{
	{"Raspberry Pi 5", Board{"Raspberry Pi 5", RP1, "pinctrl-rp1"}}, // 500 as well
	{"Raspberry Pi Compute Module 5", Board{"Raspberry Pi Compute Module 5", RP1, "pinctrl-rp1"}},
	{"Raspberry Pi 4", Board{"Raspberry Pi 4", BCM2711, "pinctrl-bcm2711"}}, // 400 as well
	{"Raspberry Pi Compute Module 4", Board{"Raspberry Pi Compute Module 4", BCM2711, "pinctrl-bcm2711"}},
	{"Raspberry Pi 3", Board{"Raspberry Pi 3", BCM2837, "pinctrl-bcm2835"}},
	{"Raspberry Pi Compute Module 3", Board{"Raspberry Pi Compute Module 3", BCM2837, "pinctrl-bcm2835"}},
	{"Raspberry Pi Zero 2", Board{"Raspberry Pi Zero 2 W", BCM2837, "pinctrl-bcm2835"}},
	{"Raspberry Pi Zero", Board{"Raspberry Pi Zero", BCM2837, "pinctrl-bcm2835"}},
	{"Raspberry Pi 2", Board{"Raspberry Pi 2", BCM2837, "pinctrl-bcm2835"}},
	{"Raspberry Pi Model B Plus", Board{"Raspberry Pi 1 Model B+", BCM2837, "pinctrl-bcm2835"}},
	{"Raspberry Pi Model A Plus", Board{"Raspberry Pi 1 Model A+", BCM2837, "pinctrl-bcm2835"}},
}

// Model finds a board by what it calls itself in /proc/device-tree/model, such
// as "Raspberry Pi 4 Model B Rev 1.4".
func Model(model string) (Board, bool) {
	for _, b := range boards {
		if strings.HasPrefix(model, b.begins) {
			return b.Board, true
		}
	}
	return Board{}, false
}

// ByLabel finds what is behind a GPIO chip with the header by its label: the
// board's name isn't known then.
func ByLabel(label string) (SoC, bool) {
	for _, b := range boards {
		if b.Label == label {
			return b.SoC, true
		}
	}
	return "", false
}

// Boards are the models by name.
func Boards() []Board {
	all := make([]Board, len(boards))
	for i, b := range boards {
		all[i] = b.Board
	}
	return all
}

// Functions are what a GPIO pin, 0 to 27, can be switched to, by the kernel's
// name for it: alt0 to alt5, of RP1 alt0 to alt8. An empty one is reserved, or
// GPIO itself.
func Functions(s SoC, n int) []Function {
	table := functions[s]
	if n < 0 || n >= len(table) {
		return nil
	}
	var all []Function
	for i, name := range strings.Fields(table[n]) {
		if name != "-" {
			all = append(all, Function{Alt: "alt" + strconv.Itoa(i), Name: name})
		}
	}
	return all
}

// Function is one of them.
type Function struct {
	Alt  string // alt0
	Name string // PWM0
}
