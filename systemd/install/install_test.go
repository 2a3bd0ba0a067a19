package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"farhand/internal/testenv"
)

// machine is a root of its own, as bare as a Debian's can be.
type machine struct {
	t    *testing.T
	root string
	ran  []string
	out  bytes.Buffer
	real bool // the system's tools are run, too
}

func newMachine(t *testing.T) *machine {
	t.Helper()
	m := &machine{t: t, root: t.TempDir()}
	for name, content := range map[string]string{
		"etc/passwd":     "root:x:0:0:root:/root:/bin/bash\n",
		"etc/group":      "root:x:0:\ndialout:x:20:\noperator:x:37:\nplugdev:x:46:\nfarhand:x:991:\n",
		"program":        "\x7fELF not really",
		"etc/os-release": "ID=debian\n",
	} {
		m.put(name, content)
	}
	return m
}

func (m *machine) put(name, content string) {
	m.t.Helper()
	path := filepath.Join(m.root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		m.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		m.t.Fatal(err)
	}
}

func (m *machine) options() Options {
	return Options{
		Root: m.root, Binary: filepath.Join(m.root, "program"), Helper: true, Version: 252, Out: &m.out,
		Config: "state_dir = \"/var/lib/farhand\"\n",
		Run: func(ctx context.Context, name string, args ...string) error {
			m.ran = append(m.ran, name+" "+strings.Join(args, " "))
			if !m.real {
				return nil
			}
			out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
			if err != nil {
				return errors.New(name + ": " + string(out))
			}
			return nil
		},
	}
}

func (m *machine) install(o Options) string {
	m.t.Helper()
	m.out.Reset()
	if err := Install(m.t.Context(), o); err != nil {
		m.t.Fatalf("install: %v\n%s", err, m.out.String())
	}
	return m.out.String()
}

func (m *machine) uninstall(o Options) string {
	m.t.Helper()
	m.out.Reset()
	if err := Uninstall(m.t.Context(), o); err != nil {
		m.t.Fatalf("uninstall: %v\n%s", err, m.out.String())
	}
	return m.out.String()
}

// files are all below the root but those that a machine has anyway.
func (m *machine) files() []string {
	m.t.Helper()
	var all []string
	err := filepath.WalkDir(m.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(strings.TrimPrefix(path, m.root), "/")
		own := strings.HasPrefix(filepath.Base(name), "passwd") || strings.HasPrefix(filepath.Base(name), "group") ||
			strings.Contains(name, "shadow") || name == "program" || name == "etc/os-release" || name == "etc/.pwd.lock"
		if !d.IsDir() && !own {
			all = append(all, name)
		}
		return nil
	})
	if err != nil {
		m.t.Fatal(err)
	}
	return all
}

func (m *machine) read(name string) string {
	m.t.Helper()
	b, err := os.ReadFile(filepath.Join(m.root, name))
	if err != nil {
		m.t.Fatal(err)
	}
	return string(b)
}

