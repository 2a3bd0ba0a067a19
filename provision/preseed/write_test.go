package preseed

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/knadh/koanf/parsers/toml/v2"
)

func everything() Settings {
	s := ofImager1()
	s.Keymap = "de"
	s.Interfaces = Interfaces{I2C: yes(), SPI: no(), OneWire: yes(), Serial: SerialConsole}
	s.Wifi = &Wifi{SSID: []byte(`back\slash "quote" é`), Passphrase: `p"a\ss word 12`}
	s.User.PasswordlessSudo = true
	s.Farhand = Farhand{
		Relay: "https://relay.example", CASHA256: strings.Repeat("ab", 32), ClaimKey: "fhc_0123456789abcdef", Name: `The "far" hand`,
		Roots: []string{"/data/work", `/data/work/with "quotes"`}, Capabilities: []string{"files", "shell", "forward"}, Shell: true,
		ForwardAllow: []string{"127.0.0.1:80", "[fd00::]/8:8000-8010"},
		OperatorSudo: true, WifiRescue: true, RescuePassphrase: "abcdefgh1234", Buses: map[string]bool{"w1": true, "i2c1": false},
	}
	return s
}

func TestWrittenIsRead(t *testing.T) {
	odd := Settings{Wifi: &Wifi{SSID: []byte{0, 1, 0xff}, PSK: strings.Repeat("0f", 32)}, Country: "US", Farhand: Farhand{Roots: []string{}, Capabilities: []string{}}}
	for name, want := range map[string]Settings{"everything": everything(), "nothing": {}, "odd": odd} {
		got, report := Parse(Files{Preseed: want.Preseed(), Farhand: want.Farhand.TOML()})
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
		for _, i := range report {
			if i.Outcome == Refused || i.Outcome == Ignored {
				t.Errorf("%s: %v", name, i)
			}
		}
	}
}

// Another reader of TOML finds the same in what is written.
func TestWrittenIsTOML(t *testing.T) {
	s := everything()
	m, err := toml.Parser().Unmarshal(s.Preseed())
	if err != nil {
		t.Fatal(err)
	}
	if got := m["wlan"].(map[string]any)["ssid"]; got != string(s.Wifi.SSID) {
		t.Errorf("ssid %q", got)
	}
	if m, err = toml.Parser().Unmarshal(s.Farhand.TOML()); err != nil {
		t.Fatal(err)
	}
	if got := m["name"]; got != s.Farhand.Name {
		t.Errorf("name %q", got)
	}
}

// Whatever bytes the files hold: nothing breaks, what comes out can be written
// and read back as the same, and no report tells a secret.
func FuzzParse(f *testing.F) {
	f.Add(testdata(f, "imager2.toml"), everything().Farhand.TOML(), testdata(f, "imager1.sh"), []byte("cfg80211.ieee80211_regdom=GB"))
	f.Add([]byte("\xef\xbb\xbf[wlan]\r\nssid=\"a\nb\"\r\n"), []byte("roots=[\"/\",\n'/a'#c\n,]"), testdata(f, "imager1-old.sh"), []byte{})
	f.Fuzz(func(t *testing.T, preseed, farhand, firstrun, cmdline []byte) {
		s, report := Parse(Files{Preseed: preseed, Farhand: farhand, Firstrun: firstrun, Cmdline: cmdline})
		for _, i := range report {
			if i.Item == "" || i.Outcome == "" || !utf8.ValidString(i.Item+i.Why) {
				t.Fatalf("report: %+v", i)
			}
			if w := s.Wifi; w != nil && len(w.Passphrase) > 20 && strings.Contains(i.Item+i.Why, w.Passphrase) {
				t.Fatalf("a secret in the report: %+v", i)
			}
		}
		stored, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var back Settings
		if err := json.Unmarshal(stored, &back); err != nil {
			t.Fatal(err)
		}
		again, _ := Parse(Files{Preseed: back.Preseed(), Farhand: back.Farhand.TOML()})
		if d := cmp.Diff(s, again); d != "" {
			t.Fatalf("written and read (-want +got):\n%s", d)
		}
	})
}

// What a full reader of TOML takes for texts, yes and no, and lists of texts,
// this one takes for the same.
func FuzzDocument(f *testing.F) {
	f.Add("a = \"b\\u00e9\" # c\n[t.u]\nk = true\nl = [\n 'x', # y\n \"z\",\n]\n")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "\r\x00") {
			return
		}
		m, err := toml.Parser().Unmarshal([]byte(text))
		if err != nil {
			read(text)
			return
		}
		for _, e := range read(text) {
			if e.err != nil || e.kind == aNumber {
				continue
			}
			got, ok := find(m, e.key)
			if !ok {
				continue // in something that isn't in the part that is read here
			}
			switch e.kind {
			case aText:
				if s, isText := got.(string); isText && s != e.text {
					t.Errorf("%s: %q, want %q", e.key, e.text, s)
				}
			case aBool:
				if b, isBool := got.(bool); isBool && b != e.flag {
					t.Errorf("%s: %v, want %v", e.key, e.flag, b)
				}
			}
		}
	})
}

func find(m map[string]any, key string) (any, bool) {
	head, rest, deeper := strings.Cut(key, ".")
	v, ok := m[head]
	if !deeper {
		return v, ok
	}
	table, isTable := v.(map[string]any)
	if !isTable {
		return nil, false
	}
	return find(table, rest)
}
