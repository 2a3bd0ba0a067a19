package serialio_test

import (
	"encoding/json"
	"testing"

	"farhand/device"
	"farhand/serialio"
	"farhand/wire"
)

// FuzzArguments gives every operation any arguments, on a port that isn't there.
func FuzzArguments(f *testing.F) {
	for _, args := range []string{
		`{"data":"eA==","drain":true,"timeout_seconds":1.5,"mode":{"baudrate":250000,"bytesize":7,"parity":"even","stopbits":1.5,"xonxoff":true}}`,
		`{"size":4096,"until":"Cg==","timeout_seconds":0}`, `{"dtr":true,"rts":null,"break_seconds":0.25}`,
		`{"data":"!","size":-1}`, `{"timeout_seconds":1e308}`, `null`, `{"mode":null}`, `[`, ``,
		`{"steps":[{"send_text":"x","expect":["a",{"regexp":"(b)+"}],"size":9,"timeout_seconds":0.1}],"flush":true}`, `{"from":7,"credit":100}`,
		`{"mode":{"rs485":{"rts_on_send":false,"delay_after_send_ms":3},"low_latency":true,"reset_on_open":false},"expect":"x"}`,
	} {
		f.Add(args)
	}
	node := f.TempDir() + "/none"
	leases := device.NewLeases(device.LeaseOptions{})
	f.Cleanup(func() { leases.Close() })
	f.Fuzz(func(t *testing.T, args string) {
		desc := device.Descriptor{HardwareDevice: wire.HardwareDevice{Type: "serial", ID: "serial:none"}, Node: node}
		for op := range (serialio.Service{}).Ops() {
			lease, ctx, end, err := leases.Begin(t.Context(), device.Key{Device: desc.ID}, op, device.Holder{Session: "s"})
			if err != nil {
				t.Fatal(err)
			}
			var trace device.Trace
			_, err = serialio.Service{}.Do(ctx, &device.Request{Device: desc, Lease: lease, Op: op, Args: json.RawMessage(args), Trace: &trace})
			end(false)
			switch e := wire.AsError(err); e.Code {
			case wire.InvalidArgument, wire.FeatureNotSupported, wire.DeviceGone:
				if e.Details["op"] != op || e.Details["device"] != desc.ID || len(e.Message) > 300 {
					t.Errorf("%s %q: %v %v", op, args, err, e.Details)
				}
			default:
				t.Errorf("%s %q: %v", op, args, err)
			}
		}
	})
}
