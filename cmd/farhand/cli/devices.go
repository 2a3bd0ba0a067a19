package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

// families are the types of devices that there are.
var families = []string{"serial", "usb", "gpio", "i2c", "spi", "printer"}

func (a *app) devices() *cobra.Command {
	var (
		family string
		watch  bool
		until  untilFlags
	)
	cmd := &cobra.Command{
		Use:   "devices [MACHINE]",
		Short: "List what is wired to a machine",
		Long: `devices asks the machine now what is wired to it. The ids survive replugging,
reboots and renumbering; every verb takes them, and other names of a device, such as
/dev/ttyUSB0, as long as they fit only one. --watch goes on and tells what is plugged
and unplugged, until Ctrl-C.`,
		Example: "  farhand devices pi\n  farhand devices pi --type serial --json\n  farhand devices pi --watch",
		Args:    between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if family != "" && !slices.Contains(families, family) {
				return usage("there is no family %q; there are %s", family, join(families))
			}
			switch {
			case watch:
				return a.watchDevices(cmd, args, family, until)
			case until != (untilFlags{}):
				return usage("--count and --for go with --watch")
			}
			return a.listDevices(cmd, args, family)
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "go on and tell what changes")
	until.add(cmd, "changes")
	cmd.Flags().StringVar(&family, "type", "", "only this `FAMILY`: "+join(families))
	choices(cmd, "type", families...)
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
	return a.printDevices(list)
}

func (a *app) printDevices(list wire.HardwareListResponse) error {
	if len(list.Devices) == 0 {
		a.note("Nothing is wired to it that it may show.")
		return nil
	}
	// An id begins with the type.
	t := table{head: []string{"ID", "WHAT", "WHERE", "STATE"}}
	for _, d := range list.Devices {
		t.add(cell{d.ID, a.style.out.bold}, plain(dash(what(d))), plain(dash(first(d.Port, d.Chip))), a.availability(d))
	}
	if err := t.write(a.env.Stdout, a.style.out, a.style.width()); err != nil {
		return err
	}
	if list.Truncated {
		a.note("There are more than the machine lists at once.")
	}
	return nil
}

func (a *app) availability(d wire.HardwareDevice) cell {
	if d.Available {
		return cell{"available", a.style.out.green}
	}
	return cell{first(d.Reason, "not available"), a.style.out.dim}
}

// watchDevices lists the devices, and then what changes, a line each time.
func (a *app) watchDevices(cmd *cobra.Command, args []string, family string, until untilFlags) error {
	if err := until.check(); err != nil {
		return err
	}
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
	st, list, err := c.WatchDevices(ctx, machine, family)
	if err != nil {
		return err
	}
	ctx, cancel, err := until.bound(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	for {
		begun := a.env.Now()
		err := a.followDevices(ctx, st, list, until.count)
		// The daemon was started anew: what is wired to it is listed anew.
		if !errors.Is(err, wire.StreamNotFound) || a.env.Now().Sub(begun) < time.Second {
			return err
		}
		switch st, list, err = c.WatchDevices(ctx, machine, family); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
	}
}

func (a *app) followDevices(ctx context.Context, st *client.Stream, list wire.HardwareListResponse, count int) error {
	if !a.json {
		if err := a.printDevices(list); err != nil {
			return err
		}
	}
	list.Devices = append([]wire.HardwareDevice{}, list.Devices...)
	return a.follow(ctx, st, watching{opened: list, record: records(a, count, func(e wire.HardwareEvent) error {
		paint := map[string]func(string) string{wire.HardwareAdded: a.style.out.green, wire.HardwareRemoved: a.style.out.red}[e.Event]
		state := a.availability(e.Device)
		if e.Event == wire.HardwareRemoved {
			state = cell{} // it is as it was last seen
		}
		var t table
		now := a.env.Now().UTC().Format("2006-01-02 15:04:05Z")
		t.add(plain(now), cell{fmt.Sprintf("%-7s", e.Event), paint}, cell{e.Device.ID, a.style.out.bold}, plain(dash(what(e.Device))), state)
		a.tell("%s", strings.TrimRight(t.text(a.style.out, 0), "\n"))
		return a.outErr
	})})
}

// what describes a device in a few words.
func what(d wire.HardwareDevice) string {
	if d.Lines > 0 {
		return first(d.Desc, d.Product, "GPIO") + fmt.Sprintf(", %d lines", d.Lines)
	}
	return first(d.Desc, d.Product, d.Manufacturer)
}
