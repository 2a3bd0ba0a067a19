package shim_test

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"farhand/audit"
	"farhand/grant"
	"farhand/shim"
	"farhand/shim/shimtest"
	"farhand/wire"
)

func ceiling(caps ...wire.Capability) *wire.Ceiling { return &wire.Ceiling{Capabilities: &caps} }

// withGrants is a rig whose platform grants our extensions and sends grants.
func withGrants(t *testing.T, r *rig, grants *wire.GrantSet) {
	t.Helper()
	r.platform.Extensions = wire.Capabilities{wire.Grants, wire.AuditAnchor, wire.HardwareSerial}
	r.platform.Ack = func(_ *shimtest.Socket, ack map[string]any) bool {
		ack["grants"] = grants
		return true
	}
}

// TestCeilings: each of the four refuses by its name, the first that does.
func TestCeilings(t *testing.T) {
	none := ceiling()
	files := ceiling(wire.Files)
	for name, c := range map[string]struct {
		config wire.Ceiling
		set    wire.GrantSet
		want   string // empty: allowed
	}{
		"all absent": {},
		"config":     {*none, wire.GrantSet{Approval: none, Token: none, Session: none}, "config"},
		"approval":   {*files, wire.GrantSet{Approval: none, Token: none}, "approval"},
		"token":      {wire.Ceiling{}, wire.GrantSet{Approval: files, Token: none, Session: none}, "token"},
		"session":    {wire.Ceiling{}, wire.GrantSet{Approval: files, Session: ceiling(wire.Shell)}, "session"},
		"allowed":    {*files, wire.GrantSet{Approval: files, Token: files, Session: files}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.cfg.Ceiling = c.config
			withGrants(t, r, &c.set)
			control := r.start()
			data, _ := r.data(control, "s")
			e := data.Call(wire.TFileStat, wire.FileStat{Path: "x"})
			if c.want == "" {
				decodeTo[wire.FileStatResponse](t, e, wire.TFileStatResponse)
				return
			}
			if d := wantError(t, e, wire.CapabilityNotGranted); d["ceiling"] != c.want {
				t.Errorf("details %v", d)
			}
		})
	}
}

// TestRootCeiling: a root that a ceiling excludes can't be attached, and a session
// whose root is excluded later is of no use for files.
func TestRootCeiling(t *testing.T) {
	r := newRig(t)
	withGrants(t, r, nil)
	control := r.start()
	data, _ := r.data(control, "s")
	browse, ref := r.browse(control, r.root)
	elsewhere := wire.GrantSet{Token: &wire.Ceiling{Roots: &[]string{"/elsewhere"}}}
	decodeTo[wire.Ack](t, control.Call(wire.TGrantsUpdate, wire.GrantsUpdate{Grants: elsewhere}), wire.TAck)
	e := control.Call(wire.TAttachSession, wire.AttachSession{SessionID: "t", BrowseID: browse, DirectoryRef: ref})
	if d := wantError(t, e, wire.PathOutsideAllowedRoot); d["ceiling"] != "token" {
		t.Errorf("details %v", d)
	}
	decodeTo[wire.FileStatResponse](t, data.Call(wire.TFileStat, wire.FileStat{Path: "x"}), wire.TFileStatResponse)
	decodeTo[wire.Ack](t, data.Call(wire.TGrantsUpdate, wire.GrantsUpdate{Grants: elsewhere}), wire.TAck)
	if d := wantError(t, data.Call(wire.TFileStat, wire.FileStat{Path: "x"}), wire.PathOutsideAllowedRoot); d["ceiling"] != "token" {
		t.Errorf("details %v", d)
	}
}

