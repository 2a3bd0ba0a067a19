package provision

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"farhand/provision/preseed"
	"farhand/provision/request"
	"farhand/wire"
)

func ptr[T any](v T) *T { return &v }

// changed changes settings, or fails the test.
func (m *machine) changed(srv *Server, c wire.SettingsChange) wire.Settings {
	m.t.Helper()
	s, err := srv.ChangeSettings(m.t.Context(), c)
	if err != nil {
		m.t.Fatal(err)
	}
	return s
}

// What isn't about networks takes effect at once, and at the next start.
func TestChangedSettings(t *testing.T) {
	m := withCard(t)
	m.boot()
	srv := m.server()
	config := m.file("/run/farhand/config.toml")
	s := m.changed(srv, wire.SettingsChange{
		Hostname: ptr("Shed"), Name: ptr("The shed"), Timezone: ptr("Europe/Berlin"), WifiRescue: ptr(true),
	})
	if s.Hostname != "shed" || s.Name != "The shed" || s.Timezone != "Europe/Berlin" || !s.Wifi.Rescue || s.Wifi.Pending {
		t.Errorf("%+v", s)
	}
	check := func() {
		t.Helper()
		if m.hostname != "shed" || m.file("/run/farhand/hostname") != "shed\n" {
			t.Errorf("the host name is %q", m.hostname)
		}
		if got := m.file("/run/farhand/config.toml"); !strings.Contains(got, `display_name = "The shed"`) {
			t.Errorf("the daemon's configuration is %s", got)
		}
	}
	check()
	lines := func(text string) (kept []string) {
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "display_name") {
				kept = append(kept, line)
			}
		}
		return kept
	}
	if d := cmp.Diff(lines(config), lines(m.file("/run/farhand/config.toml"))); d != "" {
		t.Errorf("more of the daemon's configuration is another one (-was +is):\n%s", d)
	}
	m.boot()
	check()
	if s := m.changed(m.server(), wire.SettingsChange{Hostname: ptr(""), Name: ptr(""), Timezone: ptr("")}); s.Hostname != "farhand-cd12ef" || s.Name != "" || s.Timezone != "" {
		t.Errorf("back to the defaults: %+v", s)
	}
}

func TestChangedSSH(t *testing.T) {
	m := withCard(t)
	m.boot()
	srv := m.server()
	s := m.changed(srv, wire.SettingsChange{SSHEnabled: ptr(true), SSHAdd: []string{goodKey}})
	if !s.SSH.Enabled || len(s.SSH.Keys) == 0 {
		t.Fatalf("%+v", s.SSH)
	}
	if !m.did("systemctl start --no-block ssh.service") || m.file(hostKey) != "private" {
		t.Errorf("the server doesn't run: %q", m.ran)
	}
	key := s.SSH.Keys[len(s.SSH.Keys)-1]
	if key.Type != "ssh-ed25519" || key.Comment != "ada@desk" || !strings.HasPrefix(key.Fingerprint, "SHA256:") {
		t.Errorf("%+v", key)
	}
	record := "/run/userdb/" + s.SSH.User + ".user-privileged"
	if !strings.Contains(m.file(record), goodKey) {
		t.Errorf("the key isn't there: %s", m.file(record))
	}
	m.ran = nil
	s = m.changed(srv, wire.SettingsChange{SSHEnabled: ptr(false), SSHRemove: []string{key.Fingerprint}})
	if s.SSH.Enabled || strings.Contains(m.file(record), goodKey) || !m.did("systemctl stop --no-block ssh.service") {
		t.Errorf("%+v, %q", s.SSH, m.ran)
	}
}

