package units

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"farhand/internal/testenv"
)

// variants are the machines that there are units for.
var variants = []struct {
	name string
	o    Options
}{
	{"plain", Options{}},
	{"helper", Options{Helper: true}},
	{"appliance", Options{Appliance: true}},
	{"user", Options{User: true}},
}

// analyze is the systemd-analyze of this machine, and its version.
func analyze(t *testing.T) int {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "--version").Output()
	testenv.Need(t, "systemd-analyze", err == nil, "Debian: apt-get install systemd")
	var version int
	if fields := strings.Fields(string(out)); len(fields) > 1 {
		version, err = strconv.Atoi(fields[1])
	}
	if err != nil || version == 0 {
		t.Fatalf("no version in %q", out)
	}
	return version
}

// tree writes the units into a root of their own.
func tree(t *testing.T, o Options) string {
	t.Helper()
	root := t.TempDir()
	list, err := Files(o)
	if err != nil {
		t.Fatal(err)
	}
	list = append(list, File{Path: "usr/bin/farhandd", Content: "#!/bin/sh\n"}, File{Path: "bin/kill", Content: "#!/bin/sh\n"}, File{Path: "data/ollama/current/bin/ollama", Content: "#!/bin/sh\n"})
	for _, f := range list {
		name := filepath.Join(root, f.Path)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if strings.Contains(f.Path, "bin/") {
			mode = 0o755
		}
		if err := os.WriteFile(name, []byte(f.Content), mode); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// unknown is a line about a unit that the bare root lacks, not about ours.
var unknown = regexp.MustCompile(`(Unit|unit) \S+ (not found|failed to load|could not be found)|^\s*$|Failed to (create|prepare)|(sysinit|basic|shutdown|sockets|network-pre)\.target`)

func TestUnitsAreValid(t *testing.T) {
	version := analyze(t)
	for _, v := range variants {
		t.Run(v.name, func(t *testing.T) {
			v.o.Version = version
			root := tree(t, v.o)
			for _, unit := range v.o.Enabled() {
				cmd := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--root", root, "--man=no", "--recursive-errors=no", unit)
				cmd.Env = append(os.Environ(), "SYSTEMD_LOG_LEVEL=warning")
				out, err := cmd.CombinedOutput()
				for line := range strings.Lines(string(out)) {
					if !unknown.MatchString(line) {
						t.Errorf("%s: %s", unit, line)
					}
				}
				if err != nil && len(out) == 0 {
					t.Errorf("%s: %v", unit, err)
				}
			}
		})
	}
}

// A verification that lets anything pass would be of no use.
func TestAWrongUnitIsNoticed(t *testing.T) {
	version := analyze(t)
	root := tree(t, Options{Version: version})
	name := filepath.Join(root, "usr/lib/systemd/system", Daemon)
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(strings.Replace(string(b), "WatchdogSec=10", "WatchdogSec=often", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _ := exec.CommandContext(t.Context(), "systemd-analyze", "verify", "--root", root, "--man=no", "--recursive-errors=no", Daemon).CombinedOutput()
	for line := range strings.Lines(string(out)) {
		if !unknown.MatchString(line) {
			return
		}
	}
	t.Errorf("nothing said about WatchdogSec=often: %s", out)
}

var exposure = regexp.MustCompile(`exposure level for \S+: ([0-9.]+)`)

// What acts as root can't go as low as the daemon: a quarter of the figure is that
// it is root.
func TestExposure(t *testing.T) {
	version := analyze(t)
	for _, v := range variants {
		if v.o.User {
			continue // a user's service is as exposed as the user
		}
		v.o.Version = version
		most := map[string]float64{Daemon: 3.0}
		if v.o.Appliance {
			most[Provisiond], most[Provision] = 4.0, 4.5
		}
		root := tree(t, v.o)
		for unit, most := range most {
			out, err := exec.CommandContext(t.Context(), "systemd-analyze", "security", "--offline=yes", "--root", root, unit).CombinedOutput()
			found := exposure.FindSubmatch(out)
			if found == nil {
				t.Fatalf("%s: %s: %v: %s", v.name, unit, err, out)
			}
			level, err := strconv.ParseFloat(string(found[1]), 64)
			if err != nil || level > most {
				t.Errorf("%s: %s: exposure level %s, want at most %.1f\n%s", v.name, unit, found[1], most, out)
			}
			t.Logf("%s: %s: exposure level %s", v.name, unit, found[1])
		}
	}
}

// unit reads one unit's settings of a variant, drop-ins last, as systemd does.
func unit(t *testing.T, o Options, name string) map[string]string {
	t.Helper()
	list, err := Files(o)
	if err != nil {
		t.Fatal(err)
	}
	settings := make(map[string]string)
	read := func(content string) {
		for line := range strings.Lines(content) {
			if key, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok && !strings.HasPrefix(line, "#") {
				settings[key] = value
			}
		}
	}
	for _, f := range list {
		if filepath.Base(f.Path) == name {
			read(f.Content)
		}
	}
	for _, f := range list {
		if filepath.Base(filepath.Dir(f.Path)) == name+".d" {
			read(f.Content)
		}
	}
	return settings
}

// Field cases 56 and 57: a service whose watchdog or restart gives up is as bad as none.
// The hardware's watchdog is the service manager's, which feeds it before anything
// of ours runs.
func TestTheDaemonAlwaysComesBack(t *testing.T) {
	for _, v := range variants {
		got := unit(t, v.o, Daemon)
		for key, want := range map[string]string{
			"Type": "notify-reload", "WatchdogSec": "10", "Restart": "always", "StartLimitIntervalSec": "0",
			"RestartPreventExitStatus": "78", "NotifyAccess": "main", "OOMPolicy": "continue",
			"OOMScoreAdjust": "-900", "NoNewPrivileges": "yes", "User": "farhand",
		} {
			if v.o.User && (key == "OOMScoreAdjust" || key == "NoNewPrivileges" || key == "User") {
				continue
			}
			if got[key] != want {
				t.Errorf("%s: %s=%s, want %s", v.name, key, got[key], want)
			}
		}
		for key := range got {
			if strings.HasPrefix(key, "Requires") && key != "RequiresMountsFor" || key == "BindsTo" || key == "Requisite" {
				t.Errorf("%s: %s=%s: its failure would keep the daemon from starting", v.name, key, got[key])
			}
			if strings.Contains(got[key], "network-online") {
				t.Errorf("%s: %s=%s: the network is no condition", v.name, key, got[key])
			}
		}
	}
}

// When memory ends, what goes first is a command or the local model, never the
// daemon. The kernel adds how much of the memory one has, in thousandths
// (mm/oom_kill.c): a model of a tenth goes before a command that has little.
func TestCommandsAndModelDieFirst(t *testing.T) {
	daemon, commands := unit(t, Options{Helper: true}, Daemon), unit(t, Options{Helper: true}, Exec)
	of := func(settings map[string]string) int {
		n, err := strconv.Atoi(settings["OOMScoreAdjust"])
		if err != nil {
			t.Error(err)
		}
		return n
	}
	model := unit(t, Options{Appliance: true}, Ollama)
	if of(model) < 900 || of(commands) <= of(model) || of(commands) > of(model)+100 || of(daemon) > -900 {
		t.Errorf("OOMScoreAdjust: commands %d, Ollama %d, daemon %d", of(commands), of(model), of(daemon))
	}
	if commands["User"] == daemon["User"] || commands["Delegate"] != "yes" || commands["UMask"] != "0007" || daemon["UMask"] != "0007" {
		t.Errorf("%v", commands)
	}
}

func TestOlderManagers(t *testing.T) {
	if got := unit(t, Options{Version: 252}, Daemon); got["Type"] != "notify" || got["ExecReload"] != "/bin/kill -HUP $MAINPID" {
		t.Errorf("%v", got)
	}
	if got := unit(t, Options{Version: 253}, Daemon); got["Type"] != "notify-reload" || got["ExecReload"] != "" {
		t.Errorf("%v", got)
	}
}

func TestProgram(t *testing.T) {
	if got := unit(t, Options{Program: "/usr/local/bin/farhandd", Helper: true}, Exec); !strings.HasPrefix(got["ExecStart"], "/usr/local/bin/farhandd exec-helper") {
		t.Errorf("%v", got)
	}
	for _, bad := range []string{"farhandd", "/opt/far hand/farhandd", "/opt/%h/farhandd"} {
		if _, err := Files(Options{Program: bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// Every embedded file is used by something.
func TestNoFileIsForgotten(t *testing.T) {
	all := ""
	for _, v := range variants {
		list, err := Files(v.o)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range list {
			all += f.Content
		}
	}
	sudo, err := SudoDropIn()
	if err != nil {
		t.Fatal(err)
	}
	users, err := Sysusers(true)
	if err != nil {
		t.Fatal(err)
	}
	temporary, err := Tmpfiles(true)
	if err != nil {
		t.Fatal(err)
	}
	rules, err := UdevRules()
	if err != nil {
		t.Fatal(err)
	}
	all += sudo.Content + users + temporary + rules
	entries, err := files.ReadDir("files")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		content, err := text(e.Name())
		if err != nil || !strings.Contains(all, content) {
			t.Errorf("%s is in no variant (%v)", e.Name(), err)
		}
	}
}

// The appliance has the same rules.
func TestUdevRulesAreTheImages(t *testing.T) {
	rules, err := UdevRules()
	if err != nil {
		t.Fatal(err)
	}
	image, err := os.ReadFile("../../image/root/files/etc/udev/rules.d/60-farhand.rules")
	if err != nil {
		t.Fatal(err)
	}
	if rules != string(image) {
		t.Error("files/udev.rules and the image's 60-farhand.rules differ")
	}
}

func TestRoots(t *testing.T) {
	f, err := RootsDropIn(Options{Dir: "etc/systemd/system"}, []string{"/srv/farhand", `/srv/a "b" 5%`})
	if err != nil {
		t.Fatal(err)
	}
	if f.Path != "etc/systemd/system/farhandd.service.d/roots.conf" ||
		!strings.HasSuffix(f.Content, "[Service]\nReadWritePaths=\"-/srv/farhand\"\nReadWritePaths=\"-/srv/a \\\"b\\\" 5%%\"\n") {
		t.Errorf("%s: %s", f.Path, f.Content)
	}
	for _, bad := range []string{"", "srv", "/srv\nUser=root"} {
		if _, err := RootsDropIn(Options{}, []string{bad}); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
