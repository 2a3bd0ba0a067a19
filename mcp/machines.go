package mcp

import (
	"context"
	"fmt"
	"strings"

	"farhand/client"
	"farhand/wire"
)

func machineTools() []tool {
	return []tool{
		define("list_machines", "List machines",
			"Lists the machines that can be used: their names, which are online, and what is granted on each (files, shell, local_llm, hardware_gpio, …).",
			reads, "", listMachines),
		define("list_devices", "List devices",
			"Lists what is wired to a machine, read anew on it. The id is what the tools for gpio, i2c, spi, serial, usb and printer take as device; it stays the same when the device is replugged.",
			reads, wire.HardwareFamily, listDevices),
		define("release_device", "Release a device",
			"Gives back a device, or lines of a GPIO chip, that an earlier call kept (outputs, PWM, heaters above 0, hold). What becomes of outputs is what on_release said when they were set.",
			changes, wire.HardwareFamily, releaseDevice).idempotent(),
	}
}

type machinesFound struct {
	Machines []machineFound `json:"machines"`
}

type machineFound struct {
	Machine      string   `json:"machine" jsonschema:"its name, which the other tools take"`
	ID           string   `json:"machine_id"`
	Online       bool     `json:"online" jsonschema:"offline machines can't be used now"`
	Platform     string   `json:"platform,omitempty" jsonschema:"such as linux/arm64"`
	Board        string   `json:"board,omitempty"`
	LastSeen     string   `json:"last_seen,omitempty" jsonschema:"RFC 3339"`
	Granted      []string `json:"granted" jsonschema:"the capabilities that can be used on it"`
	Devices      int      `json:"devices" jsonschema:"how many devices it showed when it connected (list_devices)"`
	Roots        []string `json:"roots,omitempty" jsonschema:"directories whose files can be reached; the first is where relative paths begin"`
	NotAvailable string   `json:"not_available,omitempty" jsonschema:"why roots are missing"`
}

func listMachines(ctx context.Context, c *call, _ struct{}) (machinesFound, string, error) {
	out := machinesFound{Machines: []machineFound{}}
	who, err := c.client.Whoami(ctx)
	if err != nil {
		return out, "", err
	}
	all, err := c.client.Machines(ctx)
	if err != nil {
		return out, "", err
	}
	var text strings.Builder
	for _, m := range all {
		found := machineFound{Machine: m.Name, ID: m.ID, Online: m.Online, Board: m.Board, Granted: []string{}, Devices: len(m.Devices)}
		if m.Platform != "" {
			found.Platform = m.Platform + "/" + m.Arch
		}
		if !m.LastSeen.IsZero() {
			found.LastSeen = m.LastSeen.Format("2006-01-02T15:04:05Z07:00")
		}
		capabilities := granted(m, who.Ceiling)
		for _, one := range capabilities {
			found.Granted = append(found.Granted, string(one))
		}
		if m.Online && capabilities.Has(wire.Files) {
			found.roots(c.client.Roots(ctx, m.ID))
		}
		out.Machines = append(out.Machines, found)
		state := "offline"
		if m.Online {
			state = "online"
		}
		fmt.Fprintf(&text, "%s: %s, %s; granted: %s", m.Name, state, found.Platform, strings.Join(found.Granted, ", "))
		if len(found.Roots) > 0 {
			fmt.Fprintf(&text, "; roots: %s", strings.Join(found.Roots, ", "))
		}
		text.WriteByte('\n')
	}
	if len(all) == 0 {
		text.WriteString("No machine is paired, or none that this connection may use.\n")
	}
	return out, text.String(), nil
}

// roots notes what a machine offers.
func (m *machineFound) roots(list []client.Root, err error) {
	if err != nil {
		m.NotAvailable = err.Error()
		return
	}
	for _, r := range list {
		m.Roots = append(m.Roots, r.Path)
	}
}