// TestGrantsUpdate takes effect before its ACK: calls that are no longer allowed
// end with the ceiling's name, watchers are told, later requests are refused,
// and all of it goes through a full socket.
func TestGrantsUpdate(t *testing.T) {
	r := newRig(t)
	withGrants(t, r, &wire.GrantSet{Owner: "owner-1", Holder: "holder-1"})
	g := newGate()
	table := r.table()
	linger := make(chan struct{})
	table[wire.TFileList] = shim.Method{Handle: shim.Unary(func(ctx context.Context, c *shim.Call, req wire.FileList) (any, error) {
		result, err := g.handle(ctx, c, req)
		<-linger // what it holds takes its time to be given back
		return result, err
	})}
	var told atomic.Int32
	r.cfg.Open = func(_ context.Context, s *shim.Session) (shim.Table, io.Closer, error) {
		s.OnPolicy(func(p *grant.Policy) {
			if p.Capability(wire.Files) != nil {
				told.Add(1)
			}
		})
		r.opened <- s
		return table, nil, nil
	}
	control := r.start()
	data, _ := r.data(control, "s")
	data.Call(wire.TFileStat, wire.FileStat{Path: "x"})
	if s := <-r.opened; s.Holder() != "holder-1" || s.Owner() != "owner-1" {
		t.Errorf("holder %q, owner %q", s.Holder(), s.Owner())
	}
	var ids []string
	for range 4 {
		ids = append(ids, data.Request(wire.TFileList, wire.FileList{Path: "never"}))
		<-g.started
	}
	wantError(t, data.Call(wire.TFileStat, wire.FileStat{Path: "x"}), wire.ShimOverloaded)
	update := data.Request(wire.TGrantsUpdate, wire.GrantsUpdate{Grants: wire.GrantSet{Approval: ceiling(wire.Shell)}})
	for range 300 { // long enough for an ACK that doesn't wait
		data.Call(wire.TPing, nil)
	}
	if !data.Outstanding(update) {
		t.Error("ACK while calls that are no longer allowed still run")
	}
	close(linger)
	decodeTo[wire.Ack](t, data.Wait(update), wire.TAck)
	if g.running.Load() != 0 || told.Load() != 1 {
		t.Errorf("after the ACK %d calls run, %d watchers were told", g.running.Load(), told.Load())
	}
	for _, id := range ids {
		if d := wantError(t, data.Wait(id), wire.CapabilityNotGranted); d["ceiling"] != "approval" {
			t.Errorf("details %v", d)
		}
	}
	if d := wantError(t, data.Call(wire.TFileStat, wire.FileStat{Path: "x"}), wire.CapabilityNotGranted); d["ceiling"] != "approval" {
		t.Errorf("details %v", d)
	}
	if rec := r.last("GRANTS_CHANGED"); rec.SessionID != "s" || rec.Details["cancelled"] != 4.0 {
		t.Errorf("record %+v", rec)
	}
	// More again.
	data.Call(wire.TGrantsUpdate, wire.GrantsUpdate{})
	decodeTo[wire.FileStatResponse](t, data.Call(wire.TFileStat, wire.FileStat{Path: "x"}), wire.TFileStatResponse)
	// A broken one changes nothing.
	id := data.Request(wire.TGrantsUpdate, map[string]any{"grants": 7})
	wantError(t, data.Wait(id), wire.InternalError)
	data.Call(wire.TFileStat, wire.FileStat{Path: "x"})
	decodeTo[wire.Ack](t, control.Call(wire.TGrantsUpdate, wire.GrantsUpdate{}), wire.TAck)
}

