// Package devicetest is the conformance suite of drivers: what every family
// promises, whatever its devices are.
package devicetest

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"farhand/device"
	"farhand/internal/leak"
	"farhand/wire"
)

// Bench is one driver with at least one device, to be tested.
type Bench struct {
	Family device.Family
	// DevRoot is the directory of the device nodes: Probe must open none of
	// them. Empty if they lie elsewhere.
	DevRoot string

	// ID is the device to be used and Op an operation that succeeds on it.
	// They may be empty if the family has no service.
	ID string
	Op wire.HardwareOp
	// Unplug takes the device away, Replug brings it back.
	Unplug, Replug func()
}

// patience bounds every wait of the suite.
const patience = 10 * time.Second

// Run runs the suite; open makes a fresh bench for each case and cleans up
// after itself with t.Cleanup.
func Run(t *testing.T, open func(t testing.TB) Bench) {
	always := func(Bench) bool { return true }
	served := func(b Bench) bool { return b.Family.Service != nil }
	var b Bench // the last case's, to know what the next ones can ask of it
	for _, c := range []struct {
		name    string
		run     func(*testing.T, *rig)
		applies func(Bench) bool
	}{
		{"Probe", testProbe, always},
		{"ProbeCancelled", testProbeCancelled, always},
		{"NoSuchOperation", testNoSuchOperation, always},
		{"ProbeOpensNothing", testProbeOpensNothing, func(b Bench) bool { return b.DevRoot != "" }},
		{"BadArguments", testBadArguments, served},
		{"Lease", testLease, served},
		{"SessionEnds", testSessionEnds, served},
		{"Unplug", testUnplug, func(b Bench) bool { return served(b) && b.Unplug != nil }},
	} {
		if !c.applies(b) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			leak.Check(t)
			b = open(t)
			c.run(t, newRig(t, b))
		})
	}
}

// rig is a bench with everything that a daemon puts around it.
type rig struct {
	b      Bench
	reg    *device.Registry
	leases *device.Leases
	disp   *device.Dispatcher
}

func newRig(t *testing.T, b Bench) *rig {
	r := &rig{b: b}
	r.reg = device.NewRegistry(device.Options{Families: []device.Family{b.Family}})
	r.leases = device.NewLeases(device.LeaseOptions{Linger: -1})
	r.disp = device.NewDispatcher(r.reg, r.leases, nil)
	t.Cleanup(func() { r.leases.Close() })
	if err := r.reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p := r.reg.Problems(); len(p) > 0 {
		t.Fatalf("the driver has problems: %v", p)
	}
	return r
}

func (r *rig) do(t *testing.T, session string, op wire.HardwareOp) (wire.HardwareResult, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	res, trace, err := r.disp.Do(ctx, device.Caller{Session: session, Name: "holder of " + session}, op)
	if trace.Op != op.Op {
		t.Errorf("the trace is of %q, not %q", trace.Op, op.Op)
	}
	return res, err
}

// id is the form of a canonical id: a type, a colon, and nothing that needs
// care anywhere.
var id = regexp.MustCompile(`^[a-z0-9]+:[A-Za-z0-9._:@%-]+$`)

func testProbe(t *testing.T, r *rig) {
	first, err := r.b.Family.Driver.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(first) == 0 {
		t.Fatal("the bench has no device")
	}
	second, err := r.b.Family.Driver.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(first, second); diff != "" {
		t.Errorf("a second Probe differs:\n%s", diff)
	}
	var ids []string
	for _, d := range first {
		ids = append(ids, d.ID)
		switch {
		case !id.MatchString(d.ID), !strings.HasPrefix(d.ID, d.Type+":"):
			t.Errorf("%q is no canonical id of a %s device", d.ID, d.Type)
		case d.Type != r.b.Family.Driver.Type():
			t.Errorf("%s is of type %s, its driver of type %s", d.ID, d.Type, r.b.Family.Driver.Type())
		case !d.Available && d.Reason == "":
			t.Errorf("%s is unavailable without a reason", d.ID)
		case d.Desc == "":
			t.Errorf("%s has no description", d.ID)
		case d.Instance == "":
			t.Errorf("%s can't be told from its next appearance", d.ID)
		}
	}
	slices.Sort(ids)
	if n := len(slices.Compact(slices.Clone(ids))); n != len(ids) {
		t.Errorf("two devices have one id: %v", ids)
	}
}

func testProbeCancelled(t *testing.T, r *rig) {
	why := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(why)
	if _, err := r.b.Family.Driver.Probe(ctx); !errors.Is(err, why) {
		t.Errorf("a cancelled Probe answers %v, want the cause", err)
	}
}

