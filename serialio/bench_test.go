package serialio_test

import (
	"encoding/json"
	"testing"
	"time"

	"farhand/device"
	"farhand/serialio"
	"farhand/serialio/serialsim"
	"farhand/wire"
)

// BenchmarkTransact is one question to an instrument, with the port kept open
// and with it opened anew.
func BenchmarkTransact(b *testing.B) {
	bench, err := serialsim.New(serialsim.Standard(), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer bench.Close()
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: bench, Service: serialio.Service{}}}})
	if err := reg.Refresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	for name, linger := range map[string]time.Duration{"open": time.Minute, "reopened": -1} {
		b.Run(name, func(b *testing.B) {
			leases := device.NewLeases(device.LeaseOptions{Linger: linger})
			defer leases.Close()
			d := device.NewDispatcher(reg, leases, nil)
			args := json.RawMessage(`{"data":"KklETj8K","until":"Cg=="}`)
			for b.Loop() {
				if _, _, err := d.Do(b.Context(), device.Caller{Session: "s"}, wire.HardwareOp{Device: "serial:sim-scpi", Op: wire.OpSerialTransact, Args: args}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
