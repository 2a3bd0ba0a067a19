package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

type approveFlags struct {
	yes, deny            bool
	name                 string
	allow, device, roots []string
}

func (a *app) approve() *cobra.Command {
	var f approveFlags
	cmd := &cobra.Command{
		Use:   "approve CODE",
		Short: "Let in the machine that shows this code",
		Long: `approve shows which machine asks with a code and, once you have compared the code
with the one that the machine itself shows, lets it in. If you have a machine with the
same id it says so: the one that asks takes its place.

Without --allow it gets what it asks for, except the shell (whoever may run commands
may do everything that the daemon on that machine may), observe (its logs) and forward
(what it can reach). On a terminal approve asks first; --yes doesn't.`,
		Example: `  farhand approve BCDF-GHJK
  farhand approve BCDF-GHJK --name bench --allow files,shell,hardware_serial
  farhand approve BCDF-GHJK --device 'serial:*' --root /data/work
  farhand approve BCDF-GHJK --deny`,
		Args: between(1, 1, "one code"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runApprove(cmd.Context(), cmd, args[0], f)
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.yes, "yes", "y", false, "don't ask")
	flags.BoolVar(&f.deny, "deny", false, "turn the machine away")
	flags.StringVar(&f.name, "name", "", "your name for the machine (default: its own)")
	flags.StringSliceVar(&f.allow, "allow", nil, "allow these `CAPABILITIES`, separated by commas (default: what it asks for, without shell, observe and forward)")
	flags.StringArrayVar(&f.device, "device", nil, "allow only devices whose id fits this `PATTERN`, of them only ;lines=… and ;ops=… if given (see grants); may be repeated")
	flags.StringArrayVar(&f.roots, "root", nil, "allow only this `DIRECTORY` and what is below it; may be repeated")
	completeCapabilities(cmd, "allow")
	for _, other := range []string{"allow", "device", "root", "name"} {
		cmd.MarkFlagsMutuallyExclusive("deny", other)
	}
	return cmd
}

func (a *app) runApprove(ctx context.Context, cmd *cobra.Command, code string, f approveFlags) error {
	allow, err := capabilities(f.allow)
	if err != nil {
		return err
	}
	devices, err := deviceGrants(f.device)
	if err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	asking, err := c.Pending(ctx, code)
	if err != nil {
		return err
	}
	if !cmd.Flags().Changed("allow") {
		allow = slices.DeleteFunc(slices.Clone(asking.Capabilities), func(c wire.Capability) bool {
			return c.Sensitive() || !c.Approvable()
		})
	}
	d := client.Decision{
		Approve: !f.deny, Name: f.name, Capabilities: allow, Devices: devices, Roots: f.roots,
	}
	if !a.json {
		a.showAsking(asking, d)
	}
	if !f.yes && a.interactive() {
		question := "Does the machine show the code " + clean(asking.UserCode) + "? Let it in?"
		switch {
		case f.deny:
			question = "Turn it away?"
		case asking.Paired != nil:
			question = "Does the machine show the code " + clean(asking.UserCode) + "? Let it take the place of " + clean(asking.Paired.Name) + "?"
		}
		if ok, err := a.confirm(ctx, question); err != nil {
			return err
		} else if !ok {
			a.note("Nothing was decided; the code stays good until it expires.")
			return exitStatus(exitFailed)
		}
	}
	done, err := c.Approve(ctx, code, d)
	if err != nil {
		return err
	}
	replaced := asking.Paired
	if f.deny {
		replaced = nil
	}
	switch {
	case a.json:
		return a.printJSON(struct {
			client.Approved
			Decision     string            `json:"decision"`
			Capabilities []wire.Capability `json:"capabilities"`
			Replaced     *client.Paired    `json:"replaced,omitempty"`
		}{done, map[bool]string{true: "approve", false: "deny"}[d.Approve], append([]wire.Capability{}, allow...), replaced})
	case f.deny:
		a.tell("%s was turned away.", clean(first(asking.DisplayName, asking.MachineID)))
	default:
		a.tell("%s is let in.", clean(first(done.Name, done.MachineID)))
	}
	return nil
}

// showAsking shows, on standard error, who asks and what it would get.
func (a *app) showAsking(p client.Approval, d client.Decision) {
	var t table
	row := func(what, value string) { t.add(plain(what), plain(dash(value))) }
	row("code", p.UserCode)
	row("machine", p.DisplayName)
	row("board", p.Board)
	row("serial number ends", p.SerialSuffix)
	row("asks from", p.Address)
	row("asked", a.age(p.RequestedAt))
	row("asks for", join(p.Capabilities))
	if d.Approve {
		c := wire.Ceiling{Capabilities: &d.Capabilities}
		if d.Devices != nil {
			c.Devices = &d.Devices
		}
		if d.Roots != nil {
			c.Roots = &d.Roots
		}
		row("is allowed", ceiling(c))
	}
	t.write(a.env.Stderr, a.style.err, a.style.errWidth())
	if was := p.Paired; was != nil && d.Approve {
		state := "which isn't connected (last seen " + a.age(was.LastSeen) + ")"
		if was.Online {
			state = "which is connected right now and would be cut off"
		}
		a.note("It has the machine id of %s, %s, and takes its place. That is right if it is the same machine, which pairs anew; if they are two, set another machine_id in the configuration of one.", clean(was.Name), state)
	}
	if d.Approve && p.Capabilities.Has(wire.Shell) && !slices.Contains(d.Capabilities, wire.Shell) {
		a.note("The shell is not allowed; to allow it: --allow %s", strings.ReplaceAll(join(append(slices.Clone(d.Capabilities), wire.Shell)), ", ", ","))
	}
}

// approvable are the capabilities that an owner decides on.
var approvable = []wire.Capability{
	wire.Files, wire.Shell, wire.LocalLLM, wire.LLMManage, wire.HardwareSerial, wire.HardwareUSB, wire.HardwareGPIO,
	wire.HardwareI2C, wire.HardwareSPI, wire.HardwarePrinter, wire.Observe, wire.Forward,
}

// capabilities checks names from the command line: an unknown one is a slip
// that would otherwise allow less than meant without a word.
func capabilities(names []string) ([]wire.Capability, error) {
	if names == nil {
		return nil, nil
	}
	list := []wire.Capability{}
	for _, name := range names {
		c := wire.Capability(strings.TrimSpace(name))
		if c == "" || c == "none" {
			continue
		}
		if !slices.Contains(approvable, c) {
			return nil, usage("there is no capability %q; there are %s", c, join(approvable))
		}
		list = append(list, c)
	}
	return list, nil
}

// deviceGrants reads what --device said, as grants has it; none given means every
// device, "" alone none.
func deviceGrants(list []string) ([]wire.DeviceGrant, error) {
	if list == nil {
		return nil, nil
	}
	all := []wire.DeviceGrant{}
	for _, text := range nonEmpty(list) {
		g, err := deviceGrant(text)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

// patterns are grants by their patterns alone.
func patterns(list []string) []wire.DeviceGrant {
	grants := make([]wire.DeviceGrant, len(list))
	for i, p := range list {
		grants[i].Pattern = p
	}
	return grants
}
