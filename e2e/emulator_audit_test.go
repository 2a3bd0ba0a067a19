package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"farhand/daemon"
	"farhand/wire"
)

// canonical is a record as it is signed, by a reader of our own: keys sorted, no
// spaces, numbers as they stand in the file.
func canonical(t *testing.T, b *bytes.Buffer, v any) {
	t.Helper()
	switch v := v.(type) {
	case map[string]any:
		b.WriteByte('{')
		for i, key := range slices.Sorted(maps.Keys(v)) {
			if i > 0 {
				b.WriteByte(',')
			}
			canonical(t, b, key)
			b.WriteByte(':')
			canonical(t, b, v[key])
		}
		b.WriteByte('}')
	case []any:
		b.WriteByte('[')
		for i, x := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			canonical(t, b, x)
		}
		b.WriteByte(']')
	case string:
		b.WriteByte('"')
		for _, r := range v {
			switch {
			case r == '"' || r == '\\':
				b.WriteByte('\\')
				b.WriteRune(r)
			case r < ' ':
				short := map[rune]string{'\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}[r]
				if short == "" {
					short = fmt.Sprintf(`\u%04x`, r)
				}
				b.WriteString(short)
			default:
				b.WriteRune(r)
			}
		}
		b.WriteByte('"')
	case json.Number:
		b.WriteString(v.String())
	case nil:
		b.WriteString("null")
	case bool:
		fmt.Fprint(b, v)
	default:
		t.Fatalf("%T in a record", v)
	}
}

// chained checks the log as somebody else's program would, with the key alone,
// and is its records.
func (b *bench) chained() []record {
	b.t.Helper()
	key, err := daemon.AuditKey(b.stateDir())
	if err != nil {
		b.t.Fatal(err)
	}
	text := b.read(filepath.Join(b.stateDir(), "audit.log"))
	if !bytes.HasSuffix(text, []byte("\n")) {
		b.t.Error("the log doesn't end with a line")
	}
	order := []string{"ts", "session_id", "machine_id", "shim_version", "request_id", "op", "details", "result", "seq", "prev_hmac", "hmac"}
	var prev any
	for i, line := range strings.Split(strings.TrimSuffix(string(text), "\n"), "\n") {
		var fields map[string]any
		d := json.NewDecoder(strings.NewReader(line))
		d.UseNumber()
		if err := d.Decode(&fields); err != nil {
			b.t.Fatalf("record %d: %v", i+1, err)
		}
		at := -1
		for _, name := range order {
			next := strings.Index(line, `"`+name+`": `)
			if next < 0 || len(fields) != len(order) {
				b.t.Fatalf("record %d is %s", i+1, line)
			}
			if name != "seq" && name != "prev_hmac" && name != "hmac" && next < at {
				b.t.Errorf("record %d has its keys in another order: %s", i+1, line)
			}
			at = next
		}
		if fields["seq"] != json.Number(fmt.Sprint(i+1)) || fields["prev_hmac"] != prev || !strings.Contains(fields["ts"].(json.Number).String(), ".") {
			b.t.Errorf("record %d: seq %v, prev_hmac %v after %v, ts %v", i+1, fields["seq"], fields["prev_hmac"], prev, fields["ts"])
		}
		prev = fields["hmac"]
		delete(fields, "hmac")
		var canon bytes.Buffer
		canonical(b.t, &canon, fields)
		mac := hmac.New(sha256.New, key)
		mac.Write(canon.Bytes())
		if hex.EncodeToString(mac.Sum(nil)) != prev {
			b.t.Errorf("record %d isn't signed by its HMAC: %s", i+1, line)
		}
		result := fields["result"].(map[string]any)
		if got := slices.Sorted(maps.Keys(result)); !slices.Equal(got, []string{"duration_ms", "error_code", "exit_code", "ok"}) {
			b.t.Errorf("record %d has a result of %v", i+1, got)
		}
	}
	return b.records()
}