// A change of which anything is wrong changes nothing, and what is said of it has
// no secret in it.
func TestWrongChanges(t *testing.T) {
	m := withCard(t)
	m.boot()
	srv := m.server()
	before := m.snapshot()
	for name, c := range map[string]wire.SettingsChange{
		"hostname":    {Hostname: ptr("no_such name"), Name: ptr("x")},
		"name":        {Hostname: ptr("x"), Name: ptr("a\x00b")},
		"timezone":    {Timezone: ptr("Mars/Base")},
		"wifi_remove": {WifiRemove: []string{"nowhere"}, WifiAdd: []wire.NewWifi{{SSID: "x"}}},
		"wifi_add":    {WifiAdd: []wire.NewWifi{{SSID: "x", Password: "secret"}}},
		"ssh_add":     {SSHAdd: []string{`command="secret" ` + goodKey}},
		"ssh_remove":  {SSHRemove: []string{"SHA256:none"}},
	} {
		_, err := srv.ChangeSettings(t.Context(), c)
		if !errors.Is(err, request.Refused) || !strings.HasPrefix(err.Error(), name+": ") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if d := cmp.Diff(before, m.snapshot()); d != "" {
		t.Errorf("something was changed:\n%s", d)
	}
	plain := newMachine(t)
	plain.boot()
	if _, err := plain.server().ChangeSettings(t.Context(), wire.SettingsChange{SSHEnabled: ptr(true)}); !errors.Is(err, request.Refused) {
		t.Errorf("without a user: %v", err)
	}
}

// networked is a machine whose card has the network net.
func networked(t *testing.T) (*machine, *Server) {
	m := withCard(t)
	m.boot()
	return m, m.server()
}

func (m *machine) knows(name string) bool { return m.file("/var/lib/iwd/"+name+".psk") != "(none)" }

var shed = wire.SettingsChange{WifiRemove: []string{"net"}, WifiAdd: []wire.NewWifi{{SSID: "shed", Password: "battery staple"}}}

// Changed networks are put to use after the answer, and count for good once the
// relay was reached by an attempt that began after that.
func TestNetworksAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, srv := networked(t)
		s := m.changed(srv, shed)
		if !s.Wifi.Pending || len(s.Wifi.Networks) != 1 || s.Wifi.Networks[0].SSID != "shed" || !srv.Busy() {
			t.Errorf("%+v", s.Wifi)
		}
		if text, err := json.Marshal(s); err != nil || strings.Contains(string(text), "battery") {
			t.Errorf("%s, %v", text, err)
		}
		if !m.knows("net") || m.did("systemctl restart iwd.service") {
			t.Error("put to use before the answer")
		}
		began := m.clock.Uptime()
		if err := srv.KeepNetworks(t.Context(), request.Reached{Began: began}); !errors.Is(err, request.Unavailable) {
			t.Errorf("kept before it was tried: %v", err)
		}
		<-time.After(answerFirst)
		synctest.Wait()
		if m.knows("net") || !m.knows("shed") || !m.did("systemctl restart iwd.service") {
			t.Errorf("not put to use: %q", m.ran)
		}
		if err := srv.KeepNetworks(t.Context(), request.Reached{Began: began}); !errors.Is(err, request.Unavailable) {
			t.Errorf("kept by an attempt of before: %v", err)
		}
		if _, err := srv.ChangeSettings(t.Context(), shed); !errors.Is(err, request.Refused) {
			t.Errorf("another change in between: %v", err)
		}
		m.changed(srv, wire.SettingsChange{Name: ptr("other things go on")})
		if err := srv.KeepNetworks(t.Context(), request.Reached{Began: m.clock.Uptime()}); err != nil {
			t.Error(err)
		}
		<-time.After(2 * networkPatience)
		if s, _ := srv.Settings(t.Context()); s.Wifi.Pending || s.Wifi.LastChange != wire.WifiKept || !m.knows("shed") || m.stored().Before != nil {
			t.Errorf("%+v", s.Wifi)
		}
	})
}

// If the relay isn't reached the networks of before are back, also if the process,
// or the machine, was restarted meanwhile.
func TestNetworksArePutBack(t *testing.T) {
	for name, between := range map[string]func(*machine, *Server) *Server{
		"going on": func(_ *machine, srv *Server) *Server { return srv },
		"another process": func(m *machine, srv *Server) *Server {
			if err := srv.Close(); err != nil {
				m.t.Error(err)
			}
			return m.server()
		},
		"another start": func(m *machine, srv *Server) *Server {
			if err := srv.Close(); err != nil {
				m.t.Error(err)
			}
			m.boot()
			return m.server()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, srv := networked(t)
				c := shed
				c.WifiCountry = ptr("FR")
				m.changed(srv, c)
				<-time.After(answerFirst + time.Second)
				synctest.Wait()
				srv = between(m, srv)
				synctest.Wait()
				if !m.knows("shed") {
					t.Error("the new network isn't in use")
				}
				<-time.After(networkPatience)
				synctest.Wait()
				s, err := srv.Settings(t.Context())
				if err != nil || s.Wifi.Pending || s.Wifi.LastChange != wire.WifiRolledBack || s.Wifi.Country != "DE" || s.Wifi.Networks[0].SSID != "net" {
					t.Errorf("%+v, %v", s.Wifi, err)
				}
				if !m.knows("net") || m.knows("shed") || m.stored().Before != nil {
					t.Error("not put back")
				}
				if err := srv.KeepNetworks(t.Context(), request.Reached{Began: m.clock.Uptime()}); err != nil {
					t.Errorf("kept when it's over: %v", err)
				}
			})
		})
	}
}

// Who stands beside the machine and enters a network on the rescue network's page
// knows better than who changed them from afar.
func TestEnteredNetworkEndsTheAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, srv := networked(t)
		m.changed(srv, shed)
		if err := srv.apply(t.Context(), preseed.Wifi{SSID: []byte("seen"), Passphrase: "battery staple"}, "DE"); err != nil {
			t.Fatal(err)
		}
		<-time.After(2 * networkPatience)
		if s, err := srv.Settings(t.Context()); err != nil || s.Wifi.Pending || s.Wifi.Networks[0].SSID != "seen" {
			t.Errorf("%+v, %v", s.Wifi, err)
		}
	})
}

func FuzzChange(f *testing.F) {
	f.Add([]byte(`{"hostname":"x","wifi_country":"DE","wifi_add":[{"ssid":"0x00ff","password":"12345678"}],"ssh_add":["` + goodKey + `"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var c wire.SettingsChange
		if json.Unmarshal(b, &c) != nil {
			return
		}
		before := preseed.Settings{User: &preseed.User{Name: "ada"}}
		after, err := before.Changed(c)
		if err != nil {
			return
		}
		for _, w := range after.Networks() {
			if len(w.SSID) < 1 || len(w.SSID) > 32 || strings.ContainsAny(w.Passphrase, "\n\x00") {
				t.Errorf("%+v", w)
			}
		}
		for _, k := range after.SSH.AuthorizedKeys {
			if strings.ContainsAny(k, "\n\x00") || preseed.PublicKey(k).Fingerprint == "" {
				t.Errorf("%q", k)
			}
		}
	})
}
