package shim_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"farhand/shim"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// TestSessionLife is the way of a chat on the AutoGPT platform: browse, attach,
// activate, use, detach, restore.
func TestSessionLife(t *testing.T) {
	r := newRig(t)
	control := r.start()
	if h := control.Hello; h.AllowedRoot != nil || h.Capabilities[0] != wire.DirectoryBrowse || !h.Capabilities.Has(wire.Files) {
		t.Errorf("control HELLO %+v", h)
	}
	data, b := r.data(control, "session-1")
	if b.Revision != 1 || b.AllowedRoot != r.root || len(b.Fingerprint) != 64 || b.RootGrant == "" {
		t.Errorf("binding %+v", b)
	}
	e := data.Call(wire.TFileStat, wire.FileStat{Path: "x"})
	if got := decodeTo[wire.FileStatResponse](t, e, wire.TFileStatResponse); !got.Exists || *e.PendingCapacity != 4 {
		t.Errorf("stat %+v, capacity %d", got, *e.PendingCapacity)
	}
	if ack := decodeTo[wire.Ack](t, data.Call(wire.TFileDelete, wire.FileDelete{Path: "x"}), wire.TAck); !ack.OK {
		t.Error("ACK without ok")
	}
	decodeTo[wire.Ack](t, control.Call(wire.TDetachSession, wire.DetachSession{SessionID: "session-1"}), wire.TAck)
	if code, _ := data.Ended(); code != 1000 {
		t.Errorf("detached socket ended with %d", code)
	}
	if id := <-r.closed; id != "session-1" {
		t.Errorf("services of %s closed", id)
	}
	restored := decodeTo[wire.SessionBinding](t, control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: "session-1", RootGrant: b.RootGrant}), wire.TSessionRestored)
	if restored != b {
		t.Errorf("restored %+v, attached %+v", restored, b)
	}
	again := r.platform.Next()
	again.Call(wire.TPing, nil)
	r.stop()
	if code, _ := again.Ended(); code != 1001 && code != 1000 {
		t.Errorf("session's socket ended with %d", code)
	}
	want := []string{"WS_CONNECTED", "CONFIG_RELOADED", "DIRECTORY_LIST", "SESSION_ALLOWED_ROOT_SET", "ACTIVATE_SESSION", "WS_CONNECTED", "CONFIG_RELOADED", "WS_DISCONNECTED", "DETACH_SESSION", "RESTORE_SESSION"}
	if ops := r.ops(); !slices.Equal(ops[:min(len(ops), len(want))], want) {
		t.Errorf("audit %v\n want %v", ops, want)
	}
}

// TestRestoreIsCheap: with a live identical session nothing is opened anew.
func TestRestoreIsCheap(t *testing.T) {
	r := newRig(t)
	control := r.start()
	data, b := r.data(control, "s")
	for range 5 {
		decodeTo[wire.SessionBinding](t, control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: "s", RootGrant: b.RootGrant}), wire.TSessionRestored)
	}
	decodeTo[wire.SessionBinding](t, control.Call(wire.TActivateSession, wire.ActivateSession{SessionID: "s", Revision: 1}), wire.TSessionActivated)
	data.Call(wire.TFileStat, wire.FileStat{Path: "x"})
	if n := len(r.platform.Dials()); n != 2 {
		t.Errorf("%d dials", n)
	}
}

