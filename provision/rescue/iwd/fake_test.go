package iwd

import (
	"bufio"
	"maps"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"farhand/internal/testenv"

	"github.com/godbus/dbus/v5"
)

// bus starts a D-Bus of its own and is its address.
func bus(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("dbus-daemon")
	testenv.Need(t, "dbus", err == nil, "apt install dbus-daemon")
	cmd := exec.Command(path, "--session", "--nofork", "--nopidfile", "--print-address=1",
		"--address=unix:path="+filepath.Join(t.TempDir(), "bus"))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("dbus-daemon: %v", err)
	}
	return strings.TrimSpace(address)
}

const (
	phy  dbus.ObjectPath = "/net/connman/iwd/0"
	wlan dbus.ObjectPath = "/net/connman/iwd/0/3"
)

// fake answers on D-Bus as iwd does, as far as Radio asks.
type fake struct {
	mu       sync.Mutex
	all      objects
	ordered  []found
	scanning int // how often it still says that it scans
	calls    []string
	failWith *dbus.Error // of Start
}

type found struct {
	Path   dbus.ObjectPath
	Signal int16
}

// start puts an iwd with one device on the bus.
func start(t *testing.T, address string) *fake {
	t.Helper()
	v := dbus.MakeVariant
	f := &fake{all: objects{
		"/net/connman/iwd": {service + ".Daemon": {}},
		phy:                {adapter: {"Name": v("phy0"), "Powered": v(false), "SupportedModes": v([]string{"ad-hoc", "station", "ap"})}},
		wlan: {
			deviceIface: {"Name": v("wlan0"), "Mode": v("station"), "Powered": v(false), "Adapter": v(phy)},
			station:     {"State": v("disconnected"), "Scanning": v(false)},
		},
	}}
	for i, n := range []struct{ name, kind string }{{"Workshop", "psk"}, {"Office", "8021x"}, {"Guests", "open"}, {"Old", "wep"}} {
		path := wlan + dbus.ObjectPath("/"+n.name)
		f.all[path] = map[string]map[string]dbus.Variant{network: {"Name": v(n.name), "Type": v(n.kind), "Device": v(wlan)}}
		f.ordered = append(f.ordered, found{path, int16(-4000 - 1000*i)})
	}
	conn, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	for path, table := range map[dbus.ObjectPath]map[string]map[string]any{
		"/": {"org.freedesktop.DBus.ObjectManager": {"GetManagedObjects": f.managed}},
		phy: {"org.freedesktop.DBus.Properties": {"Set": f.setAdapter}},
		wlan: {
			"org.freedesktop.DBus.Properties": {"Set": f.setDevice},
			station:                           {"Scan": f.scan, "GetOrderedNetworks": f.networks},
			accessPoint:                       {"Start": f.startAP, "Stop": f.stopAP},
		},
	} {
		for iface, methods := range table {
			if err := conn.ExportMethodTable(methods, path, iface); err != nil {
				t.Fatal(err)
			}
		}
	}
	reply, err := conn.RequestName(service, dbus.NameFlagDoNotQueue)
	if err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		t.Fatalf("%v, %v", reply, err)
	}
	return f
}

func (f *fake) did(s string) { f.calls = append(f.calls, s) }

func (f *fake) managed() (objects, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.scanning > 0 {
		f.scanning--
	}
	if props := f.all[wlan][station]; props != nil {
		props["Scanning"] = dbus.MakeVariant(f.scanning > 0)
	}
	// What is sent is encoded later, by another goroutine.
	out := make(objects)
	for path, interfaces := range f.all {
		out[path] = make(map[string]map[string]dbus.Variant)
		for iface, props := range interfaces {
			out[path][iface] = maps.Clone(props)
		}
	}
	return out, nil
}

func (f *fake) setAdapter(_, property string, value dbus.Variant) *dbus.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.did("adapter " + property)
	f.all[phy][adapter][property] = value
	return nil
}

func (f *fake) setDevice(_, property string, value dbus.Variant) *dbus.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if on, _ := f.all[phy][adapter]["Powered"].Value().(bool); !on {
		return dbus.NewError(service+".NotAvailable", nil)
	}
	f.did("device " + property + " " + strings.Trim(value.String(), `"`))
	f.all[wlan][deviceIface][property] = value
	if property == "Mode" {
		delete(f.all[wlan], station)
		delete(f.all[wlan], accessPoint)
		if value.Value() == "ap" {
			f.all[wlan][accessPoint] = map[string]dbus.Variant{"Started": dbus.MakeVariant(false)}
		} else {
			f.all[wlan][station] = map[string]dbus.Variant{"State": dbus.MakeVariant("disconnected")}
		}
	}
	return nil
}

func (f *fake) scan() *dbus.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all[wlan][station] == nil {
		return dbus.NewError(service+".NotFound", nil)
	}
	if f.scanning > 0 {
		return dbus.NewError(service+".InProgress", nil)
	}
	f.did("scan")
	f.scanning = 2
	return nil
}

func (f *fake) networks() ([]found, *dbus.Error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.scanning > 0 {
		return nil, dbus.NewError(service+".Busy", nil)
	}
	return f.ordered, nil
}

func (f *fake) startAP(ssid, psk string) *dbus.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	props := f.all[wlan][accessPoint]
	if f.failWith != nil {
		return f.failWith
	}
	if props == nil {
		return dbus.NewError(service+".NotFound", nil)
	}
	if started, _ := props["Started"].Value().(bool); started {
		return dbus.NewError(service+".AlreadyExists", nil)
	}
	f.did("start " + ssid + " " + psk)
	props["Started"] = dbus.MakeVariant(true)
	return nil
}

func (f *fake) stopAP() *dbus.Error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.did("stop")
	f.all[wlan][accessPoint]["Started"] = dbus.MakeVariant(false)
	return nil
}

func (f *fake) done() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := strings.Join(f.calls, ", ")
	f.calls = nil
	return s
}
