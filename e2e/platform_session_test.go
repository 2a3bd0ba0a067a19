package e2e

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"farhand/shim/shimtest"
	"farhand/wire"
)

// capacity is what an answer says of how much more the socket takes.
func capacity(e wire.Envelope) int {
	if e.PendingCapacity == nil {
		return -1
	}
	return *e.PendingCapacity
}

// Everything that the platform does in a session, in its own words.
func TestPlatformSession(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.loggedIn()
	p := b.on(c)
	s, _ := p.open("session-1")
	slow, _ := p.open("session-2")
	root := func(name ...string) string { return filepath.Join(append([]string{b.root()}, name...)...) }

	// The platform waits 30 s for an answer, whatever the command was allowed. It
	// runs beside everything else.
	late := slow.Request(wire.TExecuteCommand, map[string]any{"command": "trap '' TERM; echo begun; sleep 300; sleep 300", "shell": "auto", "cwd": b.root(), "timeout_seconds": 120})

	t.Run("files", func(t *testing.T) {
		write := func(name, content, encoding string) wire.Envelope {
			return s.Call(wire.TFileWrite, map[string]any{"path": root(name), "content": content, "encoding": encoding, "create_parents": true})
		}
		ok := func(e wire.Envelope) {
			t.Helper()
			if got := answer[wire.Ack](t, e, wire.TAck); !got.OK {
				t.Error("ACK isn't ok")
			}
		}
		ok(write("a/b/text", "häßlich\n", "utf-8"))
		ok(write("a/binary", base64.StdEncoding.EncodeToString([]byte{0, 1, 0xff, '\n'}), "base64"))
		if got := b.read(root("a/binary")); !bytes.Equal(got, []byte{0, 1, 0xff, '\n'}) {
			t.Errorf("the file holds %q", got)
		}
		// FILE_READ as the platform sends it, and with all that the protocol has.
		type contents struct {
			Content   string `json:"content"`
			Encoding  string `json:"encoding"`
			Size      int64  `json:"size_bytes"`
			Truncated bool   `json:"truncated"`
		}
		for _, x := range []struct {
			payload map[string]any
			want    contents
		}{
			{map[string]any{"path": root("a/b/text"), "encoding": "utf-8"}, contents{"häßlich\n", "utf-8", 10, false}},
			{map[string]any{"path": root("a/binary"), "encoding": "base64"}, contents{"AAH/Cg==", "base64", 4, false}},
			{map[string]any{"path": root("a/binary"), "encoding": "utf-8"}, contents{"\x00\x01\uFFFD\n", "utf-8", 4, false}},
			{map[string]any{"path": root("a/binary"), "format": "bytes", "encoding": "base64", "offset": 1, "length": 2}, contents{"Af8=", "base64", 2, true}},
			{map[string]any{"path": root("a/binary"), "encoding": "base64", "offset": 9}, contents{"", "base64", 0, false}},
		} {
			got := answer[contents](t, s.Call(wire.TFileRead, x.payload), wire.TFileContents)
			if got != x.want {
				t.Errorf("FILE_READ %v is answered with %+v, want %+v", x.payload, got, x.want)
			}
		}
		stat := answer[wire.FileStatResponse](t, s.Call(wire.TFileStat, map[string]any{"path": root("a/b/text"), "follow_symlinks": true}), wire.TFileStatResponse)
		if !stat.Exists || *stat.SizeBytes != 10 || *stat.Path != root("a/b/text") || !*stat.IsFile || *stat.IsSymlink {
			t.Errorf("FILE_STAT says %+v", stat)
		}
		stat = answer[wire.FileStatResponse](t, s.Call(wire.TFileStat, map[string]any{"path": root("missing"), "follow_symlinks": true}), wire.TFileStatResponse)
		if stat.Exists || stat.SizeBytes != nil {
			t.Errorf("FILE_STAT of nothing says %+v", stat)
		}
		list := answer[wire.FileListResponse](t, s.Call(wire.TFileList, map[string]any{"path": b.root(), "glob": "*t*", "recursive": true, "include_hidden": false, "max_entries": 10}), wire.TFileListResponse)
		if len(list.Entries) != 1 || list.Entries[0].Path != root("a/b/text") || list.Truncated {
			t.Errorf("FILE_LIST says %+v", list)
		}
		list = answer[wire.FileListResponse](t, s.Call(wire.TFileList, map[string]any{"path": root("a"), "glob": nil, "recursive": false, "include_hidden": true, "max_entries": 1}), wire.TFileListResponse)
		if len(list.Entries) != 1 || list.Entries[0].Name != "b" || !list.Truncated {
			t.Errorf("FILE_LIST of one says %+v", list)
		}
		ok(s.Call(wire.TFileMove, map[string]any{"src": root("a/binary"), "dst": root("a/moved"), "overwrite": false}))
		d := refused(t, s.Call(wire.TFileMove, map[string]any{"src": root("a/moved"), "dst": root("a/b/text"), "overwrite": false}), wire.PathExists)
		if d["dst"] != root("a/b/text") && d["path"] != root("a/b/text") {
			t.Errorf("details %v", d)
		}
		ok(s.Call(wire.TFileMove, map[string]any{"src": root("a/moved"), "dst": root("a/b/text"), "overwrite": true}))
		refused(t, s.Call(wire.TFileDelete, map[string]any{"path": root("a"), "recursive": false, "missing_ok": false}), wire.PathNotEmpty)
		ok(s.Call(wire.TFileDelete, map[string]any{"path": root("a"), "recursive": true, "missing_ok": false}))
		d = refused(t, s.Call(wire.TFileDelete, map[string]any{"path": root("a"), "recursive": true, "missing_ok": false}), wire.PathNotFound)
		if d["path"] != root("a") {
			t.Errorf("details %v", d)
		}
		ok(s.Call(wire.TFileDelete, map[string]any{"path": root("a"), "recursive": true, "missing_ok": true}))
		refused(t, s.Call(wire.TFileRead, map[string]any{"path": root("a"), "encoding": "utf-8"}), wire.PathNotFound)
		refused(t, s.Call(wire.TFileList, map[string]any{"path": root("a")}), wire.PathNotFound)

		// Limits: 10 MiB, of text 2 785 280 bytes.
		ok(write("full", base64.StdEncoding.EncodeToString(make([]byte, 10<<20)), "base64"))
		got := answer[contents](t, s.Call(wire.TFileRead, map[string]any{"path": root("full"), "encoding": "base64"}), wire.TFileContents)
		if got.Size != 10<<20 || len(got.Content) != base64.StdEncoding.EncodedLen(10<<20) {
			t.Errorf("10 MiB come back as %d", got.Size)
		}
		d = refused(t, s.Call(wire.TFileRead, map[string]any{"path": root("full"), "encoding": "utf-8"}), wire.FileTooLarge)
		if d["max_file_size_bytes"] != 2785280.0 || d["attempted_bytes"] != 10485760.0 || d["op"] != "FILE_READ" {
			t.Errorf("details %v", d)
		}
		d = refused(t, write("more", base64.StdEncoding.EncodeToString(make([]byte, 10<<20+1)), "base64"), wire.FileTooLarge)
		if d["max_file_size_bytes"] != 10485760.0 || d["attempted_bytes"] != 10485761.0 || d["op"] != "FILE_WRITE" {
			t.Errorf("details %v", d)
		}
		refused(t, write("bad", "no base64!", "base64"), wire.InternalError)
		refused(t, write("nul\x00", "x", "utf-8"), wire.PathInvalidChars)
		refused(t, write(strings.Repeat("n/", 3000), "x", "utf-8"), wire.PathInvalidChars)
	})

	t.Run("jail", func(t *testing.T) {
		b.write(filepath.Join(b.dir, "outside"), "outside")
		for name, target := range map[string]string{"out": "/etc", "dangling": filepath.Join(b.dir, "made"), "up": ".."} {
			if err := os.Symlink(target, root(name)); err != nil {
				t.Fatal(err)
			}
		}
		lookalike := b.root() + "2"
		if err := os.Mkdir(lookalike, 0o755); err != nil {
			t.Fatal(err)
		}
		b.write(filepath.Join(lookalike, "x"), "x")
		for _, path := range []string{"/etc/passwd", root("../outside"), root("out/passwd"), root("up/outside"), filepath.Join(lookalike, "x"), "/proc/self/environ", "/dev/null", "/"} {
			for typ, payload := range map[wire.Type]map[string]any{
				wire.TFileRead: {"path": path, "encoding": "utf-8"}, wire.TFileStat: {"path": path}, wire.TFileList: {"path": path}, wire.TFileDelete: {"path": path, "recursive": true},
				wire.TFileWrite: {"path": path, "content": "x", "encoding": "utf-8", "create_parents": true}, wire.TFileMove: {"src": path, "dst": root("stolen")},
			} {
				d := refused(t, s.Call(typ, payload), wire.PathOutsideAllowedRoot)
				if d["path"] == nil && d["src"] == nil {
					t.Errorf("%s %s: details %v", typ, path, d)
				}
			}
			refused(t, s.Call(wire.TFileMove, map[string]any{"src": root("full"), "dst": path, "overwrite": true}), wire.PathOutsideAllowedRoot)
			refused(t, s.Call(wire.TExecuteCommand, map[string]any{"argv": []string{"true"}, "cwd": path}), wire.PathOutsideAllowedRoot)
		}
		refused(t, s.Call(wire.TFileWrite, map[string]any{"path": root("dangling"), "content": "x", "encoding": "utf-8", "create_parents": true}), wire.PathOutsideAllowedRoot)
		refused(t, s.Call(wire.TFileWrite, map[string]any{"path": root("fresh") + "/../../escaped/x", "content": "x", "encoding": "utf-8", "create_parents": true}), wire.PathOutsideAllowedRoot)
		for _, name := range []string{"made", "escaped"} {
			if _, err := os.Lstat(filepath.Join(b.dir, name)); err == nil {
				t.Errorf("%s was made outside", name)
			}
		}
		if err := syscall.Mkfifo(root("fifo"), 0o600); err != nil {
			t.Fatal(err)
		}
		if e := s.Call(wire.TFileRead, map[string]any{"path": root("fifo"), "encoding": "utf-8"}); e.Type != wire.TError {
			t.Errorf("reading a FIFO is answered with %s", e.Type)
		}
		for _, name := range []string{".", ""} {
			if e := s.Call(wire.TFileDelete, map[string]any{"path": root(name), "recursive": true}); e.Type != wire.TError {
				t.Error("the root itself was deleted")
			}
		}
		// Deleting a link leaves what it leads to.
		answer[wire.Ack](t, s.Call(wire.TFileDelete, map[string]any{"path": root("up"), "recursive": true}), wire.TAck)
		if got := b.read(filepath.Join(b.dir, "outside")); string(got) != "outside" {
			t.Errorf("outside holds %q", got)
		}
	})

	t.Run("shell", func(t *testing.T) {
		run := func(payload map[string]any) wire.CommandResult {
			t.Helper()
			return answer[wire.CommandResult](t, s.Call(wire.TExecuteCommand, payload), wire.TCommandResult)
		}
		if r := run(map[string]any{"command": "pwd; echo err >&2; exit 4", "shell": "auto", "cwd": b.root(), "timeout_seconds": 120}); r.Stdout != b.root()+"\n" || r.Stderr != "err\n" || r.ExitCode != 4 || r.TimedOut || r.OutputTruncated {
			t.Errorf("a command gives %+v", r)
		}
		if r := run(map[string]any{"argv": []string{"printf", "%s|", "a b", "$HOME", "*"}}); r.Stdout != "a b|$HOME|*|" {
			t.Errorf("argv gives %+v", r)
		}
		if r := run(map[string]any{"command": "echo $X$TZ", "env": map[string]string{"X": "wire", "TZ": "UTC"}}); r.Stdout != "wireUTC\n" {
			t.Errorf("env gives %+v", r)
		}
		if r := run(map[string]any{"command": "echo out; sleep 300", "timeout_seconds": 0.2}); !r.TimedOut || r.ExitCode != -1 || r.Stdout != "out\n" {
			t.Errorf("a timeout gives %+v", r)
		}
		if r := run(map[string]any{"command": ""}); r.ExitCode != 0 {
			t.Errorf("an empty command gives %+v", r)
		}
		refused(t, s.Call(wire.TExecuteCommand, map[string]any{"command": "true", "argv": []string{"true"}}), wire.InternalError)
		refused(t, s.Call(wire.TExecuteCommand, map[string]any{}), wire.InternalError)
		refused(t, s.Call(wire.TExecuteCommand, map[string]any{"argv": []string{}}), wire.InternalError)
		d := refused(t, s.Call(wire.TExecuteCommand, map[string]any{"command": "x", "shell": "cmd"}), wire.ShellNotAvailable)
		if d["requested_shell"] != "cmd" {
			t.Errorf("details %v", d)
		}
		refused(t, s.Call(wire.TExecuteCommand, map[string]any{"argv": []string{"no-such-program"}}), wire.ShellNotAvailable)
	})

	t.Run("not offered", func(t *testing.T) {
		for _, typ := range []wire.Type{wire.TScreenshotRequest, wire.TInputAction, wire.TCursorPositionRequest, wire.TWindowListRequest, wire.TClipboardRead, wire.TPermissionsCheckRequest} {
			d := refused(t, s.Call(typ, nil), wire.CapabilityNotGranted)
			if d["capability"] != "computer_use" {
				t.Errorf("%s: details %v", typ, d)
			}
		}
		for typ, capability := range map[wire.Type]string{wire.TLocalLLMCompletion: "local_llm", "START_RECORDING": "recording", wire.THardwareOp: "", wire.THardwareListRequest: ""} {
			d := refused(t, s.Call(typ, map[string]any{"device": psu, "op": "SERIAL_READ"}), wire.CapabilityNotGranted)
			if capability != "" && d["capability"] != capability {
				t.Errorf("%s: details %v", typ, d)
			}
		}
		if e := p.control.Call(wire.TGrantsUpdate, map[string]any{"grants": map[string]any{}}); e.Type != wire.TError {
			t.Errorf("GRANTS_UPDATE without the capability is answered with %s", e.Type)
		}
		if e := p.control.Call(wire.TAuditVerifyRequest, nil); e.Type != wire.TError {
			t.Errorf("AUDIT_VERIFY_REQUEST without the capability is answered with %s", e.Type)
		}
	})

	t.Run("odd frames", func(t *testing.T) {
		for _, s := range []*shimtest.Socket{s, p.control} {
			s.Expect("unknown", wire.TAck)
			s.Raw([]byte(`{"type":"NEW_IN_1_9","id":"unknown","ts":1,"payload":{"a":1}}`))
			refused(t, s.Wait("unknown"), wire.FeatureNotSupported)
			s.Expect("extra", wire.TPong)
			s.Raw([]byte(`{"type":"PING","id":"extra","ts":"no number","version":"1.1","new":{"x":[1]},"payload":{"x":1}}`))
			if e := s.Wait("extra"); e.Type != wire.TPong {
				t.Errorf("PING with more keys is answered with %s", e.Type)
			}
			// None of these has an answer, and none ends the connection: the
			// platform here drops the socket at one that it didn't ask for.
			for _, frame := range []string{
				`{`, ``, `[]`, `null`, `"text"`, `12`, `{"type":"PING"}`, `{"type":"PING","id":""}`, `{"type":"PING","id":7,"payload":{}}`, `{"id":"no-type","payload":{}}`,
				`{"type":"ACK","id":"ack","payload":{"ok":true}}`, `{"type":"STATUS","id":"st","payload":{}}`, `{"type":"HELLO_ACK","id":"ha","payload":{}}`,
				`{"type":"HELLO","id":"he","payload":{}}`, `{"type":"COMMAND_RESULT","id":"cr","payload":{}}`, `{"type":"ERROR","id":"er","payload":{"code":"X","message":"y"}}`,
				`{"type":"PONG","id":"po","payload":{}}`, "{\"type\":\"FILE_STAT\",\"id\":\"\xff\xfe\",\"payload\":{}}",
				strings.Repeat("[", 100000), `{"type":"FILE_STAT","payload":` + strings.Repeat(`{"a":`, 100000) + `1` + strings.Repeat("}", 100000) + `}`,
			} {
				s.Raw([]byte(frame))
				s.Expect("after", wire.TPong)
				s.Raw([]byte(`{"type":"PING","id":"after","ts":1,"payload":{}}`))
				if e := s.Wait("after"); e.Type != wire.TPong {
					t.Fatalf("after %.80q PING is answered with %s", frame, e.Type)
				}
			}
		}
		// With a usable id there is an answer.
		for name, payload := range map[string]string{
			"no object": `[]`, "a string": `"x"`, "null": `null`, "wrong type": `{"path":7}`,
			"deep": `{"path":` + strings.Repeat("[", 100000) + strings.Repeat("]", 100000) + `}`,
		} {
			s.Expect(name, wire.TFileStatResponse)
			s.Raw(fmt.Appendf(nil, `{"type":"FILE_STAT","id":%q,"ts":1,"payload":%s}`, name, payload))
			if d := refused(t, s.Wait(name), wire.InternalError); d["reason"] == nil {
				t.Errorf("a payload that is %s: details %v", name, d)
			}
		}
		// Unknown keys are ignored.
		s.Expect("keys", wire.TFileStatResponse)
		s.Raw(fmt.Appendf(nil, `{"type":"FILE_STAT","id":"keys","ts":1,"payload":{"path":%q,"new":[[[]]],"follow_symlinks":true}}`, b.root()))
		answer[wire.FileStatResponse](t, s.Wait("keys"), wire.TFileStatResponse)
	})

	t.Run("in time", func(t *testing.T) {
		r := answer[wire.CommandResult](t, slow.Wait(late), wire.TCommandResult)
		if !r.TimedOut || r.ExitCode != -1 || r.Stdout != "begun\n" || r.DurationSeconds > 30 || r.DurationSeconds < 20 {
			t.Errorf("a command that runs for longer than the platform waits gives %+v", r)
		}
		// By now there was a STATUS by the clock on every socket.
		for _, s := range p.sockets() {
			select {
			case <-s.Status:
			case <-time.After(time.Minute):
				t.Errorf("no STATUS on %q by the clock", s.Session)
			}
		}
	})
	p.unsent()
	b.audited()

	log := string(b.read(filepath.Join(b.stateDir(), "audit.log")))
	for _, secret := range []string{"häßlich", "AAH/Cg", "agpt_", "wireUTC"} {
		if strings.Contains(log, secret) {
			t.Errorf("the record has %q", secret)
		}
	}
	seen := make(map[string]int)
	for _, x := range b.records() {
		seen[x.Op]++
		if x.Op == "JAIL_VIOLATION" && (x.Result.OK || x.Details["code"] != "PATH_OUTSIDE_ALLOWED_ROOT" && x.Details["code"] != "PATH_INVALID_CHARS" || x.Details["attempted_op"] == nil) {
			t.Errorf("the record of a violation is %+v", x)
		}
		if x.Op == "FILE_READ" && (x.SessionID != "session-1" || x.RequestID == nil || x.Details["path"] == nil) {
			t.Errorf("a record of a read is %+v", x)
		}
	}
	if seen["JAIL_VIOLATION"] < 64 || seen["FILE_WRITE"] < 4 || seen["EXECUTE_COMMAND"] < 10 {
		t.Errorf("the record has %v", seen)
	}
}

