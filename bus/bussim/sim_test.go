package bussim_test

import (
	"encoding/json"
	"syscall"
	"testing"

	"farhand/bus"
	"farhand/bus/bussim"
	"farhand/bus/bustest"
	"farhand/device"
	"farhand/device/devicetest"
	"farhand/device/simsysfs"
	"farhand/wire"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bench has an I2C bus with two EEPROMs, a gauge, a sensor and a chip of the
// kernel's, and SPI with a flash and a wire.
func bench(t testing.TB) (*bussim.Bench, device.Family, device.Family) {
	t.Helper()
	x := simsysfs.New(t.TempDir())
	check(t, x.Err())
	b := bussim.New(x.FS)
	check(t, b.AddI2C(1, bussim.I2C{
		Chips:  map[uint16]bussim.Chip{0x50: bussim.NewEEPROM(), 0x51: bussim.NewEEPROM(), 0x0b: bussim.NewGauge(), 0x76: bussim.NewBME280()},
		Kernel: map[uint16]string{0x68: "rtc-ds1307"},
	}))
	check(t, b.AddSPI(0, 0, bussim.SPI{Chip: bussim.NewFlash()}))
	check(t, b.AddSPI(0, 1, bussim.SPI{Chip: bussim.Wire{}, Bits: 32}))
	return b, device.Family{Driver: bus.I2C{FS: x.FS}, Service: bus.I2CService{FS: x.FS, Open: b.Open}},
		device.Family{Driver: bus.SPI{FS: x.FS}, Service: bus.SPIService{FS: x.FS, Open: b.Open}}
}

func TestI2CSuite(t *testing.T) {
	bustest.RunI2C(t, func(t testing.TB) bustest.I2C {
		b, f, _ := bench(t)
		return bustest.I2C{
			Family: f, ID: "i2c:1", Memory: [2]uint16{0x50, 0x51}, Empty: 0x2a, Kernel: 0x68, Driver: "rtc-ds1307",
			Transfers: true, Gauge: 0x0b,
			Inject: func(addr uint16, err syscall.Errno, times int) {
				check(t, b.Inject("i2c-1", bussim.Fault{Address: addr, Err: err, Times: times}))
			},
			Stall: func() (<-chan struct{}, func()) {
				waiting, release, err := b.Stall("i2c-1")
				check(t, err)
				return waiting, release
			},
			Unplug: func() { check(t, b.Unplug("i2c-1")) }, Replug: func() { check(t, b.Replug("i2c-1")) },
		}
	})
}

// TestStubSuite is an adapter as the kernel's i2c-stub is: SMBus without blocks
// that count themselves, and no plain transfers.
func TestStubSuite(t *testing.T) {
	bustest.RunI2C(t, func(t testing.TB) bustest.I2C {
		x := simsysfs.New(t.TempDir())
		check(t, x.Err())
		b := bussim.New(x.FS)
		check(t, b.AddI2C(0, bussim.I2C{Funcs: bussim.StubFuncs,
			Chips:  map[uint16]bussim.Chip{0x50: bussim.NewEEPROM(), 0x51: bussim.NewEEPROM()},
			Kernel: map[uint16]string{0x52: "dummy"}}))
		return bustest.I2C{ID: "i2c:0", Memory: [2]uint16{0x50, 0x51}, Empty: 0x2a, Kernel: 0x52, Driver: "dummy",
			Family: device.Family{Driver: bus.I2C{FS: x.FS}, Service: bus.I2CService{FS: x.FS, Open: b.Open}}}
	})
}

func TestSPISuite(t *testing.T) {
	bustest.RunSPI(t, func(t testing.TB) bustest.SPI {
		b, _, f := bench(t)
		return bustest.SPI{
			Family: f, ID: "spi:0.1", Flash: "spi:0.0", BufSize: 4096,
			Echo: func(out byte) byte { return out }, Modes: []int{0, 1, 2, 3}, NoSelect: true,
			Inject: func(err syscall.Errno, times int) {
				check(t, b.Inject("spidev0.1", bussim.Fault{Err: err, Times: times}))
			},
			Stall: func() (<-chan struct{}, func()) {
				waiting, release, err := b.Stall("spidev0.1")
				check(t, err)
				return waiting, release
			},
			Unplug: func() { check(t, b.Unplug("spidev0.1")) }, Replug: func() { check(t, b.Replug("spidev0.1")) },
		}
	})
}

func TestI2CDriver(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		b, f, _ := bench(t)
		return devicetest.Bench{
			Family: f, ID: "i2c:1", Op: wire.HardwareOp{Op: wire.OpI2CSMBus, Args: json.RawMessage(`{"address":"0x76","protocol":"read_byte_data","command":208}`)},
			Unplug: func() { check(t, b.Unplug("i2c-1")) }, Replug: func() { check(t, b.Replug("i2c-1")) },
		}
	})
}

func TestSPIDriver(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		b, _, f := bench(t)
		return devicetest.Bench{
			Family: f, ID: "spi:0.0", Op: wire.HardwareOp{Op: wire.OpSPITransfer, Args: json.RawMessage(`{"write":[159],"read":3}`)},
			Unplug: func() { check(t, b.Unplug("spidev0.0")) }, Replug: func() { check(t, b.Replug("spidev0.0")) },
		}
	})
}
