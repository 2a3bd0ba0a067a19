package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"farhand/shim/shimtest"
	"farhand/wire"
)

// emObject is what an answer says, key by key as it stands on the wire.
func emObject(t *testing.T, e wire.Envelope, want wire.Type, keys ...string) map[string]any {
	t.Helper()
	v := answer[map[string]any](t, e, want)
	if got := slices.Sorted(maps.Keys(v)); len(keys) > 0 {
		slices.Sort(keys)
		if !slices.Equal(got, keys) {
			t.Errorf("%s has the keys %v, want %v", want, got, keys)
		}
	}
	return v
}

// emRefused is an ERROR with a code, whose details have these values.
func emRefused(t *testing.T, e wire.Envelope, code wire.Code, details map[string]any) wire.Error {
	t.Helper()
	got := answer[wire.Error](t, e, wire.TError)
	if got.Code != code || got.Message == "" || got.Fatal {
		t.Errorf("ERROR %s, want %s", e.Payload, code)
	}
	for key, want := range details {
		if fmt.Sprint(got.Details[key]) != fmt.Sprint(want) {
			t.Errorf("%s: details.%s is %v, want %v: %s", code, key, got.Details[key], want, e.Payload)
		}
	}
	return got
}

// The seven file operations, frame by frame, with what the platform reads of
// each answer.
func TestEmulatorFiles(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.loggedIn()
	s, binding := b.on(c).open("files")
	root := b.root()
	if binding.AllowedRoot != root || binding.Revision != 1 || len(binding.Fingerprint) != 64 || !strings.HasPrefix(binding.RootGrant, "v1.") {
		t.Fatalf("the session is bound by %+v", binding)
	}
	outside := filepath.Join(b.dir, "outside")
	b.write(outside, "secret")
	at := func(name string) string { return filepath.Join(root, name) }

	t.Run("write", func(t *testing.T) { emulatorWrite(t, b, s, at) })
	t.Run("read", func(t *testing.T) { emulatorRead(t, b, s, at) })
	t.Run("stat", func(t *testing.T) { emulatorStat(t, b, s, at) })
	t.Run("list", func(t *testing.T) { emulatorList(t, s, at) })
	t.Run("delete", func(t *testing.T) { emulatorDelete(t, b, s, at) })
	t.Run("move", func(t *testing.T) { emulatorMove(t, b, s, at) })
	t.Run("jail", func(t *testing.T) { emulatorJail(t, b, s, at, outside) })
	t.Run("payloads", func(t *testing.T) { emulatorPayloads(t, s, at) })
}

