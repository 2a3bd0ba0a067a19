package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) usbDescribe() *cobra.Command {
	var (
		texts bool
		hold  bool
	)
	cmd := &cobra.Command{
		Use:   "describe [MACHINE] [DEVICE]",
		Short: "Show a device's descriptors: configurations, interfaces, endpoints, drivers",
		Long: `describe shows what a device says it is. Only what the kernel has read is shown, and
the device left alone, unless --strings has every string read from the device.`,
		Example: "  farhand usb describe pi 2341:0043\n  farhand usb describe pi 2341:0043 --strings --json",
		Args:    between(0, 2, "[MACHINE] [DEVICE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.onDevice(cmd, "usb", split("usb", args, 0, nil), hold, func(ctx context.Context, at spot) error {
				d, err := at.session.USBDescribe(ctx, at.device, wire.USBDescribe{Strings: texts}, at.hold)
				if err != nil {
					return err
				}
				if a.json {
					return a.printJSON(d)
				}
				a.printf("%s", a.usbTree(d))
				if d.Damaged != "" {
					a.note("The descriptors are damaged: %s", clean(d.Damaged))
				}
				return nil
			})
		},
		ValidArgsFunction: a.completeDevice("usb"),
	}
	cmd.Flags().BoolVar(&texts, "strings", false, "read every string from the device")
	addHold(cmd, &hold)
	return cmd
}

// usbTree draws a device's descriptors.
func (a *app) usbTree(d wire.USBDescription) string {
	var b strings.Builder
	line := func(depth int, format string, args ...any) {
		b.WriteString(foldAt(strings.Repeat("  ", depth)+fmt.Sprintf(format, args...), a.style.fold(), 4) + "\n")
	}
	names := strings.Join(nonEmpty([]string{usbText(d.Manufacturer), usbText(d.Product)}), " ")
	line(0, "%s", a.style.out.bold(strings.TrimSpace(clean(d.VID+":"+d.PID)+" "+names)))
	serial := usbText(d.SerialNumber)
	if d.SerialNumber.State != wire.USBStringPresent {
		serial = a.style.out.dim(clean(first(d.SerialNumber.State, "-")))
	}
	line(1, "serial number %s", serial)
	speed := ""
	if d.SpeedMbps > 0 {
		speed = fmt.Sprintf(", %g Mbit/s", d.SpeedMbps)
	}
	line(1, "USB %s%s, device version %s, class %s", clean(d.USBVersion), speed, clean(d.DeviceVersion), usbClass("", d.Class, d.SubClass, d.Protocol))
	for _, c := range d.Configurations {
		active := ""
		if c.Value == d.ActiveConfiguration {
			active = a.style.out.green(" (set)")
		}
		power := "bus"
		if c.SelfPowered {
			power = "self"
		}
		line(1, "configuration %d%s%s: %s-powered, %d mA", c.Value, quoted(c.Name), active, power, c.MaxPowerMA)
		for _, i := range c.Interfaces {
			driver := ""
			if i.Driver != "" {
				driver = a.style.out.blue(" used by " + clean(i.Driver))
			}
			alternate := ""
			if i.Alternate > 0 {
				alternate = fmt.Sprintf(" alternate %d", i.Alternate)
			}
			line(2, "interface %d%s%s: %s%s", i.Number, alternate, quoted(i.Name), usbClass(i.ClassName, i.Class, i.SubClass, i.Protocol), driver)
			for _, e := range i.Endpoints {
				line(3, "endpoint %s %-3s %s, %d bytes", clean(e.Hex), clean(e.Direction), clean(e.Type), e.MaxPacket)
			}
			if h := i.HID; h != nil {
				line(3, "HID %s, report descriptor of %d bytes", clean(h.Version), h.ReportDescriptor)
			}
		}
	}
	return b.String()
}

func usbText(s wire.USBString) string { return clean(s.Value) }

func quoted(s wire.USBString) string {
	if s.Value == "" {
		return ""
	}
	return fmt.Sprintf(" %q", clean(s.Value))
}

func usbClass(name, class, subclass, protocol string) string {
	numbers := clean(class + "/" + subclass + "/" + protocol)
	if name == "" {
		return numbers
	}
	return clean(name) + " (" + numbers + ")"
}
