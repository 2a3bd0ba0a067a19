package guest

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// I2CBus is a bus of the kernel's i2c-stub, whose chips are 256 bytes of memory
// each (i2c/i2c-stub.rst of the kernel's documents). It knows SMBus quick,
// byte, byte data, word data and block operations, and no plain I2C transfers.
type I2CBus struct {
	t testing.TB

	Number int
	Path   string // "/dev/i2c-0"
}

// stubName is how the adapter calls itself.
const stubName = "SMBus stub driver"

// I2CStub makes a bus with chips at these addresses, at most ten, or at 0x50 if
// there are none. There is one such bus at a time; it goes after the test.
func I2CStub(t testing.TB, addresses ...uint8) *I2CBus {
	t.Helper()
	if len(addresses) == 0 {
		addresses = []uint8{0x50}
	}
	var list []string
	for _, a := range addresses {
		list = append(list, fmt.Sprintf("%#x", a))
	}
	Module(t, "i2c_stub", "chip_addr="+strings.Join(list, ","))
	b := &I2CBus{t: t, Number: -1}
	WaitFor(t, "the bus of i2c-stub", func() bool {
		names, err := filepath.Glob("/sys/bus/i2c/devices/i2c-*/name")
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range names {
			n, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(filepath.Dir(path)), "i2c-"))
			if err == nil && read(t, path) == stubName {
				b.Number = n
			}
		}
		return b.Number >= 0
	})
	b.Path = fmt.Sprintf("/dev/i2c-%d", b.Number)
	WaitNode(t, b.Path)
	return b
}

// Claim lets a driver of the kernel own an address until the test is over, as
// it does with a clock or a sensor that the board's description names.
func (b *I2CBus) Claim(address uint8) {
	b.t.Helper()
	dir := fmt.Sprintf("/sys/bus/i2c/devices/i2c-%d", b.Number)
	write(b.t, filepath.Join(dir, "new_device"), fmt.Sprintf("dummy %#x", address))
	b.t.Cleanup(func() { write(b.t, filepath.Join(dir, "delete_device"), fmt.Sprintf("%#x", address)) })
	WaitNode(b.t, fmt.Sprintf("/sys/bus/i2c/devices/%d-%04x/driver", b.Number, address))
}