func emulatorWrite(t *testing.T, b *bench, s *shimtest.Socket, at func(string) string) {
	ack := func(e wire.Envelope) {
		t.Helper()
		if v := emObject(t, e, wire.TAck, "ok"); v["ok"] != true {
			t.Errorf("ACK %s", e.Payload)
		}
	}
	ack(s.Call(wire.TFileWrite, map[string]any{"path": at("w.txt"), "content": "h\u00e9llo\r\n", "encoding": "utf-8", "create_parents": true}))
	if got := string(b.read(at("w.txt"))); got != "h\u00e9llo\r\n" {
		t.Errorf("written: %q", got)
	}
	ack(s.Call(wire.TFileWrite, map[string]any{"path": at("w.bin"), "content": "AAEC/w==", "encoding": "base64"}))
	if got := string(b.read(at("w.bin"))); got != "\x00\x01\x02\xff" {
		t.Errorf("written: %q", got)
	}
	// Relative to the root, not to where the daemon was started.
	ack(s.Call(wire.TFileWrite, map[string]any{"path": "relative/a", "content": "", "create_parents": true}))
	if _, err := os.Stat(at("relative/a")); err != nil {
		t.Error(err)
	}
	// Mode and hard links stay.
	if err := os.Chmod(at("w.txt"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(at("w.txt"), at("w.link")); err != nil {
		t.Fatal(err)
	}
	ack(s.Call(wire.TFileWrite, map[string]any{"path": at("w.txt"), "content": "new"}))
	if info, err := os.Stat(at("w.txt")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("after a write: %v, %v", info.Mode(), err)
	}
	emRefused(t, s.Call(wire.TFileWrite, map[string]any{"path": at("none/a"), "content": ""}), wire.PathNotFound, map[string]any{"path": at("none/a")})
	emRefused(t, s.Call(wire.TFileWrite, map[string]any{"path": at("bad"), "content": "AAE", "encoding": "base64"}), wire.InternalError, nil)
	emRefused(t, s.Call(wire.TFileWrite, map[string]any{"path": at("bad"), "content": "AA-_", "encoding": "base64"}), wire.InternalError, nil)
	emRefused(t, s.Call(wire.TFileWrite, map[string]any{"path": at("relative"), "content": ""}), wire.InternalError, map[string]any{"path": at("relative")})
	if _, err := os.Stat(at("bad")); err == nil {
		t.Error("bad base64 makes a file")
	}
	// The limit is the negotiated one, of the decoded bytes: text may have all of it.
	const limit = 10 << 20
	ack(s.Call(wire.TFileWrite, map[string]any{"path": at("big"), "content": strings.Repeat("x", limit)}))
	emRefused(t, s.Call(wire.TFileWrite, map[string]any{"path": at("big"), "content": strings.Repeat("x", limit+1)}), wire.FileTooLarge,
		map[string]any{"path": at("big"), "max_file_size_bytes": float64(limit), "attempted_bytes": float64(limit + 1), "op": "FILE_WRITE"})
	if info, err := os.Stat(at("big")); err != nil || info.Size() != limit {
		t.Errorf("big is %v, %v", info, err)
	}
}

func emulatorRead(t *testing.T, b *bench, s *shimtest.Socket, at func(string) string) {
	read := func(payload map[string]any) map[string]any {
		t.Helper()
		return emObject(t, s.Call(wire.TFileRead, payload), wire.TFileContents, "content", "encoding", "size_bytes", "truncated")
	}
	b.write(at("r"), "0123456789")
	b.write(at("bytes"), "a\xffb\u2028\x00")
	for _, x := range []struct {
		payload   map[string]any
		content   string
		encoding  string
		size      int
		truncated bool
	}{
		{map[string]any{"path": at("r"), "encoding": "utf-8"}, "0123456789", "utf-8", 10, false},
		{map[string]any{"path": at("r"), "encoding": "base64"}, "MDEyMzQ1Njc4OQ==", "base64", 10, false},
		{map[string]any{"path": at("r"), "encoding": "utf-8", "format": "bytes"}, "MDEyMzQ1Njc4OQ==", "base64", 10, false},
		{map[string]any{"path": at("r"), "offset": 2, "length": 3}, "234", "utf-8", 3, true},
		{map[string]any{"path": at("r"), "offset": 8, "length": 30}, "89", "utf-8", 2, false},
		{map[string]any{"path": at("r"), "offset": 10}, "", "utf-8", 0, false},
		{map[string]any{"path": at("r"), "offset": 99, "length": nil}, "", "utf-8", 0, false},
		{map[string]any{"path": at("bytes")}, "a\ufffdb\u2028\x00", "utf-8", 6 + 1, false},
	} {
		v := read(x.payload)
		if v["content"] != x.content || v["encoding"] != x.encoding || v["size_bytes"] != float64(x.size) || v["truncated"] != x.truncated {
			t.Errorf("FILE_READ %v gives %q", x.payload, v)
		}
	}
	emRefused(t, s.Call(wire.TFileRead, map[string]any{"path": at("none")}), wire.PathNotFound, map[string]any{"path": at("none")})
	emRefused(t, s.Call(wire.TFileRead, map[string]any{"path": b.root()}), wire.InternalError, nil)
	if err := syscall.Mkfifo(at("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	emRefused(t, s.Call(wire.TFileRead, map[string]any{"path": at("fifo")}), wire.InternalError, nil)

	// What one frame takes limits text and bytes apart.
	const text = 2785280
	b.write(at("t"), strings.Repeat("\x01", text)) // each byte takes six
	if v := read(map[string]any{"path": at("t")}); len(v["content"].(string)) != text {
		t.Errorf("%d bytes of the most text that is read", len(v["content"].(string)))
	}
	b.write(at("t"), strings.Repeat("x", text+1))
	emRefused(t, s.Call(wire.TFileRead, map[string]any{"path": at("t")}), wire.FileTooLarge,
		map[string]any{"attempted_bytes": float64(text + 1), "max_file_size_bytes": float64(text), "op": "FILE_READ"})
	if v := read(map[string]any{"path": at("t"), "encoding": "base64"}); v["size_bytes"] != float64(text+1) {
		t.Errorf("as bytes: %v", v["size_bytes"])
	}
	// The test is on what was asked for.
	emRefused(t, s.Call(wire.TFileRead, map[string]any{"path": at("r"), "length": text + 1}), wire.FileTooLarge, map[string]any{"attempted_bytes": float64(text + 1)})
	b.write(at("t"), strings.Repeat("y", 10<<20))
	v := read(map[string]any{"path": at("t"), "encoding": "base64"})
	if raw, err := base64.StdEncoding.DecodeString(v["content"].(string)); err != nil || len(raw) != 10<<20 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	b.write(at("t"), strings.Repeat("y", 10<<20+1))
	emRefused(t, s.Call(wire.TFileRead, map[string]any{"path": at("t"), "encoding": "base64"}), wire.FileTooLarge, map[string]any{"attempted_bytes": float64(10<<20 + 1)})
	if v := read(map[string]any{"path": at("t"), "encoding": "base64", "offset": 10 << 20}); v["content"] != "eQ==" || v["truncated"] != false {
		t.Errorf("the end of a large file: %v", v)
	}
}

func emulatorStat(t *testing.T, b *bench, s *shimtest.Socket, at func(string) string) {
	keys := []string{"exists", "is_file", "is_dir", "is_symlink", "size_bytes", "mtime", "ctime", "mode", "owner_uid", "owner_gid", "mime_type", "path"}
	stat := func(payload map[string]any) map[string]any {
		t.Helper()
		return emObject(t, s.Call(wire.TFileStat, payload), wire.TFileStatResponse, slices.Clone(keys)...)
	}
	b.write(at("s.csv"), "a,b\n")
	if err := os.Symlink("s.csv", at("s.link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at("sticky"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(at("sticky"), 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		path   string
		follow bool
		want   map[string]any
	}{
		{at("s.csv"), true, map[string]any{"exists": true, "is_file": true, "is_dir": false, "is_symlink": false, "size_bytes": 4.0, "mode": "0600", "mime_type": "text/csv", "path": at("s.csv"), "owner_uid": float64(os.Getuid())}},
		{at("s.link"), true, map[string]any{"is_file": true, "is_symlink": true, "size_bytes": 4.0, "path": at("s.csv")}},
		{at("s.link"), false, map[string]any{"is_file": false, "is_symlink": true, "size_bytes": 5.0, "path": at("s.link")}},
		{at("sticky"), true, map[string]any{"is_dir": true, "mode": "1777", "mime_type": nil}},
		{at("./sticky/../s.csv"), true, map[string]any{"is_file": true, "path": at("s.csv")}},
		{"s.csv", true, map[string]any{"is_file": true, "path": at("s.csv")}},
		{at("no/such"), true, map[string]any{"exists": false, "is_file": nil, "is_dir": nil, "is_symlink": nil, "size_bytes": nil, "mtime": nil, "ctime": nil, "mode": nil, "owner_uid": nil, "owner_gid": nil, "mime_type": nil, "path": at("no/such")}},
	} {
		v := stat(map[string]any{"path": x.path, "follow_symlinks": x.follow})
		for key, want := range x.want {
			if v[key] != want {
				t.Errorf("FILE_STAT %s (follow %t): %s is %v, want %v", x.path, x.follow, key, v[key], want)
			}
		}
	}
	v := stat(map[string]any{"path": at("s.csv")}) // follow_symlinks is true if it isn't said
	info, err := os.Stat(at("s.csv"))
	if err != nil {
		t.Fatal(err)
	}
	if at := float64(info.ModTime().UnixMicro()) / 1e6; v["mtime"].(float64)-at > 1e-5 || at-v["mtime"].(float64) > 1e-5 {
		t.Errorf("mtime %v, want %v", v["mtime"], at)
	}
}

func emulatorList(t *testing.T, s *shimtest.Socket, at func(string) string) {
	dir := at("l")
	for _, name := range []string{"b.txt", "a.txt", "c/d.txt", ".h/e.txt", ".f", "c/.g"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte("xyz"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "out")); err != nil {
		t.Fatal(err)
	}
	list := func(payload map[string]any) ([]string, bool) {
		t.Helper()
		payload["path"] = dir
		v := emObject(t, s.Call(wire.TFileList, payload), wire.TFileListResponse, "entries", "truncated")
		names := []string{}
		for _, e := range v["entries"].([]any) {
			e := e.(map[string]any)
			if got := slices.Sorted(maps.Keys(e)); !slices.Equal(got, []string{"is_dir", "is_file", "is_symlink", "mtime", "name", "path", "size_bytes"}) {
				t.Errorf("an entry has the keys %v", got)
			}
			rel, err := filepath.Rel(dir, e["path"].(string))
			if err != nil || filepath.Base(rel) != e["name"] {
				t.Errorf("entry %v", e)
			}
			if e["name"] == "out" && (e["is_symlink"] != true || e["is_dir"] != false || e["is_file"] != false) {
				t.Errorf("a link out of the root is told as %v", e)
			}
			names = append(names, rel)
		}
		return names, v["truncated"].(bool)
	}
	for _, x := range []struct {
		payload   map[string]any
		want      string
		truncated bool
	}{
		{map[string]any{"glob": nil, "recursive": false, "include_hidden": false, "max_entries": 1000}, "a.txt b.txt c out", false},
		{map[string]any{}, "a.txt b.txt c out", false},
		{map[string]any{"include_hidden": true}, ".f .h a.txt b.txt c out", false},
		{map[string]any{"recursive": true}, "a.txt b.txt c c/d.txt out", false},
		{map[string]any{"recursive": true, "include_hidden": true}, ".f .h .h/e.txt a.txt b.txt c c/.g c/d.txt out", false},
		{map[string]any{"recursive": true, "glob": "*.txt"}, "a.txt b.txt c/d.txt", false},
		{map[string]any{"glob": "[!a]*.txt"}, "b.txt", false},
		{map[string]any{"glob": "[a"}, "", false},
		{map[string]any{"max_entries": 4}, "a.txt b.txt c out", false}, // nothing was left out
		{map[string]any{"max_entries": 3}, "a.txt b.txt c", true},
		{map[string]any{"max_entries": 0}, "a.txt", true},
		{map[string]any{"max_entries": 100000}, "a.txt b.txt c out", false},
	} {
		names, truncated := list(x.payload)
		if strings.Join(names, " ") != x.want || truncated != x.truncated {
			t.Errorf("FILE_LIST %v gives %v, %t", x.payload, names, truncated)
		}
	}
	emRefused(t, s.Call(wire.TFileList, map[string]any{"path": at("none")}), wire.PathNotFound, map[string]any{"path": at("none")})
	emRefused(t, s.Call(wire.TFileList, map[string]any{"path": filepath.Join(dir, "a.txt")}), wire.InternalError, map[string]any{"path": filepath.Join(dir, "a.txt")})
}

func emulatorDelete(t *testing.T, b *bench, s *shimtest.Socket, at func(string) string) {
	if err := os.MkdirAll(at("del/sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	b.write(at("del/sub/f"), "x")
	if err := os.Symlink("del", at("del.link")); err != nil {
		t.Fatal(err)
	}
	emRefused(t, s.Call(wire.TFileDelete, map[string]any{"path": at("del")}), wire.PathNotEmpty, map[string]any{"path": at("del")})
	emObject(t, s.Call(wire.TFileDelete, map[string]any{"path": at("del.link"), "recursive": true}), wire.TAck, "ok")
	if _, err := os.Stat(at("del/sub/f")); err != nil {
		t.Errorf("deleting a link deletes its target: %v", err)
	}
	emObject(t, s.Call(wire.TFileDelete, map[string]any{"path": at("del"), "recursive": true, "missing_ok": false}), wire.TAck, "ok")
	emRefused(t, s.Call(wire.TFileDelete, map[string]any{"path": at("del")}), wire.PathNotFound, map[string]any{"path": at("del")})
	emObject(t, s.Call(wire.TFileDelete, map[string]any{"path": at("del"), "missing_ok": true}), wire.TAck, "ok")
	emRefused(t, s.Call(wire.TFileDelete, map[string]any{"path": b.root(), "recursive": true}), wire.PathOutsideAllowedRoot, nil)
}

func emulatorMove(t *testing.T, b *bench, s *shimtest.Socket, at func(string) string) {
	b.write(at("m1"), "one")
	b.write(at("m2"), "two")
	emRefused(t, s.Call(wire.TFileMove, map[string]any{"src": at("m1"), "dst": at("m2"), "overwrite": false}), wire.PathExists, map[string]any{"dst": at("m2")})
	emRefused(t, s.Call(wire.TFileMove, map[string]any{"src": at("m0"), "dst": at("m3")}), wire.PathNotFound, map[string]any{"src": at("m0")})
	emRefused(t, s.Call(wire.TFileMove, map[string]any{"src": at("m1"), "dst": at("none/m3")}), wire.PathNotFound, map[string]any{"dst": at("none/m3")})
	emObject(t, s.Call(wire.TFileMove, map[string]any{"src": at("m1"), "dst": at("m1"), "overwrite": true}), wire.TAck, "ok")
	if string(b.read(at("m1"))) != "one" {
		t.Error("moved onto itself, a file is gone")
	}
	emObject(t, s.Call(wire.TFileMove, map[string]any{"src": at("m1"), "dst": at("m2"), "overwrite": true}), wire.TAck, "ok")
	if string(b.read(at("m2"))) != "one" {
		t.Error("not replaced")
	}
	if err := os.MkdirAll(at("md/full"), 0o755); err != nil {
		t.Fatal(err)
	}
	emObject(t, s.Call(wire.TFileMove, map[string]any{"src": at("m2"), "dst": at("md"), "overwrite": true}), wire.TAck, "ok")
	if string(b.read(at("md"))) != "one" {
		t.Error("a directory isn't replaced")
	}
}

func emulatorJail(t *testing.T, b *bench, s *shimtest.Socket, at func(string) string, outside string) {
	evil := filepath.Join(b.dir, "evil")
	sibling := b.root() + "2"
	if err := os.Mkdir(sibling, 0o755); err != nil {
		t.Fatal(err)
	}
	for link, target := range map[string]string{
		"out": outside, "dangling": evil, "up": "..", "back": b.root(), "roundabout": "../work/in", "loop": "loop",
	} {
		if err := os.Symlink(target, at(link)); err != nil {
			t.Fatal(err)
		}
	}
	b.write(at("in"), "inside")
	for _, path := range []string{
		outside, "/etc/passwd", at("../outside"), at("out"), at("up/outside"), sibling, sibling + "/x", "../outside", "/proc/self/environ",
		at("new/../../evil"), b.stateDir() + "/tokens.json", "/", b.dir,
	} {
		details := map[string]any{"path": path, "requested_path": path}
		emRefused(t, s.Call(wire.TFileRead, map[string]any{"path": path}), wire.PathOutsideAllowedRoot, details)
		emRefused(t, s.Call(wire.TFileStat, map[string]any{"path": path}), wire.PathOutsideAllowedRoot, details)
		emRefused(t, s.Call(wire.TFileList, map[string]any{"path": path}), wire.PathOutsideAllowedRoot, details)
		emRefused(t, s.Call(wire.TFileWrite, map[string]any{"path": path, "content": "x", "create_parents": true}), wire.PathOutsideAllowedRoot, details)
		emRefused(t, s.Call(wire.TFileMove, map[string]any{"src": at("in"), "dst": path + "/deeper", "overwrite": true}), wire.PathOutsideAllowedRoot, map[string]any{"dst": path + "/deeper"})
	}
	emRefused(t, s.Call(wire.TFileWrite, map[string]any{"path": at("dangling"), "content": "x"}), wire.PathOutsideAllowedRoot, map[string]any{"path": at("dangling")})
	emRefused(t, s.Call(wire.TFileMove, map[string]any{"src": outside, "dst": at("got")}), wire.PathOutsideAllowedRoot, map[string]any{"src": outside})
	for _, name := range []string{evil, at("new"), at("got")} {
		if _, err := os.Lstat(name); err == nil {
			t.Errorf("%s was made", name)
		}
	}
	for _, good := range []string{at("back/in"), at("roundabout"), "in", at("no/../in")} {
		if v := emObject(t, s.Call(wire.TFileRead, map[string]any{"path": good}), wire.TFileContents); v["content"] != "inside" {
			t.Errorf("%s reads %v", good, v)
		}
	}
	emRefused(t, s.Call(wire.TFileRead, map[string]any{"path": at("a\x00b")}), wire.PathInvalidChars, nil)
	emRefused(t, s.Call(wire.TFileWrite, map[string]any{"path": at("a\x00b"), "content": ""}), wire.PathInvalidChars, nil)
	emRefused(t, s.Call(wire.TFileStat, map[string]any{"path": at(strings.Repeat("x/", 2500))}), wire.PathInvalidChars, nil)
	emRefused(t, s.Call(wire.TFileWrite, map[string]any{"path": at(strings.Repeat("x", 5000)), "content": ""}), wire.PathInvalidChars, nil)
	emRefused(t, s.Call(wire.TFileStat, map[string]any{"path": "~nobody/x"}), wire.PathInvalidChars, nil)
	if v := answer[wire.FileStatResponse](t, s.Call(wire.TFileStat, map[string]any{"path": at("loop")}), wire.TFileStatResponse); v.Exists {
		t.Error("a loop of links exists")
	}
	// Each is on record, whichever of two paths it was.
	var seen []string
	for _, r := range b.records() {
		if r.Op != "JAIL_VIOLATION" {
			continue
		}
		if r.Result.OK || r.SessionID != "files" || r.RequestID == nil || r.Details["code"] != *r.Result.ErrorCode {
			t.Errorf("record %+v", r)
		}
		seen = append(seen, fmt.Sprintf("%v %v", r.Details["attempted_op"], r.Details["path"]))
	}
	for _, want := range []string{"FILE_READ /etc/passwd", "FILE_STAT ../outside", "FILE_MOVE " + outside, "FILE_MOVE " + outside + "/deeper", "FILE_WRITE " + at("dangling")} {
		if !slices.Contains(seen, want) {
			t.Errorf("no record of %s in %.2000q", want, seen)
		}
	}
}

// What can't be understood gets an answer all the same, and what isn't known is
// ignored.
func emulatorPayloads(t *testing.T, s *shimtest.Socket, at func(string) string) {
	for _, x := range []struct {
		request wire.Type
		payload string
	}{
		{wire.TFileRead, `{}`}, {wire.TFileStat, `{}`}, {wire.TFileList, `{}`}, {wire.TFileDelete, `{"recursive":true}`},
		{wire.TFileMove, `{"src":"a"}`}, {wire.TFileWrite, `{"path":"a"}`}, {wire.TFileWrite, `{"path":"a","content":"","encoding":"latin-1"}`},
		{wire.TFileRead, `{"path":7}`}, {wire.TFileRead, `{"path":"w.txt","offset":-1}`}, {wire.TFileRead, `{"path":"w.txt","length":0}`},
		{wire.TFileRead, `{"path":"w.txt","length":"1"}`}, {wire.TFileStat, `{"path":["a"]}`}, {wire.TFileList, `{"path":".","max_entries":"x"}`},
		{wire.TFileWrite, `[]`}, {wire.TFileWrite, `null`}, {wire.TFileWrite, `"x"`},
	} {
		e := emRefused(t, s.Call(x.request, json.RawMessage(x.payload)), wire.InternalError, nil)
		if e.Details["reason"] == nil {
			t.Errorf("%s %s: no reason: %+v", x.request, x.payload, e)
		}
	}
	e := s.Call(wire.TFileStat, json.RawMessage(`{"path":`+string(wire.AppendQuoted(nil, []byte(at("in"))))+`,"surprise":{"a":[1]},"target_machine":null}`))
	emObject(t, e, wire.TFileStatResponse)
}
