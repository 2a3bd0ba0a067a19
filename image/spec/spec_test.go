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
data_mib = 2000
[ollama]
tarball = "/opt/ollama-linux-arm64.tgz"
sha256 = "`+strings.Repeat("0a", 32)+`"
[[files]]
path = "/etc/motd"
from = "motd.txt"
[[files]]
path = "/usr/local/bin/measure"
from = "/opt/measure"
mode = "0755"
`)
	want := Spec{Packages: []string{"htop"}, Relay: "https://relay.example", Sizes: Sizes{Boot: BootMiB, System: 400, Data: 2000},
		Ollama: Ollama{"/opt/ollama-linux-arm64.tgz", strings.Repeat("0a", 32)},
		Files:  []File{{"/etc/motd", "motd.txt", 0o644}, {"/usr/local/bin/measure", "/opt/measure", 0o755}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := Read(""); err != nil || got.Sizes != (Sizes{Boot: BootMiB, System: SystemMiB}) {
		t.Errorf("no spec: %+v, %v", got, err)
	}
	for _, bad := range []string{
		"package = 1", "packages = [\"a b\"]", "relay = \"http://relay\"", "[sizes]\nboot_mib = 9", "[sizes]\nsystem_mib = 449",
		"[[files]]\npath = \"motd\"\nfrom = \"x\"", "[[files]]\npath = \"/x\"", "[[files]]\npath = \"/x\"\nfrom = \"y\"\nmode = \"rwx\"", "[", "packages = 1",
		"[sizes]\ndata_mib = 20000", "[ollama]\ntarball = \"x.tgz\"", "[ollama]\nsha256 = \"00\"\ntarball = \"x\"", "[ollama]\nurl = \"x\"",
	} {
		if got, err := read(t, bad); err == nil {
			t.Errorf("%q gives %+v", bad, got)
		}
	}
}

// The example of the documentation has every key.
func TestDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/image.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(doc), "```toml\n")
	example, _, _ := strings.Cut(rest, "```")
	got, err := read(t, strings.ReplaceAll(example, "\"…\"", `"`+strings.Repeat("0", 64)+`"`))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Packages) == 0 || len(got.Files) == 0 || got.Relay == "" || got.Ollama.Tarball == "" || got.Sizes != (Sizes{Boot: BootMiB, System: SystemMiB}) {
		t.Errorf("%+v", got)
	}
}
