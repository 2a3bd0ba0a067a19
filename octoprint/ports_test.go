package octoprint_test

import (
	"bytes"
	"testing"

	"farhand/device"
	"farhand/device/devicetest"
	"farhand/octoprint"
	"farhand/octoprint/octoprinttest"
	"farhand/octoprint/octosim"
	"farhand/wire"
)

func label(t testing.TB) (*octosim.LabelPrinter, *octoprinttest.Rig) {
	p := octosim.NewLabelPrinter()
	family := device.Family{Driver: octoprint.Driver{FS: fixture(t).FS}, Service: p.Service()}
	return p, octoprinttest.NewRig(t, octoprinttest.Bench{Family: family, ID: "printer:usb-04f9:2042-000M6Z401370"})
}

func TestPortStatus(t *testing.T) {
	p, r := label(t)
	status := func() wire.PrinterStatus {
		return octoprinttest.Must[wire.PrinterStatus](t, r, "s", wire.OpPrinterStatus, nil)
	}
	s := status()
	if s.State != wire.PrinterReady || s.Port == nil || s.Port.DeviceID["MDL"] != "QL-700" || s.Port.DeviceID["CMD"] != "PT-CBP" || !s.Port.Online || s.Server != nil {
		t.Errorf("%+v %+v", s, s.Port)
	}
	for _, c := range []struct {
		faults octosim.PortFaults
		state  string
	}{
		{octosim.PortFaults{PaperOut: true}, wire.PrinterError},
		{octosim.PortFaults{Offline: true}, wire.PrinterOffline},
	} {
		p.Set(c.faults)
		if s := status(); s.State != c.state || s.Hint == "" {
			t.Errorf("%+v: %+v", c.faults, s)
		}
	}
	p.Set(octosim.PortFaults{Mute: true})
	octoprinttest.Code(t, r, "s", wire.OpPrinterStatus, nil, wire.FeatureNotSupported)
	p.Set(octosim.PortFaults{Busy: true})
	octoprinttest.Code(t, r, "s", wire.OpPrinterStatus, nil, wire.HardwareBusy)
	p.Set(octosim.PortFaults{Unplugged: true})
	octoprinttest.Code(t, r, "s", wire.OpPrinterStatus, nil, wire.DeviceGone)
}

func TestPortCommand(t *testing.T) {
	p, r := label(t)
	data := bytes.Repeat([]byte{0x1b, '@', 0}, 1000)
	done := octoprinttest.Must[wire.PrinterCommanded](t, r, "s", wire.OpPrinterCommand, wire.PrinterCommand{Data: data})
	if got, n := p.Printed(); done.BytesWritten != len(data) || n != len(data) || !bytes.Equal(got, data) {
		t.Errorf("%+v, printed %d bytes", done, n)
	}
	p.Set(octosim.PortFaults{StallAfter: 100})
	short := 0.02
	e := octoprinttest.Code(t, r, "s", wire.OpPrinterCommand, wire.PrinterCommand{Data: data, TimeoutSeconds: &short}, wire.HardwareTransferFailed)
	if e.Details["bytes_partial"] != 100 || e.Details["device"] != r.ID {
		t.Errorf("details %v", e.Details)
	}
	p.Set(octosim.PortFaults{})
	long := 26.0
	for _, args := range []any{nil, wire.PrinterCommand{GCode: wire.GCode{"G28"}}, wire.PrinterCommand{Data: data, TimeoutSeconds: &long},
		wire.PrinterCommand{Data: make([]byte, 1<<20+1)}, map[string]any{"data": "%%"}} {
		octoprinttest.Code(t, r, "s", wire.OpPrinterCommand, args, wire.InvalidArgument)
	}
	octoprinttest.Code(t, r, "s", wire.OpPrinterMove, map[string]any{"home": "all"}, wire.FeatureNotSupported)
}

func TestPortDriver(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		x := fixture(t)
		id := "printer:usb-04f9:2042-000M6Z401370"
		return devicetest.Bench{
			Family: device.Family{Driver: octoprint.Driver{FS: x.FS}, Service: octosim.NewLabelPrinter().Service()}, DevRoot: x.FS.DevRoot,
			ID: id, Op: wire.HardwareOp{Device: id, Op: wire.OpPrinterStatus},
		}
	})
}
