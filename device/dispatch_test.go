package device

import (
	"context"
	"errors"
	"io"
	"reflect"
	"testing"

	"farhand/internal/leak"
	"farhand/wire"
)

type house struct {
	*Dispatcher
	shelf *shelf
	desk  *desk
}

func newHouse(t *testing.T) *house {
	leak.Check(t)
	h := &house{shelf: newShelf("serial"), desk: &desk{started: make(chan string), goOn: make(chan struct{})}}
	h.shelf.put("a", "alias")
	other := newShelf("usb")
	other.put("u")
	r := NewRegistry(Options{Families: []Family{{Driver: h.shelf, Service: h.desk}, {Driver: other}}})
	refresh(t, r)
	ls := NewLeases(LeaseOptions{})
	t.Cleanup(func() { ls.Close() })
	h.Dispatcher = NewDispatcher(r, ls, nil)
	return h
}

func (h *house) do(t *testing.T, session, op string, hold bool) (wire.HardwareResult, Trace, error) {
	return h.Do(t.Context(), Caller{Session: session}, wire.HardwareOp{Device: "alias", Op: op, Args: []byte("12"), Hold: hold})
}

func TestDo(t *testing.T) {
	h := newHouse(t)
	res, tr, err := h.do(t, "s", "NOP", false)
	if err != nil || res != (wire.HardwareResult{Device: "serial:a", Generation: 1, Result: "serial:a"}) {
		t.Errorf("%+v, %v", res, err)
	}
	if !reflect.DeepEqual(tr, Trace{Device: "serial:a", Op: "NOP", Effect: ReadOnly, BytesOut: 2}) {
		t.Errorf("traced %+v", tr)
	}
	_, tr, err = h.do(t, "s", "FAIL", true)
	if !errors.Is(err, errBroken) || tr.BytesOut != 2 || tr.Effect != Mutating {
		t.Errorf("%v, traced %+v", err, tr)
	}
	if n := h.Leases().Held("s"); n != 0 {
		t.Errorf("a failed operation holds %d devices", n)
	}
	for _, op := range []wire.HardwareOp{{}, {Device: "alias"}, {Op: "NOP"}} {
		if _, _, err := h.Do(t.Context(), Caller{Session: "s"}, op); !errors.Is(err, wire.InvalidArgument) {
			t.Errorf("%+v: %v", op, err)
		}
	}
	if id := h.CanonicalID("alias"); id != "serial:a" {
		t.Errorf("alias is %s", id)
	}
	if id := h.CanonicalID("nobody\x07"); id != "nobody" {
		t.Errorf("an unknown name orders by %q", id)
	}
	if h.Effect("alias", "NOP") != ReadOnly || h.Effect("alias", "FAIL") != Mutating || h.Effect("x", "NOP") != Mutating || h.Effect("usb:u", "NOP") != Mutating {
		t.Error("an effect is wrong")
	}
}

func TestRefusals(t *testing.T) {
	h := newHouse(t)
	no := wire.Errorf(wire.CapabilityNotGranted, "no").With("ceiling", "token")
	var asked []string
	allow := func(id, op string, _ []Part) error {
		asked = append(asked, id+" "+op)
		return no
	}
	_, tr, err := h.Do(t.Context(), Caller{Session: "s", Allow: allow}, wire.HardwareOp{Device: "alias", Op: "WAIT"})
	if !errors.Is(err, wire.CapabilityNotGranted) || tr.Device != "serial:a" || len(asked) != 1 || asked[0] != "serial:a WAIT" {
		t.Errorf("%v, traced %+v, asked %v", err, tr, asked)
	}
	_, _, err = h.Do(t.Context(), Caller{Session: "s"}, wire.HardwareOp{Device: "usb:u", Op: "USB_SEND"})
	if e := wire.AsError(err); e.Code != wire.FeatureNotSupported || e.Details["op"] != "USB_SEND" || e.Details["feature"] != "hardware_usb" {
		t.Errorf("a family without a service: %v %v", err, e.Details)
	}
	res, _, err := h.Do(t.Context(), Caller{Session: "s"}, wire.HardwareOp{Device: "usb:u", Op: wire.OpRelease})
	if err != nil || res.Result != (wire.Released{Released: false}) {
		t.Errorf("RELEASE there: %v, %v", res, err)
	}
	h.shelf.set(func(s *shelf) {
		d := s.on["serial:a"]
		d.Available, d.Reason = false, "in a drawer"
		s.on["serial:a"] = d
	})
	_, _, err = h.do(t, "s", "NOP", false) // one look too early
	refresh(t, h.Registry())
	_, _, err2 := h.do(t, "s", "NOP", false)
	if e := wire.AsError(err2); err != nil || e.Code != wire.HardwareOpenFailed || e.Details["reason"] != "in a drawer" {
		t.Errorf("%v, then %v %v", err, err2, e.Details)
	}
	h.shelf.put("a", "alias") // udev was late: a look before giving up
	if _, _, err := h.do(t, "s", "NOP", false); err != nil {
		t.Errorf("a device that has become available: %v", err)
	}
}

