package iwd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"farhand/provision/rescue"

	"github.com/godbus/dbus/v5"
)

// poll is how often iwd is asked whether it has got somewhere.
const poll = 200 * time.Millisecond

// addressLimit is how long systemd-networkd may take.
const addressLimit = 20 * time.Second

// Radio is a rescue.Radio: the first Wi-Fi device, by name, that can be an
// access point.
type Radio struct {
	// Bus is the address of the D-Bus on which iwd is; empty: the system's.
	Bus string
	// HasAddress says whether an interface has an address; nil asks the kernel.
	HasAddress func(iface string, a netip.Addr) bool
}

var _ rescue.Radio = Radio{}

// Scan is part of rescue.Radio.
func (r Radio) Scan(ctx context.Context) (found []rescue.Network, err error) {
	err = r.with(ctx, func(s *session) error {
		d, err := s.device(ctx)
		if err != nil {
			return err
		}
		if err := s.mode(ctx, &d, "station"); err != nil {
			return err
		}
		found, err = s.scan(ctx, d)
		return err
	})
	return found, err
}

// Raise is part of rescue.Radio.
func (r Radio) Raise(ctx context.Context, ap rescue.AccessPoint) error {
	return r.with(ctx, func(s *session) error {
		d, err := s.device(ctx)
		if err != nil {
			return err
		}
		if err := s.mode(ctx, &d, "ap"); err != nil {
			return err
		}
		if started, _ := d.props(accessPoint)["Started"].Value().(bool); started {
			if err := s.call(ctx, d.path, accessPoint+".Stop"); err != nil {
				return err
			}
		}
		if err := s.call(ctx, d.path, accessPoint+".Start", ap.SSID, ap.Passphrase); err != nil {
			return err
		}
		return r.address(ctx, d.name())
	})
}

// address waits until iface has the rescue network's address.
func (r Radio) address(ctx context.Context, iface string) error {
	has := r.HasAddress
	if has == nil {
		has = hasAddress
	}
	ctx, cancel := context.WithTimeout(ctx, addressLimit)
	defer cancel()
	if err := until(ctx, func() (bool, error) { return has(iface, rescue.Address()), nil }); err != nil {
		return fmt.Errorf("%s is an access point, but systemd-networkd gives it no address (%s): %w", iface, rescue.NetworkFileName, err)
	}
	return nil
}

func hasAddress(iface string, a netip.Addr) bool {
	i, err := net.InterfaceByName(iface)
	if err != nil {
		return false
	}
	addrs, err := i.Addrs()
	return err == nil && slices.ContainsFunc(addrs, func(has net.Addr) bool {
		p, err := netip.ParsePrefix(has.String())
		return err == nil && p.Addr().Unmap() == a
	})
}

// Lower is part of rescue.Radio.
func (r Radio) Lower(ctx context.Context) error {
	return r.with(ctx, func(s *session) error {
		d, err := s.find(ctx)
		if err != nil || d.mode() != "ap" {
			return err
		}
		return s.mode(ctx, &d, "station")
	})
}

// Joined is part of rescue.Radio.
func (r Radio) Joined(ctx context.Context) (joined bool, err error) {
	err = r.with(ctx, func(s *session) error {
		d, err := s.find(ctx)
		if err != nil {
			return err
		}
		state, _ := d.props(station)["State"].Value().(string)
		joined = state == "connected"
		return nil
	})
	return joined, err
}

// with runs f with a connection of its own: calls are minutes apart, and neither
// iwd nor the bus may be the same by then.
func (r Radio) with(ctx context.Context, f func(*session) error) error {
	var conn *dbus.Conn
	var err error
	if r.Bus == "" {
		conn, err = dbus.ConnectSystemBus(dbus.WithContext(ctx))
	} else {
		conn, err = dbus.Connect(r.Bus, dbus.WithContext(ctx))
	}
	if err != nil {
		return fmt.Errorf("connect to D-Bus: %w", err)
	}
	defer conn.Close()
	return f(&session{conn})
}

// until asks done again and again until it says so, it fails, or ctx ends.
func until(ctx context.Context, done func() (bool, error)) error {
	tick := time.NewTicker(poll)
	defer tick.Stop()
	for {
		if ok, err := done(); err != nil || ok {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// explain makes an error of D-Bus one for people.
func explain(what string, err error) error {
	var failure dbus.Error
	if errors.As(err, &failure) {
		switch failure.Name {
		case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner":
			return fmt.Errorf("iwd doesn't run: %w", rescue.ErrNoRadio)
		}
		return fmt.Errorf("iwd: %s: %s: %w", what, failure.Name, err)
	}
	return fmt.Errorf("iwd: %s: %w", what, err)
}
