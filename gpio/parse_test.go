package gpio

import (
	"encoding/json"
	"strconv"
	"testing"

	"farhand/wire"
)

// FuzzPinmux reads what debugfs says.
func FuzzPinmux(f *testing.F) {
	f.Add("pin 14 (gpio14): fe201000.serial (GPIO UNCLAIMED) function alt0 group gpio14\n")
	f.Add("pin 17 (gpio17): (MUX UNCLAIMED) pinctrl-bcm2711:529\npin 18 (gpio18): UNCLAIMED\n")
	f.Add("pin 9999999999999 (x): function")
	f.Add("pin 1 (\x00): device a function \x1b[2J group")
	f.Fuzz(func(t *testing.T, text string) {
		for n, function := range parsePinmux(text) {
			if n < 0 || function != wire.Clean(function, len(function)+1) {
				t.Errorf("pin %d is %q", n, function)
			}
		}
	})
}

// FuzzLineName finds a line or an error for whatever it is called.
func FuzzLineName(f *testing.F) {
	names := make([]string, 58)
	for i := range names {
		names[i] = "GPIO" + strconv.Itoa(i)
	}
	names[3], names[4] = "17", "LED"
	names[5] = "LED"
	table := newNameTable([]string{"gpiochip0", "pinctrl-bcm2711", "gpio:pinctrl-bcm2711"}, "pinctrl-bcm2711", names)
	for _, s := range []string{"17", "GPIO17", "pin 11", "J8:11", "gpiochip0:17", "gpio:pinctrl-bcm2711#GPIO2", "led", "::", "#", "pin", "0x11", "１７"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		o, err := table.find(name)
		switch wire.CodeOf(err) {
		case "":
			if o < 0 || o >= len(names) {
				t.Errorf("%q is line %d", name, o)
			}
		case wire.HardwareNotFound, wire.HardwareAmbiguous:
		default:
			t.Errorf("%q: %v", name, err)
		}
	})
}

// FuzzArguments is what a caller may write: it is read, or refused as an
// argument.
func FuzzArguments(f *testing.F) {
	for _, s := range []string{
		`{"line":17,"value":1}`, `{"lines":{"17":1,"GPIO18":false},"on_release":"hold","deadman_seconds":2}`, `{"lines":[1,2],"value":"high"}`,
		`{"line":1,"lines":{"2":1}}`, `{"lines":{}}`, `{"value":null}`, `[]`, `{"lines":[[]]}`, `{"deadman_seconds":"x"}`, `{"on_release":7}`, ``,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if _, err := selection(raw); err != nil && wire.CodeOf(err) != wire.InvalidArgument {
			t.Errorf("%q: %v", raw, err)
		}
		a, err := decodeSet(raw)
		if err == nil {
			_, err = levels(a)
		}
		if err != nil && wire.CodeOf(err) != wire.InvalidArgument {
			t.Errorf("%q: %v", raw, err)
		}
		// The quick way reads what the plain one does.
		var plain wire.GPIOSet
		if err == nil && json.Unmarshal(raw, &plain) == nil && a.Value != nil && plain.Value != nil && *a.Value != *plain.Value {
			t.Errorf("%q: the value is %d, plainly %d", raw, *a.Value, *plain.Value)
		}
	})
}

// FuzzLedger reads a file that anything may have happened to.
func FuzzLedger(f *testing.F) {
	f.Add([]byte(`{"version":1,"outputs":[{"device":"gpio:a","line":3,"on_release":0,"active_low":true,"fd":"farhand-gpio-x","bit":1}]}`))
	f.Add([]byte(`{"version":2}`))
	f.Add([]byte(`{"version":1,"outputs":[{"device":"gpio:a","line":-3,"on_release":"hold"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := parseLedger(data)
		if err != nil {
			return
		}
		for _, e := range file.Outputs {
			if c := e.config(); e.Line < 0 || e.Bit >= MaxLines || c.Validate() != nil || e.first().Validate() != nil {
				t.Errorf("%+v", e)
			}
		}
	})
}