func TestControlErrors(t *testing.T) {
	r := newRig(t)
	control := r.start()
	wantError(t, control.Call(wire.TActivateSession, wire.ActivateSession{SessionID: "s", Revision: 1}), wire.SessionNotAttached)
	wantError(t, control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: "s", RootGrant: "v1.a.b"}), wire.RootGrantInvalid)
	wantError(t, control.Call(wire.TAttachSession, wire.AttachSession{SessionID: "s", BrowseID: "b", DirectoryRef: "d"}), wire.DirectoryReferenceInvalid)
	wantError(t, control.Call(wire.TAttachSession, wire.AttachSession{SessionID: "../x", BrowseID: "b", DirectoryRef: "d"}), wire.InternalError)
	decodeTo[wire.Ack](t, control.Call(wire.TDetachSession, wire.DetachSession{SessionID: "unknown"}), wire.TAck)

	_, b := r.data(control, "s")
	browse, ref := r.browse(control, r.root)
	wantError(t, control.Call(wire.TAttachSession, wire.AttachSession{SessionID: "s", BrowseID: browse, DirectoryRef: ref}), wire.SessionAlreadyActive)
	control.Call(wire.TDetachSession, wire.DetachSession{SessionID: "s"})
	b2 := decodeTo[wire.SessionBinding](t, control.Call(wire.TAttachSession, wire.AttachSession{SessionID: "s", BrowseID: browse, DirectoryRef: ref}), wire.TSessionAttached)
	if b2.Revision != 2 {
		t.Errorf("revision %d", b2.Revision)
	}
	d := wantError(t, control.Call(wire.TActivateSession, wire.ActivateSession{SessionID: "s", Revision: 1}), wire.SessionRevisionMismatch)
	if d["current_revision"] != 2.0 {
		t.Errorf("details %v", d)
	}
	wantError(t, control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: "s", RootGrant: b.RootGrant}), wire.SessionRevisionMismatch)
	wantError(t, control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: "other", RootGrant: b2.RootGrant}), wire.RootGrantInvalid)
	if rec := r.last("RESTORE_SESSION"); rec.Result.OK || *rec.Result.ErrorCode != "ROOT_GRANT_INVALID" {
		t.Errorf("record %+v", rec)
	}
}

// TestNinthSession: eight live children at most; one that ends makes room.
func TestNinthSession(t *testing.T) {
	r := newRig(t)
	control := r.start()
	for i := range 8 {
		r.data(control, fmt.Sprintf("s%d", i))
	}
	b := r.attach(control, "s8")
	d := wantError(t, control.Call(wire.TActivateSession, wire.ActivateSession{SessionID: "s8", Revision: 1}), wire.InternalError)
	if d["reason"] != "too_many_sessions" {
		t.Errorf("details %v", d)
	}
	control.Call(wire.TDetachSession, wire.DetachSession{SessionID: "s0"})
	decodeTo[wire.SessionBinding](t, control.Call(wire.TActivateSession, wire.ActivateSession{SessionID: "s8", Revision: b.Revision}), wire.TSessionActivated)
	if n := len(r.shim.Status().Sessions); n != 8 {
		t.Errorf("%d live", n)
	}
}

// TestWrongSocket: control answers nothing but control, data nothing but data.
func TestWrongSocket(t *testing.T) {
	r := newRig(t)
	control := r.start()
	data, _ := r.data(control, "s")
	d := wantError(t, control.Call(wire.TFileStat, wire.FileStat{Path: "x"}), wire.FeatureNotSupported)
	if d["op"] != "FILE_STAT" || d["feature"] == nil {
		t.Errorf("details %v", d)
	}
	wantError(t, control.Call(wire.TScreenshotRequest, nil), wire.FeatureNotSupported)
	wantError(t, control.Call("NEVER_HEARD_OF", nil), wire.FeatureNotSupported)
	d = wantError(t, data.Call(wire.TDirectoryListRequest, nil), wire.CapabilityNotGranted)
	if d["capability"] != "directory_browse" || d["required_capability"] == nil || d["granted_capabilities"] == nil {
		t.Errorf("details %v", d)
	}
	for _, refused := range []wire.Type{wire.TScreenshotRequest, wire.TInputAction, wire.TClipboardRead, wire.TStartRecording, wire.TRequestRecordingConsent} {
		wantError(t, data.Call(refused, nil), wire.CapabilityNotGranted)
	}
	wantError(t, data.Call("NEVER_HEARD_OF", nil), wire.FeatureNotSupported)
	wantError(t, data.Call(wire.THardwareOp, nil), wire.CapabilityNotGranted)   // not granted by this platform
	wantError(t, data.Call(wire.TGrantsUpdate, nil), wire.CapabilityNotGranted) // nor this
	wantError(t, data.Call(wire.TExecuteCommand, nil), wire.FeatureNotSupported)
	wantError(t, control.Call(wire.TGrantsUpdate, nil), wire.CapabilityNotGranted)
	wantError(t, control.Call(wire.TAuditVerifyRequest, nil), wire.CapabilityNotGranted)
}

