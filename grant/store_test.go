package grant

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"farhand/internal/leak"
	"farhand/wire"
)

var testKey = bytes.Repeat([]byte("a"), 32)

func openStore(t *testing.T, dir string, change ...func(*Options)) *Store {
	t.Helper()
	o := Options{Dir: dir, Key: testKey, MachineID: "machine-1"}
	for _, c := range change {
		c(&o)
	}
	s, err := Open(o)
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

func attach(t *testing.T, s *Store, id, root string) wire.SessionBinding {
	t.Helper()
	b, err := s.Attach(id, root)
	must(t, err)
	return b
}

func wantCode(t *testing.T, what string, err error, code wire.Code) {
	t.Helper()
	if wire.CodeOf(err) != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

// wantRevision wants SESSION_REVISION_MISMATCH that names the current revision.
func wantRevision(t *testing.T, what string, err error, current int) {
	t.Helper()
	wantCode(t, what, err, wire.SessionRevisionMismatch)
	if got := wire.AsError(err).Details["current_revision"]; got != current {
		t.Errorf("%s: details.current_revision %v, want %d", what, got, current)
	}
}

func TestAttachAndRestore(t *testing.T) {
	leak.Check(t)
	state, root := t.TempDir(), t.TempDir()
	s := openStore(t, state)
	one := attach(t, s, "session-1", root)
	if one.Revision != 1 || one.AllowedRoot != root || !fingerprintForm.MatchString(one.Fingerprint) || one.RootGrant == "" || one.SessionID != "session-1" {
		t.Fatalf("%+v", one)
	}
	if got, ok := s.Lookup("session-1"); !ok || got != one {
		t.Errorf("lookup %+v, %t", got, ok)
	}
	for range 2 { // a live session, then a detached one
		got, err := s.Restore("session-1", one.RootGrant)
		if err != nil || got != one {
			t.Errorf("restored %+v, %v", got, err)
		}
		must(t, s.Detach("session-1"))
		if _, ok := s.Lookup("session-1"); ok {
			t.Error("detached and still known")
		}
	}
	must(t, s.Detach("never seen"))

	// Attached anew, the older grant is worthless for good.
	two := attach(t, s, "session-1", root)
	if two.Revision != 2 {
		t.Errorf("%+v", two)
	}
	for range 2 {
		_, err := s.Restore("session-1", one.RootGrant)
		wantRevision(t, "older grant", err, 2)
		must(t, s.Detach("session-1"))
	}
	must(t, s.Close())
	s = openStore(t, state)
	_, err := s.Restore("session-1", one.RootGrant)
	wantRevision(t, "older grant after a restart", err, 2)
	if got, err := s.Restore("session-1", two.RootGrant); err != nil || got != two {
		t.Errorf("restored %+v, %v", got, err)
	}
	must(t, s.Close())
}

// TestRestoreWithoutMemory: the grant alone suffices, and is remembered.
func TestRestoreWithoutMemory(t *testing.T) {
	root := t.TempDir()
	s := openStore(t, t.TempDir())
	attach(t, s, "s", root)
	b := attach(t, s, "s", root)
	state := t.TempDir()
	fresh := openStore(t, state)
	if got, err := fresh.Restore("s", b.RootGrant); err != nil || got != b {
		t.Fatalf("%+v, %v", got, err)
	}
	must(t, fresh.Close())
	fresh = openStore(t, state)
	if got, ok := fresh.Lookup("s"); !ok || got != b {
		t.Errorf("%+v, %t", got, ok)
	}
	if next := attach(t, fresh, "s", root); next.Revision != 3 {
		t.Errorf("%+v", next)
	}
}

func TestActivate(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	must(t, os.Mkdir(root, 0o700))
	s := openStore(t, t.TempDir())
	_, err := s.Activate("s", 1)
	wantCode(t, "unknown", err, wire.SessionNotAttached)
	b := attach(t, s, "s", root)
	if got, err := s.Activate("s", 1); err != nil || got != b {
		t.Errorf("%+v, %v", got, err)
	}
	_, err = s.Activate("s", 2)
	wantRevision(t, "wrong revision", err, 1)
	must(t, os.Remove(root))
	_, err = s.Activate("s", 1)
	wantCode(t, "gone", err, wire.RootGrantInvalid)
	must(t, s.Detach("s"))
	_, err = s.Activate("s", 1)
	wantCode(t, "detached", err, wire.SessionNotAttached)
}

func TestGrantsThatDontHold(t *testing.T) {
	parent := t.TempDir()
	root := filepath.Join(parent, "root")
	must(t, os.Mkdir(root, 0o700))
	forbidden := ""
	s := openStore(t, t.TempDir(), func(o *Options) {
		o.Forbidden = func(path string) error {
			if path == forbidden {
				return errors.New("not this one")
			}
			return nil
		}
	})
	b := attach(t, s, "s", root)
	restore := func(what, id, grant string) {
		t.Helper()
		_, err := s.Restore(id, grant)
		wantCode(t, what, err, wire.RootGrantInvalid)
	}
	restore("another session's", "other", b.RootGrant)
	restore("empty", "s", "")
	restore("changed", "s", strings.Replace(b.RootGrant, "v1.e", "v1.f", 1))
	elsewhere := openStore(t, t.TempDir(), func(o *Options) { o.MachineID = "machine-2" })
	_, err := elsewhere.Restore("s", b.RootGrant)
	wantCode(t, "another machine's", err, wire.RootGrantInvalid)
	otherKey := openStore(t, t.TempDir(), func(o *Options) { o.Key = bytes.Repeat([]byte("b"), 32) })
	_, err = otherKey.Restore("s", b.RootGrant)
	wantCode(t, "another key's", err, wire.RootGrantInvalid)

	forbidden = root
	restore("forbidden since", "s", b.RootGrant)
	_, err = s.Attach("t", root)
	wantCode(t, "attach what is forbidden", err, wire.DirectoryUnavailable)
	forbidden = ""

	must(t, os.Rename(root, root+"-moved"))
	restore("gone", "s", b.RootGrant)
	must(t, os.Symlink(root+"-moved", root))
	restore("replaced by a link to it", "s", b.RootGrant)
	must(t, os.Remove(root))
	must(t, os.Rename(root+"-moved", root))
	if _, err := s.Restore("s", b.RootGrant); err != nil {
		t.Errorf("the very directory again: %v", err)
	}
	// ext4 gives a new directory the inode number that the old one had; the
	// birth time tells them apart.
	must(t, os.Remove(root))
	must(t, os.Mkdir(root, 0o700))
	restore("replaced by another", "s", b.RootGrant)
}

func TestSessionIDs(t *testing.T) {
	s := openStore(t, t.TempDir())
	for _, id := range []string{"", strings.Repeat("a", 257), "\xff"} {
		_, err := s.Attach(id, t.TempDir())
		wantCode(t, fmt.Sprintf("%q", id), err, wire.InternalError)
	}
}

// TestCutAnywhere: whatever part of the file a crash leaves, the store opens
// with the bindings that were whole and goes on.
func TestCutAnywhere(t *testing.T) {
	state, root := t.TempDir(), t.TempDir()
	s := openStore(t, state)
	for range 2 {
		for _, id := range []string{"a", "b"} {
			attach(t, s, id, root)
		}
	}
	must(t, s.Detach("a"))
	must(t, s.Close())
	whole, err := os.ReadFile(filepath.Join(state, fileName))
	must(t, err)
	for cut := 0; cut <= len(whole); cut += 17 {
		dir := t.TempDir()
		must(t, os.WriteFile(filepath.Join(dir, fileName), whole[:cut], 0o600))
		s := openStore(t, dir)
		lines := bytes.Count(whole[:cut], []byte("\n"))
		want := []int{1, 2, 2, 3, 3, 3}[lines] // the next revision of a
		if b := attach(t, s, "a", root); b.Revision != want {
			t.Errorf("cut at %d: revision %d, want %d", cut, b.Revision, want)
		}
		must(t, s.Close())
		s = openStore(t, dir)
		if b, ok := s.Lookup("a"); !ok || b.Revision != want {
			t.Errorf("cut at %d: after that %+v, %t", cut, b, ok)
		}
		must(t, s.Close())
	}
}

func TestUnreadableLinesAreLeftOut(t *testing.T) {
	state, root := t.TempDir(), t.TempDir()
	s := openStore(t, state)
	attach(t, s, "a", root)
	must(t, s.Close())
	path := filepath.Join(state, fileName)
	good, err := os.ReadFile(path)
	must(t, err)
	var bad bytes.Buffer
	for _, junk := range []string{"", "{", "null", `{"binding":{"session_id":"a","revision":-4}}`, string(make([]byte, 100)), strings.Repeat("x", 3*maxLine)} {
		bad.WriteString(junk + "\n")
	}
	bad.Write(good)
	must(t, os.WriteFile(path, bad.Bytes(), 0o600))
	s = openStore(t, state)
	if b := attach(t, s, "a", root); b.Revision != 2 {
		t.Errorf("%+v", b)
	}
}

// TestBounds: old bindings are forgotten before their revisions, and the file
// doesn't grow for ever.
func TestBounds(t *testing.T) {
	state, root := t.TempDir(), t.TempDir()
	s := openStore(t, state)
	first := attach(t, s, "s0", root)
	must(t, s.Close())
	// Without the disk, which would take its time.
	s = openStore(t, state)
	for i := 1; i < maxSessions+10; i++ {
		s.apply(line{Binding: wire.SessionBinding{SessionID: fmt.Sprint("s", i), Revision: 1, AllowedRoot: root, RootGrant: "g"}})
		if i%50 == 0 {
			s.Lookup("s0") // used, so not forgotten
			s.forget()
		}
	}
	s.forget()
	bound := 0
	for _, k := range s.sessions {
		if k.binding != nil {
			bound++
		}
	}
	if bound != maxBindings || len(s.sessions) != maxSessions {
		t.Errorf("%d bindings of %d sessions", bound, len(s.sessions))
	}
	if b, ok := s.Lookup("s0"); !ok || b != first {
		t.Errorf("the one in use: %+v, %t", b, ok)
	}
	if s.sessions["s1"] != nil || s.sessions["s500"] == nil || s.sessions["s500"].binding != nil {
		t.Error("not the least used went first")
	}
}

func TestCompacts(t *testing.T) {
	state, root := t.TempDir(), t.TempDir()
	s := openStore(t, state)
	a, b := attach(t, s, "a", root), attach(t, s, "b", root)
	must(t, s.Detach("b"))
	for range 1000 { // turns of a chat
		if _, err := s.Restore("a", a.RootGrant); err != nil {
			t.Fatal(err)
		}
		must(t, s.Detach("a"))
	}
	if _, err := s.Restore("a", a.RootGrant); err != nil {
		t.Fatal(err)
	}
	if s.journal.lines > 600 {
		t.Errorf("%d lines for two sessions", s.journal.lines)
	}
	must(t, s.Close())
	s = openStore(t, state)
	if got, ok := s.Lookup("a"); !ok || got != a {
		t.Errorf("%+v, %t", got, ok)
	}
	if _, ok := s.Lookup("b"); ok {
		t.Error("b came back")
	}
	if got, err := s.Restore("b", b.RootGrant); err != nil || got != b {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestWriteFails: what can't be stored isn't made.
func TestWriteFails(t *testing.T) {
	state, root := t.TempDir(), t.TempDir()
	s := openStore(t, state)
	one := attach(t, s, "a", root)
	s.journal.f.Close()
	_, err := s.Attach("a", root)
	wantCode(t, "attach", err, wire.InternalError)
	if got, ok := s.Lookup("a"); !ok || got != one {
		t.Errorf("%+v, %t", got, ok)
	}
}

func TestConcurrent(t *testing.T) {
	leak.Check(t)
	s, root := openStore(t, t.TempDir()), t.TempDir()
	var wg sync.WaitGroup
	seen := make(chan int, 64)
	for range 8 {
		wg.Go(func() {
			for range 4 {
				b, err := s.Attach("s", root)
				if err != nil {
					t.Error(err)
					return
				}
				seen <- b.Revision
				s.Restore("s", b.RootGrant) // may be old by now
				s.Lookup("s")
			}
		})
	}
	wg.Wait()
	close(seen)
	once := map[int]bool{}
	for r := range seen {
		if once[r] {
			t.Errorf("revision %d twice", r)
		}
		once[r] = true
	}
	must(t, s.Close())
	must(t, s.Close())
	if _, err := s.Attach("s", root); !errors.Is(err, os.ErrClosed) {
		t.Errorf("attached after closing: %v", err)
	}
}

func BenchmarkRestore(b *testing.B) {
	s, err := Open(Options{Dir: b.TempDir(), Key: testKey, MachineID: "m"})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	binding, err := s.Attach("s", b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := s.Restore("s", binding.RootGrant); err != nil {
			b.Fatal(err)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
