package preseed

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"

	"farhand/wire"
)

const goodKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ada@desk"

func testdata(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func yes() *bool { b := true; return &b }
func no() *bool  { b := false; return &b }

func TestPreseedOfImager2(t *testing.T) {
	s, report := Parse(Files{Preseed: testdata(t, "imager2.toml")})
	want := Settings{
		Hostname: "bench-7",
		User: &User{
			Name: "ada", Groups: []string{"sudo", "dialout"}, PasswordlessSudo: true,
			PasswordHash: "$y$j9T$0123456789abcdefghijkl$0123456789abcdefghijklmnopqrstuvwxyzABCDEFG",
		},
		SSH:     SSH{Enabled: true, AuthorizedKeys: []string{goodKey}},
		Wifi:    &Wifi{SSID: []byte("Caf\xc3\xa9\xff"), Hidden: true, PSK: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
		Country: "GB", Keymap: "gb", Timezone: "Europe/London",
		Interfaces: Interfaces{I2C: yes(), SPI: no(), Serial: SerialHardware},
	}
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("settings (-want +got):\n%s", d)
	}
	outcomes := make(map[string]string)
	for _, i := range report {
		outcomes[strings.TrimPrefix(i.Item, "rpi-preseed.toml ")] = i.Outcome
		if strings.Contains(i.Why, "secret") || strings.Contains(i.Why, "abcdef") {
			t.Errorf("a secret in the report: %v", i)
		}
		if (i.Outcome == Applied) != (i.Why == "") {
			t.Errorf("%v: a reason stands where something wasn't applied, and only there", i)
		}
	}
	wantOutcomes := map[string]string{
		"config_version": Applied, "system.hostname": Changed,
		"user.name": Applied, "user.password": Applied, "user.password_encrypted": Applied, "user.groups": Changed, "user.passwordless_sudo": Applied,
		"ssh.enabled": Applied, "ssh.password_authentication": Applied, "ssh.authorized_keys": Changed,
		"wlan.ssid_hex": Applied, "wlan.password": Applied, "wlan.password_encrypted": Applied, "wlan.hidden": Applied, "wlan.country": Changed,
		"locale.keymap": Changed, "locale.timezone": Applied,
		"connect.enabled": Ignored, "connect.mode": Ignored, "connect.token": Ignored,
		"interfaces.i2c": Applied, "interfaces.spi": Applied, "interfaces.serial": Changed, "interfaces.usb_gadget": Ignored,
	}
	if d := cmp.Diff(wantOutcomes, outcomes); d != "" {
		t.Errorf("report (-want +got):\n%s", d)
	}
}

// Field case 83: marks and line ends of other systems, names of any bytes, raw
// keys, and secrets that were pasted with a line end.
func TestForgivingText(t *testing.T) {
	plain := "config_version = \"1.0\"\n[wlan]\nssid = \"Küche\"\npassword = \"correct horse\"\ncountry = \"DE\"\n"
	want, _ := Parse(Files{Preseed: []byte(plain)})
	if want.Wifi == nil || string(want.Wifi.SSID) != "Küche" || want.Wifi.Passphrase != "correct horse" {
		t.Fatalf("plain text: %+v", want.Wifi)
	}
	crlf := strings.ReplaceAll(plain, "\n", "\r\n")
	little, big := []byte{0xff, 0xfe}, []byte{0xfe, 0xff}
	for _, u := range utf16.Encode([]rune(crlf)) {
		little = append(little, byte(u), byte(u>>8))
		big = append(big, byte(u>>8), byte(u))
	}
	for name, b := range map[string][]byte{
		"byte order mark": []byte("\xef\xbb\xbf" + plain),
		"CR LF":           []byte(crlf),
		"CR":              []byte(strings.ReplaceAll(plain, "\n", "\r")),
		"UTF-16LE":        little,
		"UTF-16BE":        big,
		"pasted LF":       []byte(strings.Replace(plain, "correct horse\"", "correct horse\n\"", 1)),
		"pasted CR LF":    []byte(strings.Replace(crlf, "correct horse\"", "correct horse\r\n\"", 1)),
		"LF in between":   []byte(strings.Replace(plain, "correct horse\"", "correct\n horse\"", 1)),
		"escaped LF":      []byte(strings.Replace(plain, "correct horse\"", "correct horse\\r\\n\"", 1)),
		"name in hex":     []byte(strings.Replace(plain, "ssid = \"Küche\"", "ssid_hex = \"4BC3BC636865\"", 1)),
	} {
		got, report := Parse(Files{Preseed: b})
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s\n%v", name, d, report)
		}
	}
}

