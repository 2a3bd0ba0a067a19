package iwd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"farhand/internal/sorted"
	"farhand/provision/rescue"

	"github.com/godbus/dbus/v5"
)

// Names of iwd on D-Bus.
const (
	service     = "net.connman.iwd"
	adapter     = service + ".Adapter"
	deviceIface = service + ".Device"
	station     = service + ".Station"
	accessPoint = service + ".AccessPoint"
	network     = service + ".Network"

	getObjects  = "org.freedesktop.DBus.ObjectManager.GetManagedObjects"
	setProperty = "org.freedesktop.DBus.Properties.Set"
)

// objects are all that iwd has: by path, interface and property.
type objects map[dbus.ObjectPath]map[string]map[string]dbus.Variant

// device is a Wi-Fi device as it was when it was looked at.
type device struct {
	path dbus.ObjectPath
	all  objects
}

func (d device) props(iface string) map[string]dbus.Variant { return d.all[d.path][iface] }

func (d device) name() string {
	s, _ := d.props(deviceIface)["Name"].Value().(string)
	return s
}

func (d device) mode() string {
	s, _ := d.props(deviceIface)["Mode"].Value().(string)
	return s
}

func (d device) powered() bool {
	b, _ := d.props(deviceIface)["Powered"].Value().(bool)
	return b
}

// radio is the path and the properties of the hardware that the device is on.
func (d device) radio() (dbus.ObjectPath, map[string]dbus.Variant) {
	path, _ := d.props(deviceIface)["Adapter"].Value().(dbus.ObjectPath)
	return path, d.all[path][adapter]
}

// session is a connection to the bus for one call of Radio.
type session struct {
	conn *dbus.Conn
}

func (s *session) call(ctx context.Context, path dbus.ObjectPath, method string, args ...any) error {
	// iwd isn't started by being asked: a board without a radio has none.
	c := s.conn.Object(service, path).CallWithContext(ctx, method, dbus.FlagNoAutoStart, args...)
	if c.Err != nil {
		return explain(method, c.Err)
	}
	return nil
}

func (s *session) set(ctx context.Context, path dbus.ObjectPath, iface, property string, value any) error {
	c := s.conn.Object(service, path).CallWithContext(ctx, setProperty, dbus.FlagNoAutoStart, iface, property, dbus.MakeVariant(value))
	if c.Err != nil {
		return explain("set "+property, c.Err)
	}
	return nil
}

func (s *session) objects(ctx context.Context) (objects, error) {
	var all objects
	err := s.conn.Object(service, "/").CallWithContext(ctx, getObjects, dbus.FlagNoAutoStart).Store(&all)
	if err != nil {
		return nil, explain("list devices", err)
	}
	return all, nil
}

// find is the first device, by name, whose radio can be an access point.
func (s *session) find(ctx context.Context) (device, error) {
	all, err := s.objects(ctx)
	if err != nil {
		return device{}, err
	}
	var devices []device
	for path, interfaces := range all {
		if _, ok := interfaces[deviceIface]; ok {
			devices = append(devices, device{path, all})
		}
	}
	if len(devices) == 0 {
		return device{}, rescue.ErrNoRadio
	}
	sorted.By(devices, func(a, b device) int { return cmp.Compare(a.name(), b.name()) })
	for _, d := range devices {
		_, radio := d.radio()
		if modes, _ := radio["SupportedModes"].Value().([]string); slices.Contains(modes, "ap") {
			return d, nil
		}
	}
	return device{}, fmt.Errorf("the Wi-Fi radio of %s can't be an access point", devices[0].name())
}

// device is find's, switched on: a radio whose country isn't known is blocked
// until somebody unblocks it, and without a country it may send on the channels
// that are free everywhere.
func (s *session) device(ctx context.Context) (device, error) {
	d, err := s.find(ctx)
	if err != nil {
		return device{}, err
	}
	path, radio := d.radio()
	if on, _ := radio["Powered"].Value().(bool); !on {
		if err := s.set(ctx, path, adapter, "Powered", true); err != nil {
			return device{}, fmt.Errorf("unblock the radio of %s: %w", d.name(), err)
		}
	}
	if !d.powered() {
		if err := s.set(ctx, d.path, deviceIface, "Powered", true); err != nil {
			return device{}, fmt.Errorf("switch on %s: %w", d.name(), err)
		}
	}
	return d, nil
}

// mode makes d a station or an access point, and waits until it is one.
func (s *session) mode(ctx context.Context, d *device, mode string) error {
	iface := station
	if mode == "ap" {
		iface = accessPoint
	}
	if d.mode() != mode {
		if err := s.set(ctx, d.path, deviceIface, "Mode", mode); err != nil {
			return err
		}
	}
	err := until(ctx, func() (bool, error) {
		all, err := s.objects(ctx)
		if err != nil {
			return false, err
		}
		d.all = all
		return d.mode() == mode && d.props(iface) != nil, nil
	})
	if err != nil {
		return fmt.Errorf("make %s a device of mode %q: %w", d.name(), mode, err)
	}
	return nil
}

// scan looks around.
func (s *session) scan(ctx context.Context, d device) ([]rescue.Network, error) {
	if err := s.call(ctx, d.path, station+".Scan"); err != nil && !busy(err) {
		return nil, err
	}
	err := until(ctx, func() (bool, error) {
		all, err := s.objects(ctx)
		if err != nil {
			return false, err
		}
		d.all = all
		scanning, _ := d.props(station)["Scanning"].Value().(bool)
		return !scanning, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait for the scan: %w", err)
	}
	var ordered []struct {
		Path   dbus.ObjectPath
		Signal int16 // hundredths of a dBm
	}
	err = s.conn.Object(service, d.path).CallWithContext(ctx, station+".GetOrderedNetworks", dbus.FlagNoAutoStart).Store(&ordered)
	if err != nil {
		return nil, explain("list networks", err)
	}
	var found []rescue.Network
	for _, o := range ordered {
		props := d.all[o.Path][network]
		name, _ := props["Name"].Value().(string)
		// The others need more than a password, or are of a kind that isn't
		// joined any more.
		kind, _ := props["Type"].Value().(string)
		if name != "" && (kind == "psk" || kind == "open") {
			found = append(found, rescue.Network{SSID: []byte(name), Signal: int(o.Signal) / 100, Open: kind == "open"})
		}
	}
	return found, nil
}

// busy says that what was asked for is going on already.
func busy(err error) bool {
	var failure dbus.Error
	return errors.As(err, &failure) && (failure.Name == service+".Busy" || failure.Name == service+".InProgress")
}
