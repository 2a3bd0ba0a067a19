package grant

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"farhand/internal/testenv"
	"farhand/wire"
)

// The vectors are the Python shim's.
func TestVectors(t *testing.T) {
	s := NewSigner(testKey)
	if got := hex.EncodeToString(s.key); got != "b16f3e83f42d8ca001db248ef36a4614afb2dc2358c86dde6ff90089d27e431e" {
		t.Errorf("signing key %s", got)
	}
	c := Claims{AllowedRoot: "/home/pi/ws", Fingerprint: strings.Repeat("0", 64), IssuedAt: 123, MachineID: "machine-1", Revision: 3, SessionID: "session-1"}
	const claims = `{"allowed_root":"/home/pi/ws","fingerprint":"0000000000000000000000000000000000000000000000000000000000000000","issued_at":123.0,"machine_id":"machine-1","revision":3,"session_id":"session-1"}`
	want := "v1." + base64.RawURLEncoding.EncodeToString([]byte(claims)) + ".CurrzVEwuy-8g_v2KKrGa9X_IEdD4Mu7IIb6KpQvB14"
	grant := s.Sign(c)
	if grant != want {
		t.Errorf("grant\n%s\nwant\n%s", grant, want)
	}
	if got, err := s.Verify(grant); err != nil || got != c {
		t.Errorf("read back %+v, %v", got, err)
	}
	if got := legacyFingerprint(2049, 131074, "/home/pi/café <x>&y"); got != "01ea4f2505d4c2a73ce3dbb13880b9108f079b0a71b7338ce6a6a1498a565baa" {
		t.Errorf("fingerprint %s", got)
	}
}

func TestASCIIJSON(t *testing.T) {
	for s, want := range map[string]string{
		"":                         `""`,
		"a/b <&>":                  `"a/b <&>"`,
		"é\u2028😀":                 `"\u00e9\u2028\ud83d\ude00"`,
		"\"\\\b\f\n\r\t\x01\x7f":   `"\"\\\b\f\n\r\t\u0001\u007f"`,
		"broken \xff":              `"broken \udcff"`,
		strings.Repeat("x", 1<<10): `"` + strings.Repeat("x", 1<<10) + `"`,
	} {
		if got := asciiJSON(s); got != want {
			t.Errorf("%q: %s, want %s", s, got, want)
		}
	}
}