// Every operation leaves its record, in the format of the Python shim, in one
// chain over restarts; no secret and no content stands in it.
func TestEmulatorAudit(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.loggedIn()
	p := b.on(c)
	s, binding := p.open("chat-1")
	at := func(name string) string { return filepath.Join(b.root(), name) }
	odd := "caf\u00e9 <&>\u2028\t\x7f\"\\"
	s.Call(wire.TFileWrite, map[string]any{"path": at(odd), "content": "a secret content", "create_parents": true})
	s.Call(wire.TFileRead, map[string]any{"path": at(odd), "encoding": "base64", "offset": 2, "length": 4})
	s.Call(wire.TFileStat, map[string]any{"path": at(odd), "follow_symlinks": false})
	s.Call(wire.TFileList, map[string]any{"path": b.root(), "glob": "*", "recursive": true, "max_entries": 7})
	s.Call(wire.TFileMove, map[string]any{"src": at(odd), "dst": at("moved"), "overwrite": true})
	s.Call(wire.TFileDelete, map[string]any{"path": at("moved"), "missing_ok": true})
	s.Call(wire.TFileRead, map[string]any{"path": at("none")})
	s.Call(wire.TFileRead, map[string]any{"path": "/etc/shadow"})
	s.Call(wire.TExecuteCommand, map[string]any{"command": "echo a sec'ret' output; exit 3", "env": map[string]string{"ZZ_KEY": "a secret value", "AA_KEY": "x"}, "timeout_seconds": 5})
	s.Call(wire.TExecuteCommand, map[string]any{"argv": []string{"sleep", "300"}, "timeout_seconds": 0.05})
	s.Call(wire.TExecuteCommand, map[string]any{"argv": []string{"true"}, "cwd": "/"})
	p.control.Call(wire.TDirectoryListRequest, map[string]any{"browse_id": "b", "directory_ref": "unknown"})
	p.control.Call(wire.TRestoreSession, map[string]any{"session_id": "chat-1", "root_grant": binding.RootGrant})
	p.control.Call(wire.TDetachSession, map[string]any{"session_id": "chat-1"})
	s.Ended()
	p.control.Call(wire.TDetachSession, map[string]any{"session_id": "never"})
	b.daemon.kill()
	b.startDaemon()
	p = b.on(c)
	c.expire()
	p.control.Close(4401, "expired")
	p.control = c.Next()
	p.control.Revoke("platform_shutdown")
	p.control.Ended()
	b.awaitState(daemon.StateHalted)
	b.daemon.stop()

	log := string(b.read(filepath.Join(b.stateDir(), "audit.log")))
	for _, secret := range []string{"a secret", "agpt_", binding.RootGrant, strings.Split(binding.RootGrant, ".")[2], "secret output"} {
		if strings.Contains(log, secret) || strings.Contains(b.daemon.out.String(), secret) {
			t.Errorf("a log has %q", secret)
		}
	}
	all := b.chained()
	expected := []struct {
		op, session string
		ok          bool
		code        string // error_code
		details     map[string]any
	}{
		{"SHIM_START", "-", true, "", nil},
		{"WS_CONNECTED", "-", true, "", map[string]any{"url": strings.Replace(c.url, "http", "ws", 1) + "/ws/local-executor"}},
		{"CONFIG_RELOADED", "-", true, "", map[string]any{"granted_capabilities": "[directory_browse files shell]"}},
		{"DIRECTORY_LIST", "-", true, "", map[string]any{"path": nil, "entries_returned": 1, "truncated": false}},
		{"SESSION_ALLOWED_ROOT_SET", "chat-1", true, "", map[string]any{"previous_allowed_root": nil, "allowed_root": b.root(), "fingerprint": binding.Fingerprint, "revision": 1}},
		{"ACTIVATE_SESSION", "chat-1", true, "", map[string]any{"allowed_root": b.root(), "revision": 1}},
		{"WS_CONNECTED", "chat-1", true, "", nil},
		{"FILE_WRITE", "chat-1", true, "", map[string]any{"path": at(odd), "encoding": "utf-8", "create_parents": true, "phase": "intent"}},
		{"FILE_WRITE", "chat-1", true, "", map[string]any{"path": at(odd), "encoding": "utf-8", "create_parents": true, "size_bytes_written": 16}},
		{"FILE_READ", "chat-1", true, "", map[string]any{"path": at(odd), "encoding": "base64", "offset": 2, "length": 4, "size_bytes_returned": 4}},
		{"FILE_STAT", "chat-1", true, "", map[string]any{"path": at(odd), "follow_symlinks": false}},
		{"FILE_LIST", "chat-1", true, "", map[string]any{"path": b.root(), "glob": "*", "recursive": true, "include_hidden": false, "max_entries": 7, "entries_returned": 1}},
		{"FILE_MOVE", "chat-1", true, "", map[string]any{"src": at(odd), "dst": at("moved"), "overwrite": true}},
		{"FILE_DELETE", "chat-1", true, "", map[string]any{"path": at("moved"), "recursive": false, "missing_ok": true}},
		{"FILE_READ", "chat-1", false, "PATH_NOT_FOUND", map[string]any{"path": at("none"), "length": nil}},
		{"JAIL_VIOLATION", "chat-1", false, "PATH_OUTSIDE_ALLOWED_ROOT", map[string]any{"code": "PATH_OUTSIDE_ALLOWED_ROOT", "path": "/etc/shadow", "attempted_op": "FILE_READ"}},
		{"EXECUTE_COMMAND", "chat-1", true, "", map[string]any{"command": "echo a sec'ret' output; exit 3", "phase": "intent", "argv": nil, "env_keys": "[AA_KEY ZZ_KEY]"}},
		{"EXECUTE_COMMAND", "chat-1", true, "", map[string]any{"shell": "bash", "cwd": b.root(), "timeout_seconds": 5}},
		{"EXECUTE_COMMAND", "chat-1", false, "COMMAND_TIMEOUT", map[string]any{"command": nil, "argv": "[sleep 300]", "timeout_seconds": 0.05}},
		{"JAIL_VIOLATION", "chat-1", false, "PATH_OUTSIDE_ALLOWED_ROOT", map[string]any{"path": "/", "attempted_op": "EXECUTE_COMMAND"}},
		{"DIRECTORY_LIST", "-", false, "DIRECTORY_REFERENCE_INVALID", map[string]any{"browse_id": "b"}},
		{"RESTORE_SESSION", "chat-1", true, "", map[string]any{"allowed_root": b.root(), "revision": 1}},
		{"DETACH_SESSION", "chat-1", true, "", map[string]any{"allowed_root": b.root(), "revision": 1}},
		{"DETACH_SESSION", "never", true, "", map[string]any{"allowed_root": nil, "revision": nil}},
		{"SHIM_START", "-", true, "", nil}, // after kill -9
		{"WS_DISCONNECTED", "-", true, "", map[string]any{"reason": "ws_closed_4401_auth_expired"}},
		{"TOKEN_REFRESHED", "-", true, "", nil},
		{"SESSION_REVOKED", "-", true, "", map[string]any{"reason": "platform_shutdown", "source": "frame"}},
		{"SHIM_STOP", "-", true, "", map[string]any{"reason": "signal"}},
	}
	machine, from := all[0].MachineID, 0
	for _, want := range expected {
		i := slices.IndexFunc(all[from:], func(r record) bool {
			code := ""
			if r.Result.ErrorCode != nil {
				code = *r.Result.ErrorCode
			}
			good := r.Op == want.op && r.SessionID == want.session && r.Result.OK == want.ok && code == want.code && r.MachineID == machine
			for key, value := range want.details {
				got, there := r.Details[key]
				good = good && there && fmt.Sprint(got) == fmt.Sprint(value)
			}
			return good
		})
		if i < 0 {
			var left []string
			for _, r := range all[from:] {
				left = append(left, fmt.Sprintf("%s %s %+v %v", r.Op, r.SessionID, r.Result, r.Details))
			}
			t.Fatalf("no record %+v among\n%s", want, strings.Join(left, "\n"))
		}
		from += i + 1
	}
	for _, r := range all {
		if keys, ok := r.Details["env_keys"].([]any); ok && r.Details["phase"] == nil && r.Result.OK {
			if text := fmt.Sprint(keys); !strings.Contains(text, "PATH") || !strings.Contains(text, "PYTHONIOENCODING") || !slices.IsSortedFunc(keys, func(a, b any) int { return strings.Compare(a.(string), b.(string)) }) {
				t.Errorf("env_keys is %v", keys)
			}
		}
		if r.Op == "EXECUTE_COMMAND" && r.Details["phase"] == nil && r.Result.OK && (r.Result.ExitCode == nil || *r.Result.ExitCode != 3) {
			t.Errorf("the record of a command that exits with 3 is %+v", r.Result)
		}
	}
	if info, err := os.Stat(filepath.Join(b.stateDir(), "audit.log")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the log is %v, %v", info.Mode(), err)
	}
	b.audited()
}

// A start that comes to nothing is recorded where there is a log.
func TestEmulatorFailedStart(t *testing.T) {
	t.Parallel()
	b := bareBench(t)
	b.roots = []string{"/proc"}
	b.configure()
	if r := b.farhandd("", "run"); r.code != 78 {
		t.Fatalf("a root in /proc gives %+v", r)
	}
	all := b.chained()
	last := all[len(all)-1]
	if last.Op != "DAEMON_PREFLIGHT_FAILED" || last.Result.OK || !strings.Contains(fmt.Sprint(last.Details["reason"]), "/proc") {
		t.Errorf("the last record is %+v", last)
	}
	b.audited()
}