// TestOddFrames: nothing that a peer can send ends the socket or is answered
// where the real platform would not take an answer.
func TestOddFrames(t *testing.T) {
	r := newRig(t)
	control := r.start()
	data, _ := r.data(control, "s")
	for _, s := range []*shimtest.Socket{control, data} {
		for _, frame := range []string{
			``, `x`, `[]`, `null`, `"HELLO"`, `{}`, `{"type":"PING"}`, `{"type":"PING","id":""}`, `{"type":"PING","id":7}`, `{"id":"a"}`,
			`{"type":7,"id":"a"}`, `{"type":"","id":"a","payload":{}}`, "\x00", "{\"type\":\"PING\",\"id\":\"\xff\xfe",
			`{"type":"HELLO","id":"a","payload":{}}`, `{"type":"HELLO_ACK","id":"a","payload":{}}`, `{"type":"STATUS","id":"a","payload":{}}`,
			`{"type":"ERROR","id":"a","payload":{}}`, `{"type":"ACK","id":"a","payload":{}}`, `{"type":"PONG","id":"a","payload":{}}`,
			`{"type":"FILE_CONTENTS","id":"a","payload":{}}`, `{"type":"RECORDING_STEP","id":"a","payload":{}}`,
			`{"type":"SCREENSHOT_RESPONSE","id":"a","payload":{}}`, `{"type":"PING","id":"` + strings.Repeat("i", 300) + `","payload":{}}`,
			`{"type":"FILE_STAT","version":"2.0","id":"a","payload":{"path":"x"}}`,
			strings.Repeat("[", 100000), `{"x":` + strings.Repeat(`{"x":`, 100000),
		} {
			s.Raw([]byte(frame))
		}
		s.Call(wire.TPing, nil)
	}
	for _, frame := range []string{
		`{"type":"FILE_STAT","id":"bad","payload":7}`,
		`{"type":"FILE_STAT","id":"bad","payload":[]}`,
		`{"type":"FILE_STAT","id":"bad","payload":null}`,
		`{"type":"FILE_STAT","id":"bad","payload":{"path":7}}`,
		`{"type":"FILE_STAT","id":"bad","payload":{"path":"x"`,
		`{"type":"FILE_STAT","id":"bad","payload":` + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + `}`,
		`{"type":"FILE_STAT","id":"bad","version":7,"payload":{"path":"x"}}`,
	} {
		data.Expect("bad", wire.TError)
		data.Raw([]byte(frame))
		if d := wantError(t, data.Wait("bad"), wire.InternalError); d["reason"] == nil {
			t.Errorf("%.80s: details %v", frame, d)
		}
	}
	for _, frame := range []string{
		`{"type":"FILE_STAT","id":"good","ts":"never","pending_capacity":"x","target_machine":null,"more":[{"x":1}],"payload":{"path":"x","more":{}}}`,
		`{"payload":{"path":"x"},"id":"good","type":"FILE_STAT"}`,
		`{"type":"FILE_STAT","id":"good","version":"1.9","payload":{"path":"x"}}`,
		`{"type":"FILE_STAT","id":"good","version":"soon","payload":{"path":"x"}}`,
	} {
		data.Expect("good", wire.TFileStatResponse)
		data.Raw([]byte(frame))
		decodeTo[wire.FileStatResponse](t, data.Wait("good"), wire.TFileStatResponse)
	}
	data.Expect("binary", wire.TFileStatResponse)
	data.Binary([]byte(`{"type":"FILE_STAT","id":"binary","payload":{"path":"x"}}`))
	data.Wait("binary")
	data.Expect("no payload", wire.TPong)
	data.Raw([]byte(`{"type":"PING","id":"no payload"}`))
	data.Wait("no payload")
	long := strings.Repeat("y", 1<<20)
	data.Call(wire.TFileStat, wire.FileStat{Path: long})
	d := wantError(t, data.Call(wire.Type(long[:100000]), nil), wire.FeatureNotSupported)
	if len(d["op"].(string)) > 200 {
		t.Error("the peer's own text comes back in full")
	}
}

// TestPanic is the call's failure alone.
func TestPanic(t *testing.T) {
	r := newRig(t)
	control := r.start()
	data, _ := r.data(control, "s")
	wantError(t, data.Call(wire.TFileRead, wire.FileRead{Path: "x"}), wire.InternalError)
	data.Call(wire.TFileStat, wire.FileStat{Path: "x"})
}

// TestErrorDetails are passed on.
func TestErrorDetails(t *testing.T) {
	r := newRig(t)
	control := r.start()
	data, _ := r.data(control, "s")
	if d := wantError(t, data.Call(wire.TFileStat, wire.FileStat{Path: "/missing"}), wire.PathNotFound); d["path"] != "/missing" {
		t.Errorf("details %v", d)
	}
}

