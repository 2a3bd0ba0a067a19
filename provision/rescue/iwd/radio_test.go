package iwd

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"farhand/internal/leak"
	"farhand/provision/rescue"

	"github.com/godbus/dbus/v5"
)

func ap() rescue.AccessPoint {
	return rescue.AccessPoint{SSID: "farhand-1a2b3c4d", Passphrase: "bcdfghjkmnpq"}
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// The life of a rescue network against an iwd: blocked radio, scan, access
// point, station again.
func TestRadio(t *testing.T) {
	address := bus(t)
	f := start(t, address)
	leak.Check(t)
	r := Radio{Bus: address, HasAddress: func(iface string, a netip.Addr) bool {
		return iface == "wlan0" && a == rescue.Address()
	}}
	ctx := within(t, time.Minute)

	networks, err := r.Scan(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if len(networks) != 2 || string(networks[0].SSID) != "Workshop" || networks[0].Signal != -40 || networks[0].Open ||
		string(networks[1].SSID) != "Guests" || !networks[1].Open {
		t.Errorf("networks %v", networks)
	}
	if got := f.done(); got != "adapter Powered, device Powered true, scan" {
		t.Errorf("scanning did: %s", got)
	}

	if err := r.Raise(ctx, ap()); err != nil {
		t.Fatal(err)
	}
	if got := f.done(); got != "device Mode ap, start farhand-1a2b3c4d bcdfghjkmnpq" {
		t.Errorf("raising did: %s", got)
	}
	// Another process's access point is replaced: its passphrase may be another.
	if err := r.Raise(ctx, ap()); err != nil {
		t.Fatal(err)
	}
	if got := f.done(); got != "stop, start farhand-1a2b3c4d bcdfghjkmnpq" {
		t.Errorf("raising again did: %s", got)
	}
	if joined, err := r.Joined(ctx); err != nil || joined {
		t.Errorf("joined %t, %v as an access point", joined, err)
	}

	for range 2 {
		if err := r.Lower(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if got := f.done(); got != "device Mode station" {
		t.Errorf("lowering did: %s", got)
	}
	f.mu.Lock()
	f.all[wlan][station]["State"] = dbus.MakeVariant("connected")
	f.mu.Unlock()
	if joined, err := r.Joined(ctx); err != nil || !joined {
		t.Errorf("joined %t, %v", joined, err)
	}
}

func TestScanThatIsGoingOn(t *testing.T) {
	address := bus(t)
	f := start(t, address)
	f.mu.Lock()
	f.scanning = 5
	f.mu.Unlock()
	networks, err := Radio{Bus: address}.Scan(within(t, time.Minute))
	if err != nil || len(networks) != 2 {
		t.Errorf("%v, %v", networks, err)
	}
}

func TestNoRadio(t *testing.T) {
	address := bus(t)
	ctx := within(t, time.Minute)
	r := Radio{Bus: address}
	// There is no iwd, and none is started.
	if _, err := r.Scan(ctx); !errors.Is(err, rescue.ErrNoRadio) || !strings.Contains(err.Error(), "iwd doesn't run") {
		t.Errorf("%v", err)
	}
	f := start(t, address)
	f.mu.Lock()
	delete(f.all, wlan)
	f.mu.Unlock()
	for what, err := range map[string]error{"raise": r.Raise(ctx, ap()), "lower": r.Lower(ctx)} {
		if !errors.Is(err, rescue.ErrNoRadio) {
			t.Errorf("%s without a device: %v", what, err)
		}
	}
}

func TestRadioThatCantBeAnAccessPoint(t *testing.T) {
	address := bus(t)
	f := start(t, address)
	f.mu.Lock()
	f.all[phy][adapter]["SupportedModes"] = dbus.MakeVariant([]string{"station"})
	f.mu.Unlock()
	err := Radio{Bus: address}.Raise(within(t, time.Minute), ap())
	if err == nil || !strings.Contains(err.Error(), "wlan0 can't be an access point") {
		t.Errorf("%v", err)
	}
}

func TestWhatIwdRefusesIsSaid(t *testing.T) {
	address := bus(t)
	f := start(t, address)
	f.mu.Lock()
	f.failWith = dbus.NewError(service+".NotSupported", nil)
	f.mu.Unlock()
	err := Radio{Bus: address}.Raise(within(t, time.Minute), ap())
	if err == nil || !strings.Contains(err.Error(), "net.connman.iwd.NotSupported") {
		t.Errorf("%v", err)
	}
}

// An access point whose clients would get no address is none.
func TestNoAddress(t *testing.T) {
	address := bus(t)
	start(t, address)
	ctx := within(t, time.Second)
	err := Radio{Bus: address}.Raise(ctx, ap())
	if err == nil || !strings.Contains(err.Error(), rescue.NetworkFileName) {
		t.Errorf("%v", err)
	}
}

// A bus that is gone, or a name that isn't answered for, ends with the context.
func TestNobodyAnswers(t *testing.T) {
	if err := (Radio{Bus: "unix:path=/nonexistent/bus"}).Lower(within(t, time.Minute)); err == nil {
		t.Error("no bus, no error")
	}
	address := bus(t)
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	hold := make(chan struct{})
	defer close(hold)
	silent := map[string]any{"GetManagedObjects": func() (objects, *dbus.Error) { <-hold; return nil, nil }}
	if err := conn.ExportMethodTable(silent, "/", "org.freedesktop.DBus.ObjectManager"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.RequestName(service, dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	if _, err := (Radio{Bus: address}).Joined(within(t, 300*time.Millisecond)); err == nil {
		t.Error("nobody answered, no error")
	}
}
