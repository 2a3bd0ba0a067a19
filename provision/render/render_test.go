package render

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"farhand/config"
	"farhand/provision/preseed"
	"farhand/provision/rescue"
)

const goodKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ada@desk"

func input() Input {
	return Input{
		Settings: preseed.Settings{
			User:     &preseed.User{Name: "ada", PasswordHash: "$6$x$y", Groups: []string{"sudo", "gpio", "astronauts"}, PasswordlessSudo: true},
			SSH:      preseed.SSH{Enabled: true, AuthorizedKeys: []string{goodKey}},
			Wifi:     &preseed.Wifi{SSID: []byte("Joe's net"), Passphrase: ` back\slash `, Hidden: true},
			Country:  "DE",
			Timezone: "Europe/Berlin",
			Farhand: preseed.Farhand{
				Relay: "https://relay.example", CASHA256: strings.Repeat("ab", 32), Name: `The "far" hand \o/`, OperatorSudo: true,
				Shell: true, Capabilities: []string{"shell", "files", "hardware_gpio", "hardware_i2c", "forward"},
				ForwardAllow: []string{"127.0.0.1:80", "[fd00::]/8:8000-8010"},
			},
		},
		Serial: "10000000abcd12EF", MachineID: "0123456789abcdef0123456789abcdef", StateDir: "/data/farhand/state",
		Groups: []string{"sudo", "gpio", "work"}, Users: []string{"root", "operator", "farhand"},
		Zone: func(name string) bool { return name == "Europe/Berlin" },
	}
}

var update = flag.Bool("update", false, "write testdata/all.txt anew")