// TestRevoked: after SESSION_REVOKED nothing more is sent, the socket closes with
// 4428, and Run says why.
func TestRevoked(t *testing.T) {
	for reason, want := range map[string]func(error) bool{
		wire.ReasonUserRevoked:      func(err error) bool { return errors.Is(err, shim.ErrRevoked) },
		wire.ReasonAnotherShim:      isHalted(4427),
		wire.ReasonPlatformShutdown: isHalted(4429),
		"something_new":             isHalted(4428),
	} {
		r := newRig(t)
		control := r.start()
		control.Call(wire.TPing, nil)
		control.Revoke(reason)
		if code, text := control.Ended(); code != 4428 || text != "session_revoked" {
			t.Errorf("%s: closed with %d %q", reason, code, text)
		}
		if err := r.ended(); !want(err) {
			t.Errorf("%s: Run returned %v", reason, err)
		}
		if rec := r.last("SESSION_REVOKED"); rec.Details["reason"] != reason || rec.Details["source"] != "frame" {
			t.Errorf("record %+v", rec)
		}
	}
}

// TestRevokedUntidily: not even a frame without an id or a reason is worked past.
func TestRevokedUntidily(t *testing.T) {
	for _, frame := range []string{
		`{"type":"SESSION_REVOKED"}`, `{"type":"SESSION_REVOKED","id":7,"payload":{"reason":3}}`, `{"type":"SESSION_REVOKED","version":"2.0","id":"x","payload":[]}`,
	} {
		r := newRig(t)
		control := r.start()
		control.Raw([]byte(frame))
		if code, _ := control.Ended(); code != 4428 {
			t.Errorf("%s: closed with %d", frame, code)
		}
		if err := r.ended(); !isHalted(4428)(err) {
			t.Errorf("%s: Run returned %v", frame, err)
		}
	}
}

func isHalted(code int) func(error) bool {
	return func(err error) bool {
		h, ok := errors.AsType[*shim.Halted](err)
		return ok && h.Code == code
	}
}

// TestFatalCloseCodes end Run, each in its own way.
func TestFatalCloseCodes(t *testing.T) {
	for code, want := range map[int]func(error) bool{
		4426: isHalted(4426), 4427: isHalted(4427), 4429: isHalted(4429),
		4428: func(err error) bool { return errors.Is(err, shim.ErrRevoked) },
	} {
		r := newRig(t)
		control := r.start()
		data, _ := r.data(control, "s")
		control.Close(code, "")
		if err := r.ended(); !want(err) {
			t.Errorf("%d: Run returned %v", code, err)
		}
		data.Ended() // everything ends with it
		if rec := r.last("SESSION_REVOKED"); rec.Details["source"] != "ws_close_code" || rec.Details["close_code"] != float64(code) {
			t.Errorf("record %+v", rec)
		}
		if n := len(r.platform.Dials()); n != 2 {
			t.Errorf("%d: %d dials", code, n)
		}
	}
}

// TestChildRevoked: a session's end doesn't touch control, and RESTORE brings
// it back.
func TestChildRevoked(t *testing.T) {
	r := newRig(t)
	control := r.start()
	for i, end := range []func(*shimtest.Socket){
		func(s *shimtest.Socket) { s.Revoke(wire.ReasonAnotherShim) },
		func(s *shimtest.Socket) { s.Close(4427, "") },
		func(s *shimtest.Socket) { s.Close(4428, "") },
		func(s *shimtest.Socket) { s.Close(4403, "") },
	} {
		id := fmt.Sprintf("s%d", i)
		data, b := r.data(control, id)
		end(data)
		data.Ended()
		if got := <-r.closed; got != id {
			t.Errorf("services of %s closed", got)
		}
		control.Call(wire.TPing, nil)
		decodeTo[wire.SessionBinding](t, control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: id, RootGrant: b.RootGrant}), wire.TSessionRestored)
		r.platform.Next().Call(wire.TFileStat, wire.FileStat{Path: "x"})
	}
}

