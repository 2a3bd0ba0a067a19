package identity

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/internal/leak"
	"farhand/wire"
)

// board is a root with what a board of that serial number shows.
func board(t *testing.T, serial string, more ...string) string {
	t.Helper()
	root := t.TempDir()
	files := map[string]string{"proc/device-tree/model": "Raspberry Pi 4 Model B Rev 1.4\x00"}
	if serial != "" {
		files["proc/device-tree/serial-number"] = serial + "\x00"
	}
	for i := 0; i < len(more); i += 2 {
		files[more[i]] = more[i+1]
	}
	for name, content := range files {
		path := filepath.Join(root, name)
		must(t, os.MkdirAll(filepath.Dir(path), 0o755))
		must(t, os.WriteFile(path, []byte(content), 0o644))
	}
	return root
}

func machine(t *testing.T, state, root string) Identity {
	t.Helper()
	id, err := MachineID(t.Context(), Options{StateDir: state, SysRoot: root})
	must(t, err)
	if !validID(id.MachineID) {
		t.Errorf("id %q", id.MachineID)
	}
	return id
}

const machineID = "0123456789abcdef0123456789abcde0\n"

// TestBoundToTheBoard: field case 79.
func TestBoundToTheBoard(t *testing.T) {
	one, two := board(t, "10000000a1b2c3d4"), board(t, "10000000DEADBEEF")
	state := t.TempDir()
	first := machine(t, state, one)
	if first.Source != SourceBoard || first.Changed || first.Serial != "10000000a1b2c3d4" || first.Board != "Raspberry Pi 4 Model B Rev 1.4" {
		t.Errorf("%+v", first)
	}
	if strings.Contains(first.MachineID, "a1b2c3d4") {
		t.Errorf("the id %s gives the serial number away", first.MachineID)
	}
	again := machine(t, state, one)
	if again.MachineID != first.MachineID || again.Changed {
		t.Errorf("not stable: %+v", again)
	}
	if again.BootID == first.BootID || again.BootID == "" {
		t.Errorf("boot ids %q, %q", first.BootID, again.BootID)
	}
	if reflashed := machine(t, t.TempDir(), one); reflashed.MachineID != first.MachineID {
		t.Errorf("reflashing made %s of %s", reflashed.MachineID, first.MachineID)
	}

	// The card, or a clone of it, in another board.
	clone := machine(t, state, two)
	if !clone.Changed || clone.MachineID == first.MachineID || clone.Serial != "10000000deadbeef" {
		t.Errorf("%+v", clone)
	}
	kept, err := os.ReadFile(filepath.Join(state, "machine.json.1"))
	if err != nil || !strings.Contains(string(kept), first.MachineID) {
		t.Errorf("the old record: %q, %v", kept, err)
	}
	if settled := machine(t, state, two); settled.Changed || settled.MachineID != clone.MachineID {
		t.Errorf("%+v", settled)
	}
	back := machine(t, state, one)
	if !back.Changed || back.MachineID != first.MachineID {
		t.Errorf("back in the first board: %+v", back)
	}
}

func TestWithoutSerial(t *testing.T) {
	state := t.TempDir()
	plain := board(t, "", "etc/machine-id", machineID)
	first := machine(t, state, plain)
	if first.Source != SourceMachineID || strings.Contains(strings.ReplaceAll(first.MachineID, "-", ""), "0123456789ab") {
		t.Errorf("%+v", first)
	}
	if other := machine(t, t.TempDir(), board(t, "", "var/lib/dbus/machine-id", machineID)); other.MachineID != first.MachineID {
		t.Errorf("%s, by D-Bus %s", first.MachineID, other.MachineID)
	}
	// Remembered, whatever becomes of /etc/machine-id.
	if later := machine(t, state, board(t, "")); later.MachineID != first.MachineID || later.Changed {
		t.Errorf("%+v", later)
	}
	// A kernel that shows the serial number from now on: the same machine.
	if later := machine(t, state, board(t, "abcdef12")); later.MachineID != first.MachineID || later.Changed {
		t.Errorf("%+v", later)
	}
	if later := machine(t, state, board(t, "")); later.MachineID != first.MachineID {
		t.Errorf("%+v", later)
	}
	if moved := machine(t, state, board(t, "12abcdef")); !moved.Changed {
		t.Errorf("%+v", moved)
	}
}

