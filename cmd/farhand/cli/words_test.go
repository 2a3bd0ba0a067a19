package cli

import (
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestSplit(t *testing.T) {
	never := func(string) bool { return false }
	for _, c := range []struct {
		family, args string
		least        int
		own          func(string) bool
		want         words
	}{
		{"usb", "", 0, nil, words{}},
		{"usb", "pi", 0, nil, words{machine: "pi"}},
		{"usb", "2341:0043", 0, nil, words{device: "usb:2341:0043"}},
		{"usb", "pi 2341:ABCD", 0, nil, words{machine: "pi", device: "usb:2341:abcd"}},
		{"i2c", "pi 1", 0, nil, words{machine: "pi", device: "i2c:1"}},
		{"i2c", "i2c-1", 0, nil, words{device: "i2c-1"}},
		{"spi", "/dev/spidev0.0", 0, nil, words{device: "/dev/spidev0.0"}},
		{"serial", "pi ttyUSB0 data", 1, nil, words{machine: "pi", device: "serial:ttyUSB0", rest: []string{"data"}}},
		{"serial", "/dev/ttyUSB0 data", 1, nil, words{device: "/dev/ttyUSB0", rest: []string{"data"}}},
		{"serial", "usb:1:2 usb:3:4", 1, nil, words{device: "usb:1:2", rest: []string{"usb:3:4"}}},
		{"gpio", "17", 0, isLine, words{rest: []string{"17"}}},
		{"gpio", "17 gpio:bcm 4", 0, isLine, words{machine: "17", device: "gpio:bcm", rest: []string{"4"}}},
		{"gpio", "pi LED", 0, isLine, words{machine: "pi", rest: []string{"LED"}}},
		{"gpio", "pi gpiochip1 4", 0, isLine, words{machine: "pi", device: "gpiochip1", rest: []string{"4"}}},
		{"gpio", "pin 11", 0, isLine, words{rest: []string{"pin", "11"}}},
		{"printer", "pi usb-04f9:2042-X1", 0, nil, words{machine: "pi", device: "printer:usb-04f9:2042-X1"}},
		{"spi", "aa", 1, never, words{rest: []string{"aa"}}},
	} {
		got := split(c.family, strings.Fields(c.args), c.least, c.own)
		if got.machine != c.want.machine || got.device != c.want.device || !slices.Equal(got.rest, c.want.rest) {
			t.Errorf("%s %q = %+v, want %+v", c.family, c.args, got, c.want)
		}
	}
}

func TestLineWords(t *testing.T) {
	w, err := lineWords(strings.Fields("pi pin 11=on gpiochip1:GPIO4=off Pin 13=1"), isAssignment)
	if err != nil || w.machine != "pi" || w.device != "gpio:gpiochip1" || !slices.Equal(w.rest, []string{"pin 11=on", "GPIO4=off", "Pin 13=1"}) {
		t.Errorf("%+v, %v", w, err)
	}
	if _, err := lineWords(strings.Fields("gpiochip0:1 gpiochip1:1"), isLine); err == nil {
		t.Error("two chips in one command")
	}
	if w, err := lineWords([]string{"pi", "pin"}, isLine); err != nil || !slices.Equal(w.rest, []string{"pin"}) {
		t.Errorf("%+v, %v", w, err)
	}
}

func TestHexBytes(t *testing.T) {
	for text, want := range map[string]string{
		"dead": "\xde\xad", "0xde 0xad": "\xde\xad", "de:ad": "\xde\xad", "DE,AD": "\xde\xad", "5": "\x05", "0x5": "\x05", "": "", "0X0f": "\x0f",
	} {
		if got, err := hexBytes(text); err != nil || string(got) != want {
			t.Errorf("%q = %x, %v", text, got, err)
		}
	}
	for _, text := range []string{"xyz", "0x", "abc", "0x123", "-1", "ä"} {
		if got, err := hexBytes(text); err == nil {
			t.Errorf("%q = %x", text, got)
		}
	}
}

// Nothing that a device sends moves the cursor, and nothing of it is lost.
func FuzzVisible(f *testing.F) {
	for _, s := range []string{"hello\r\n", "\x1b[2J", "\xff\xfe", "ящик\u202e", "a\rb", "\r", "\t\x00\x7f"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := visible(b)
		for _, r := range got {
			if r != '\n' && r != '\t' && !unicode.IsPrint(r) {
				t.Fatalf("%q has %q", got, r)
			}
		}
		if n := strings.Count(got, "\n"); n != strings.Count(string(b), "\n") {
			t.Fatalf("%d lines of %q became %d", strings.Count(string(b), "\n"), b, n)
		}
	})
}

func TestHertz(t *testing.T) {
	for text, want := range map[string]float64{"50": 50, "50Hz": 50, "1kHz": 1000, "1.35 MHz": 1.35e6, "2k": 2000} {
		if got, err := hertz(text); err != nil || got != want {
			t.Errorf("%q = %g, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-5", "fast", "NaN", "Inf", "Hz"} {
		if got, err := hertz(text); err == nil {
			t.Errorf("%q = %g", text, got)
		}
	}
}
