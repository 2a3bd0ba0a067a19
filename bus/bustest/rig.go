// Package bustest is the conformance suite of I2C buses and SPI chip selects:
// what is written can be read, transactions are whole, and failures say what
// they are. The simulated buses and the kernel's pass the same cases, as far as
// a kernel's test bus can do them: in the lab's guest i2c-stub does SMBus alone,
// and its spidev, on a controller that clocks the lines of a parallel port, has
// nothing connected. What those can't show, plain I2C transfers, chips and
// faults, runs against simulated buses behind the ioctls; that the structures
// are the kernel's is what the tests of i2cdev and spidev compare.
package bustest

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"farhand/device"
	"farhand/wire"
)

// patience bounds every wait of the suite.
const patience = 10 * time.Second

// rig is a family with everything that a daemon puts around it.
type rig struct {
	id     string
	reg    *device.Registry
	leases *device.Leases
	disp   *device.Dispatcher
}

func newRig(t *testing.T, f device.Family, id string) *rig {
	t.Helper()
	r := &rig{id: id}
	r.reg = device.NewRegistry(device.Options{Families: []device.Family{f}})
	r.leases = device.NewLeases(device.LeaseOptions{})
	r.disp = device.NewDispatcher(r.reg, r.leases, nil)
	t.Cleanup(func() { r.leases.Close() })
	if err := r.reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) op(t *testing.T, op string, args any) wire.HardwareOp {
	t.Helper()
	text, err := json.Marshal(args)
	if err != nil {
		t.Fatal(err)
	}
	return wire.HardwareOp{Device: r.id, Op: op, Args: text}
}

func (r *rig) run(ctx context.Context, session string, op wire.HardwareOp) (any, device.Trace, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	res, trace, err := r.disp.Do(ctx, device.Caller{Session: session, Name: "holder of " + session}, op)
	return res.Result, trace, err
}

// do runs an operation of session "a", which is to succeed.
func do[R any](t *testing.T, r *rig, op string, args any) R {
	t.Helper()
	res, _, err := r.run(t.Context(), "a", r.op(t, op, args))
	if err != nil {
		t.Fatalf("%s %+v: %v %v", op, args, err, wire.AsError(err).Details)
	}
	return res.(R)
}

// fails runs an operation of session "a" that is to fail, and checks the code.
func (r *rig) fails(t *testing.T, op string, args any, code wire.Code) *wire.Error {
	t.Helper()
	res, _, err := r.run(t.Context(), "a", r.op(t, op, args))
	e := &wire.Error{}
	if err != nil {
		e = wire.AsError(err)
	}
	if e.Code != code {
		t.Errorf("%s %+v answers %v, %v, want %s", op, args, res, err, code)
	}
	return e
}
