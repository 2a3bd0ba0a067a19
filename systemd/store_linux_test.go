package systemd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/internal/leak"
)

// TestStore stores a descriptor with a manager and has it passed back.
func TestStore(t *testing.T) {
	m := manager(t)
	s := NewStore(m.LocalAddr().String())
	f, err := os.Create(filepath.Join(t.TempDir(), "line"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.Put("farhand-gpio-1", f.Fd()); err != nil {
		t.Fatal(err)
	}
	text, rights := make([]byte, 4096), make([]byte, 1024)
	n, oobn, _, _, err := m.ReadMsgUnix(text, rights)
	if err != nil {
		t.Fatal(err)
	}
	if got := string(text[:n]); got != "FDSTORE=1\nFDNAME=farhand-gpio-1" {
		t.Errorf("told %q", got)
	}
	messages, err := unix.ParseSocketControlMessage(rights[:oobn])
	if err != nil || len(messages) != 1 {
		t.Fatalf("%v, %v", messages, err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		t.Fatalf("%v, %v", fds, err)
	}
	kept := os.NewFile(uintptr(fds[0]), "kept")
	defer kept.Close()
	was, _ := f.Stat()
	if is, err := kept.Stat(); err != nil || !os.SameFile(was, is) {
		t.Errorf("another file was kept: %v", err)
	}
	if err := s.Remove("farhand-gpio-1"); err != nil {
		t.Fatal(err)
	}
	if got := read(t, m); got != "FDSTOREREMOVE=1\nFDNAME=farhand-gpio-1" {
		t.Errorf("told %q", got)
	}
	for _, name := range []string{"", "a:b", "a\nREADY=1", "é", strings.Repeat("x", 256)} {
		if err := s.Remove(name); err == nil {
			t.Errorf("%q was taken for a name", name)
		}
	}
	if NewStore("") != nil {
		t.Error("a store without a manager")
	}
	if err := NewStore("/nowhere/at/all").Remove("x"); err == nil {
		t.Error("a manager that isn't there was told")
	}
}

// TestRestored runs where descriptors can't be passed to a process under test,
// so it asks for those that this process has.
func TestRestored(t *testing.T) {
	leak.Check(t)
	env := func(pid int, n, names string) func(string) string {
		return func(key string) string {
			return map[string]string{"LISTEN_PID": fmt.Sprint(pid), "LISTEN_FDS": n, "LISTEN_FDNAMES": names}[key]
		}
	}
	for _, c := range []struct{ n, names string }{{"0", ""}, {"0", "a:b"}} {
		if files, err := Restored(env(os.Getpid(), c.n, c.names)); err != nil || len(files) != 0 {
			t.Errorf("%v: %v, %v", c, files, err)
		}
	}
	if files, err := Restored(env(os.Getpid()+1, "3", "a:b:c")); err != nil || files != nil {
		t.Errorf("another process's: %v, %v", files, err)
	}
	if files, err := Restored(func(string) string { return "" }); err != nil || files != nil {
		t.Errorf("none: %v, %v", files, err)
	}
	for _, n := range []string{"-1", "x", "99999999"} {
		if _, err := Restored(env(os.Getpid(), n, "a")); err == nil {
			t.Errorf("%q descriptors were taken", n)
		}
	}
}

// TestRestoredInAChild has a real child take what it is passed.
func TestRestoredInAChild(t *testing.T) {
	if os.Getenv("FARHAND_TEST_CHILD") != "" {
		files, err := Restored(func(key string) string {
			if key == "LISTEN_PID" {
				return fmt.Sprint(os.Getpid())
			}
			return os.Getenv(key)
		})
		if err != nil || len(files) != 2 {
			t.Fatalf("%v, %v", files, err)
		}
		for name, want := range map[string]string{"a": "first", "b": "second"} {
			if got, err := os.ReadFile(fmt.Sprintf("/proc/self/fd/%d", files[name].Fd())); err != nil || string(got) != want {
				t.Errorf("%s: %q, %v", name, got, err)
			}
		}
		return
	}
	var files []*os.File
	for _, text := range []string{"first", "second", "unnamed", "twice"} {
		path := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		files = append(files, f)
	}
	child, err := os.StartProcess("/proc/self/exe", []string{"test", "-test.run=^TestRestoredInAChild$", "-test.v"}, &os.ProcAttr{
		Env:   append(os.Environ(), "FARHAND_TEST_CHILD=1", "LISTEN_FDS=4", "LISTEN_FDNAMES=a:b::a"),
		Files: append([]*os.File{nil, os.Stdout, os.Stderr}, files...),
	})
	if err != nil {
		t.Fatal(err)
	}
	if state, err := child.Wait(); err != nil || !state.Success() {
		t.Errorf("the child: %v, %v", state, err)
	}
}
