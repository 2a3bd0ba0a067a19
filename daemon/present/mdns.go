package present

import (
	"context"
	"fmt"

	"github.com/godbus/dbus/v5"
)

// systemBus is where the D-Bus Specification, "Well-known Message Bus
// Instances", has the system's bus.
const systemBus = "unix:path=/run/dbus/system_bus_socket"

// MDNSName is the name under which systemd-resolved really answers in the local
// network, with .local: the host name, or what it became after another machine
// had the same. (org.freedesktop.resolve1(5): LLMNRHostname follows the host
// name "but may differ if a conflict is detected"; resolved keeps its mDNS name
// as the same label.) bus is a D-Bus address; empty: the system's.
func MDNSName(ctx context.Context, bus string) (string, error) {
	if bus == "" {
		bus = systemBus
	}
	conn, err := dbus.Dial(bus, dbus.WithContext(ctx))
	if err != nil {
		return "", fmt.Errorf("D-Bus: %w", err)
	}
	defer conn.Close()
	if err := conn.Auth(nil); err != nil {
		return "", fmt.Errorf("D-Bus: %w", err)
	}
	if err := conn.Hello(); err != nil {
		return "", fmt.Errorf("D-Bus: %w", err)
	}
	var value dbus.Variant
	resolved := conn.Object("org.freedesktop.resolve1", "/org/freedesktop/resolve1")
	err = resolved.CallWithContext(ctx, "org.freedesktop.DBus.Properties.Get", dbus.FlagNoAutoStart, "org.freedesktop.resolve1.Manager", "LLMNRHostname").Store(&value)
	if err != nil {
		return "", fmt.Errorf("ask systemd-resolved for its name: %w", err)
	}
	name, ok := value.Value().(string)
	if !ok || name == "" {
		return "", fmt.Errorf("systemd-resolved has no name")
	}
	return name + ".local", nil
}
