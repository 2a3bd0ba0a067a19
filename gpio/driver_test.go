package gpio_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"farhand/device"
	"farhand/device/devicetest"
	"farhand/device/simsysfs"
	"farhand/gpio"
	"farhand/gpio/uapi"
)

func noInfo(string) (uapi.Chip, error) { return uapi.Chip{}, errors.New("no right to open it") }

// TestIDs is the golden list of what chips are called.
func TestIDs(t *testing.T) {
	pi4 := simsysfs.GPIO{Number: 0, Hardware: "fe200000.gpio", Label: "pinctrl-bcm2711", Lines: 58, Base: 512}
	for _, c := range []struct {
		name  string
		chips []simsysfs.GPIO
		info  func(string) (uapi.Chip, error)
		want  map[string]string // node -> id
		bcm   string            // what gpio:bcm is, if anything
	}{
		{"a Pi 4", []simsysfs.GPIO{pi4, {Number: 1, Hardware: "soc:firmware:gpio", Label: "raspberrypi-exp-gpio", Lines: 8, Base: 570}}, noInfo,
			map[string]string{"/dev/gpiochip0": "gpio:pinctrl-bcm2711", "/dev/gpiochip1": "gpio:raspberrypi-exp-gpio"}, "gpio:pinctrl-bcm2711"},
		{"a Pi 5 before and after the renumbering", []simsysfs.GPIO{
			{Number: 4, Hardware: "1f000d0000.gpio", Label: "pinctrl-rp1", Lines: 54, Base: 571},
			{Number: 10, Hardware: "107d508500.gpio", Label: "gpio-brcmstb@107d508500", Lines: 32, Base: 512},
		}, noInfo,
			map[string]string{"/dev/gpiochip4": "gpio:pinctrl-rp1", "/dev/gpiochip10": "gpio:gpio-brcmstb%40107d508500"}, "gpio:pinctrl-rp1"},
		{"two chips with one label", []simsysfs.GPIO{
			{Number: 0, Hardware: "1-0020", Label: "pca9535", Lines: 16, Base: 512},
			{Number: 1, Hardware: "1-0021", Label: "pca9535", Lines: 16, Base: 528},
		}, noInfo, map[string]string{"/dev/gpiochip0": "gpio:pca9535@1-0020", "/dev/gpiochip1": "gpio:pca9535@1-0021"}, ""},
		{"no class in the kernel, no right to ask", []simsysfs.GPIO{{Number: 0, Hardware: "fe200000.gpio", NoClass: true}}, noInfo,
			map[string]string{"/dev/gpiochip0": "gpio:fe200000.gpio"}, ""},
		{"no class in the kernel", []simsysfs.GPIO{{Number: 0, Hardware: "fe200000.gpio", NoClass: true}},
			func(node string) (uapi.Chip, error) {
				return uapi.Chip{Name: filepath.Base(node), Label: "pinctrl-bcm2711", Lines: 58}, nil
			},
			map[string]string{"/dev/gpiochip0": "gpio:pinctrl-bcm2711"}, "gpio:pinctrl-bcm2711"},
		{"two banks of one device", []simsysfs.GPIO{
			{Number: 0, Hardware: "20200000.gpio", Label: "bank-a", Lines: 32, Base: 512},
			{Number: 1, Hardware: "20200000.gpio", Label: "bank-b", Lines: 32, Base: 544},
		}, func(node string) (uapi.Chip, error) {
			return uapi.Chip{Label: map[string]string{"gpiochip0": "bank-a", "gpiochip1": "bank-b"}[filepath.Base(node)], Lines: 32}, nil
		}, map[string]string{"/dev/gpiochip0": "gpio:bank-a", "/dev/gpiochip1": "gpio:bank-b"}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			x := simsysfs.New(t.TempDir())
			for _, g := range c.chips {
				x.AddGPIO(g)
			}
			if err := x.Err(); err != nil {
				t.Fatal(err)
			}
			reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: gpio.Driver{FS: x.FS, Info: c.info}}}})
			if err := reg.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, d := range reg.List() {
				got[d.Chip] = d.ID
				if d.Available || d.Reason != device.NoDriverYet {
					t.Errorf("%s: available %v, reason %q", d.ID, d.Available, d.Reason)
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("ids (-want +got):\n%s", diff)
			}
			if d, err := reg.Resolve("gpio:bcm"); d.ID != c.bcm || (err == nil) != (c.bcm != "") {
				t.Errorf("gpio:bcm is %q, %v, want %q", d.ID, err, c.bcm)
			}
		})
	}
}

func TestLines(t *testing.T) {
	x := simsysfs.New(t.TempDir())
	x.AddGPIO(simsysfs.GPIO{Number: 0, Hardware: "fe200000.gpio", Label: "pinctrl-bcm2711", Lines: 58, Base: 512})
	all, err := gpio.Driver{FS: x.FS, Info: noInfo}.Probe(t.Context())
	if err != nil || len(all) != 1 || all[0].Lines != 58 || all[0].Driver != "pinctrl" || all[0].Node != x.FS.Node("gpiochip0") {
		t.Errorf("%+v, %v", all, err)
	}
}

func TestChipInfoOfAnotherDevice(t *testing.T) {
	if i, err := uapi.ChipInfo("/dev/null"); err == nil {
		t.Errorf("/dev/null says it is a GPIO chip: %+v", i)
	}
	if i, err := uapi.ChipInfo("/dev/none"); err == nil {
		t.Errorf("nothing says it is a GPIO chip: %+v", i)
	}
}

func TestDriver(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		x := simsysfs.New(t.TempDir())
		x.AddGPIO(simsysfs.GPIO{Number: 0, Hardware: "fe200000.gpio", Label: "pinctrl-bcm2711", Lines: 58, Base: 512})
		if err := x.Err(); err != nil {
			t.Fatal(err)
		}
		return devicetest.Bench{Family: device.Family{Driver: gpio.Driver{FS: x.FS}}, DevRoot: x.FS.DevRoot}
	})
}
