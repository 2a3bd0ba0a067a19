package spec

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func read(t *testing.T, text string) (Spec, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "spec.toml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Read(name)
	for i := range s.Files {
		s.Files[i].From = strings.TrimPrefix(s.Files[i].From, filepath.Dir(name)+"/")
	}
	return s, err
}

func TestRead(t *testing.T) {
	got, err := read(t, `
packages = ["htop"]
relay = "https://relay.example"
[sizes]
system_mib = 400
[[files]]
path = "/etc/motd"
from = "motd.txt"
[[files]]
path = "/usr/local/bin/measure"
from = "/opt/measure"
mode = "0755"
`)
	want := Spec{Packages: []string{"htop"}, Relay: "https://relay.example", Sizes: Sizes{Boot: BootMiB, System: 400},
		Files: []File{{"/etc/motd", "motd.txt", 0o644}, {"/usr/local/bin/measure", "/opt/measure", 0o755}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := Read(""); err != nil || got.Sizes != (Sizes{BootMiB, SystemMiB}) {
		t.Errorf("no spec: %+v, %v", got, err)
	}
	for _, bad := range []string{
		"package = 1", "packages = [\"a b\"]", "relay = \"http://relay\"", "[sizes]\nboot_mib = 9", "[sizes]\nsystem_mib = 449",
		"[[files]]\npath = \"motd\"\nfrom = \"x\"", "[[files]]\npath = \"/x\"", "[[files]]\npath = \"/x\"\nfrom = \"y\"\nmode = \"rwx\"", "[", "packages = 1",
	} {
		if got, err := read(t, bad); err == nil {
			t.Errorf("%q gives %+v", bad, got)
		}
	}
}
