package bus_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"testing"

	"periph.io/x/conn/v3/physic"
	"periph.io/x/conn/v3/spi"
	"periph.io/x/host/v3/sysfs"

	"farhand/bus"
	"farhand/bus/bustest"
	"farhand/bus/ioctl"
	"farhand/bus/spidev"
	"farhand/device"
	"farhand/device/devicetest"
	"farhand/internal/testenv"
	"farhand/lab/guest"
	"farhand/wire"
)

func labI2C(t testing.TB) (device.Family, string) {
	b := guest.I2CStub(t, 0x50, 0x51)
	b.Claim(0x52)
	return device.Family{Driver: bus.I2C{}, Service: bus.I2CService{}}, fmt.Sprintf("i2c:%d", b.Number)
}

// TestLabI2C is the suite on the kernel's i2c-stub, which does SMBus alone.
func TestLabI2C(t *testing.T) {
	testenv.Lab(t)
	f, id := labI2C(t) // one for all cases: what they leave in the chips' memory disturbs none
	bustest.RunI2C(t, func(testing.TB) bustest.I2C {
		return bustest.I2C{Family: f, ID: id, Memory: [2]uint16{0x50, 0x51}, Empty: 0x2a, Kernel: 0x52, Driver: "dummy"}
	})
}

func TestLabI2CDriver(t *testing.T) {
	testenv.Lab(t)
	f, id := labI2C(t)
	devicetest.Run(t, func(testing.TB) devicetest.Bench {
		return devicetest.Bench{Family: f, ID: id,
			Op: wire.HardwareOp{Op: wire.OpI2CSMBus, Args: json.RawMessage(`{"address":"0x50","protocol":"read_byte_data","command":0}`)}}
	})
}

// TestLabSPI is the suite on a real spidev of a controller that clocks the lines
// of a parallel port, with nothing connected.
func TestLabSPI(t *testing.T) {
	testenv.Lab(t)
	d := guest.SPI(t)
	idle := idleByte(t, d.Path)
	bustest.RunSPI(t, func(t testing.TB) bustest.SPI {
		name := fmt.Sprintf("spi%d.%d", d.Bus, d.Chip)
		driver := func(file string) {
			if err := os.WriteFile("/sys/bus/spi/drivers/spidev/"+file, []byte(name), 0o200); err != nil {
				t.Fatal(err)
			}
		}
		return bustest.SPI{
			Family: device.Family{Driver: bus.SPI{}, Service: bus.SPIService{}}, ID: fmt.Sprintf("spi:%d.%d", d.Bus, d.Chip),
			BufSize: spidev.DefaultBufSize, Echo: func(byte) byte { return idle }, Modes: []int{0},
			Unplug: func() { driver("unbind") },
			Replug: func() {
				driver("bind")
				guest.WaitNode(t, d.Path)
			},
		}
	})
}

// idleByte is what a line reads that nothing drives.
func idleByte(t testing.TB, node string) byte {
	t.Helper()
	p, err := bus.OpenSPI(node, ioctl.Open, spidev.DefaultBufSize)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	in := make([]byte, 1)
	if _, err := p.Transfer(t.Context(), bus.SPISettings{SpeedHz: bus.DefaultSPISpeed, Bits: 8}, []spidev.Segment{{Rx: in}}); err != nil {
		t.Fatal(err)
	}
	return in[0]
}

// TestLabPeriph compares with another implementation of the same requests,
// periph's host/sysfs, on the same kernel devices.
func TestLabPeriph(t *testing.T) {
	testenv.Lab(t)
	d := guest.SPI(t)
	theirs, err := sysfs.NewSPI(d.Bus, d.Chip)
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	ours, err := bus.OpenSPI(d.Path, ioctl.Open, spidev.DefaultBufSize)
	if err != nil {
		t.Fatal(err)
	}
	defer ours.Close()
	out := []byte{0x9f, 1, 2, 3}
	answers := make(map[string][]byte)
	for name, port := range map[string]spi.Port{"theirs": theirs, "ours": ours} {
		c, err := port.Connect(physic.MegaHertz, spi.Mode0, 8)
		if err != nil {
			t.Fatal(err)
		}
		in := make([]byte, len(out))
		if err := c.Tx(out, in); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		answers[name] = in
	}
	if !slices.Equal(answers["ours"], answers["theirs"]) {
		t.Errorf("read % x", answers)
	}

	stub := guest.I2CStub(t, 0x50)
	bare, err := sysfs.NewI2C(stub.Number)
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	chip, err := bus.OpenI2C(stub.Path, ioctl.Open, func(uint16) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	defer chip.Close()
	theirErr, ourErr := bare.Tx(0x50, []byte{0}, make([]byte, 1)), chip.Tx(0x50, []byte{0}, make([]byte, 1))
	if theirErr == nil || wire.CodeOf(ourErr) != wire.FeatureNotSupported {
		t.Errorf("i2c-stub does no plain transfers, yet they answer %v and %v", theirErr, ourErr)
	}
}
