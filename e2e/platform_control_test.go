package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"farhand/daemon"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// refused checks an ERROR and is its details.
func refused(t *testing.T, e wire.Envelope, code wire.Code) map[string]any {
	t.Helper()
	if e.Type != wire.TError {
		t.Errorf("%s %.200s instead of %s", e.Type, e.Payload, code)
		return nil
	}
	got := answer[wire.Error](t, e, wire.TError)
	if got.Code != code || got.Message == "" || got.Fatal {
		t.Errorf("%s %q, fatal %v, instead of %s", got.Code, got.Message, got.Fatal, code)
	}
	return got.Details
}

// The handshake with a platform that grants the base protocol alone, and what is
// done about acknowledgements that can't be right.
func TestPlatformHandshake(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.loggedIn()
	p := b.on(c)
	h := p.control.Hello
	if h.AllowedRoot != nil || h.ProtocolVersion != "1.1" || h.DisplayName != "bench" || h.Platform != "linux" || h.BootID == "" ||
		!h.Capabilities.Has(wire.Files) || !h.Capabilities.Has(wire.Shell) || h.Capabilities.Has(wire.ComputerUse) || h.Capabilities.Has(wire.Recording) || h.Capabilities.Has(wire.LocalLLM) {
		t.Errorf("HELLO is %+v", h)
	}
	found := make(map[string]bool)
	for _, d := range h.HardwareDevices {
		found[d.ID] = true
	}
	if !found[psu] || !found["gpio:pinctrl-bcm2711"] {
		t.Errorf("HELLO has the devices %v", found)
	}
	s, _ := p.open("session-1")
	if s.Hello.Capabilities.Has(wire.DirectoryBrowse) || s.HelloID == p.control.HelloID || s.Hello.BootID != h.BootID {
		t.Errorf("HELLO of the session is %+v", s.Hello)
	}
	if granted := b.awaitState(daemon.StateOnline).Granted; granted.Has(wire.Grants) || !granted.Has(wire.DirectoryBrowse) {
		t.Errorf("granted is %v", granted)
	}

	// What no patience mends halts; resume tries again.
	for _, x := range []struct {
		name string
		ack  func(ack map[string]any)
		code int
	}{
		{"another id", func(ack map[string]any) { ack["\x00id"] = "another" }, 4400},
		{"a session on control", func(ack map[string]any) { ack["session_id"] = "session-1" }, 4403},
		{"more than was offered", func(ack map[string]any) { ack["granted_capabilities"] = []string{"directory_browse", "computer_use"} }, 4400},
		{"version 2", func(ack map[string]any) { ack["protocol_version"] = "2.0" }, 4426},
		{"version 1.0 on control", func(ack map[string]any) { ack["protocol_version"] = "1.0" }, 4426},
		{"no version", func(ack map[string]any) { ack["protocol_version"] = "one" }, 4426},
		{"no browsing", func(ack map[string]any) { ack["granted_capabilities"] = []string{"files", "shell"} }, 4426},
		{"no connection id", func(ack map[string]any) { delete(ack, "connection_id") }, 4426},
	} {
		c.Script(func() {
			c.Ack = func(s *shimtest.Socket, ack map[string]any) bool {
				if s.Session == "" {
					x.ack(ack)
				}
				return true
			}
		})
		p.control.Drop()
		b.mustd("", "resume")
		if code, reason := c.Next().Ended(); code != x.code || len(reason) > 123 {
			t.Errorf("%s: it closes with %d %q, want %d", x.name, code, reason, x.code)
		}
		b.awaitState(daemon.StateHalted)
		c.Script(func() { c.Ack = nil })
		b.mustd("", "resume")
		p.control = c.Next()
	}
	// A machine that has halted serves no session either.
	if code, _ := s.Ended(); code != 1001 {
		t.Errorf("the session's socket was closed with %d", code)
	}
	// Unknown keys and a younger minor version are no trouble.
	c.Script(func() {
		c.Ack = func(_ *shimtest.Socket, ack map[string]any) bool {
			ack["protocol_version"], ack["new_in_1_9"] = "1.9", map[string]any{"deep": []int{1}}
			return true
		}
	})
	p.control.Drop()
	b.mustd("", "resume")
	p.control = c.Next()
	p.open("session-2")
	b.awaitState(daemon.StateOnline)
}

