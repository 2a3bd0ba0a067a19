package sim_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"farhand/device"
	"farhand/internal/leak"
	"farhand/sim"
	"farhand/wire"
)

// TestBuses uses the bench's I2C and SPI as a caller would who follows a guide.
func TestBuses(t *testing.T) {
	leak.Check(t)
	b, err := sim.Open(sim.Options{Dir: filepath.Join(t.TempDir(), "sim")})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	reg := device.NewRegistry(device.Options{Families: b.Families()})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	leases := device.NewLeases(device.LeaseOptions{})
	defer leases.Close()
	disp := device.NewDispatcher(reg, leases, nil)
	do := func(id, op, args string) any {
		t.Helper()
		res, _, err := disp.Do(t.Context(), device.Caller{Session: "s"}, wire.HardwareOp{Device: id, Op: op, Args: json.RawMessage(args)})
		if err != nil {
			t.Fatalf("%s %s: %v %v", op, args, err, wire.AsError(err).Details)
		}
		return res.Result
	}

	found := make(map[wire.I2CAddress]string)
	for _, f := range do("i2c:1", wire.OpI2CScan, `{}`).(wire.I2CScanned).Addresses {
		found[f.Address] = f.Status + f.Driver
	}
	if len(found) != 4 || found[0x0b] != "present" || found[0x50] != "present" || found[0x76] != "present" || found[0x68] != "kernelrtc-ds1307" {
		t.Errorf("the scan finds %v", found)
	}

	if id := do("i2c-1", wire.OpI2CTransfer, `{"address":"0x76","write":[208],"read":1}`).(wire.I2CTransferred); !bytes.Equal(id.Data, []byte{0x60}) {
		t.Errorf("the sensor's id is % x", id.Data)
	}
	do("i2c:1", wire.OpI2CTransfer, `{"address":118,"write":[242,1,244,39]}`)
	read := func() []byte {
		return do("i2c:1", wire.OpI2CTransfer, `{"address":"76h","write":"9w==","read":8}`).(wire.I2CTransferred).Data
	}
	if first, second := read(), read(); bytes.Equal(first, second) || first[3] == 0x80 {
		t.Errorf("the sensor measures % x, then % x", first, second)
	}

	if id := do("spi:0.0", wire.OpSPITransfer, `{"write":[159],"read":3}`).(wire.SPITransferred); !bytes.Equal(id.Data, []byte{0xef, 0x40, 0x14}) {
		t.Errorf("the flash says it is % x", id.Data)
	}
	if back := do("spi:0.1", wire.OpSPITransfer, `{"write":[1,2,3],"full_duplex":true}`).(wire.SPITransferred); !bytes.Equal(back.Data, []byte{1, 2, 3}) {
		t.Errorf("over the wire comes % x", back.Data)
	}
}