// A socket takes so many requests at once and says so; PING is always answered.
func TestPlatformBackpressure(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.MaxConcurrent = 2
	b := c.loggedIn()
	p := b.on(c)
	s, _ := p.open("session-1")
	other, _ := p.open("session-2")
	if e := s.Call(wire.TFileStat, map[string]any{"path": b.root()}); capacity(e) != 2 {
		t.Errorf("at rest the capacity is %d, want 2", capacity(e))
	}
	// Two commands that run until a file is there.
	wait := map[string]any{"command": `while [ ! -e "$GATE" ]; do sleep 0.05; done; echo done`, "env": map[string]string{"GATE": filepath.Join(b.root(), "gate")}}
	first, second := s.Request(wire.TExecuteCommand, wait), s.Request(wire.TExecuteCommand, wait)
	e := s.Call(wire.TFileStat, map[string]any{"path": b.root()})
	if d := refused(t, e, wire.ShimOverloaded); d["max_concurrent"] != 2.0 || capacity(e) != 0 {
		t.Errorf("full: capacity %d, details %v", capacity(e), d)
	}
	if e := s.Call(wire.TPing, nil); e.Type != wire.TPong {
		t.Errorf("full: PING is answered with %s", e.Type)
	}
	// Another socket has room of its own.
	if e := other.Call(wire.TFileStat, map[string]any{"path": b.root()}); e.Type != wire.TFileStatResponse || capacity(e) != 2 {
		t.Errorf("another session answers %s with the capacity %d", e.Type, capacity(e))
	}
	for len(s.Status) > 0 {
		<-s.Status
	}
	b.write(filepath.Join(b.root(), "gate"), "")
	for _, id := range []string{first, second} {
		if r := answer[wire.CommandResult](t, s.Wait(id), wire.TCommandResult); r.Stdout != "done\n" {
			t.Errorf("a command gives %+v", r)
		}
	}
	// The first answer left room: STATUS follows at once.
	select {
	case e := <-s.Status:
		if st := answer[wire.Status](t, e, wire.TStatus); capacity(e) != st.MaxConcurrent-st.InFlight || capacity(e) < 1 || st.MaxConcurrent != 2 {
			t.Errorf("STATUS %+v with the capacity %d", st, capacity(e))
		}
	case <-time.After(time.Minute):
		t.Error("no STATUS when the socket was no longer full")
	}
	// A socket that is lost ends what runs for it.
	running := s.Request(wire.TExecuteCommand, map[string]any{"command": "echo $$ > running; sleep 300; sleep 300"})
	var pid string
	eventually(t, "the start of a command", func() error {
		text, err := os.ReadFile(filepath.Join(b.root(), "running"))
		if pid = strings.TrimSpace(string(text)); err == nil && pid == "" {
			err = os.ErrNotExist
		}
		return err
	})
	s.Drop()
	gone(t, pid)
	_ = running
	// And one that isn't read from doesn't hold up the others.
	b.write(filepath.Join(b.root(), "large"), strings.Repeat("x", 8<<20))
	for range 2 {
		other.Request(wire.TFileRead, map[string]any{"path": filepath.Join(b.root(), "large"), "encoding": "base64"})
	}
	p.attach("session-3")
	p.unsent()
	b.audited()
}