func TestVerifyRefuses(t *testing.T) {
	s := NewSigner(testKey)
	sign := func(claims string) string {
		body := base64.RawURLEncoding.EncodeToString([]byte(claims))
		return "v1." + body + "." + s.seal(body)
	}
	whole := func(change string) string {
		c := map[string]any{"allowed_root": "/x", "fingerprint": strings.Repeat("0", 64), "issued_at": 1, "machine_id": "m", "revision": 1, "session_id": "s"}
		var over map[string]any
		if err := json.Unmarshal([]byte(change), &over); err != nil {
			t.Fatal(err)
		}
		for k, v := range over {
			c[k] = v
		}
		b, _ := json.Marshal(c)
		return sign(string(b))
	}
	if _, err := s.Verify(whole("{}")); err != nil {
		t.Errorf("a good one: %v", err)
	}
	good := whole("{}")
	for name, grant := range map[string]string{
		"empty":           "",
		"no parts":        "v1",
		"two parts":       "v1.x",
		"other version":   "v2" + good[2:],
		"cut":             good[:len(good)-1],
		"longer":          good + "A",
		"fourth part":     good + ".x",
		"padded":          good + "=",
		"huge":            "v1." + strings.Repeat("A", wire.MaxGrant) + ".x",
		"not base64":      "v1.***." + s.seal("***"),
		"not JSON":        sign("x"),
		"not an object":   sign("[]"),
		"nested deep":     sign(strings.Repeat("[", 90_000)),
		"revision 0":      whole(`{"revision":0}`),
		"revision text":   whole(`{"revision":"1"}`),
		"revision 1.5":    whole(`{"revision":1.5}`),
		"no session":      whole(`{"session_id":""}`),
		"no root":         whole(`{"allowed_root":""}`),
		"root a number":   whole(`{"allowed_root":5}`),
		"bad fingerprint": whole(`{"fingerprint":"0"}`),
	} {
		if _, err := s.Verify(grant); wire.CodeOf(err) != wire.RootGrantInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzVerify(f *testing.F) {
	s := NewSigner(testKey)
	f.Add(s.Sign(Claims{AllowedRoot: "/x", Fingerprint: strings.Repeat("0", 64), MachineID: "m", Revision: 1, SessionID: "s"}))
	f.Add("v1..")
	f.Add("v1.e30." + s.seal("e30"))
	f.Fuzz(func(t *testing.T, grant string) {
		c, err := s.Verify(grant)
		if err != nil {
			if wire.CodeOf(err) != wire.RootGrantInvalid {
				t.Errorf("%q: %v", grant, err)
			}
			return
		}
		if again, err := s.Verify(s.Sign(c)); err != nil || again != c {
			t.Errorf("%+v signed anew is %+v, %v", c, again, err)
		}
	})
}

func TestInspect(t *testing.T) {
	parent, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	dir := filepath.Join(parent, "dir")
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o700))
	must(t, os.Symlink(dir, filepath.Join(parent, "link")))
	must(t, os.WriteFile(filepath.Join(parent, "file"), nil, 0o600))

	d, err := Inspect(filepath.Join(parent, "link", "sub"))
	if err != nil || d.Path != filepath.Join(dir, "sub") || len(d.Fingerprints) < 2 {
		t.Errorf("%+v, %v", d, err)
	}
	again, err := Inspect(filepath.Join(dir, "sub"))
	if err != nil || !slices.Equal(again.Fingerprints, d.Fingerprints) {
		t.Errorf("not stable: %+v, %v", again, err)
	}
	other, err := Inspect(dir)
	if err != nil || slices.ContainsFunc(other.Fingerprints, func(f string) bool { return slices.Contains(d.Fingerprints, f) }) {
		t.Errorf("two directories of one fingerprint: %+v, %v", other, err)
	}
	for name, path := range map[string]string{
		"a link":    filepath.Join(parent, "link"),
		"a file":    filepath.Join(parent, "file"),
		"nothing":   filepath.Join(parent, "none"),
		"with NUL":  dir + "\x00",
		"too long":  "/" + strings.Repeat("x/", 5000),
		"empty":     "",
		"forbidden": mkdir(t, parent, "a<b"),
		"broken":    mkdir(t, parent, "a\xffb"),
		"control":   mkdir(t, parent, "a\nb"),
	} {
		if path == "" {
			continue
		}
		if _, err := Inspect(path); wire.CodeOf(err) != wire.DirectoryUnavailable {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInspectNeedsAccess(t *testing.T) {
	testenv.Need(t, "unprivileged", os.Getuid() != 0, "root may enter every directory")
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o500))
	if _, err := Inspect(dir); wire.CodeOf(err) != wire.DirectoryUnavailable {
		t.Errorf("%v", err)
	}
}

func mkdir(t *testing.T, parent, name string) string {
	t.Helper()
	path := filepath.Join(parent, name)
	must(t, os.Mkdir(path, 0o700))
	return path
}

func TestPresentable(t *testing.T) {
	for path, want := range map[string]bool{
		"/home/pi":                         true,
		"/home/pi/café 🔧 ключ":             true,
		"":                                 false,
		"  ":                               false,
		"/a<b":                             false,
		"/a\tb":                            false,
		"/a\u202eb":                        false,
		"/a\u2028b":                        false,
		"/a\u0378b":                        false, // unassigned
		"/a\ue000b":                        false, // private use
		"/a\xffb":                          false,
		"/" + strings.Repeat("é", 4095):    true,
		"/" + strings.Repeat("é", 4096):    false,
		"/" + string(utf8.RuneError) + "/": true,
	} {
		if got := Presentable(path); got != want {
			t.Errorf("%.20q: %t", path, got)
		}
	}
}

// TestFingerprintsByIdentity: what tells directories apart, and what doesn't.
func TestFingerprintsByIdentity(t *testing.T) {
	base := identity{device: 2049, inode: 12, birth: "100.000000005", fs: []string{"uuid:aa", "fsid:bb", "dev:2049"}, legacy: 12}
	first := base.fingerprints("/data")[0]
	replugged := base
	replugged.device, replugged.fs = 2065, []string{"uuid:aa", "fsid:cc", "dev:2065"}
	if got := replugged.fingerprints("/data")[0]; got != first {
		t.Error("replugging changed it")
	}
	reused := base
	reused.birth = "200.000000000"
	if slices.Contains(reused.fingerprints("/data"), first) {
		t.Error("an inode used again passes for the old one")
	}
	otherDisk := base
	otherDisk.fs = []string{"uuid:ab", "fsid:bb", "dev:2049"}
	if slices.Contains(otherDisk.fingerprints("/data"), first) {
		t.Error("another disk passes for the old one")
	}
	if slices.Contains(base.fingerprints("/mnt"), first) {
		t.Error("another path passes for the old one")
	}
	// A kernel that has no UUID to tell yet, or any more.
	older := base
	older.fs = base.fs[1:]
	if !slices.Contains(base.fingerprints("/data"), older.fingerprints("/data")[0]) {
		t.Error("a better kernel ends the grants of the older one")
	}
	if all := base.fingerprints("/data"); all[len(all)-1] != legacyFingerprint(2049, 12, "/data") {
		t.Error("the Python shim's is missing")
	}
}
