package cli

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

// words are the arguments of a verb that works on a device:
// [MACHINE] [DEVICE] and whatever the verb takes besides.
type words struct {
	machine, device string
	rest            []string
}

// split tells the arguments apart. At least so many at the end are the verb's
// own; isOwn says what else is, and nil that nothing else may be. What is left
// is a machine and a device, either of which may be missing. Before a device
// stands nothing but a machine.
func split(family string, args []string, least int, isOwn func(string) bool) words {
	var w words
	more := func() bool { return len(args) > least && (isOwn == nil || !isOwn(args[0])) }
	if more() && !isDevice(args[0]) || len(args) > max(least, 1) && isDevice(args[1]) && !isDevice(args[0]) {
		w.machine, args = args[0], args[1:]
	}
	if more() && (isOwn == nil || isDevice(args[0])) {
		w.device, args = deviceName(family, args[0]), args[1:]
	}
	w.rest = args
	return w
}

// exact takes a device that stands before the verb's own arguments, where those
// can't be mistaken for one.
func (w words) exact(family string, isOwn func(string) bool) words {
	if w.device == "" && len(w.rest) > 1 && !isOwn(w.rest[0]) {
		w.device, w.rest = deviceName(family, w.rest[0]), w.rest[1:]
	}
	return w
}

// device names that have no family in front, as Linux calls them.
var (
	kernelName = regexp.MustCompile(`^(gpiochip\d+|i2c-\d+|spidev\d+\.\d+)$`)
	usbModel   = regexp.MustCompile(`^[0-9a-fA-F]{4}:[0-9a-fA-F]{4}$`)
)

// isDevice says whether an argument can't be anything but a device.
func isDevice(s string) bool {
	family, _, ok := strings.Cut(s, ":")
	return ok && slices.Contains(families, family) || strings.HasPrefix(s, "/dev/") || kernelName.MatchString(s) || usbModel.MatchString(s)
}

// deviceName is the device as the machine takes it: 1 is i2c:1 where a bus is
// meant, and usb-04b8:0202 is printer:usb-04b8:0202 where a printer is.
func deviceName(family, s string) string {
	switch {
	case usbModel.MatchString(s):
		return "usb:" + strings.ToLower(s)
	case isDevice(s), strings.HasPrefix(s, "/"):
		return s
	}
	return family + ":" + s
}

// spot is where a verb works: a device of a machine, in a session.
type spot struct {
	client  *client.Client
	session *client.Session
	device  string
	hold    client.Hold
}

// onDevice opens a session on the machine and runs do there. A device that was
// left out is the only one of its family.
func (a *app) onDevice(cmd *cobra.Command, family string, w words, hold bool, do func(context.Context, spot) error) error {
	ctx := cmd.Context()
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	machine, device, err := a.find(ctx, c, family, w)
	if err != nil {
		return err
	}
	s, err := c.Open(ctx, client.Place{Machine: machine})
	if err != nil {
		return err
	}
	return do(ctx, spot{c, s, device, client.Hold(hold)})
}

// find is the machine and the device that are meant. With a single machine, what
// looks like a machine may be the device.
func (a *app) find(ctx context.Context, c *client.Client, family string, w words) (machine, device string, err error) {
	if machine, err = a.machine(ctx, c, w.machine); err != nil || w.device != "" {
		return machine, w.device, err
	}
	device, err = onlyDevice(ctx, c, machine, family)
	if w.machine == "" || !errors.Is(err, wire.MachineNotAttached) {
		return machine, device, err
	}
	only, failed := a.machine(ctx, c, "")
	if failed != nil {
		return "", "", err
	}
	list, failed := c.Devices(ctx, only, family)
	name := deviceName(family, w.machine)
	if failed != nil || !slices.ContainsFunc(list.Devices, func(d wire.HardwareDevice) bool {
		return d.ID == name || slices.Contains(d.Aliases, name)
	}) {
		return "", "", err
	}
	return only, name, nil
}

// headerAlias is another name of the GPIO chip with a Raspberry Pi's header.
const headerAlias = "gpio:bcm"

// onlyDevice is the device that is meant where none is named: the only one of
// its family, the only one that can be used, or the chip of the header.
func onlyDevice(ctx context.Context, c *client.Client, machine, family string) (string, error) {
	list, err := c.Devices(ctx, machine, family)
	if err != nil {
		return "", err
	}
	var ids, usable []string
	for _, d := range list.Devices {
		if slices.Contains(d.Aliases, headerAlias) {
			return d.ID, nil
		}
		ids = append(ids, d.ID)
		if d.Available {
			usable = append(usable, d.ID)
		}
	}
	switch {
	case len(ids) == 0:
		return "", wire.Errorf(wire.HardwareNotFound, "the machine shows no %s device", family).With("type", family)
	case len(ids) == 1:
		return ids[0], nil
	case len(usable) == 1:
		return usable[0], nil
	}
	return "", wire.Errorf(wire.HardwareAmbiguous, "there are %d %s devices: name one", len(ids), family).With("candidates", ids)
}

// addHold adds --hold to a verb.
func addHold(cmd *cobra.Command, hold *bool) {
	cmd.Flags().BoolVar(hold, "hold", false, "keep the device after this, until farhand release or some idle minutes")
}

// seconds reads a flag that is a duration as the wire has it; empty is nil.
func seconds(flag, value string) (*float64, error) {
	if value == "" {
		return nil, nil
	}
	d, err := duration(value)
	if err != nil || d < 0 {
		return nil, usage("--%s %q is not a duration such as 500ms or 5s", flag, value)
	}
	s := d.Seconds()
	return &s, nil
}

// completeDevice completes a machine's name, then the ids of its devices of a
// family (empty: all). Like completeMachine it never fails.
func (a *app) completeDevice(family string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		machine := first(args...)
		switch {
		case len(args) > 1, len(args) == 1 && isDevice(args[0]):
			return nil, directive
		case len(args) == 0 && strings.Contains(typed, ":"):
			machine = "" // the only one, left out
		case len(args) == 0:
			return a.completeMachine("")(cmd, args, typed)
		}
		c, err := a.connect()
		if err != nil {
			return nil, directive
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		if machine, err = a.machine(ctx, c, machine); err != nil {
			return nil, directive
		}
		list, err := c.Devices(ctx, machine, family)
		if err != nil {
			return nil, directive
		}
		var ids []string
		for _, d := range list.Devices {
			if strings.HasPrefix(d.ID, typed) && clean(d.ID) == d.ID {
				ids = append(ids, d.ID+"\t"+clean(what(d)))
			}
		}
		return ids, directive
	}
}