// Browsing, and the life of sessions: attached, activated, detached, restored,
// over the end of the connection and of the daemon.
func TestPlatformControl(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.bench()
	wide := filepath.Join(b.root(), "wide")
	for i := range 250 {
		if err := os.MkdirAll(filepath.Join(wide, fmt.Sprintf("Dir-%03d", i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"wide/.hidden", "wide/dir-000a", "wide/lower", "wide/taken", "taken"} {
		if err := os.MkdirAll(filepath.Join(b.root(), name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(wide, "link")); err != nil {
		t.Fatal(err)
	}
	b.write(filepath.Join(wide, "file"), "")
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon()
	p := b.on(c)

	t.Run("browse", func(t *testing.T) {
		list := func(payload any) wire.DirectoryListResponse {
			t.Helper()
			return answer[wire.DirectoryListResponse](t, p.control.Call(wire.TDirectoryListRequest, payload), wire.TDirectoryListResponse)
		}
		roots := list(nil)
		if len(roots.Entries) != 1 || roots.Entries[0].Path != b.root() || roots.Entries[0].Name != "work" || roots.Current != nil || roots.ParentRef != nil || roots.NextCursor != nil || roots.Truncated {
			t.Fatalf("the roots are %+v", roots)
		}
		ref := func(path string) string {
			_, r := p.browse(path)
			return r
		}
		browse, dir := p.browse(wide)
		var names []string
		page := list(map[string]any{"browse_id": browse, "directory_ref": dir})
		if page.Current == nil || page.Current.Path != wide || page.ParentRef == nil || len(page.Entries) != 200 || page.NextCursor == nil {
			t.Fatalf("the first page: current %v, %d entries, cursor %v", page.Current, len(page.Entries), page.NextCursor)
		}
		for {
			for _, e := range page.Entries {
				names = append(names, e.Name)
				if e.Path != filepath.Join(wide, e.Name) || e.DirectoryRef == "" || len(e.DirectoryRef) > 256 {
					t.Errorf("entry %+v", e)
				}
			}
			if page.NextCursor == nil {
				break
			}
			page = list(map[string]any{"browse_id": browse, "directory_ref": dir, "cursor": *page.NextCursor})
		}
		folded := slices.IsSortedFunc(names, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
		if len(names) != 254 || !folded || slices.Contains(names, "link") || slices.Contains(names, "file") || !slices.Contains(names, ".hidden") {
			t.Errorf("%d directories, sorted %v: %.200q", len(names), folded, names)
		}
		for name, payload := range map[string]map[string]any{
			"another browse": {"browse_id": "nothing", "directory_ref": dir}, "another reference": {"browse_id": browse, "directory_ref": "nothing"},
			"another cursor": {"browse_id": browse, "directory_ref": dir, "cursor": "nothing"}, "a reference of another browse": {"browse_id": browse, "directory_ref": ref(wide)},
		} {
			if e := p.control.Call(wire.TDirectoryListRequest, payload); e.Type != wire.TError {
				t.Errorf("%s is answered with %s", name, e.Type)
			} else {
				refused(t, e, wire.DirectoryReferenceInvalid)
			}
		}
		// A directory that has become a link, or is gone, is not listed.
		taken := filepath.Join(b.root(), "taken")
		browse, dir = p.browse(taken)
		if err := os.Remove(taken); err != nil {
			t.Fatal(err)
		}
		refused(t, p.control.Call(wire.TDirectoryListRequest, map[string]any{"browse_id": browse, "directory_ref": dir}), wire.DirectoryUnavailable)
		if err := os.Symlink("/etc", taken); err != nil {
			t.Fatal(err)
		}
		refused(t, p.control.Call(wire.TDirectoryListRequest, map[string]any{"browse_id": browse, "directory_ref": dir}), wire.DirectoryUnavailable)
		if e := p.control.Call(wire.TDirectoryListRequest, map[string]any{"browse_id": browse}); e.Type != wire.TError {
			t.Errorf("half a reference is answered with %s", e.Type)
		}
	})

	t.Run("attach", func(t *testing.T) {
		browse, dir := p.browse(b.root())
		request := map[string]any{"session_id": "s-1", "browse_id": browse, "directory_ref": dir, "expected_connection_id": "c"}
		first := answer[wire.SessionBinding](t, p.control.Call(wire.TAttachSession, request), wire.TSessionAttached)
		if first.SessionID != "s-1" || first.AllowedRoot != b.root() || first.Revision != 1 || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(first.Fingerprint) || !strings.HasPrefix(first.RootGrant, "v1.") {
			t.Errorf("attached %+v", first)
		}
		refused(t, p.control.Call(wire.TAttachSession, request), wire.DirectoryReferenceInvalid) // the browse is spent
		d := refused(t, p.control.Call(wire.TActivateSession, map[string]any{"session_id": "s-1", "revision": 7}), wire.SessionRevisionMismatch)
		if d["current_revision"] != 1.0 {
			t.Errorf("details %v", d)
		}
		refused(t, p.control.Call(wire.TActivateSession, map[string]any{"session_id": "s-none", "revision": 1}), wire.SessionNotAttached)
		answer[wire.SessionBinding](t, p.control.Call(wire.TActivateSession, map[string]any{"session_id": "s-1", "revision": 1}), wire.TSessionActivated)
		s := p.up(first)
		// Again is no trouble, and no other socket.
		answer[wire.SessionBinding](t, p.control.Call(wire.TActivateSession, map[string]any{"session_id": "s-1", "revision": 1}), wire.TSessionActivated)
		restored := answer[wire.SessionBinding](t, p.control.Call(wire.TRestoreSession, map[string]any{"session_id": "s-1", "root_grant": first.RootGrant}), wire.TSessionRestored)
		if restored != first {
			t.Errorf("restored %+v, attached %+v", restored, first)
		}
		browse, dir = p.browse(b.root())
		refused(t, p.control.Call(wire.TAttachSession, map[string]any{"session_id": "s-1", "browse_id": browse, "directory_ref": dir}), wire.SessionAlreadyActive)

		answer[wire.Ack](t, p.control.Call(wire.TDetachSession, map[string]any{"session_id": "s-1"}), wire.TAck)
		s.Ended()
		answer[wire.Ack](t, p.control.Call(wire.TDetachSession, map[string]any{"session_id": "s-1"}), wire.TAck)
		answer[wire.Ack](t, p.control.Call(wire.TDetachSession, map[string]any{"session_id": "never"}), wire.TAck)
		refused(t, p.control.Call(wire.TActivateSession, map[string]any{"session_id": "s-1", "revision": 1}), wire.SessionNotAttached)

		// Every turn restores and detaches; the grant lives on.
		for range 2 {
			restored := answer[wire.SessionBinding](t, p.control.Call(wire.TRestoreSession, map[string]any{"session_id": "s-1", "root_grant": first.RootGrant}), wire.TSessionRestored)
			if restored != first {
				t.Errorf("restored %+v, attached %+v", restored, first)
			}
			s := p.up(first)
			answer[wire.Ack](t, p.control.Call(wire.TDetachSession, map[string]any{"session_id": "s-1"}), wire.TAck)
			s.Ended()
		}
		// A second attachment is another revision, and the first grant is past.
		second := p.attach("s-1")
		if second.Revision != 2 || second.Fingerprint != first.Fingerprint {
			t.Errorf("attached again: %+v", second)
		}
		d = refused(t, p.control.Call(wire.TRestoreSession, map[string]any{"session_id": "s-1", "root_grant": first.RootGrant}), wire.SessionRevisionMismatch)
		if d["current_revision"] != 2.0 {
			t.Errorf("details %v", d)
		}
		answer[wire.Ack](t, p.control.Call(wire.TDetachSession, map[string]any{"session_id": "s-1"}), wire.TAck)
		refused(t, p.control.Call(wire.TRestoreSession, map[string]any{"session_id": "s-1", "root_grant": first.RootGrant}), wire.SessionRevisionMismatch)
		for name, grant := range map[string]string{
			"empty": "", "cut": second.RootGrant[:len(second.RootGrant)-2], "changed": strings.Replace(second.RootGrant, "v1.", "v1.A", 1),
			"noise": "v1.e30.AAAA", "version": "v2" + second.RootGrant[2:], "long": strings.Repeat("v1.", 40000),
		} {
			if d := refused(t, p.control.Call(wire.TRestoreSession, map[string]any{"session_id": "s-1", "root_grant": grant}), wire.RootGrantInvalid); t.Failed() {
				t.Fatalf("a grant that is %s: %v", name, d)
			}
		}
		refused(t, p.control.Call(wire.TRestoreSession, map[string]any{"session_id": "s-2", "root_grant": second.RootGrant}), wire.RootGrantInvalid)
	})

	t.Run("restart", func(t *testing.T) {
		s, bound := p.open("s-3")
		b.daemon.kill()
		s.Ended()
		b.startDaemon()
		p = b.on(c)
		got := answer[wire.SessionBinding](t, p.control.Call(wire.TRestoreSession, map[string]any{"session_id": "s-3", "root_grant": bound.RootGrant}), wire.TSessionRestored)
		if got != bound {
			t.Errorf("restored %+v, attached %+v", got, bound)
		}
		p.up(bound)
		// Detached before the restart and attached again: the past stays past.
		answer[wire.Ack](t, p.control.Call(wire.TDetachSession, map[string]any{"session_id": "s-3"}), wire.TAck)
		next := p.attach("s-3")
		answer[wire.Ack](t, p.control.Call(wire.TDetachSession, map[string]any{"session_id": "s-3"}), wire.TAck)
		b.daemon.kill()
		b.startDaemon()
		p = b.on(c)
		refused(t, p.control.Call(wire.TRestoreSession, map[string]any{"session_id": "s-3", "root_grant": bound.RootGrant}), wire.SessionRevisionMismatch)
		answer[wire.SessionBinding](t, p.control.Call(wire.TRestoreSession, map[string]any{"session_id": "s-3", "root_grant": next.RootGrant}), wire.TSessionRestored)
		p.up(next)
	})

	t.Run("reconnect", func(t *testing.T) {
		s, _ := p.open("s-4")
		browse, dir := p.browse(b.root())
		p.control.Drop()
		b.mustd("", "resume")
		p.control = c.Next()
		if e := s.Call(wire.TFileStat, map[string]any{"path": b.root(), "follow_symlinks": true}); e.Type != wire.TFileStatResponse {
			t.Errorf("the session answers %s", e.Type)
		}
		refused(t, p.control.Call(wire.TDirectoryListRequest, map[string]any{"browse_id": browse, "directory_ref": dir}), wire.DirectoryReferenceInvalid)
		// Revoked on its own socket, a session ends alone.
		s.Revoke("user_revoked")
		if code, _ := s.Ended(); code != 4428 {
			t.Errorf("after SESSION_REVOKED it closes with %d", code)
		}
		answer[wire.Ack](t, p.control.Call(wire.TDetachSession, map[string]any{"session_id": "s-4"}), wire.TAck)
		b.awaitState(daemon.StateOnline)
	})

	t.Run("wrong channel", func(t *testing.T) {
		s, _ := p.open("s-5")
		for _, typ := range []wire.Type{wire.TFileRead, wire.TFileWrite, wire.TFileStat, wire.TFileList, wire.TFileDelete, wire.TFileMove, wire.TExecuteCommand, wire.TLocalLLMCompletion, wire.THardwareOp} {
			refused(t, p.control.Call(typ, nil), wire.FeatureNotSupported)
		}
		for _, typ := range []wire.Type{wire.TDirectoryListRequest, wire.TAttachSession, wire.TActivateSession, wire.TRestoreSession, wire.TDetachSession} {
			refused(t, s.Call(typ, nil), wire.CapabilityNotGranted)
		}
	})

	t.Run("eight", func(t *testing.T) {
		eventually(t, "no sessions but two", func() error {
			live := len(b.awaitState(daemon.StateOnline).Sessions)
			if live != 2 {
				return fmt.Errorf("%d", live)
			}
			return nil
		})
		for i := range 6 {
			p.open(fmt.Sprintf("many-%d", i))
		}
		ninth := p.attach("many-8")
		d := refused(t, p.control.Call(wire.TActivateSession, map[string]any{"session_id": "many-8", "revision": ninth.Revision}), wire.InternalError)
		if d["reason"] == nil {
			t.Errorf("details %v", d)
		}
		answer[wire.Ack](t, p.control.Call(wire.TDetachSession, map[string]any{"session_id": "many-0"}), wire.TAck)
		answer[wire.SessionBinding](t, p.control.Call(wire.TActivateSession, map[string]any{"session_id": "many-8", "revision": ninth.Revision}), wire.TSessionActivated)
		p.up(ninth)
	})

	t.Run("replaced", func(t *testing.T) {
		// A directory that was replaced by another of its name isn't what was granted.
		sub := filepath.Join(b.root(), "sub")
		if err := os.Mkdir(sub, 0o755); err != nil {
			t.Fatal(err)
		}
		answer[wire.Ack](t, p.control.Call(wire.TDetachSession, map[string]any{"session_id": "many-8"}), wire.TAck)
		browse, dir := p.browse(sub)
		bound := answer[wire.SessionBinding](t, p.control.Call(wire.TAttachSession, map[string]any{"session_id": "sub", "browse_id": browse, "directory_ref": dir}), wire.TSessionAttached)
		if err := errors.Join(os.Rename(sub, sub+".old"), os.Mkdir(sub, 0o755)); err != nil {
			t.Fatal(err)
		}
		refused(t, p.control.Call(wire.TActivateSession, map[string]any{"session_id": "sub", "revision": 1}), wire.RootGrantInvalid)
		refused(t, p.control.Call(wire.TRestoreSession, map[string]any{"session_id": "sub", "root_grant": bound.RootGrant}), wire.RootGrantInvalid)
	})
	b.audited()
	var ops []string
	for _, x := range b.records() {
		ops = append(ops, x.Op)
	}
	for _, op := range []string{"SHIM_START", "WS_CONNECTED", "CONFIG_RELOADED", "DIRECTORY_LIST", "SESSION_ALLOWED_ROOT_SET", "ACTIVATE_SESSION", "RESTORE_SESSION", "DETACH_SESSION", "SESSION_REVOKED", "WS_DISCONNECTED"} {
		if !slices.Contains(ops, op) {
			t.Errorf("the record has no %s", op)
		}
	}
	log := b.read(filepath.Join(b.stateDir(), "audit.log"))
	if strings.Contains(string(log), "v1.ey") || strings.Contains(string(log), "agpt_") || strings.Contains(string(log), "Dir-001") {
		t.Error("the record has a grant, a token or names of a listing")
	}
}

// unsent checks that no extension reached the platform: STATUS has the fields of
// the base protocol alone.
func (p *peer) unsent() {
	p.t.Helper()
	for _, s := range p.sockets() {
		for {
			select {
			case e := <-s.Status:
				var keys map[string]json.RawMessage
				if err := json.Unmarshal(e.Payload, &keys); err != nil {
					p.t.Error(err)
				}
				for k := range keys {
					if !slices.Contains([]string{"in_flight", "max_concurrent", "queue_depth", "audit_log_bytes", "uptime_seconds"}, k) {
						p.t.Errorf("STATUS has %s", k)
					}
				}
				continue
			default:
			}
			break
		}
	}
}