func TestRandomIsRemembered(t *testing.T) {
	state, bare := t.TempDir(), board(t, "", "etc/machine-id", "uninitialized\n")
	first := machine(t, state, bare)
	if first.Source != SourceRandom || machine(t, state, bare).MachineID != first.MachineID {
		t.Errorf("%+v", first)
	}
	if machine(t, t.TempDir(), bare).MachineID == first.MachineID {
		t.Error("two machines of one id")
	}
	if fi, err := os.Stat(filepath.Join(state, "machine.json")); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
}

func TestBrokenRecordIsKeptAside(t *testing.T) {
	for _, broken := range []string{"", "{", `{"machine_id":"a b"}`, `{"machine_id":"` + strings.Repeat("a", 129) + `"}`} {
		state := t.TempDir()
		must(t, os.WriteFile(filepath.Join(state, "machine.json"), []byte(broken), 0o600))
		if id := machine(t, state, board(t, "10000000a1b2c3d4")); id.Source != SourceBoard || id.Changed {
			t.Errorf("%q: %+v", broken, id)
		}
		if kept, err := os.ReadFile(filepath.Join(state, "machine.json.1")); err != nil || string(kept) != broken {
			t.Errorf("%q: kept %q, %v", broken, kept, err)
		}
	}
}

func TestOverride(t *testing.T) {
	for id, ok := range map[string]bool{
		"pi-1": true, "A.b:c_9-": true, strings.Repeat("a", 128): true,
		"_a": false, "-a": false, "a b": false, "a\n": false, "é": false, strings.Repeat("a", 129): false,
	} {
		state := t.TempDir()
		got, err := MachineID(t.Context(), Options{StateDir: state, SysRoot: board(t, ""), Override: id})
		if (err == nil) != ok || (ok && (got.MachineID != id || got.Source != SourceConfig)) {
			t.Errorf("%q: %+v, %v", id, got, err)
		}
	}
}

func TestSerialsWorthTheName(t *testing.T) {
	for serial, want := range map[string]bool{
		"10000000a1b2c3d4": true, "SN-2023/0001": true, "a1b2": true,
		"": false, "0": false, "0000000000000000": false, "ffffffff": false, "1234567890": false, "0123456789": false, "123456789": false,
		"None": false, "To be filled by O.E.M.": false, "abc": false, "\xff\xff\xff\xff\xff": false, "a\nb\nc\nd": false,
	} {
		if got := boardSerial(board(t, serial)) != ""; got != want {
			t.Errorf("%q usable: %t", serial, got)
		}
	}
}

// TestDerivation pins the ids: after a change every board in the field would be
// another machine.
func TestDerivation(t *testing.T) {
	if id, source := derive("10000000a1b2c3d4", "/"); id != "69dc121d-c435-44d1-97d4-af200e558fee" || source != SourceBoard {
		t.Errorf("from the serial number: %s, %s", id, source)
	}
	if id, source := derive("", board(t, "", "etc/machine-id", machineID)); id != "2f919e17-d920-4901-a94e-b7e584e5e070" || source != SourceMachineID {
		t.Errorf("from the machine-id: %s, %s", id, source)
	}
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	if id := randomUUID(); !form.MatchString(id) {
		t.Errorf("random: %s", id)
	}
}