// TestSessionsSurviveControl: a new control socket leaves data sockets alone and
// browse references not.
func TestSessionsSurviveControl(t *testing.T) {
	r := newRig(t)
	control := r.start()
	data, _ := r.data(control, "s")
	browse, ref := r.browse(control, r.root)
	control.Drop()
	r.awaitState(shim.Waiting)
	data.Call(wire.TFileStat, wire.FileStat{Path: "x"})
	r.shim.Wake()
	control = r.platform.Next()
	if control.Session != "" {
		t.Fatalf("socket of %q", control.Session)
	}
	data.Call(wire.TFileStat, wire.FileStat{Path: "x"})
	wantError(t, control.Call(wire.TDirectoryListRequest, wire.DirectoryListRequest{BrowseID: &browse, DirectoryRef: &ref}), wire.DirectoryReferenceInvalid)
	wantError(t, control.Call(wire.TAttachSession, wire.AttachSession{SessionID: "t", BrowseID: browse, DirectoryRef: ref}), wire.DirectoryReferenceInvalid)
	if rec := r.last("WS_DISCONNECTED"); rec.Details["reason"] != "ws_closed_1006_other" {
		t.Errorf("record %+v", rec)
	}
}

// TestDataReconnects: a lost data socket comes back by itself, and at once when
// the platform asks for the session.
func TestDataReconnects(t *testing.T) {
	r := newRig(t)
	control := r.start()
	data, b := r.data(control, "s")
	data.Drop()
	<-data.Gone()
	start := time.Now()
	var again *shimtest.Socket
	for again == nil {
		control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: "s", RootGrant: b.RootGrant})
		select {
		case again = <-r.platform.Arrivals():
		default:
		}
	}
	if d := time.Since(start); d > 900*time.Millisecond {
		t.Errorf("back after %v", d)
	}
	again.Call(wire.TFileStat, wire.FileStat{Path: "x"})
}

// TestRestoreFindsHalfOpenSocket: the platform restores a session whose socket
// we believe to be up; a dead one is found out at once.
func TestRestoreFindsHalfOpenSocket(t *testing.T) {
	r := newRig(t)
	control := r.start()
	data, b := r.data(control, "s")
	data.Call(wire.TPing, nil) // the device has it for sure
	defer data.Freeze()()      // the platform neither reads nor answers pings there
	control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: "s", RootGrant: b.RootGrant})
	start := time.Now()
	again := r.platform.Next()
	if again.Session != "s" || time.Since(start) > 4*time.Second {
		t.Errorf("socket of %q after %v", again.Session, time.Since(start))
	}
}

// TestAuthExpired: 4401 renews the token and comes back at once; the old token is
// not tried again.
func TestAuthExpired(t *testing.T) {
	r := newRig(t)
	var refuse string
	r.platform.Upgrade = func(req *http.Request) int {
		if strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ") == refuse {
			return 401
		}
		return 0
	}
	refuse = "token-0"
	control := r.start() // 401 at once: renewed and dialled again
	if got := r.platform.Tokens(); !slices.Equal(got, []string{"token-0", "token-1"}) {
		t.Errorf("tokens %v", got)
	}
	control.Close(4401, "token expired")
	r.platform.Next().Close(4401, "again") // at once; the second in a row waits as usual
	r.awaitState(shim.Waiting)
	for r.awaitState(shim.Waiting).RetryAt.Before(time.Now().Add(500 * time.Millisecond)) {
	}
	if got := r.platform.Tokens(); !slices.Equal(got, []string{"token-0", "token-1", "token-2"}) {
		t.Errorf("tokens %v", got)
	}
}

// TestLoginNeeded: a token that can't be renewed ends Run, a passing failure of
// renewing doesn't.
func TestLoginNeeded(t *testing.T) {
	r := newRig(t)
	r.platform.Upgrade = func(*http.Request) int { return 401 }
	r.tokens.err = errNoLogin
	r.run()
	if err := r.ended(); !errors.Is(err, shim.ErrLoginNeeded) {
		t.Errorf("Run returned %v", err)
	}

	r = newRig(t)
	r.platform.Upgrade = func(*http.Request) int { return 401 }
	r.run()
	if err := r.ended(); !errors.Is(err, shim.ErrLoginNeeded) {
		t.Errorf("Run returned %v", err)
	}

	r = newRig(t)
	r.platform.Upgrade = func(*http.Request) int { return 401 }
	r.tokens.err = errors.New("network unreachable")
	r.run()
	if s := r.awaitState(shim.Waiting); s.LastError == "" || s.RetryAt.Before(time.Now()) {
		t.Errorf("status %+v", s)
	}
}

