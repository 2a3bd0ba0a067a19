package shim_test

import (
	"context"
	"io"
	"testing"

	"farhand/device"
	"farhand/serialio"
	"farhand/serialio/serialsim"
	"farhand/shim"
	"farhand/wire"
)

// dispatched is a shim.Hardware of real leases and services.
type dispatched struct {
	d       *device.Dispatcher
	session string
}

func (d dispatched) Do(ctx context.Context, _ *shim.Call, op wire.HardwareOp) (wire.HardwareResult, error) {
	r, _, err := d.d.Do(ctx, device.Caller{Session: d.session}, op)
	return r, err
}

func (d dispatched) CanonicalID(name string) string { return d.d.CanonicalID(name) }

func (d dispatched) Find(*shim.Call, func(wire.HardwareDevice) bool) (string, bool) { return "", false }

func (d dispatched) Held(id, part string) context.Context {
	return d.d.Leases().KeptBy(d.session, device.Key{Device: id, Part: part})
}

func (d dispatched) Release(ctx context.Context, id, _ string) error {
	_, err := d.d.Leases().Release(ctx, id, d.session)
	return err
}

// TestHandleUnplugged: a port that is pulled out while it is read from, between
// two messages, and before anybody has noticed; each time it works again once it
// is back and opened anew.
func TestHandleUnplugged(t *testing.T) {
	r := newRig(t)
	ports, err := serialsim.New(serialsim.Standard(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer ports.Close()
	registry := device.NewRegistry(device.Options{Families: []device.Family{{Driver: ports, Service: serialio.Service{}}}})
	leases := device.NewLeases(device.LeaseOptions{})
	defer leases.Close()
	d := device.NewDispatcher(registry, leases, nil)
	look := func() {
		t.Helper()
		if err := registry.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	look()
	r.platform.Extensions = wire.Capabilities{wire.HardwareSerial}
	r.cfg.Open = func(_ context.Context, s *shim.Session) (shim.Table, io.Closer, error) {
		h := shim.NewHandles(s, dispatched{d, s.ID()})
		return h.Methods(), h, nil
	}
	s, _ := r.data(r.start(), "s")
	defer r.stop()
	open := func() string {
		t.Helper()
		return decodeTo[wire.SerialOpenResponse](t, s.Call(wire.TSerialOpen, map[string]any{"port": "serial:sim-scpi"}), wire.TSerialOpenResponse).Handle
	}
	const unplug = "sim-scpi"
	replug := func() {
		t.Helper()
		if err := ports.Replug(unplug); err != nil {
			t.Fatal(err)
		}
		look()
	}
	read := func(port string) wire.Envelope {
		return s.Call(wire.TSerialRead, map[string]any{"handle": port, "size": 1})
	}
	write := func(port string) wire.Envelope {
		return s.Call(wire.TSerialWrite, map[string]any{"handle": port, "data": "KklETj8K", "drain": true})
	}

	port := open()
	waiting := s.Request(wire.TSerialRead, map[string]any{"handle": port, "size": 1})
	s.Call(wire.TPing, nil)
	ports.Unplug(unplug)
	wantError(t, s.Wait(waiting), wire.DeviceGone)
	wantError(t, read(port), wire.SerialStale)
	wantError(t, s.Call(wire.TSerialOpen, map[string]any{"port": "serial:sim-scpi"}), wire.HardwareNotFound)
	replug()
	wantError(t, read(port), wire.SerialStale)

	port = open()
	decodeTo[wire.Ack](t, write(port), wire.TAck)
	ports.Unplug(unplug) // and nobody has looked
	wantError(t, write(port), wire.DeviceGone)
	wantError(t, write(port), wire.SerialStale)
	replug()

	port = open()
	ports.Unplug(unplug)
	look()
	if d := wantError(t, read(port), wire.SerialStale); d["reason"] != "device_gone" || d["device"] != "serial:sim-scpi" {
		t.Errorf("details %v", d)
	}
	replug()

	port = open()
	decodeTo[wire.Ack](t, write(port), wire.TAck)
	decodeTo[wire.SerialReadResponse](t, read(port), wire.TSerialReadResponse)
	decodeTo[wire.Ack](t, s.Call(wire.TSerialClose, map[string]any{"handle": port}), wire.TAck)
	if n := len(leases.List()); n != 0 {
		t.Errorf("%d leases are left", n)
	}
}
