package pinout_test

import (
	"slices"
	"testing"

	"farhand/internal/pinout"
)

func TestHeader(t *testing.T) {
	kinds := map[pinout.Kind]int{}
	seen := map[int]int{}
	for i, p := range pinout.Header() {
		if p.Number != i+1 {
			t.Errorf("pin %d stands at %d", p.Number, i+1)
		}
		kinds[p.Kind]++
		if p.Kind == pinout.GPIO {
			seen[p.BCM]++
			if back, ok := pinout.ByBCM(p.BCM); !ok || back != p {
				t.Errorf("GPIO%d is pin %d, and back %+v", p.BCM, p.Number, back)
			}
		}
	}
	if kinds[pinout.GPIO] != 28 || kinds[pinout.Power3] != 2 || kinds[pinout.Power5] != 2 || kinds[pinout.Ground] != 8 {
		t.Errorf("the header has %v", kinds)
	}
	for n := range 28 {
		if seen[n] != 1 {
			t.Errorf("GPIO%d is there %d times", n, seen[n])
		}
	}
	for pin, name := range map[int]string{1: "3V3", 2: "5V", 6: "GND", 3: "GPIO2", 8: "GPIO14", 11: "GPIO17", 12: "GPIO18", 27: "GPIO0", 32: "GPIO12", 33: "GPIO13", 39: "GND", 40: "GPIO21"} {
		if p, ok := pinout.ByNumber(pin); !ok || p.Name != name {
			t.Errorf("pin %d is %+v, want %s", pin, p, name)
		}
	}
	for _, n := range []int{-1, 0, 41} {
		if p, ok := pinout.ByNumber(n); ok {
			t.Errorf("pin %d is %+v", n, p)
		}
	}
	for _, n := range []int{-3, -1, 28, 53} {
		if p, ok := pinout.ByBCM(n); ok {
			t.Errorf("GPIO%d is %+v", n, p)
		}
	}
}

func TestFunctions(t *testing.T) {
	for _, c := range []struct {
		soc  pinout.SoC
		bcm  int
		want pinout.Function
	}{
		{pinout.BCM2837, 18, pinout.Function{Alt: "alt5", Name: "PWM0"}},
		{pinout.BCM2711, 13, pinout.Function{Alt: "alt0", Name: "PWM0_1"}},
		{pinout.BCM2711, 14, pinout.Function{Alt: "alt5", Name: "TXD1"}},
		{pinout.RP1, 19, pinout.Function{Alt: "alt3", Name: "PWM0_CHAN3"}},
		{pinout.RP1, 14, pinout.Function{Alt: "alt4", Name: "UART0_TX"}},
		{pinout.RP1, 0, pinout.Function{Alt: "alt8", Name: "SPI2_CE0"}},
	} {
		if got := pinout.Functions(c.soc, c.bcm); !slices.Contains(got, c.want) {
			t.Errorf("%s GPIO%d: %v has no %v", c.soc, c.bcm, got, c.want)
		}
	}
	for _, b := range pinout.Boards() {
		for n := range 28 {
			if len(pinout.Functions(b.SoC, n)) < 2 {
				t.Errorf("%s: GPIO%d has only %v", b.Name, n, pinout.Functions(b.SoC, n))
			}
		}
		if f := pinout.Functions(b.SoC, 28); f != nil {
			t.Errorf("%s: GPIO28 has %v", b.Name, f)
		}
	}
}

func TestModel(t *testing.T) {
	for model, want := range map[string]string{
		"Raspberry Pi 3 Model B Plus Rev 1.3":      "pinctrl-bcm2835",
		"Raspberry Pi Zero 2 W Rev 1.0":            "pinctrl-bcm2835",
		"Raspberry Pi 4 Model B Rev 1.4":           "pinctrl-bcm2711",
		"Raspberry Pi Compute Module 4 Rev 1.0":    "pinctrl-bcm2711",
		"Raspberry Pi 5 Model B Rev 1.0":           "pinctrl-rp1",
		"Raspberry Pi 500 Rev 1.0":                 "pinctrl-rp1",
		"Some other board":                         "",
		"Raspberry Pi Compute Module 5 Lite Rev 1": "pinctrl-rp1",
	} {
		b, ok := pinout.Model(model)
		if b.Label != want || ok != (want != "") {
			t.Errorf("%q is %+v", model, b)
		}
		if soc, ok := pinout.ByLabel(b.Label); ok && soc != b.SoC {
			t.Errorf("%s: the label says %s, the model %s", model, soc, b.SoC)
		}
	}
}
