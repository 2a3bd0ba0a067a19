package bus_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"farhand/bus"
	"farhand/device"
	"farhand/device/devicetest"
	"farhand/device/simsysfs"
	"farhand/wire"
)

func fixture(t testing.TB) *simsysfs.Tree {
	x := simsysfs.New(t.TempDir())
	x.AddI2C(1, "fe804000.i2c", "bcm2835 (i2c@7e804000)")
	x.AddI2C(20, "fef04500.i2c", "fef04500.i2c")
	x.AddSPI(0, 0, "fe204000.spi")
	x.AddSPI(0, 1, "fe204000.spi")
	if err := x.Err(); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestList(t *testing.T) {
	x := fixture(t)
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: bus.I2C{FS: x.FS}}, {Driver: bus.SPI{FS: x.FS}}}})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []wire.HardwareDevice{
		{Type: "i2c", ID: "i2c:1", Desc: "I2C bus 1 (bcm2835 (i2c@7e804000))", Port: "/dev/i2c-1", Driver: "i2c-bcm2835",
			Aliases: []string{"/dev/i2c-1", "i2c-1"}, Reason: device.NoDriverYet, Generation: 1},
		{Type: "i2c", ID: "i2c:20", Desc: "I2C bus 20 (fef04500.i2c)", Port: "/dev/i2c-20", Driver: "i2c-bcm2835",
			Aliases: []string{"/dev/i2c-20", "i2c-20"}, Reason: device.NoDriverYet, Generation: 1},
		{Type: "spi", ID: "spi:0.0", Desc: "SPI bus and chip select 0.0", Port: "/dev/spidev0.0", Driver: "spidev",
			Aliases: []string{"/dev/spidev0.0", "spidev0.0"}, Reason: device.NoDriverYet, Generation: 1},
		{Type: "spi", ID: "spi:0.1", Desc: "SPI bus and chip select 0.1", Port: "/dev/spidev0.1", Driver: "spidev",
			Aliases: []string{"/dev/spidev0.1", "spidev0.1"}, Reason: device.NoDriverYet, Generation: 1},
	}
	if diff := cmp.Diff(want, reg.List()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestI2C(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		x := fixture(t)
		return devicetest.Bench{Family: device.Family{Driver: bus.I2C{FS: x.FS}}, DevRoot: x.FS.DevRoot}
	})
}

func TestSPI(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		x := fixture(t)
		return devicetest.Bench{Family: device.Family{Driver: bus.SPI{FS: x.FS}}, DevRoot: x.FS.DevRoot}
	})
}
