package front

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
	"farhand/provision/request"
	"farhand/provision/rescue"
)

// radio is a radio and a page in one.
type radio struct {
	mu    sync.Mutex
	up    bool
	reach bool
}

func (r *radio) set(up bool) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.up = up
	return nil
}

func (r *radio) Scan(context.Context) ([]rescue.Network, error)  { return nil, nil }
func (r *radio) Raise(context.Context, rescue.AccessPoint) error { return r.set(true) }
func (r *radio) Lower(context.Context) error                     { return r.set(false) }
func (r *radio) Joined(context.Context) (bool, error)            { return r.reach, nil }
func (r *radio) Open(context.Context, rescue.Visit) error        { return nil }
func (r *radio) Close() error                                    { return nil }

func start(t *testing.T, change func(*Config)) (*Front, func() string) {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"sys/class/tty/console/active": "ttyS0\n", "dev/ttyS0": ""} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	r := &radio{}
	cfg := Config{
		Root: root, Radio: r, Portal: r,
		Check:       func(context.Context) error { return nil },
		AccessPoint: rescue.AccessPoint{SSID: "farhand-1a2b3c4d", Passphrase: "bcdfghjkmnpq"},
		Wifi:        func() request.WifiFacts { return request.WifiFacts{State: request.WifiNoCountry} },
	}
	change(&cfg)
	f := New(cfg)
	t.Cleanup(func() { f.Close() })
	synctest.Wait()
	return f, func() string {
		t.Helper()
		path := filepath.Join(root, "dev/ttyS0")
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, 0); err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
}

func bubble(t *testing.T, change func(*Config), do func(t *testing.T, f *Front, serial func() string)) {
	synctest.Test(t, func(t *testing.T) {
		f, serial := start(t, change)
		do(t, f, serial)
	})
}

func (f *Front) shows(t *testing.T, want bool, texts ...string) {
	t.Helper()
	synctest.Wait()
	page := strings.Join(strings.Fields(string(f.Page(time.Now()).Text())), " ")
	for _, text := range texts {
		if strings.Contains(page, text) != want {
			t.Errorf("%q is shown: %t; the page is\n%s", text, !want, page)
		}
	}
}

// From the first power-on without any network to a paired machine.
func TestFirstDay(t *testing.T) {
	bubble(t, func(*Config) {}, func(t *testing.T, f *Front, serial func() string) {
		f.shows(t, true, "Starting.")
		f.ShowStatus(request.Status{State: "connecting", Name: "farhand-1a2b3c4d"})
		f.Offline(request.Offline{Since: time.Now()})
		f.shows(t, true, "No network", "may not send before its country is known")
		if !f.Busy() {
			t.Error("not busy, though a rescue network is due soon")
		}
		faketime.Advance(rescue.Patience)
		f.shows(t, true, "farhand-1a2b3c4d", "bcdfghjkmnpq", "http://10.42.0.1/")
		faketime.Advance(time.Minute)
		if text := serial(); !strings.Contains(text, "bcdfghjkmnpq") {
			t.Errorf("the serial console shows %q", text)
		}
		f.Offline(request.Offline{Since: time.Now(), KnownNetwork: true}) // a cable
		f.shows(t, false, "bcdfghjkmnpq", "No network, ")
		f.Online()
		p := request.Pairing{VerificationURI: "https://relay.example.com/device", UserCode: "BCDF-GHJK", ExpiresAt: time.Now().Add(time.Hour)}
		f.ShowPairing(p)
		f.shows(t, true, "BCDF-GHJK")
		f.shows(t, false, "No network")
		if !f.Busy() {
			t.Error("not busy, though a code is repeated")
		}
		f.Paired()
		f.ShowStatus(request.Status{State: "connected", Name: "Bench", Relay: "https://relay.example.com"})
		f.shows(t, true, "Bench", "Connected to relay.example.com")
		if f.Busy() {
			t.Error("busy with a connected machine")
		}
		f.SetProblems([]string{"The data partition can't be written."})
		f.shows(t, true, "The data partition can't be written.")
		// It has an owner, who didn't ask for a rescue network.
		f.Offline(request.Offline{Since: time.Now()})
		faketime.Advance(time.Hour)
		f.shows(t, false, "bcdfghjkmnpq")
	})
}