func TestWifiSecrets(t *testing.T) {
	for _, c := range []struct {
		password, passphrase, psk string
		fails                     bool
	}{
		{"12345678", "12345678", "", false},
		{"1234567", "", "", true},
		{strings.Repeat("x", 63), strings.Repeat("x", 63), "", false},
		{strings.Repeat("x", 64), "", "", true},
		{strings.Repeat("A1", 32), "", strings.Repeat("a1", 32), false},
		{strings.Repeat("A1", 32) + "\n", "", strings.Repeat("a1", 32), false},
		{"tab\there12", "", "", true},
		// IEEE 802.11 J.4.2's first vector has an ASCII passphrase; what wpa_passphrase(8) says is the same function.
		{"gr\u00fcn12345", "", "", false},
	} {
		passphrase, psk, _, err := wifiSecret(c.password, []byte("IEEE"))
		if (err != nil) != c.fails {
			t.Errorf("%q: %v", c.password, err)
			continue
		}
		if strings.Contains(c.password, "ü") {
			if passphrase != "" || len(psk) != 64 {
				t.Errorf("%q: %q and %q", c.password, passphrase, psk)
			}
			continue
		}
		if passphrase != c.passphrase || psk != c.psk {
			t.Errorf("%q: %q and %q", c.password, passphrase, psk)
		}
	}
}

// IEEE 802.11-2020, J.4.2, first test vector.
func TestDerivedKey(t *testing.T) {
	got, err := deriveKey("password", []byte("IEEE"))
	if want := "f42c6fc52df0ebef9ebb4b90b38a5f902e83fe1b135a70e23aed762e9710a12e"; err != nil || got != want {
		t.Errorf("%s, %v; want %s", got, err, want)
	}
}

func TestPlainPasswordIsHashed(t *testing.T) {
	for _, c := range []struct{ file, prefix string }{
		{"[user]\nname = \"ada\"\npassword = \"hunter2\"\npassword_encrypted = false\n", "$6$"},
		{"[user]\nname = \"ada\"\npassword = \"hunter2\"\n", "$6$"},
		{"[user]\nname = \"ada\"\npassword = \"hunter2\"\npassword_encrypted = true\n", ""},
		{"[user]\nname = \"ada\"\npassword = \"$6$salt$0123456789abcdef\"\n", "$6$salt$"},
	} {
		s, report := Parse(Files{Preseed: []byte(c.file)})
		if s.User == nil {
			t.Fatalf("no user: %v", report)
		}
		if h := s.User.PasswordHash; !strings.HasPrefix(h, c.prefix) || (c.prefix == "") != (h == "") || strings.Contains(h, "hunter2") {
			t.Errorf("%q: hash %q, %v", c.file, h, report)
		}
	}
}