type devicesAsked struct {
	onMachine
	Family string `json:"family,omitempty" jsonschema:"only devices of this kind" enum:"gpio,i2c,spi,serial,usb,printer"`
}

type devicesFound struct {
	Machine   string        `json:"machine"`
	Devices   []deviceFound `json:"devices"`
	Truncated bool          `json:"truncated,omitempty" jsonschema:"there are more"`
}

type deviceFound struct {
	ID           string   `json:"device" jsonschema:"its id, which the other tools take"`
	Family       string   `json:"family" jsonschema:"gpio, i2c, spi, serial, usb or printer"`
	Description  string   `json:"description,omitempty"`
	Where        string   `json:"where,omitempty" jsonschema:"the device node on the machine"`
	USB          string   `json:"usb,omitempty" jsonschema:"vendor:product, four hex digits each"`
	Manufacturer string   `json:"manufacturer,omitempty"`
	Product      string   `json:"product,omitempty"`
	SerialNumber string   `json:"serial_number,omitempty"`
	Lines        int      `json:"lines,omitempty" jsonschema:"of a GPIO chip: how many lines"`
	Driver       string   `json:"driver,omitempty" jsonschema:"the kernel driver that has it"`
	Aliases      []string `json:"aliases,omitempty" jsonschema:"other names that can be used as device"`
	Available    bool     `json:"available" jsonschema:"whether it can be used now"`
	Reason       string   `json:"reason,omitempty" jsonschema:"why it can't"`
}

func listDevices(ctx context.Context, c *call, in devicesAsked) (devicesFound, string, error) {
	machine, err := c.machine(ctx, in.Machine)
	if err != nil {
		return devicesFound{}, "", err
	}
	return c.devices(ctx, machine, in.Family)
}

// devices lists what is wired to a machine.
func (s *Server) devices(ctx context.Context, machine, family string) (devicesFound, string, error) {
	out := devicesFound{Machine: machine, Devices: []deviceFound{}}
	list, err := s.client.Devices(ctx, machine, family)
	if err != nil {
		return out, "", err
	}
	out.Truncated = list.Truncated
	var text strings.Builder
	for _, d := range list.Devices {
		found := deviceFound{
			ID: d.ID, Family: d.Type, Description: d.Desc, Where: d.Port + d.Chip, Manufacturer: d.Manufacturer, Product: d.Product,
			SerialNumber: d.SerialNumber, Lines: d.Lines, Driver: d.Driver, Aliases: d.Aliases, Available: d.Available, Reason: d.Reason,
		}
		if d.VID != "" {
			found.USB = d.VID + ":" + d.PID
		}
		out.Devices = append(out.Devices, found)
		fmt.Fprintf(&text, "%s  %s", d.ID, d.Desc)
		if !d.Available {
			fmt.Fprintf(&text, " (not available: %s)", d.Reason)
		}
		text.WriteByte('\n')
	}
	if len(list.Devices) == 0 {
		text.WriteString("No such device is wired to the machine, or none is granted.\n")
	}
	return out, text.String(), nil
}

type releaseAsked struct {
	onMachine
	Device string   `json:"device" jsonschema:"id of the device (list_devices)"`
	Lines  []string `json:"lines,omitempty" jsonschema:"of a GPIO chip: only these lines"`
}

type released struct {
	Released bool `json:"released" jsonschema:"false: there was nothing of this connection's to give back"`
}

func releaseDevice(ctx context.Context, c *call, in releaseAsked) (released, string, error) {
	ses, err := c.session(ctx, in.Machine, "")
	if err != nil {
		return released{}, "", err
	}
	got, err := ses.ReleaseLines(ctx, in.Device, lineNames(in.Lines)...)
	if err != nil {
		return released{}, "", err
	}
	text := "released " + in.Device
	if !got.Released {
		text = "nothing of " + in.Device + " was held"
	}
	return released{got.Released}, text, nil
}