func TestInstall(t *testing.T) {
	m := newMachine(t)
	m.install(m.options())
	want := []string{
		"etc/farhand/farhandd.toml",
		"etc/systemd/system/farhand-exec.service",
		"etc/systemd/system/farhand-exec.socket",
		"etc/systemd/system/farhand.slice",
		"etc/systemd/system/farhandd.service",
		"etc/systemd/system/farhandd.service.d/helper.conf",
		"etc/systemd/system/farhandd.service.d/roots.conf",
		"etc/systemd/system/operator.slice",
		"etc/sysusers.d/farhand.conf",
		"etc/tmpfiles.d/farhand.conf",
		"etc/udev/rules.d/60-farhand.rules",
		"usr/local/bin/farhandd",
	}
	if got := m.files(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	unit := m.read("etc/systemd/system/farhandd.service")
	if !strings.Contains(unit, "\nExecStart=/usr/local/bin/farhandd run\n") || !strings.Contains(unit, "\nType=notify\n") {
		t.Error(unit)
	}
	for name, mode := range map[string]fs.FileMode{"usr/local/bin/farhandd": 0o755, "etc/farhand/farhandd.toml": 0o640, "etc/systemd/system/farhandd.service": 0o644} {
		info, err := os.Stat(filepath.Join(m.root, name))
		if err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	for _, ran := range m.ran {
		if strings.HasPrefix(ran, "systemctl") && !strings.Contains(ran, "--root="+m.root) {
			t.Errorf("%q touches the machine that the test runs on", ran)
		}
	}
}

func TestAgain(t *testing.T) {
	m := newMachine(t)
	m.install(m.options())
	m.put("etc/farhand/farhandd.toml", "# mine\n")
	before := m.files()
	if out := m.install(m.options()); strings.Contains(out, "wrote") || !strings.Contains(out, "kept") {
		t.Errorf("the second time:\n%s", out)
	}
	if m.read("etc/farhand/farhandd.toml") != "# mine\n" || !slices.Equal(before, m.files()) {
		t.Error("the second time changed something")
	}
	m.put("program", "a newer one")
	if out := m.install(m.options()); strings.Count(out, "wrote") != 1 || m.read("usr/local/bin/farhandd") != "a newer one" {
		t.Errorf("an update:\n%s", out)
	}
}

func TestLook(t *testing.T) {
	m := newMachine(t)
	o := m.options()
	look := func(want Present) {
		t.Helper()
		if got, err := Look(o); err != nil || got != want {
			t.Errorf("%+v, %v, want %+v", got, err, want)
		}
	}
	look(Present{})
	m.install(o)
	look(Present{o.Config, true})
	o.Helper = false
	m.install(o)
	look(Present{o.Config, false})
	o.User = "/home/pi"
	look(Present{})
}

// What is no longer wanted goes.
func TestWithoutTheHelperAfterAll(t *testing.T) {
	m := newMachine(t)
	m.install(m.options())
	o := m.options()
	o.Helper = false
	m.install(o)
	for _, name := range m.files() {
		if strings.Contains(name, "exec") || strings.Contains(name, "helper") || strings.Contains(name, "operator") {
			t.Errorf("%s is still there", name)
		}
	}
	if strings.Contains(m.read("etc/sysusers.d/farhand.conf"), "operator") {
		t.Error("the users still have operator")
	}
}

func TestUninstall(t *testing.T) {
	m := newMachine(t)
	m.install(m.options())
	m.put("var/lib/farhand/tokens", "secret")
	m.put("etc/systemd/system/farhandd.service.d/mine.conf", "[Service]\n")
	out := m.uninstall(Options{Root: m.root, Out: &m.out, Run: m.options().Run})
	want := []string{"etc/farhand/farhandd.toml", "etc/systemd/system/farhandd.service.d/mine.conf", "var/lib/farhand/tokens"}
	if got := m.files(); !slices.Equal(got, want) {
		t.Errorf("left: %q, want %q", got, want)
	}
	if !strings.Contains(out, "kept") {
		t.Errorf("not said what is kept:\n%s", out)
	}
	if last := m.ran[len(m.ran)-1]; !strings.HasPrefix(last, "systemctl --root="+m.root+" disable ") {
		t.Errorf("%q", last)
	}
	m.uninstall(Options{Root: m.root, Out: &m.out, Run: m.options().Run, Purge: true}) // and again
	if got := m.files(); !slices.Equal(got, want[1:2]) {
		t.Errorf("left after purging: %q", got)
	}
}

func TestUser(t *testing.T) {
	m := newMachine(t)
	o := m.options()
	o.User, o.Helper = "/home/pi", false
	out := m.install(o)
	want := []string{"home/pi/.config/farhand/farhandd.toml", "home/pi/.config/systemd/user/farhandd.service", "home/pi/.local/bin/farhandd"}
	if got := m.files(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	unit := m.read("home/pi/.config/systemd/user/farhandd.service")
	if !strings.Contains(unit, "ExecStart=/home/pi/.local/bin/farhandd run --config %E/farhand/farhandd.toml\n") || strings.Contains(unit, "User=") {
		t.Error(unit)
	}
	if len(m.ran) != 0 || !strings.Contains(out, "systemctl --user enable") {
		t.Errorf("%q: %s", m.ran, out)
	}
	m.uninstall(Options{Root: m.root, User: "/home/pi", Out: &m.out, Run: o.Run, Purge: true})
	if got := m.files(); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

// Field case 54: on the machine itself everything is started, and started anew rather than reloaded
// when it changed.
func TestStart(t *testing.T) {
	for _, c := range []struct {
		changed bool
		want    string
	}{{true, "systemctl restart"}, {false, "systemctl start"}} {
		m := newMachine(t)
		o := m.options()
		o.Root = "/"
		o.complete()
		if err := o.start(t.Context(), c.changed); err != nil {
			t.Fatal(err)
		}
		want := []string{"systemctl daemon-reload", "systemctl enable farhand-exec.socket farhand-exec.service farhandd.service"}
		if !slices.Equal(m.ran[:2], want) || m.ran[len(m.ran)-1] != c.want+" farhand-exec.socket farhand-exec.service farhandd.service" {
			t.Errorf("%q", m.ran)
		}
	}
}

func TestAFailingToolIsNamed(t *testing.T) {
	m := newMachine(t)
	o := m.options()
	o.Run = func(context.Context, string, ...string) error { return errors.New("systemd-sysusers: no space") }
	if err := Install(t.Context(), o); err == nil || !strings.Contains(err.Error(), "no space") {
		t.Errorf("%v", err)
	}
}

// The system's own tools make the users and the directories in a root of their own.
func TestWithTheRealTools(t *testing.T) {
	testenv.Need(t, "root", os.Getuid() == 0, "files are given to other users")
	for _, tool := range []string{"systemd-sysusers", "systemd-tmpfiles", "systemctl"} {
		_, err := exec.LookPath(tool)
		testenv.Need(t, "systemd-analyze", err == nil, "Debian: apt-get install systemd")
	}
	m := newMachine(t)
	m.put("etc/group", "root:x:0:\ndialout:x:20:\noperator:x:37:\nplugdev:x:46:\n")
	m.real = true
	o := m.options()
	m.install(o)
	m.install(o)

	ids := make(map[string]string) // user or group -> number
	groups := make(map[string]string)
	for line := range strings.Lines(m.read("etc/passwd")) {
		f := strings.Split(line, ":")
		ids[f[0]] = f[2]
		groups[f[0]] = f[3]
	}
	members := make(map[string]string)
	for line := range strings.Lines(m.read("etc/group")) {
		f := strings.Split(strings.TrimSpace(line), ":")
		ids["group "+f[0]], members[f[0]] = f[2], f[3]
	}
	for _, group := range []string{"work", "dialout", "plugdev", "gpio", "i2c", "spi"} {
		if !strings.Contains(","+members[group]+",", ",farhand,") {
			t.Errorf("farhand isn't in %s: %q", group, members[group])
		}
		if group != "work" && strings.Contains(members[group], "operator") {
			t.Errorf("operator is in %s", group)
		}
	}
	if groups["operator"] != ids["group work"] {
		t.Errorf("operator's group is %s, work is %s", groups["operator"], ids["group work"])
	}
	for path, want := range map[string]struct {
		owner, group string
		mode         fs.FileMode
	}{
		"srv/farhand":               {"farhand", "work", 0o770 | fs.ModeSetgid | fs.ModeDir},
		"var/lib/farhand-operator":  {"operator", "work", 0o700 | fs.ModeDir},
		"etc/farhand/farhandd.toml": {"", "farhand", 0o640},
	} {
		info, err := os.Stat(filepath.Join(m.root, path))
		if err != nil {
			t.Error(err)
			continue
		}
		st := info.Sys().(*syscall.Stat_t)
		if info.Mode() != want.mode || want.owner != "" && ids[want.owner] != fmt.Sprint(st.Uid) || ids["group "+want.group] != fmt.Sprint(st.Gid) {
			t.Errorf("%s: %v %d:%d, want %+v", path, info.Mode(), st.Uid, st.Gid, want)
		}
	}
	link := filepath.Join(m.root, "etc/systemd/system/multi-user.target.wants/farhandd.service")
	if _, err := os.Lstat(link); err != nil {
		t.Errorf("not enabled: %v", err)
	}
	m.uninstall(Options{Root: m.root, Out: &m.out, Run: o.Run, Purge: true})
	if got := m.files(); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}
