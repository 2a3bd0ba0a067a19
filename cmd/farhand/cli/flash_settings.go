package cli

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/internal/shacrypt"
	"farhand/provision/hardware"
	"farhand/provision/preseed"
	"farhand/wire"
)

type flashFlags struct {
	bmap string
	yes  bool

	name, hostname, timezone string
	user, userPasswordFile   string
	sshKeys                  []string
	wifi, wifiPasswordFile   string
	wifiOpen, wifiHidden     bool
	country                  string

	claim, noClaim        bool
	shell, sudo, rescue   bool
	capability, roots, on []string
	forward               []string
}

func (f *flashFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.bmap, "bmap", "", "block map of the image, a `FILE` (default: the one beside it)")
	flags.BoolVarP(&f.yes, "yes", "y", false, "overwrite without asking")
	flags.StringVar(&f.name, "name", "", "your name for the machine (default: its own)")
	flags.StringVar(&f.hostname, "hostname", "", "its name in the network (default: farhand- and the end of its serial number)")
	flags.StringVar(&f.timezone, "timezone", "", "its time `ZONE`, such as Europe/Berlin")
	flags.StringVar(&f.user, "user", "", "a person who may log in")
	flags.StringVar(&f.userPasswordFile, "user-password-file", "", "that person's password, the first line of `FILE` (- for standard input)")
	flags.StringArrayVar(&f.sshKeys, "ssh-key", nil, "turn SSH on for --user with this public `KEY`, or those in a file; may be repeated")
	flags.StringVar(&f.wifi, "wifi", "", "Wi-Fi network to join, by its `SSID`, or 0x and the bytes of that in hex; its password is asked for")
	flags.StringVar(&f.wifiPasswordFile, "wifi-password-file", "", "its password, the first line of `FILE` (- for standard input)")
	flags.BoolVar(&f.wifiOpen, "wifi-open", false, "it has no password")
	flags.BoolVar(&f.wifiHidden, "wifi-hidden", false, "it doesn't announce itself")
	flags.StringVar(&f.country, "country", "", "the country that the machine is in, two `LETTERS`; without it the radio stays off")
	flags.BoolVar(&f.claim, "claim", false, "fail unless the card gets a claim key (default: it does if you are signed in)")
	flags.BoolVar(&f.noClaim, "no-claim", false, "no claim key: the machine shows a code")
	flags.BoolVar(&f.shell, "shell", false, "let it run commands and terminals")
	flags.BoolVar(&f.sudo, "sudo", false, "let those become root")
	flags.StringSliceVar(&f.capability, "capability", nil, "offer only these `CAPABILITIES`, separated by commas (default: all but the shell)")
	flags.StringArrayVar(&f.roots, "root", nil, "offer the files of this `DIRECTORY` and what is below it, instead of /data/work; may be repeated")
	flags.StringArrayVar(&f.forward, "forward", nil, "let connections be forwarded to this `HOST:PORT`, such as 127.0.0.1:80; may be repeated")
	flags.StringSliceVar(&f.on, "bus", nil, "switch a `BUS` of the header on, or off with =off; may be repeated")
	flags.BoolVar(&f.rescue, "wifi-rescue", false, "keep the Wi-Fi of its own available after the first pairing")
	cmd.MarkFlagsMutuallyExclusive("claim", "no-claim")
	cmd.MarkFlagsMutuallyExclusive("wifi-open", "wifi-password-file")
	var buses []string
	for _, b := range hardware.Buses() {
		buses = append(buses, b.Name, b.Name+"=off")
	}
	choices(cmd, "bus", buses...)
}

// allowed is what a claim key allows.
func (f flashFlags) allowed() ([]wire.Capability, error) {
	list := f.capability
	if list == nil {
		list = []string{
			string(wire.Files), string(wire.LocalLLM), string(wire.HardwareSerial), string(wire.HardwareUSB),
			string(wire.HardwareGPIO), string(wire.HardwareI2C), string(wire.HardwareSPI), string(wire.HardwarePrinter),
		}
	}
	if slices.Contains(list, string(wire.Shell)) && !f.shell {
		return nil, usage("commands are turned on by --shell, which then belongs to --capability, too")
	}
	if f.shell && !slices.Contains(list, string(wire.Shell)) {
		list = append(slices.Clone(list), string(wire.Shell))
	}
	if f.forward != nil && !slices.Contains(list, string(wire.Forward)) {
		list = append(slices.Clone(list), string(wire.Forward))
	}
	return capabilities(list)
}