// TestRecheck: a call may say itself what has to hold for it.
func TestRecheck(t *testing.T) {
	r := newRig(t)
	withGrants(t, r, &wire.GrantSet{})
	started := make(chan struct{})
	gone := wire.Errorf(wire.CapabilityNotGranted, "device gone from the grants").With("ceiling", "token")
	table := r.table()
	table[wire.THardwareOp] = shim.Method{Handle: func(ctx context.Context, c *shim.Call) (any, error) {
		c.Recheck(func(p *grant.Policy) error {
			if p.Device("serial:usb-1", "SERIAL_READ") != nil {
				return gone
			}
			return nil
		})
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	r.serve(table)
	control := r.start()
	data, _ := r.data(control, "s")
	id := data.Request(wire.THardwareOp, wire.HardwareOp{Device: "serial:usb-1", Op: "SERIAL_READ"})
	<-started
	data.Call(wire.TGrantsUpdate, wire.GrantsUpdate{Grants: wire.GrantSet{Token: ceiling(wire.HardwareSerial)}})
	data.Silent(id) // devices weren't touched
	data.Call(wire.TGrantsUpdate, wire.GrantsUpdate{Grants: wire.GrantSet{Token: &wire.Ceiling{Devices: &[]wire.DeviceGrant{}}}})
	if d := wantError(t, data.Wait(id), wire.CapabilityNotGranted); d["ceiling"] != "token" {
		t.Errorf("details %v", d)
	}
}

// TestExtensions answer once granted.
func TestExtensions(t *testing.T) {
	r := newRig(t)
	withGrants(t, r, nil)
	r.cfg.Control = shim.Table{
		wire.THardwareListRequest: {Handle: shim.Unary(func(_ context.Context, c *shim.Call, _ wire.HardwareListRequest) (any, error) {
			if c.Session != nil || !c.Granted().Has(wire.HardwareSerial) || c.Policy() == nil || c.Limits().MaxConcurrent != 4 {
				return nil, errors.New("the call doesn't know its socket")
			}
			return wire.HardwareListResponse{Devices: []wire.HardwareDevice{}}, nil
		})},
	}
	control := r.start()
	decodeTo[wire.HardwareListResponse](t, control.Call(wire.THardwareListRequest, nil), wire.THardwareListResponse)
	wantError(t, control.Call(wire.THardwareOp, nil), wire.FeatureNotSupported)         // data only
	wantError(t, control.Call(wire.TAuditVerifyRequest, nil), wire.FeatureNotSupported) // nobody serves it
}

// failingAudit is the log of a full disk.
type failingAudit struct {
	*audit.Log
	failing atomic.Bool
}

func (f *failingAudit) Append(e audit.Entry) error {
	if f.failing.Load() {
		return errors.New("no space left on device")
	}
	return f.Log.Append(e)
}

func (f *failingAudit) AppendSync(ctx context.Context, e audit.Entry) error {
	if f.failing.Load() {
		return errors.New("no space left on device")
	}
	return f.Log.AppendSync(ctx, e)
}

// TestAuditFailsClosed: without records no control operation succeeds, and
// nothing is left of those that were tried.
func TestAuditFailsClosed(t *testing.T) {
	r := newRig(t)
	full := &failingAudit{Log: r.log}
	r.cfg.Audit = full
	control := r.start()
	_, b := r.data(control, "live")
	other := r.attach(control, "other")
	browse, ref := r.browse(control, r.root)
	full.failing.Store(true)
	for name, e := range map[string]wire.Envelope{
		"browse":   control.Call(wire.TDirectoryListRequest, nil),
		"attach":   control.Call(wire.TAttachSession, wire.AttachSession{SessionID: "new", BrowseID: browse, DirectoryRef: ref}),
		"activate": control.Call(wire.TActivateSession, wire.ActivateSession{SessionID: "other", Revision: 1}),
		"restore":  control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: "other", RootGrant: other.RootGrant}),
		"no-op":    control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: "live", RootGrant: b.RootGrant}),
	} {
		if d := wantError(t, e, wire.InternalError); d["reason"] != "audit_unavailable" {
			t.Errorf("%s: details %v", name, d)
		}
	}
	if n := len(r.shim.Status().Sessions); n != 1 {
		t.Errorf("%d sessions live", n)
	}
	// Stopping is never refused, but said to be unrecorded.
	wantError(t, control.Call(wire.TDetachSession, wire.DetachSession{SessionID: "live"}), wire.InternalError)
	if n := len(r.shim.Status().Sessions); n != 0 {
		t.Errorf("%d sessions live", n)
	}
	full.failing.Store(false)
	wantError(t, control.Call(wire.TActivateSession, wire.ActivateSession{SessionID: "new", Revision: 1}), wire.SessionNotAttached)
	decodeTo[wire.SessionBinding](t, control.Call(wire.TActivateSession, wire.ActivateSession{SessionID: "other", Revision: 1}), wire.TSessionActivated)
}

// TestOpenFails: a session whose services can't be opened isn't started, and the
// one that lives already goes on.
func TestOpenFails(t *testing.T) {
	r := newRig(t)
	open := r.cfg.Open
	fail := false
	r.cfg.Open = func(ctx context.Context, s *shim.Session) (shim.Table, io.Closer, error) {
		if fail {
			return nil, nil, wire.Errorf(wire.RootGrantInvalid, "the root is gone")
		}
		return open(ctx, s)
	}
	control := r.start()
	data, _ := r.data(control, "s")
	fail = true
	b := r.attach(control, "t")
	wantError(t, control.Call(wire.TActivateSession, wire.ActivateSession{SessionID: "t", Revision: b.Revision}), wire.RootGrantInvalid)
	data.Call(wire.TFileStat, wire.FileStat{Path: "x"})
}

// TestRestoreReplaces: a live session with another root is restarted with the
// root of the grant.
func TestRestoreReplaces(t *testing.T) {
	r := newRig(t)
	second := filepath.Join(r.root, "second")
	if err := os.Mkdir(second, 0o755); err != nil {
		t.Fatal(err)
	}
	control := r.start()
	first := r.attach(control, "s")
	browse, ref := r.browse(control, second)
	b2 := decodeTo[wire.SessionBinding](t, control.Call(wire.TAttachSession, wire.AttachSession{SessionID: "s", BrowseID: browse, DirectoryRef: ref}), wire.TSessionAttached)
	if b2.AllowedRoot != second || b2.Revision != 2 {
		t.Fatalf("binding %+v", b2)
	}
	if rec := r.last("SESSION_ALLOWED_ROOT_SET"); rec.Details["previous_allowed_root"] != first.AllowedRoot || rec.Details["revision"] != 2.0 {
		t.Errorf("record %+v", rec)
	}
	control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: "s", RootGrant: b2.RootGrant})
	if s := r.platform.Next(); *s.Hello.AllowedRoot != second {
		t.Errorf("root %s", *s.Hello.AllowedRoot)
	}
}
