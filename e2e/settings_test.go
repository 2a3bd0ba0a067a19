package e2e

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"farhand/provision"
	"farhand/provision/fat"
	"farhand/provision/serve"
	"farhand/wire"
)

// provisioned has the helper with root's rights beside the daemon, on a machine in a
// directory. It returns that directory.
func (b *bench) provisioned() string {
	b.t.Helper()
	root, card := filepath.Join(b.dir, "appliance"), filepath.Join(b.dir, "card")
	for name, text := range map[string]string{
		"/appliance/etc/passwd":                       "root:x:0:0::/root:/bin/bash\n",
		"/appliance/etc/group":                        "root:x:0:\n",
		"/appliance/etc/machine-id":                   "0123456789abcdef0123456789abcdef\n",
		"/appliance/usr/share/zoneinfo/Europe/Berlin": "TZif",
		"/appliance/proc/device-tree/serial-number":   "10000000abcd12ef\x00",
		"/appliance/var/lib/iwd/.keep":                "",
		"/appliance/data/.keep":                       "",
		"/appliance/run/.keep":                        "",
		"/card/rpi-preseed.toml":                      "[user]\nname = \"ada\"\n[wlan]\nssid = \"net\"\npassword = \"correct horse\"\ncountry = \"DE\"\n",
	} {
		path := filepath.Join(b.dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			b.t.Fatal(err)
		}
		b.write(path, text)
	}
	log := slog.New(slog.DiscardHandler)
	s := provision.Open(log) // for the kernel's clock
	s.Root, s.Card, s.Slot = root, &fat.Directory{Path: card}, nil
	s.Chown = func(string, int, int) error { return nil }
	s.Run = func(_ context.Context, name string, args ...string) error {
		if name != "ssh-keygen" {
			return nil
		}
		path := args[len(args)-1]
		return errors.Join(os.WriteFile(path, []byte("private"), 0o600), os.WriteFile(path+".pub", []byte("public"), 0o644))
	}
	s.SetHostname = func(string) error { return nil }
	if _, err := s.Boot(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
	srv, err := provision.NewServer(s, nil)
	if err != nil {
		b.t.Fatal(err)
	}
	path := filepath.Join(b.dir, "provision.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() {
		served <- serve.Run(ctx, l, serve.Options{Handler: srv, Users: []uint32{uint32(os.Getuid())}, Log: log})
	}()
	b.t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-served, srv.Close()); err != nil {
			b.t.Error(err)
		}
	})
	b.config = append(b.config, `provision_socket = "`+path+`"`)
	return root
}

// The owner changes an appliance from afar; nobody else can.
func TestSettings(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	root := b.provisioned()
	b.claim("files")
	s := parse[wire.Settings](t, b.owner.must("settings", "--json"))
	if s.Hostname != "farhand-cd12ef" || len(s.Wifi.Networks) != 1 || s.Wifi.Networks[0].SSID != "net" || s.SSH.Enabled {
		t.Errorf("%+v", s)
	}
	if text := b.owner.must("settings", "bench"); !strings.Contains(text, "farhand-cd12ef") || strings.Contains(text, "horse") {
		t.Errorf("it says %s", text)
	}

	key := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f ada@desk"
	b.write(filepath.Join(b.here(), "key.pub"), key+"\n")
	b.write(filepath.Join(b.here(), "wifi.txt"), "battery staple\n")
	s = parse[wire.Settings](t, b.owner.must("--json", "settings", "bench", "--hostname", "shed", "--timezone", "Europe/Berlin", "--ssh", "--ssh-key", "key.pub"))
	if s.Hostname != "shed" || s.Timezone != "Europe/Berlin" || !s.SSH.Enabled || len(s.SSH.Keys) != 1 {
		t.Errorf("%+v", s)
	}
	if got := string(b.read(filepath.Join(root, "run/farhand/hostname"))); got != "shed\n" {
		t.Errorf("the host name is %q", got)
	}
	// The relay is on this machine, so it is reached whatever the networks are.
	s = parse[wire.Settings](t, b.owner.must("--json", "settings", "bench", "--wifi", "new", "--wifi-password-file", "wifi.txt", "--forget-wifi", "net"))
	if s.Wifi.Pending || s.Wifi.LastChange != wire.WifiKept || len(s.Wifi.Networks) != 1 || s.Wifi.Networks[0].SSID != "new" {
		t.Errorf("%+v", s.Wifi)
	}
	if got := string(b.read(filepath.Join(root, "var/lib/iwd/new.psk"))); !strings.Contains(got, "battery staple") {
		t.Errorf("iwd knows %q", got)
	}

	e := b.owner.fails(1, wire.InvalidArgument, "settings", "bench", "--hostname", "no_name")
	if e.Details["field"] != "hostname" {
		t.Errorf("%+v", e)
	}
	agent := b.with(b.newToken("agent"))
	agent.fails(77, "LOGIN_REQUIRED", "settings", "bench")
	agent.fails(77, "LOGIN_REQUIRED", "settings", "bench", "--ssh=false")

	// What was changed is on the record, and to what is nowhere.
	i := slices.IndexFunc(b.records(), func(r record) bool { return r.Op == "SETTINGS_SET" && r.Details["phase"] == "intent" })
	if i < 0 {
		t.Fatal("not on the record")
	}
	if r := b.records()[i]; !slices.Equal(r.Details["fields"].([]any), []any{"hostname", "timezone", "ssh_enabled", "ssh_add"}) || r.Details["holder"] == "" {
		t.Errorf("%+v", r)
	}
	for name, text := range map[string]string{
		"the record": string(b.read(filepath.Join(b.stateDir(), "audit.log"))), "the daemon's log": b.daemon.out.String(), "the relay's log": b.relay.out.String(),
	} {
		for _, secret := range []string{"battery", "staple", "AAAAC3NzaC1lZDI1NTE5"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s has a value", name)
			}
		}
	}
	b.wholeAudit()
}

// A machine that is no appliance says so.
func TestSettingsOfAnOrdinaryMachine(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.config = append(b.config, `provision_socket = "`+filepath.Join(b.dir, "none.sock")+`"`)
	b.claim("files")
	b.owner.fails(1, wire.FeatureNotSupported, "settings", "bench")
}
