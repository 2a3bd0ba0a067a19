package apt

import (
	"reflect"
	"testing"
)

const machine = `http://packages.example/tool/|nodistro|/usr/share/keyrings/tool.gpg
http://mirror.example/debian-security/|bookworm-security|
http://mirror.example/debian/|bookworm|/usr/share/keyrings/debian-archive-keyring.gpg
http://mirror.example/debian/|bookworm-updates|$(SIGNED_BY)
`

func TestSources(t *testing.T) {
	c := Config{Architecture: "arm64", Suites: []string{"trixie", "trixie-security", "trixie-backports"}, Components: []string{"main", "non-free-firmware"}}
	const key = " signed-by=" + keyring + "] "
	want := "deb [arch=arm64" + key + "http://mirror.example/debian/ trixie main non-free-firmware\n" +
		"deb [arch=arm64" + key + "http://mirror.example/debian-security/ trixie-security main non-free-firmware\n" +
		"deb [arch=arm64" + key + "http://mirror.example/debian/ trixie-backports main non-free-firmware\n"
	if got, err := sources(machine, c, true); err != nil || got != want {
		t.Errorf("of a machine's sources:\n%s%v", got, err)
	}
	c = Config{Architecture: "amd64", Suites: []string{"trixie-backports", "trixie-security"}}
	want = "deb [arch=amd64 signed-by=/k.gpg] http://other.example/debian/ trixie-backports main\n"
	got, err := sources("http://mirror.example/debian/|bookworm|\nhttp://other.example/debian/|trixie-backports|/k.gpg\n", c, false)
	if err != nil || got != want {
		t.Errorf("with the suite itself, no keyring and no security archive:\n%s%v", got, err)
	}
	for _, none := range []string{"", "http://packages.example/tool/|nodistro|\n", "http://x [trusted=yes]|trixie|\n", "a|b", "http://m/debian-security|trixie-security|\n"} {
		if got, err := sources(none, c, true); err == nil {
			t.Errorf("%q gives %s", none, got)
		}
	}
	if got, err := sources("http://mirror.example/debian/|bookworm|\n", c, false); err == nil {
		t.Errorf("without a key: %s", got)
	}
}

func TestPrinted(t *testing.T) {
	out := `Reading package lists...
'http://m.example/debian/pool/main/i/iputils/iputils-ping_20240905-3_arm64.deb' iputils-ping_3%3a20240905-3_arm64.deb 50020 SHA256:ab01
'http://m.example/a.deb' netbase_6.5_all.deb 12436 MD5Sum:00
'http://m.example/InRelease' m.example_InRelease 0
`
	want := []Package{
		{Name: "iputils-ping", Version: "3:20240905-3", File: "iputils-ping_3%3a20240905-3_arm64.deb", Size: 50020, SHA256: "ab01"},
		{Name: "netbase", Version: "6.5", File: "netbase_6.5_all.deb", Size: 12436},
	}
	if got, err := printed(out); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if got, err := printed("E: none\n"); err == nil {
		t.Errorf("nothing gives %+v", got)
	}
}