func TestPlatformAndArch(t *testing.T) {
	for release, want := range map[string]string{
		"6.6.31+rpt-rpi-v8\n": "linux", "5.15.153.1-microsoft-standard-WSL2\n": "wsl2", "4.4.0-19041-Microsoft\n": "wsl2",
	} {
		if got := platform(board(t, "", "proc/sys/kernel/osrelease", release)); got != want {
			t.Errorf("%q: %s", release, got)
		}
	}
	for goarch, want := range map[string]string{"amd64": "x86_64", "arm64": "arm64", "arm": "", "386": ""} {
		got, err := arch(goarch)
		if got != want || (want == "") != errors.Is(err, wire.UnsupportedArch) {
			t.Errorf("%s: %q, %v", goarch, got, err)
		}
	}
}

func TestDisplayName(t *testing.T) {
	for name, want := range map[string]string{
		"pi":                      "pi",
		"  Anna's <b>lab</b>\x07": "Anna's blab/b",
		"a\u202eb\u2028c\nd":      "abcd",
		"Küche 🔧":                 "Küche 🔧",
		"\xff\xfe x":              "x",
		strings.Repeat("é", 200):  strings.Repeat("é", 128),
		"private \ue000 use":      "private  use",
	} {
		if got := DisplayName(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
	if DisplayName("\x00") == "" {
		t.Error("empty")
	}
}

// lockVar makes the test binary hold the lock of the directory it names until
// its input ends.
const lockVar = "FARHAND_IDENTITY_TEST_LOCK"

func TestMain(m *testing.M) {
	if dir := os.Getenv(lockVar); dir != "" {
		if _, err := LockStateDir(dir); err != nil {
			os.Stdout.WriteString(err.Error())
			os.Exit(1)
		}
		os.Stdout.WriteString("locked")
		os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestLock(t *testing.T) {
	leak.Check(t)
	dir := filepath.Join(t.TempDir(), "a", "state")
	lock, err := LockStateDir(dir)
	must(t, err)
	if fi, err := os.Stat(dir); err != nil || fi.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	var locked *LockedError
	if _, err := LockStateDir(dir); !errors.As(err, &locked) || locked.PID != os.Getpid() {
		t.Errorf("second lock: %v", err)
	}
	must(t, lock.Close())
	lock, err = LockStateDir(dir)
	must(t, err)
	must(t, lock.Close())
}

// TestLockGoesWithTheProcess: kill -9 frees it.
func TestLockGoesWithTheProcess(t *testing.T) {
	leak.Check(t)
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), lockVar+"="+dir)
	in, err := cmd.StdinPipe()
	must(t, err)
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	b := make([]byte, 6)
	if _, err := out.Read(b); err != nil || string(b) != "locked" {
		t.Fatalf("%q, %v", b, err)
	}
	var locked *LockedError
	if _, err := LockStateDir(dir); !errors.As(err, &locked) || locked.PID != cmd.Process.Pid {
		t.Errorf("while process %d holds it: %v", cmd.Process.Pid, err)
	}
	must(t, cmd.Process.Kill())
	in.Close()
	cmd.Wait() // killed, so it fails
	lock, err := LockStateDir(dir)
	must(t, err)
	must(t, lock.Close())
}

// TestLockOutlivesTheProcess: a command that a killed daemon was just starting
// still has the lock for a moment.
func TestLockOutlivesTheProcess(t *testing.T) {
	leak.Check(t)
	dir := t.TempDir()
	dead := exec.Command("true")
	must(t, dead.Run())
	must(t, os.WriteFile(filepath.Join(dir, "lock"), fmt.Appendln(nil, dead.Process.Pid), 0o600))
	held, err := os.Open(filepath.Join(dir, "lock"))
	must(t, err)
	must(t, unix.Flock(int(held.Fd()), unix.LOCK_EX))
	over := time.AfterFunc(50*time.Millisecond, func() { held.Close() })
	defer over.Stop()
	lock, err := LockStateDir(dir)
	must(t, err)
	must(t, lock.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