// A Wi-Fi that leads nowhere can be exchanged for another, as long as nobody has
// paired the machine and no cable leads anywhere else.
func TestWifiThatLeadsNowhere(t *testing.T) {
	stuck := func(f *Front, o request.Offline, d time.Duration) {
		for end := time.Now().Add(d); time.Now().Before(end); faketime.Advance(30 * time.Second) {
			o.Since = time.Now().Add(-time.Hour) // by a clock that was wrong
			f.Offline(o)
		}
	}
	wifi, cable := request.Offline{KnownNetwork: true, Wireless: true}, request.Offline{KnownNetwork: true}
	bubble(t, func(*Config) {}, func(t *testing.T, f *Front, _ func() string) {
		f.ShowStatus(request.Status{State: "pairing", Detail: "trying again: another certificate", Addresses: []string{"192.0.2.7"}})
		stuck(f, wifi, rescue.Nowhere-time.Minute)
		f.shows(t, false, rescue.URL())
		f.Online()
		stuck(f, wifi, rescue.Nowhere-time.Minute) // it counts anew
		f.shows(t, false, rescue.URL())
		stuck(f, wifi, rescue.Patience+4*time.Minute)
		f.shows(t, true, rescue.URL())
		f.Online()
		synctest.Wait()
		f.shows(t, false, rescue.URL())
		stuck(f, cable, 2*rescue.Nowhere)
		f.shows(t, false, rescue.URL())
	})
	bubble(t, func(c *Config) { c.Paired, c.Always = true, true }, func(t *testing.T, f *Front, _ func() string) {
		f.ShowStatus(request.Status{State: "offline", Addresses: []string{"192.0.2.7"}})
		stuck(f, wifi, 2*rescue.Nowhere) // what runs on it needs it
		f.shows(t, false, rescue.URL())
	})
}

func TestOwnerWantsTheRescueNetwork(t *testing.T) {
	bubble(t, func(c *Config) { c.Paired, c.Always = true, true }, func(t *testing.T, f *Front, _ func() string) {
		f.Paired()
		f.Offline(request.Offline{Since: time.Now()})
		faketime.Advance(rescue.Patience)
		f.shows(t, true, "bcdfghjkmnpq")
	})
}

// A code that was pending before a reboot is shown at once; that there is no
// network to approve it by, too.
func TestPendingCodeWithoutNetwork(t *testing.T) {
	bubble(t, func(*Config) {}, func(t *testing.T, f *Front, _ func() string) {
		f.ShowPairing(request.Pairing{VerificationURI: "https://r.example/device", UserCode: "BCDF-GHJK"})
		f.Offline(request.Offline{Since: time.Now()})
		f.shows(t, true, "BCDF-GHJK", "No network")
		faketime.Advance(rescue.Patience)
		f.shows(t, true, "BCDF-GHJK", "bcdfghjkmnpq")
	})
}

func TestWhatKeepsItFromRunningIsShown(t *testing.T) {
	bubble(t, func(c *Config) {
		c.Check = func(context.Context) error { return errors.New("dnsmasq (pid 7) holds UDP port 53") }
	}, func(t *testing.T, f *Front, _ func() string) {
		f.Offline(request.Offline{Since: time.Now()})
		faketime.Advance(rescue.Patience)
		f.shows(t, true, "dnsmasq (pid 7) holds UDP port 53")
	})
}

func TestWithoutARadio(t *testing.T) {
	bubble(t, func(c *Config) { c.Radio = nil }, func(t *testing.T, f *Front, _ func() string) {
		f.Offline(request.Offline{Since: time.Now()})
		f.Online()
		f.Paired()
		faketime.Advance(time.Hour)
		f.shows(t, false, "bcdfghjkmnpq")
		if f.Busy() {
			t.Error("busy with nothing")
		}
	})
}
