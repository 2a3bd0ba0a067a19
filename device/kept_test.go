package device_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"farhand/device"
	"farhand/wire"
)

// TestKeptBy: the context of a lease that is kept, for its own session alone, and
// with the reason for its end.
func TestKeptBy(t *testing.T) {
	ls := device.NewLeases(device.LeaseOptions{})
	defer ls.Close()
	key := device.Key{Device: "gpio:chip", Part: "17"}
	begin := func(ctx context.Context, key device.Key) (func(bool), error) {
		_, _, end, err := ls.Begin(ctx, key, "GPIO_SET", device.Holder{Session: "a"})
		return end, err
	}
	end, err := begin(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if ls.KeptBy("a", key) != nil {
		t.Error("what an operation has is taken for kept")
	}
	end(true)
	kept := ls.KeptBy("a", key)
	if kept == nil || kept.Err() != nil {
		t.Fatal("what is held isn't kept")
	}
	if ls.KeptBy("b", key) != nil || ls.KeptBy("a", device.Key{Device: "gpio:chip"}) != nil {
		t.Error("it is kept by another, or under another name")
	}
	revoked := errors.New("no longer granted")
	if _, err := ls.EndWhere(t.Context(), revoked, func(device.LeaseInfo) bool { return true }); err != nil {
		t.Fatal(err)
	}
	if !errors.Is(context.Cause(kept), revoked) || ls.KeptBy("a", key) != nil {
		t.Errorf("after its end: %v, %v", context.Cause(kept), ls.KeptBy("a", key))
	}
	// An operation whose context is the lease's doesn't begin under the next one.
	for n := range 50 { // without care it is a matter of luck
		if end, err := begin(kept, device.Key{Device: "gpio:chip", Part: strconv.Itoa(n)}); !errors.Is(err, revoked) {
			if err == nil {
				end(false)
			}
			t.Fatalf("it begins: %v", err)
		}
	}
	if n := ls.Held("a"); n != 0 {
		t.Errorf("%d leases are left of it", n)
	}
	end, err = begin(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	end(false)
}

// A device is free as soon as the stream that kept it has ended, whatever its
// source still does, unless something else keeps it.
func TestKeptByAnEndedStream(t *testing.T) {
	ls := device.NewLeases(device.LeaseOptions{})
	defer ls.Close()
	key := device.Key{Device: "serial:port"}
	a, b := device.Holder{Session: "a"}, device.Holder{Session: "b"}
	keep := func(over ...chan struct{}) (done []func()) {
		t.Helper()
		l, _, end, err := ls.Begin(t.Context(), key, "SERIAL_WATCH", a)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range over {
			done = append(done, l.Keep(o))
		}
		end(false)
		return done
	}
	first, second := make(chan struct{}), make(chan struct{})
	done := keep(first, second)
	close(first)
	if _, _, _, err := ls.Begin(t.Context(), key, "SERIAL_READ", b); !errors.Is(err, wire.HardwareBusy) {
		t.Fatalf("another stream keeps it: %v", err)
	}
	close(second)
	_, _, end, err := ls.Begin(t.Context(), key, "SERIAL_READ", b)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range done { // too late to matter, and no harm to the new lease
		d()
	}
	if _, _, _, err := ls.Begin(t.Context(), key, "SERIAL_WATCH", a); !errors.Is(err, wire.HardwareBusy) {
		t.Errorf("what another has: %v", err)
	}
	end(false)
	keep(make(chan struct{}))[0]()
	if ls.Held("a") != 0 {
		t.Error("the lease outlives what kept it")
	}
}