// cardSettings are what the flags say, all but a claim key. They are checked by
// the machine's own reader, so that what it would refuse is known now.
func (a *app) cardSettings(ctx context.Context, f flashFlags) (preseed.Settings, error) {
	s := preseed.Settings{Timezone: f.timezone}
	for _, text := range slices.Concat([]string{f.name, f.user}, f.roots) {
		// The card's files can't carry them: it would have another name, or another root.
		if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
			return s, usage("%q: a card's settings are text without control characters", text)
		}
	}
	if f.hostname != "" {
		var err error
		if s.Hostname, err = preseed.NewHostname(f.hostname); err != nil {
			return s, usage("--hostname: %v", err)
		}
	}
	if f.country != "" {
		var err error
		if s.Country, err = preseed.NewCountry(f.country); err != nil {
			return s, usage("--country: %v", err)
		}
	}
	for _, one := range []func(context.Context, flashFlags, *preseed.Settings) error{a.cardUser, a.cardWifi, a.cardFarhand} {
		if err := one(ctx, f, &s); err != nil {
			return s, err
		}
	}
	read, items := preseed.Parse(preseed.Files{Preseed: s.Preseed(), Farhand: s.Farhand.TOML()})
	for _, i := range items {
		if i.Outcome != preseed.Applied {
			return s, usage("%s: %s", i.Item, i.Why)
		}
	}
	return read, nil
}

func (a *app) cardUser(_ context.Context, f flashFlags, s *preseed.Settings) error {
	if f.user == "" {
		if f.sshKeys != nil || f.userPasswordFile != "" {
			return usage("--ssh-key and --user-password-file need --user NAME")
		}
		return nil
	}
	s.User = &preseed.User{Name: f.user}
	if f.userPasswordFile != "" {
		password, err := a.secretFrom(f.userPasswordFile)
		if err == nil && password == "" {
			err = errors.New("it is empty")
		}
		if err != nil {
			return usage("--user-password-file: %v", err)
		}
		s.User.PasswordHash = shacrypt.Hash(password)
	}
	var err error
	s.SSH.AuthorizedKeys, err = publicKeys(f.sshKeys)
	s.SSH.Enabled = s.SSH.AuthorizedKeys != nil
	return err
}

// publicKeys are the keys of --ssh-key: each is one itself, or a file of some.
func publicKeys(given []string) (keys []string, err error) {
	for _, k := range given {
		if !strings.Contains(k, " ") { // a key has at least a kind and itself
			b, err := readSmall(k)
			if errors.Is(err, fs.ErrNotExist) {
				return nil, usage("--ssh-key: %s is neither a file nor a public key", k)
			} else if err != nil {
				return nil, err
			}
			k = string(b)
		}
		if strings.Contains(k, "PRIVATE KEY") {
			return nil, usage("--ssh-key: that is a private key; the public one is in the file beside it that ends in .pub")
		}
		before := len(keys)
		for l := range strings.Lines(k) {
			if l = strings.TrimSpace(l); l != "" && !strings.HasPrefix(l, "#") {
				keys = append(keys, l)
			}
		}
		if len(keys) == before { // else SSH would stay off, and nobody would know before the card is far away
			return nil, usage("--ssh-key: there is no key in it")
		}
	}
	return keys, nil
}

func (a *app) cardWifi(ctx context.Context, f flashFlags, s *preseed.Settings) error {
	if f.wifi == "" {
		if f.wifiPasswordFile != "" || f.wifiOpen || f.wifiHidden {
			return usage("--wifi SSID names the network")
		}
		return nil
	}
	if f.country == "" {
		return usage("--wifi needs --country, two letters such as DE: without it the radio stays off")
	}
	secret, err := a.wifiPassword(ctx, f.wifi, f.wifiPasswordFile, f.wifiOpen)
	if err != nil {
		return err
	}
	name, err := preseed.ParseSSID(f.wifi)
	if err != nil {
		return usage("--wifi: %v", err)
	}
	w, err := preseed.NewWifi(name, secret, f.wifiHidden)
	if err != nil {
		return usage("--wifi: %v", err)
	}
	s.Wifi = &w
	return nil
}