// Field case 82: who gives a code that no country has is told where that helps, and
// a card that can't be told goes by it as well as a radio can.
func TestCountries(t *testing.T) {
	for in, c := range map[string]struct{ code, outcome, entered string }{
		"DE":      {"DE", Applied, "DE"},
		" de ":    {"DE", Changed, "DE"},
		"UK":      {"GB", Changed, "GB"},
		"uk":      {"GB", Changed, "GB"},
		"EL":      {"GR", Changed, "GR"},
		"XK":      {"XK", Applied, "XK"},
		"XX":      {"XX", Changed, ""},
		"EN":      {"EN", Changed, ""},
		"D ":      {"", Refused, ""},
		"Germany": {"", Refused, ""},
		"":        {"", Refused, ""},
	} {
		s, report := Parse(Files{Preseed: []byte("[wlan]\ncountry = \"" + in + "\"\n")})
		if len(report) != 1 || s.Country != c.code || report[0].Outcome != c.outcome {
			t.Errorf("%q on a card: %q, %v", in, s.Country, report)
		}
		if got, err := NewCountry(in); got != c.entered || (err == nil) != (c.entered != "") {
			t.Errorf("%q entered: %q, %v", in, got, err)
		}
		if in == "" {
			continue // empties it
		}
		if got, err := (Settings{}).Changed(wire.SettingsChange{WifiCountry: &in}); got.Country != c.entered || (err == nil) != (c.entered != "") {
			t.Errorf("%q by its owner: %q, %v", in, got.Country, err)
		}
	}
	if n := len(strings.Fields(countries)); n != 250 {
		t.Errorf("%d countries", n)
	}
}

func TestContradictions(t *testing.T) {
	for name, c := range map[string]struct {
		file, item string
		check      func(Settings) bool
	}{
		"SSH without user":     {"[ssh]\nenabled = true\n", "settings ssh", func(s Settings) bool { return !s.SSH.Enabled }},
		"password without one": {"[user]\nname = \"ada\"\n[ssh]\nenabled = true\npassword_authentication = true\n", "settings ssh", func(s Settings) bool { return s.SSH.Enabled && !s.SSH.PasswordLogin }},
		"Wi-Fi without country": {"[wlan]\nssid = \"net\"\npassword = \"12345678\"\n", "settings wlan.country", func(s Settings) bool {
			return s.Wifi != nil && s.Country == ""
		}},
		"a system's user":  {"[user]\nname = \"operator\"\n", "rpi-preseed.toml user.name", func(s Settings) bool { return s.User == nil }},
		"twice":            {"[system]\nhostname = \"a\"\nhostname = \"b\"\n", "rpi-preseed.toml system.hostname", func(s Settings) bool { return s.Hostname == "a" }},
		"wrong kind":       {"[system]\nhostname = true\n", "rpi-preseed.toml system.hostname", func(s Settings) bool { return s.Hostname == "" }},
		"one line of many": {"[system]\nhostname = \"a\\qb\"\n[locale]\ntimezone = \"Asia/Tokyo\"\n", "rpi-preseed.toml system.hostname", func(s Settings) bool { return s.Timezone == "Asia/Tokyo" }},
		"open quote":       {"[system]\nhostname = \"bench\n[locale]\ntimezone = 'Asia/Tokyo'\n", "rpi-preseed.toml system.hostname", func(s Settings) bool { return s.Timezone == "Asia/Tokyo" }},
		"up and away":      {"[locale]\ntimezone = \"../../etc/passwd\"\n", "rpi-preseed.toml locale.timezone", func(s Settings) bool { return s.Timezone == "" }},
	} {
		s, report := Parse(Files{Preseed: []byte(c.file)})
		if !c.check(s) {
			t.Errorf("%s: %+v", name, s)
		}
		told := false
		for _, i := range report {
			told = told || i.Item == c.item && i.Outcome != Applied && i.Why != ""
		}
		if !told {
			t.Errorf("%s: not told: %v", name, report)
		}
	}
}

// What a name is shown as names it again, also one that looks like another's bytes.
func TestSSIDText(t *testing.T) {
	for text, want := range map[string]string{
		"Workshop": "Workshop", "Caf\u00e9 ": "Caf\u00e9 ", "\xff\x01": "0xff01", "a\nb": "0x610a62",
		"0xff01": "0x307866663031", "0x": "0x", "0xno": "0xno", "0xf": "0xf",
	} {
		shown := SSIDText([]byte(text))
		back, err := ParseSSID(shown)
		if shown != want || err != nil || string(back) != text {
			t.Errorf("%q is shown as %q, which is %q, %v", text, shown, back, err)
		}
	}
	if _, err := ParseSSID("0x" + strings.Repeat("00", 33)); err == nil {
		t.Error("33 bytes are a name")
	}
}