// More commands than are allowed in a minute are refused.
func TestPlatformRate(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.bench()
	b.tables = "[shell]\nenabled = true\n[limits]\nmax_commands_per_minute = 5\n"
	b.configure()
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon()
	p := b.on(c)
	s, _ := p.open("session-1")
	other, _ := p.open("session-2")
	for range 5 {
		answer[wire.CommandResult](t, s.Call(wire.TExecuteCommand, map[string]any{"argv": []string{"true"}}), wire.TCommandResult)
	}
	for _, s := range []*shimtest.Socket{s, other} { // the machine's, not the session's
		refused(t, s.Call(wire.TExecuteCommand, map[string]any{"argv": []string{"true"}}), wire.ShimOverloaded)
	}
	if e := s.Call(wire.TFileStat, map[string]any{"path": b.root()}); e.Type != wire.TFileStatResponse {
		t.Errorf("FILE_STAT is answered with %s", e.Type)
	}
	p.unsent()
}

// With shell off the capability isn't offered, and a request is refused.
func TestPlatformShellOff(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.bench()
	b.tables = ""
	b.configure()
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon()
	p := b.on(c)
	s, _ := p.open("session-1")
	if s.Hello.Capabilities.Has(wire.Shell) || p.control.Hello.Capabilities.Has(wire.Shell) {
		t.Error("shell is offered")
	}
	d := refused(t, s.Call(wire.TExecuteCommand, map[string]any{"command": "true"}), wire.CapabilityNotGranted)
	if d["capability"] != "shell" {
		t.Errorf("details %v", d)
	}
}
