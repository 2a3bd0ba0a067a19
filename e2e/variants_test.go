package e2e

import (
	"fmt"
	"strings"
	"testing"

	"farhand/wire"
)

// TestOtherNames: fields that callers who know the handle family, spidev or
// OctoPrint would send are not ignored, which would make of it another transfer.
func TestOtherNames(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	u := b.user("")
	echo := "usb:1209:0001-SIM-ECHO"
	for _, c := range []struct{ device, op, args, want string }{
		{"i2c:1", wire.OpI2CTransfer, `{"address":118,"data":"0A==","size":1}`, `"data":"YA=="`},
		{"spi:0.0", wire.OpSPITransfer, `{"data":"nwAAAA==","bits_per_word":8,"max_speed_hz":1000000}`, `"data":"/+9AFA==","bytes_written":4,"speed_hz":1000000`},
		{"spi:0.0", wire.OpSPITransfer, `{"data":"nw==","size":3}`, `"data":"70AU"`},
		{echo, wire.OpUSBControl, `{"request_type":128,"request":6,"value":256,"index":0,"size":8}`, `"bytes_transferred":8`},
		{psu, wire.OpSerialExpect, `{"data":"KklETj8K","patterns":["nobody","SIM-PSU"]}`, `"pattern":1`},
		{psu, wire.OpSerialExpect, `{"send_text":"*IDN?\n","expect":"FARHAND","mode":{"parity":"N","timeout_seconds":3600}}`, `"complete":true`},
		{"printer:sim-i3", wire.OpPrinterCommand, `{"commands":["M105"]}`, `"lines":1`},
		{chip, wire.OpGPIOSet, `{"lines":[5,6],"values":[1,0]}`, `"atomic":true`},
	} {
		if got := string(u.do(c.device, c.op, c.args)); !strings.Contains(got, c.want) {
			t.Errorf("%s %s gives %s, want %s", c.op, c.args, got, c.want)
		}
	}
	u.refused(wire.InvalidArgument, "spi:0.0", wire.OpSPITransfer, `{"data":"nw==","write":"nw=="}`)

	// Only the edges that were asked for.
	w := watch[wire.GPIORecord](u, chip, wire.OpGPIOWatch, `{"line":27,"edges":"falling"}`)
	for _, v := range []int{1, 0} {
		u.do(chip, wire.OpGPIOSet, fmt.Sprintf(`{"line":17,"value":%d}`, v))
	}
	edge(t, w, "falling")
}