// To manage models is nothing that a machine offers by itself: it comes with the model.
func TestManagedModels(t *testing.T) {
	for list, want := range map[string]string{`["local_llm", "llm_manage"]`: Applied, `["llm_manage"]`: Changed} {
		s, report := Parse(Files{Farhand: []byte("capabilities = " + list)})
		if last := report[len(report)-1]; last.Outcome != want || !slices.Contains(s.Farhand.Capabilities, "llm_manage") {
			t.Errorf("%s: %+v, %v", list, s.Farhand, report)
		}
	}
}

func TestFarhand(t *testing.T) {
	s, report := Parse(Files{Farhand: []byte(`
relay = "https://relay.example.org:8443/"
ca_sha256 = "AA:` + strings.Repeat("bb", 31) + `"
claim_key = "fhc_0123456789abcdef
"
name = "Küchenbrett"
roots = ["/data/work/a/..", "relative", "/run/x"]
capabilities = ["files", "hardware_gpio", "telepathy", "shell"]
shell = false
colour = "red"
Rescue = true
[forward]
allow = ["127.0.0.1:80", "everything", " printer.local:8000-8010 ", "[::1]:*"]
[sudo]
operator = true # may become root
[wifi]
rescue = true
rescue_passphrase = "abcd-efgh-12"
[buses]
uart3 = true
i2c1 = false
uart17 = true
`)})
	want := Settings{Farhand: Farhand{
		Relay: "https://relay.example.org:8443", CASHA256: "aa" + strings.Repeat("bb", 31), ClaimKey: "fhc_0123456789abcdef",
		Name: "Küchenbrett", Roots: []string{"/data/work"}, Capabilities: []string{"files", "hardware_gpio", "shell"},
		ForwardAllow: []string{"127.0.0.1:80", "printer.local:8000-8010", "[::1]:*"},
		OperatorSudo: true, WifiRescue: true, RescuePassphrase: "abcd-efgh-12",
		Buses: map[string]bool{"uart3": true, "i2c1": false},
	}}
	if d := cmp.Diff(want, s); d != "" {
		t.Errorf("settings (-want +got):\n%s", d)
	}
	var refused []string
	for _, i := range report {
		if i.Outcome == Refused {
			refused = append(refused, i.Item+": "+i.Why)
		}
		if strings.Contains(i.Why, "fhc_") {
			t.Errorf("a secret in the report: %v", i)
		}
	}
	wantRefused := []string{
		"farhand.toml colour: no such key",
		"farhand.toml Rescue: no such key; did you mean wifi.rescue?",
		"farhand.toml buses.uart17: no such key",
	}
	if d := cmp.Diff(wantRefused, refused); d != "" {
		t.Errorf("refused (-want +got):\n%s", d)
	}
}

// Targets that the daemon wouldn't start with don't get to it, and what became of
// them is told without what they are.
func TestForwardAllow(t *testing.T) {
	for list, want := range map[string]struct {
		allow   []string
		outcome string
		why     string
	}{
		`["127.0.0.1:80"]`:             {[]string{"127.0.0.1:80"}, Applied, ""},
		`["127.0.0.1:80", "secret:x"]`: {[]string{"127.0.0.1:80"}, Changed, "HOST:PORT"},
		`["secret"]`:                   {nil, Refused, "nothing is forwarded"},
		`[]`:                           {[]string{}, Applied, ""},
		`[` + strings.Repeat(`"127.0.0.1:80",`, 65) + `]`: {slices.Repeat([]string{"127.0.0.1:80"}, 64), Changed, "too many"},
	} {
		s, report := Parse(Files{Farhand: []byte("[forward]\nallow = " + list)})
		if d := cmp.Diff(want.allow, s.Farhand.ForwardAllow); d != "" {
			t.Errorf("%.60s: %s", list, d)
		}
		if len(report) != 1 || report[0].Outcome != want.outcome || !strings.Contains(report[0].Why, want.why) || strings.Contains(report[0].Why, "secret") {
			t.Errorf("%.60s: %v", list, report)
		}
	}
	s, report := Parse(Files{Farhand: []byte("capabilities = [\"files\"]\n[forward]\nallow = [\"127.0.0.1:80\"]")})
	if len(s.Farhand.ForwardAllow) != 1 || report[len(report)-1].Outcome != Changed {
		t.Errorf("without the capability: %v, %v", s.Farhand, report)
	}
}