// wifiPassword is the password of a network, from a file or a person; empty if it
// is open.
func (a *app) wifiPassword(ctx context.Context, ssid, file string, open bool) (string, error) {
	switch {
	case open:
		return "", nil
	case file != "":
		secret, err := a.secretFrom(file)
		if err == nil && secret == "" {
			err = errors.New("it is empty (--wifi-open if there is no password)")
		}
		if err != nil {
			return "", usage("--wifi-password-file: %v", err)
		}
		return secret, nil
	case a.interactive():
		secret, err := a.askSecret(ctx, fmt.Sprintf("Password of the Wi-Fi %s: ", clean(ssid)))
		if err == nil && secret == "" { // a network without one would be looked for, and never found
			err = usage("no password was entered (--wifi-open if there is none)")
		}
		return secret, err
	}
	return "", usage("--wifi needs --wifi-password-file FILE, or --wifi-open")
}

func (a *app) cardFarhand(_ context.Context, f flashFlags, s *preseed.Settings) error {
	c := &s.Farhand
	c.Name, c.Roots, c.Shell, c.OperatorSudo, c.WifiRescue, c.ForwardAllow = f.name, f.roots, f.shell, f.sudo, f.rescue, f.forward
	if f.sudo && !f.shell {
		return usage("--sudo is for commands: it needs --shell")
	}
	allowed, err := f.allowed()
	if err != nil {
		return err
	}
	if f.capability != nil {
		c.Capabilities = []string{}
		for _, one := range allowed {
			c.Capabilities = append(c.Capabilities, string(one))
		}
	}
	for _, b := range f.on {
		name, value, _ := strings.Cut(b, "=")
		if _, ok := hardware.Find(name); !ok || value != "" && value != "on" && value != "off" {
			return usage("--bus %s: no such bus; there are %s", b, busNames())
		}
		if c.Buses == nil {
			c.Buses = make(map[string]bool)
		}
		c.Buses[name] = value != "off"
	}
	if err := a.cardRelay(c); err != nil {
		return err
	}
	c.RescuePassphrase, err = rescuePassphrase()
	return err
}

func busNames() string {
	var names []string
	for _, b := range hardware.Buses() {
		names = append(names, b.Name)
	}
	return strings.Join(names, ", ")
}

// cardRelay is the relay that a card is for: the one signed in to or named.
func (a *app) cardRelay(c *preseed.Farhand) error {
	l, err := a.who()
	if errors.Is(err, errNotLoggedIn) {
		l = login{URL: first(a.relay, a.env.Getenv("FARHAND_URL")), CASHA256: a.env.Getenv("FARHAND_CA_SHA256")}
	} else if err != nil {
		return err
	}
	if l.URL == "" {
		return nil // the image's own
	}
	u, err := client.ParseURL(l.URL)
	if err != nil {
		return usage("%v", err)
	}
	if u.Scheme != "https" {
		return usage("a card can't reach a relay at %s: give the address that it has for others, --relay https://HOST", u.Redacted())
	}
	if client.IsLoopback(u.Hostname()) {
		a.note("%s is this machine to itself; the card will look for a relay on its own.", u.Host)
	}
	c.Relay, c.CASHA256 = u.String(), l.CASHA256
	return nil
}

// rescuePassphrase makes one of letters and digits that can't be taken for one
// another: 58 bits.
func rescuePassphrase() (string, error) {
	const letters = "abcdefghjkmnpqrstuvwxyz23456789"
	b := make([]byte, preseed.RescueLength)
	for i := range b {
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(letters))))
		if err != nil {
			return "", fmt.Errorf("random numbers: %w", err)
		}
		b[i] = letters[n.Int64()]
	}
	return string(b), nil
}