func testNoSuchOperation(t *testing.T, r *rig) {
	for _, d := range r.reg.List() {
		_, err := r.do(t, "a", wire.HardwareOp{Device: d.ID, Op: "NO_SUCH_OP"})
		e := wire.AsError(err)
		if e.Code != wire.FeatureNotSupported || e.Details["op"] != "NO_SUCH_OP" || e.Details["feature"] != "hardware_"+d.Type {
			t.Errorf("%s: an unknown operation answers %v %v", d.ID, err, e.Details)
		}
	}
	if _, err := r.do(t, "a", wire.HardwareOp{Device: "no:such", Op: "NO_SUCH_OP"}); !errors.Is(err, wire.HardwareNotFound) {
		t.Errorf("an unknown device answers %v", err)
	}
}

func testBadArguments(t *testing.T, r *rig) {
	for op := range r.b.Family.Service.Ops() {
		for _, args := range []string{`[]`, `"text"`, `17`} {
			_, err := r.do(t, "a", wire.HardwareOp{Device: r.b.ID, Op: op, Args: json.RawMessage(args)})
			if !errors.Is(err, wire.InvalidArgument) {
				t.Errorf("%s with %s answers %v", op, args, err)
			}
		}
	}
	r.works(t, "b") // nothing is left of the failures
}

func (r *rig) works(t *testing.T, session string) wire.HardwareResult {
	t.Helper()
	op := r.b.Op
	op.Device = r.b.ID
	res, err := r.do(t, session, op)
	if err != nil {
		t.Fatalf("%s in session %s: %v", op.Op, session, err)
	}
	if res.Device != r.b.ID {
		t.Errorf("the answer is about %q", res.Device)
	}
	return res
}

func (r *rig) busy(t *testing.T, session, holder string) {
	t.Helper()
	op := r.b.Op
	op.Device = r.b.ID
	_, err := r.do(t, session, op)
	if e := wire.AsError(err); e.Code != wire.HardwareBusy || e.Details["holder"] != "holder of "+holder {
		t.Errorf("session %s is answered %v %v, want HARDWARE_BUSY by %s", session, err, e.Details, holder)
	}
}

func (r *rig) hold(t *testing.T, session string) {
	t.Helper()
	op := r.b.Op
	op.Device, op.Hold = r.b.ID, true
	if _, err := r.do(t, session, op); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) release(t *testing.T, session string, want bool) {
	t.Helper()
	res, err := r.do(t, session, wire.HardwareOp{Device: r.b.ID, Op: wire.OpRelease})
	if err != nil {
		t.Fatal(err)
	}
	if res.Result != (wire.Released{Released: want}) {
		t.Errorf("RELEASE in session %s answers %v", session, res.Result)
	}
}

func testLease(t *testing.T, r *rig) {
	r.works(t, "a")
	r.works(t, "b") // an operation has its device for its own time only
	r.hold(t, "a")
	r.busy(t, "b", "a")
	r.works(t, "a")
	r.busy(t, "b", "a") // an operation without hold doesn't give it up
	r.release(t, "b", false)
	r.busy(t, "b", "a")
	r.release(t, "a", true)
	r.release(t, "a", false)
	r.works(t, "b")
}

func testSessionEnds(t *testing.T, r *rig) {
	r.hold(t, "a")
	if n := r.leases.Held("a"); n != 1 {
		t.Errorf("the session holds %d devices", n)
	}
	if err := r.leases.ReleaseAll(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	r.works(t, "b")
	r.hold(t, "b")
}

func testUnplug(t *testing.T, r *rig) {
	sub := r.reg.Subscribe()
	defer sub.Close()
	r.hold(t, "a")
	before := r.works(t, "a").Generation

	r.b.Unplug()
	op := r.b.Op
	op.Device = r.b.ID
	if _, err := r.do(t, "a", op); !errors.Is(err, wire.DeviceGone) {
		t.Errorf("the operation after unplugging answers %v", err)
	}
	if _, err := r.do(t, "a", op); !errors.Is(err, wire.HardwareNotFound) {
		t.Errorf("the one after that answers %v", err)
	}
	r.change(t, sub, true)

	r.b.Replug()
	if after := r.works(t, "b").Generation; after != before+1 {
		t.Errorf("the generation went from %d to %d", before, after)
	}
	r.change(t, sub, false)
}

func (r *rig) change(t *testing.T, sub *device.Subscription, gone bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	changes, lost, err := sub.Next(ctx)
	if err != nil || lost {
		t.Fatalf("waiting for a change: lost %v, %v", lost, err)
	}
	if len(changes) != 1 || changes[0].Device.ID != r.b.ID || changes[0].Gone != gone {
		t.Errorf("the changes are %+v, want %s, gone %v", changes, r.b.ID, gone)
	}
}
