package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"farhand/wire"
)

// families are the types of devices that there are.
var families = []string{"serial", "usb", "gpio", "i2c", "spi", "printer"}

func (a *app) devices() *cobra.Command {
	var family string
	cmd := &cobra.Command{
		Use:   "devices [MACHINE]",
		Short: "List what is wired to a machine",
		Long: `devices asks the machine now what is wired to it. The ids survive replugging,
reboots and renumbering; every verb takes them, and other names of a device, such as
/dev/ttyUSB0, as long as they fit only one.`,
		Example: "  farhand devices pi\n  farhand devices pi --type serial --json",
		Args:    between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if family != "" && !slices.Contains(families, family) {
				return usage("there is no family %q; there are %s", family, join(families))
			}
			return a.listDevices(cmd, args, family)
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	cmd.Flags().StringVar(&family, "type", "", "only this `FAMILY`: "+join(families))
	return cmd
}

func (a *app) listDevices(cmd *cobra.Command, args []string, family string) error {
	ctx := cmd.Context()
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	machine, err := a.machine(ctx, c, first(args...))
	if err != nil {
		return err
	}
	list, err := c.Devices(ctx, machine, family)
	if err != nil {
		return err
	}
	if a.json {
		list.Devices = append([]wire.HardwareDevice{}, list.Devices...)
		return a.printJSON(list)
	}
	if len(list.Devices) == 0 {
		a.note("Nothing is wired to it that it may show.")
		return nil
	}
	// An id begins with the type.
	t := table{head: []string{"ID", "WHAT", "WHERE", "STATE"}}
	for _, d := range list.Devices {
		state := cell{"available", a.style.out.green}
		if !d.Available {
			state = cell{first(d.Reason, "not available"), a.style.out.dim}
		}
		t.add(cell{d.ID, a.style.out.bold}, plain(dash(what(d))), plain(dash(first(d.Port, d.Chip))), state)
	}
	if err := t.write(a.env.Stdout, a.style.out, a.style.width); err != nil {
		return err
	}
	if list.Truncated {
		a.note("There are more than the machine lists at once.")
	}
	return nil
}

// what describes a device in a few words.
func what(d wire.HardwareDevice) string {
	if d.Lines > 0 {
		return first(d.Desc, d.Product, "GPIO") + fmt.Sprintf(", %d lines", d.Lines)
	}
	return first(d.Desc, d.Product, d.Manufacturer)
}
