package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) devices() *cobra.Command {
	var family string
	cmd := &cobra.Command{
		Use:   "devices [MACHINE]",
		Short: "List what is wired to a machine",
		Long: `devices asks the machine now what is wired to it. The ids survive replugging,
reboots and renumbering.`,
		Example: "  farhand devices pi\n  farhand devices pi --type serial --json",
		Args:    between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.listDevices(cmd, args, family)
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	cmd.Flags().StringVar(&family, "type", "", "only this `FAMILY`: serial, usb, gpio, i2c, spi, printer")
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
	t := table{head: []string{"ID", "TYPE", "WHAT", "WHERE", "STATE"}}
	for _, d := range list.Devices {
		state := cell{"available", a.style.out.green}
		if !d.Available {
			state = cell{first(d.Reason, "not available"), a.style.out.dim}
		}
		t.add(cell{d.ID, a.style.out.bold}, plain(d.Type), plain(dash(what(d))), plain(dash(first(d.Port, d.Chip))), state)
	}
	if err := t.write(a.env.Stdout, a.style.out); err != nil {
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