// The whole of what is rendered, as it is written.
func TestAll(t *testing.T) {
	r := All(input())
	var b strings.Builder
	for _, f := range r.Files {
		if filepath.Base(f.Path) == rescue.NetworkFileName {
			continue // that package's own
		}
		fmt.Fprintf(&b, "=== %s %04o %d %s\n%s", f.Path, f.Mode, f.Group, f.Link, f.Data)
	}
	if *update {
		if err := os.WriteFile("testdata/all.txt", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/all.txt")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), b.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if r.Hostname != "farhand-cd12ef" || !r.SSH || r.Person == nil {
		t.Errorf("%s, ssh %v, %v", r.Hostname, r.SSH, r.Person)
	}
	if len(r.Notes) != 1 || r.Notes[0].Item != "user.groups" {
		t.Errorf("notes: %v", r.Notes)
	}
	for _, f := range r.Files {
		secret := strings.Contains(string(f.Data), "$6$x$y") || strings.Contains(string(f.Data), "slash")
		if secret && f.Mode != 0o600 {
			t.Errorf("%s holds a secret with mode %04o", f.Path, f.Mode)
		}
	}
}

// Field case 81: no two boards have the same name, whatever their serial
// numbers are worth.
func TestHostname(t *testing.T) {
	for _, c := range []struct{ asked, serial, machine, want string }{
		{"bench", "10000000abcd12ef", "", "bench"},
		{"", "10000000abcd12ef", "", "farhand-cd12ef"},
		{"", "AB12", "", "farhand-ab12"},
		{"", "12-34_5678", "", "farhand-345678"},
		{"", "", "a", ""},
		{"", "0000000000000000", "a", ""},
	} {
		got := Hostname(Input{Settings: preseed.Settings{Hostname: c.asked}, Serial: c.serial, MachineID: c.machine})
		if c.want == "" {
			other := Hostname(Input{Serial: c.serial, MachineID: "b"})
			if !strings.HasPrefix(got, "farhand-") || len(got) != len("farhand-")+suffixLength || got == other || strings.Contains(got, c.machine+c.machine) {
				t.Errorf("%+v: %s and %s", c, got, other)
			}
		} else if got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// Field cases 82 and 83: no country, no network; names of any bytes.
func TestWifi(t *testing.T) {
	networks := func(s preseed.Settings) (names []string) {
		for _, f := range All(Input{Settings: s, Zone: func(string) bool { return false }}).Files {
			if strings.HasPrefix(f.Path, IwdDir) {
				names = append(names, filepath.Base(f.Path))
			}
		}
		return names
	}
	w := func(ssid string) *preseed.Wifi {
		return &preseed.Wifi{SSID: []byte(ssid), PSK: strings.Repeat("0f", 32)}
	}
	for _, c := range []struct {
		settings preseed.Settings
		want     []string
	}{
		{preseed.Settings{Wifi: w("net")}, nil},
		{preseed.Settings{Country: "DE"}, nil},
		{preseed.Settings{Wifi: w("net 1_a-B"), Country: "DE"}, []string{"net 1_a-B.psk"}},
		{preseed.Settings{Wifi: w("../x"), Country: "DE"}, []string{"=2e2e2f78.psk"}},
		{preseed.Settings{Wifi: w("\x00\xff"), Country: "DE"}, []string{"=00ff.psk"}},
		{preseed.Settings{Wifi: &preseed.Wifi{SSID: []byte("open")}, Country: "DE"}, []string{"open.open"}},
	} {
		if got := networks(c.settings); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.settings, got, c.want)
		}
	}
}

// The daemon takes every configuration that is rendered.
func TestDaemonConfig(t *testing.T) {
	for name, c := range map[string]struct {
		farhand preseed.Farhand
		check   func(config.Config) bool
	}{
		"nothing": {preseed.Farhand{}, func(c config.Config) bool {
			return slices.Equal(c.Roots, []string{"/data/work"}) && !c.ShellEnabled && c.HardwareEnabled && c.HardwareAllow == nil && !c.LLM.Enabled && c.StateDir == "/data/farhand/state"
		}},
		"everything": {input().Settings.Farhand, func(c config.Config) bool {
			return c.Platform.String() == "https://relay.example" && c.PinSHA256 == strings.Repeat("ab", 32) && c.DisplayName == `The "far" hand \o/` &&
				c.ShellEnabled && slices.Equal(c.HardwareAllow, []string{"gpio:*", "i2c:*"}) && c.ClaimKeyFile == "/data/farhand/state/claim-key"
		}},
		"no capability": {preseed.Farhand{Capabilities: []string{}, Shell: true}, func(c config.Config) bool {
			return len(c.Roots) == 0 && !c.DefaultRoot && !c.ShellEnabled && !c.HardwareEnabled && !c.LLM.Enabled
		}},
		"a model": {preseed.Farhand{Capabilities: []string{"local_llm"}}, func(c config.Config) bool { return c.LLM.Enabled }},
		"roots":   {preseed.Farhand{Roots: []string{`/data/work/"x"`}}, func(c config.Config) bool { return slices.Equal(c.Roots, []string{`/data/work/"x"`}) }},
		"no root": {preseed.Farhand{Roots: []string{}}, func(c config.Config) bool { return len(c.Roots) == 0 && !c.DefaultRoot }},
	} {
		in := input()
		in.Settings.Farhand = c.farhand
		if name == "everything" {
			in.ClaimKeyFile = "/data/farhand/state/claim-key"
		}
		tree := Tree{Root: t.TempDir(), Chown: func(string, int, int) error { return nil }}
		if err := tree.Write(All(in).Files); err != nil {
			t.Fatal(err)
		}
		got, err := config.Load(config.Input{File: tree.Path(ConfigFile), Hostname: "farhand-1"})
		if err != nil || !c.check(got) {
			t.Errorf("%s: %v, %+v", name, err, got)
		}
	}
}

func TestPersonOfTheSystem(t *testing.T) {
	in := input()
	in.Settings.User.Name = "operator"
	r := All(in)
	if r.Person != nil || r.SSH || len(r.Notes) != 1 {
		t.Errorf("%v, ssh %v, %v", r.Person, r.SSH, r.Notes)
	}
	for _, f := range r.Files {
		if strings.HasPrefix(f.Path, userdbDir) {
			t.Errorf("%s is there", f.Path)
		}
	}
}

func TestRecordsAreJSON(t *testing.T) {
	for _, f := range All(input()).Files {
		if strings.HasPrefix(f.Path, userdbDir) && f.Link == "" && !json.Valid(f.Data) {
			t.Errorf("%s: %s", f.Path, f.Data)
		}
	}
}

// What isn't asked for any more is gone, and nothing else is.
func TestWriteAgain(t *testing.T) {
	var owned []string
	tree := Tree{Root: t.TempDir(), Chown: func(path string, uid, gid int) error {
		owned = append(owned, fmt.Sprintf("%d:%d", uid, gid))
		return nil
	}}
	if err := tree.Write([]File{{Path: "/run/a/x", Data: []byte("1"), Mode: 0o640, Group: 900}, {Path: "/run/b", Link: "a/x"}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tree.Path("/run/a/stranger"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := tree.Write([]File{{Path: "/run/b", Link: "a/stranger"}, {Path: "/run/c", Mode: 0o600}}); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, p := range []string{"/run/a/x", "/run/a/stranger", "/run/b", "/run/c"} {
		if _, err := os.Stat(tree.Path(p)); err == nil {
			left = append(left, p)
		}
	}
	if !slices.Equal(left, []string{"/run/a/stranger", "/run/b", "/run/c"}) || !slices.Equal(owned, []string{"0:900"}) {
		t.Errorf("left %v, owned %v", left, owned)
	}
}

// One file that can't be made doesn't keep the others from being made.
func TestWriteGoesOn(t *testing.T) {
	tree := Tree{Root: t.TempDir()}
	if err := os.WriteFile(filepath.Join(tree.Root, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := tree.Write([]File{{Path: "/file/in/a/file"}, {Path: "/run/x", Mode: 0o600}})
	if err == nil {
		t.Error("no error")
	}
	if _, err := os.Stat(tree.Path("/run/x")); err != nil {
		t.Error(err)
	}
}