// A list of roots of which none can be used must not stop the daemon, and an
// empty one offers none.
func TestRoots(t *testing.T) {
	for list, want := range map[string][]string{
		`["/data/farhand/state"]`: nil,
		`[]`:                      {},
		`["/"]`:                   {"/"},
		`["/procurement"]`:        {"/procurement"},
	} {
		s, report := Parse(Files{Farhand: []byte("roots = " + list)})
		if d := cmp.Diff(want, s.Farhand.Roots); d != "" {
			t.Errorf("%s: %s\n%v", list, d, report)
		}
	}
}

func TestRelay(t *testing.T) {
	for in, want := range map[string]string{
		"https://a.example":      "https://a.example",
		"wss://a.example/":       "https://a.example",
		" https://a.example:1/x": "https://a.example:1/x",
		"http://a.example":       "",
		"https://":               "",
		"https://u:p@a.example":  "",
		"https://a.example/?x=1": "",
		"a.example":              "",
	} {
		s, report := Parse(Files{Farhand: []byte("relay = \"" + in + "\"")})
		if s.Farhand.Relay != want {
			t.Errorf("%q: %q, %v", in, s.Farhand.Relay, report)
		}
	}
}

// What an owner wanted to be private and nobody understood is everything.
func TestPrivate(t *testing.T) {
	for text, want := range map[string][]string{
		"[privacy]\nprivate = [\"/data/private\", \"/data/work/**/*.key;names=shown\"]\nanswer_chars = 500\nrelease = true\n": {"/data/private", "/data/work/**/*.key;names=shown"},
		"privacy.private = [\"/data/private\"]\n":                            {"/data/private"},
		"[privacy]\nprivate = []\n":                                          {},
		"name = \"x\"\n":                                                     nil,
		"colour = \"red\"\nbroken\n":                                         nil,
		"[privacy]\nprivate = [\"/data/private\", \"relative\"]\n":           {allFiles},
		"[privacy]\nprivate = [\"/data/private;names=hidden\"]\n":            {allFiles},
		"[privacy]\nprivate = \"/data/private\"\n":                           {allFiles},
		"[privacy]\nprivate = [\"/data/private\n":                            {allFiles},
		"[privacy]\nprivat = [\"/data/private\"]\n":                          {allFiles},
		"[Privacy]\nprivate = [\"/data/private\"]\n":                         {allFiles},
		"[privacy\nprivate = [\"/data/private\"]\n":                          {allFiles},
		"[privacy]\nprivate = [\"/data/private\"]\nanswer_chars = 0\n":       {allFiles},
		"[privacy]\nprivate = [\"/a\"]\nprivate = [\"/b\"]\n":                {allFiles},
		"[privacy]\nprivate = [\"/data/private\"]\n[sudo]\noperator = \"x\"": {"/data/private"},
	} {
		s, report := Parse(Files{Farhand: []byte(text)})
		if f := s.Farhand; !slices.Equal(f.Private, want) || (f.Private == nil) != (want == nil) {
			t.Errorf("%q makes %q private: %v", text, f.Private, report)
		}
		if again, _ := Parse(Files{Farhand: s.Farhand.TOML()}); !cmp.Equal(again.Farhand, s.Farhand) {
			t.Errorf("%q, written and read, is %+v", text, again.Farhand)
		}
	}
	s, _ := Parse(Files{Farhand: []byte("[privacy]\nanswer_chars = 500\nrelease = true\n")})
	if s.Farhand.AnswerChars != 500 || !s.Farhand.Release {
		t.Errorf("%+v", s.Farhand)
	}
}