func TestBusyNamesTheHolder(t *testing.T) {
	h := newHouse(t)
	done := make(chan error)
	go func() {
		_, _, err := h.Do(t.Context(), Caller{Session: "s", Holder: "id", Name: "claude"}, wire.HardwareOp{Device: "serial:a", Op: "WAIT"})
		done <- err
	}()
	<-h.desk.started
	_, _, err := h.do(t, "other", "NOP", false)
	if e := wire.AsError(err); e.Code != wire.HardwareBusy || e.Details["holder"] != "claude" {
		t.Errorf("%v %v", err, e.Details)
	}
	close(h.desk.goOn)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestCallerGivesUp(t *testing.T) {
	h := newHouse(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, _, err := h.Do(ctx, Caller{Session: "s"}, wire.HardwareOp{Device: "serial:a", Op: "WAIT", Hold: true})
		done <- err
	}()
	<-h.desk.started
	cancel(errBroken)
	if err := <-done; !errors.Is(err, errBroken) {
		t.Error(err)
	}
	if _, _, err := h.do(t, "other", "NOP", false); err != nil {
		t.Errorf("the device is not free: %v", err)
	}
}

// TestPartial: a transfer that is cut short says how far it came, each of several
// for itself.
func TestPartial(t *testing.T) {
	h := newHouse(t)
	cut := wire.Errorf(wire.HardwareTransferFailed, "cut").With("reason", "all")
	for _, args := range []string{`"abc"`, ``} {
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error)
		go func() {
			_, _, err := h.Do(ctx, Caller{Session: "s"}, wire.HardwareOp{Device: "serial:a", Op: "WAIT", Args: []byte(args)})
			done <- err
		}()
		<-h.desk.started
		cancel(cut)
		err := <-done
		if e := wire.AsError(err); e.Code != wire.HardwareTransferFailed || e.Details["bytes_partial"] != len(args) || e.Details["reason"] != "all" || !errors.Is(err, cut) {
			t.Errorf("%v %v", err, e.Details)
		}
	}
	if _, said := cut.Details["bytes_partial"]; said {
		t.Error("what several share was changed")
	}
}

func TestVanishEndsTheOperation(t *testing.T) {
	h := newHouse(t)
	state := &counter{}
	h.desk.state = func() io.Closer { return state }
	done := make(chan error)
	go func() {
		_, _, err := h.do(t, "s", "WAIT", true)
		done <- err
	}()
	<-h.desk.started
	h.shelf.take("a")
	refresh(t, h.Registry())
	if err := <-done; !errors.Is(err, wire.DeviceGone) {
		t.Error(err)
	}
	h.shelf.put("a", "alias")
	res, _, err := h.do(t, "other", "NOP", false) // looks again before it says no
	if err != nil || res.Generation != 2 || state.closes() == 0 {
		t.Errorf("%+v, %v, closed %d times", res, err, state.closes())
	}
}

// An operation that has found a device which is then replugged doesn't run on what
// has its node by now.
func TestReplugBeforeTheOperation(t *testing.T) {
	h := newHouse(t)
	for _, back := range []bool{true, false} {
		replug := func(string, string, []Part) error {
			h.shelf.take("a")
			refresh(t, h.Registry())
			if back {
				h.shelf.put("a", "alias")
				refresh(t, h.Registry())
			}
			return nil
		}
		_, tr, err := h.Do(t.Context(), Caller{Session: "s", Allow: replug}, wire.HardwareOp{Device: "alias", Op: "NOP", Args: []byte("12"), Hold: true})
		if !errors.Is(err, wire.DeviceGone) || tr.BytesOut != 0 || h.Leases().Held("s") != 0 {
			t.Errorf("back %v: %v, traced %+v", back, err, tr)
		}
	}
}

func TestGoneIsNoticed(t *testing.T) {
	h := newHouse(t)
	h.shelf.take("a") // nobody follows the kernel's events
	if _, _, err := h.do(t, "s", "GONE", false); !errors.Is(err, wire.DeviceGone) {
		t.Error(err)
	}
	if _, _, err := h.do(t, "s", "NOP", false); !errors.Is(err, wire.HardwareNotFound) {
		t.Error(err)
	}
}

// A service that panics has its device no longer: the caller's reader recovers,
// and whoever comes next must not wait for the operation that never ended.
func TestAPanicGivesTheDeviceBack(t *testing.T) {
	h := newHouse(t)
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the panic is swallowed")
			}
		}()
		h.do(t, "s", "PANIC", true)
	}()
	if _, _, err := h.do(t, "other", "NOP", false); err != nil {
		t.Error(err)
	}
}
