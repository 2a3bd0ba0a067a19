package sim_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"farhand/device"
	"farhand/internal/leak"
	"farhand/serialio/serialsim"
	"farhand/sim"
	"farhand/wire"
)

func TestBench(t *testing.T) {
	leak.Check(t)
	dir := filepath.Join(t.TempDir(), "sim")
	b, err := sim.Open(sim.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	reg := device.NewRegistry(device.Options{Families: b.Families()})
	b.OnChange(reg.Changed)
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, d := range reg.List() {
		ids = append(ids, d.ID)
		if !d.Available {
			t.Errorf("%s: available %v, reason %q", d.ID, d.Available, d.Reason)
		}
	}
	want := []string{
		"gpio:pinctrl-bcm2711", "gpio:raspberrypi-exp-gpio", "i2c:1", "printer:sim-i3", "printer:usb-04f9:2042-000M6Z401370",
		"serial:sim-console", "serial:sim-echo", "serial:sim-scpi", "spi:0.0", "spi:0.1",
		"usb:1209:0001-SIM-ECHO", "usb:1209:0002-SIM-SCOPE",
	}
	if !slices.Equal(ids, want) || len(reg.Problems()) != 0 {
		t.Errorf("the bench has %q, problems %v", ids, reg.Problems())
	}

	leases := device.NewLeases(device.LeaseOptions{})
	defer leases.Close()
	disp := device.NewDispatcher(reg, leases, nil)
	transact := func(data, until string) (string, error) {
		args, err := json.Marshal(wire.SerialTransact{Data: []byte(data), Until: []byte(until)})
		if err != nil {
			t.Fatal(err)
		}
		res, _, err := disp.Do(t.Context(), device.Caller{Session: "s"}, wire.HardwareOp{Device: "serial:sim-scpi", Op: wire.OpSerialTransact, Args: args})
		if err != nil {
			return "", err
		}
		return string(res.Result.(wire.SerialData).Data), nil
	}
	if got, err := transact("*IDN?\n", "\n"); got != serialsim.Identity+"\n" || err != nil {
		t.Errorf("*IDN? answers %q, %v", got, err)
	}
	if got, err := transact("VOLT 3.3;OUTP ON\nMEAS:VOLT?\n", "\n"); got != "+3.300000E+00\n" || err != nil {
		t.Errorf("MEAS:VOLT? answers %q, %v", got, err)
	}
	b.Serial.Unplug("sim-scpi")
	if _, err := transact("*IDN?\n", "\n"); !errors.Is(err, wire.DeviceGone) {
		t.Errorf("unplugged, it answers %v", err)
	}
	if err := b.Serial.Replug("sim-scpi"); err != nil {
		t.Fatal(err)
	}
	if got, err := transact("MEAS:VOLT?\n", "\n"); got != "+0.000000E+00\n" || err != nil {
		t.Errorf("after the replug it answers %q, %v: it starts afresh", got, err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the bench has left its sysfs: %v", err)
	}
}

func TestOpenAfterKill(t *testing.T) {
	leak.Check(t)
	dir := filepath.Join(t.TempDir(), "sim")
	b, err := sim.Open(sim.Options{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	kept := dir + ".kept"
	if err := os.Rename(dir, kept); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(kept, dir); err != nil { // its sysfs stays, as after a kill
		t.Fatal(err)
	}
	if b, err = sim.Open(sim.Options{Dir: dir}); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}