// TestBadAcks are refused in the order and with the codes of the protocol.
func TestBadAcks(t *testing.T) {
	other := "other"
	for name, c := range map[string]struct {
		change func(ack map[string]any)
		code   int // 0: accepted
		final  bool
	}{
		"good":               {func(map[string]any) {}, 0, false},
		"unknown keys":       {func(a map[string]any) { a["x"] = map[string]any{"y": 1} }, 0, false},
		"empty session":      {func(a map[string]any) { a["session_id"] = "" }, 0, false},
		"no limits":          {func(a map[string]any) { delete(a, "max_concurrent"); delete(a, "max_file_size_bytes") }, 0, false},
		"no version":         {func(a map[string]any) { delete(a, "protocol_version") }, 0, false},
		"newer minor":        {func(a map[string]any) { a["protocol_version"] = "1.9" }, 0, false},
		"another id":         {func(a map[string]any) { a["\x00id"] = "x" }, 4400, true},
		"names a session":    {func(a map[string]any) { a["session_id"] = other }, 4403, true},
		"grants what wasn't": {func(a map[string]any) { a["granted_capabilities"] = []string{"directory_browse", "computer_use"} }, 4400, true},
		"another major":      {func(a map[string]any) { a["protocol_version"] = "2.0" }, 4426, true},
		"no number":          {func(a map[string]any) { a["protocol_version"] = "one" }, 4426, true},
		"older minor":        {func(a map[string]any) { a["protocol_version"] = "1.0" }, 4426, true},
		"no browse":          {func(a map[string]any) { a["granted_capabilities"] = []string{"files"} }, 4426, true},
		"no connection id":   {func(a map[string]any) { delete(a, "connection_id") }, 4426, true},
		"no grant":           {func(a map[string]any) { delete(a, "granted_capabilities") }, 1006, false},
		"zero limit":         {func(a map[string]any) { a["max_concurrent"] = 0 }, 1006, false},
		"wrong type":         {func(a map[string]any) { a["granted_capabilities"] = "files" }, 1006, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.platform.Ack = func(_ *shimtest.Socket, ack map[string]any) bool { c.change(ack); return true }
			s := r.start()
			switch {
			case c.code == 0:
				s.Call(wire.TPing, nil)
			case c.final:
				code, reason := s.Ended()
				if code != c.code {
					t.Errorf("closed with %d %q", code, reason)
				}
				if err := r.ended(); !isHalted(c.code)(err) {
					t.Errorf("Run returned %v", err)
				}
				if c.code == 4426 && name == "another major" && reason != `{"error":"PROTOCOL_VERSION_MISMATCH","shim_max":"1.1","platform_max":"2.0","hint":"update"}` {
					t.Errorf("reason %s", reason)
				}
			default:
				s.Ended()
				r.awaitState(shim.Waiting)
			}
		})
	}
}

// TestLimitsAreTheLower of both sides, anew at each handshake.
func TestLimitsAreTheLower(t *testing.T) {
	r := newRig(t)
	r.cfg.Limits = shim.Limits{MaxConcurrent: 3, MaxFileSize: 1000, CommandTimeout: time.Minute}
	r.platform.MaxConcurrent = 2
	control := r.start()
	r.data(control, "s")
	s := <-r.opened
	for s.Granted() == nil { // until the socket is attached
		r.shim.Status()
	}
	if got, want := s.Limits(), (shim.Limits{MaxConcurrent: 2, MaxFileSize: 1000, CommandTimeout: 30 * time.Second}); got != want {
		t.Errorf("limits %+v, want %+v", got, want)
	}
}

func TestNewRefusesHalfAConfig(t *testing.T) {
	if _, err := shim.New(shim.Config{}); err == nil {
		t.Error("accepted")
	}
	r := newRig(t)
	r.cfg.Control = shim.Table{wire.TDetachSession: {}}
	if _, err := shim.New(r.cfg); err == nil {
		t.Error("a method of the shim's own was replaced")
	}
}

// TestHelloFails: a HELLO that can't be made is tried again, one that no platform
// would take halts.
func TestHelloFails(t *testing.T) {
	r := newRig(t)
	r.cfg.Hello = func(context.Context, wire.Channel, string) (wire.Hello, error) {
		return wire.Hello{}, errors.New("not yet")
	}
	r.run()
	r.awaitState(shim.Waiting)
	r.stop()

	r = newRig(t)
	r.cfg.Hello = func(context.Context, wire.Channel, string) (wire.Hello, error) {
		return wire.Hello{MachineID: "a b", Platform: "linux", Arch: "arm64"}, nil
	}
	r.run()
	if err := r.ended(); !isHalted(4400)(err) {
		t.Errorf("Run returned %v", err)
	}
}
