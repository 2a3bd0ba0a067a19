package cli

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

// grantFlags edit what the owner allows on a machine.
type grantFlags struct {
	allow, add, remove              []string
	device, addDevice, removeDevice []string
	root, addRoot, removeRoot       []string
	allDevices, allRoots            bool
}

func (a *app) grants() *cobra.Command {
	var f grantFlags
	cmd := &cobra.Command{
		Use:   "grants [MACHINE]",
		Short: "Show and change what is allowed on a machine",
		Long: `grants shows what you allow on a machine, what comes of it for each device, and the
tokens that cover the machine. With flags it changes what you allow; that counts when
the command is done, for sessions under way too: what they hold and no longer may is
taken from them.

A PATTERN fits the ids of devices, as a shell's * does. After it may stand the lines
and the operations that are allowed, all others not:
'gpio:*;lines=GPIO17,GPIO27;ops=GPIO_GET,GPIO_WATCH'. The machine's own configuration
and a token can allow less than this, never more.`,
		Example: `  farhand grants pi
  farhand grants pi --add hardware_gpio,hardware_i2c --remove shell
  farhand grants pi --device 'serial:*' --device 'gpio:*;lines=GPIO17'
  farhand grants pi --all-devices --root /data/work`,
		Args: between(0, 1, "[MACHINE]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			edit, err := f.edit(cmd)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			machine, err := a.machine(cmd.Context(), c, first(args...))
			if err != nil {
				return err
			}
			var g client.Grants
			if edit == nil {
				g, err = c.Grants(cmd.Context(), machine)
			} else {
				g, err = c.EditApproval(cmd.Context(), machine, edit)
			}
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(g)
			}
			return a.printGrants(g)
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.allow, "allow", nil, `allow exactly these `+"`CAPABILITIES`"+`, separated by commas ("" for none)`)
	flags.StringSliceVar(&f.add, "add", nil, "allow these `CAPABILITIES` too")
	flags.StringSliceVar(&f.remove, "remove", nil, "no longer allow these `CAPABILITIES`")
	completeCapabilities(cmd, "allow", "add", "remove")
	flags.StringArrayVar(&f.device, "device", nil, `allow exactly the devices that fit this `+"`PATTERN`"+`; may be repeated ("" for none)`)
	flags.StringArrayVar(&f.addDevice, "add-device", nil, "allow the devices that fit this `PATTERN` too")
	flags.StringArrayVar(&f.removeDevice, "remove-device", nil, "no longer allow this `PATTERN`, as it stands in the list")
	flags.BoolVar(&f.allDevices, "all-devices", false, "allow every device")
	flags.StringArrayVar(&f.root, "root", nil, `allow exactly this `+"`DIRECTORY`"+` and what is below it; may be repeated ("" for none)`)
	flags.StringArrayVar(&f.addRoot, "add-root", nil, "allow this `DIRECTORY` too")
	flags.StringArrayVar(&f.removeRoot, "remove-root", nil, "no longer allow this `DIRECTORY`")
	flags.BoolVar(&f.allRoots, "all-roots", false, "allow every directory that the machine offers")
	for _, group := range [][]string{{"allow", "add"}, {"allow", "remove"}, {"device", "add-device"}, {"device", "remove-device"},
		{"all-devices", "device"}, {"all-devices", "add-device"}, {"all-devices", "remove-device"}, {"root", "add-root"}, {"root", "remove-root"},
		{"all-roots", "root"}, {"all-roots", "add-root"}, {"all-roots", "remove-root"}} {
		cmd.MarkFlagsMutuallyExclusive(group...)
	}
	return cmd
}

// edit is what the flags do to what is allowed; nil if they do nothing.
func (f *grantFlags) edit(cmd *cobra.Command) (func(*wire.Ceiling) error, error) {
	changed := false
	for _, name := range []string{"allow", "add", "remove", "device", "add-device", "remove-device", "all-devices", "root", "add-root", "remove-root", "all-roots"} {
		changed = changed || cmd.Flags().Changed(name)
	}
	if !changed {
		return nil, nil
	}
	var edits []func(*wire.Ceiling) error
	lists := make(map[string][]wire.Capability, 3)
	for name, list := range map[string][]string{"allow": f.allow, "add": f.add, "remove": f.remove} {
		caps, err := capabilities(list)
		if err != nil {
			return nil, err
		}
		lists[name] = caps
	}
	grants := make(map[string][]wire.DeviceGrant, 2)
	for name, list := range map[string][]string{"device": f.device, "add-device": f.addDevice} {
		for _, text := range nonEmpty(list) {
			g, err := deviceGrant(text)
			if err != nil {
				return nil, err
			}
			grants[name] = append(grants[name], g)
		}
	}
	then := func(flag string, edit func(*wire.Ceiling) error) {
		if cmd.Flags().Changed(flag) {
			edits = append(edits, edit)
		}
	}
	then("allow", func(c *wire.Ceiling) error {
		c.Capabilities = ptr(append([]wire.Capability{}, lists["allow"]...))
		return nil
	})
	then("add", func(c *wire.Ceiling) error { c.Capabilities = added(c.Capabilities, lists["add"]); return nil })
	then("remove", func(c *wire.Ceiling) (err error) {
		c.Capabilities, err = removed(c.Capabilities, lists["remove"], func(x wire.Capability) string { return string(x) }, "capabilities", "--allow")
		return err
	})
	then("all-devices", func(c *wire.Ceiling) error { c.Devices = nil; return nil })
	then("device", func(c *wire.Ceiling) error {
		c.Devices = ptr(append([]wire.DeviceGrant{}, grants["device"]...))
		return nil
	})
	then("add-device", func(c *wire.Ceiling) error {
		for _, g := range grants["add-device"] { // one that is there with other lines or ops stays: each allows what it says
			same := func(x wire.DeviceGrant) bool { return reflect.DeepEqual(x, g) }
			if c.Devices != nil && !slices.ContainsFunc(*c.Devices, same) {
				c.Devices = ptr(append(*c.Devices, g))
			}
		}
		return nil
	})
	then("remove-device", func(c *wire.Ceiling) (err error) {
		c.Devices, err = removed(c.Devices, patterns(f.removeDevice), func(g wire.DeviceGrant) string { return g.Pattern }, "devices", "--device")
		return err
	})
	then("all-roots", func(c *wire.Ceiling) error { c.Roots = nil; return nil })
	then("root", func(c *wire.Ceiling) error { c.Roots = ptr(append([]string{}, nonEmpty(f.root)...)); return nil })
	then("add-root", func(c *wire.Ceiling) error { c.Roots = added(c.Roots, f.addRoot); return nil })
	then("remove-root", func(c *wire.Ceiling) (err error) {
		c.Roots, err = removed(c.Roots, f.removeRoot, func(s string) string { return s }, "directories", "--root")
		return err
	})
	return func(c *wire.Ceiling) error {
		for _, edit := range edits {
			if err := edit(c); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

func ptr[T any](v T) *T { return &v }

// added puts more into a list that doesn't hold all already.
func added[T comparable](list *[]T, more []T) *[]T {
	if list == nil {
		return nil
	}
	out := slices.Clone(*list)
	for _, x := range more {
		if !slices.Contains(out, x) {
			out = append(out, x)
		}
	}
	return &out
}

// removed takes entries out of a list by their keys. One that isn't there is
// named: it would otherwise stay allowed without a word.
func removed[T any](list *[]T, gone []T, key func(T) string, what, flag string) (*[]T, error) {
	if list == nil {
		return nil, usage("all %s are allowed: say with %s which are to be", what, flag)
	}
	out := slices.Clone(*list)
	for _, x := range gone {
		n := len(out)
		if out = slices.DeleteFunc(out, func(y T) bool { return key(y) == key(x) }); len(out) == n {
			keys := make([]string, n)
			for i, y := range out {
				keys[i] = key(y)
			}
			return nil, usage("%q is not among what is allowed: %s", key(x), first(strings.Join(keys, ", "), "nothing"))
		}
	}
	return &out, nil
}

// deviceGrant reads PATTERN[;lines=A,B][;ops=A,B].
func deviceGrant(s string) (wire.DeviceGrant, error) {
	g, err := wire.ParseDeviceGrant(s)
	if err != nil {
		return g, usage("%v", err)
	}
	return g, nil
}

func (a *app) printGrants(g client.Grants) error {
	var t table
	row := func(what, value string) { t.add(plain(what), plain(dash(value))) }
	row("machine", g.Name)
	t.add(plain("state"), a.state(client.Machine{Online: g.Online}))
	row("you allow", first(listOrAll(g.Approval.Capabilities)))
	var missing []wire.Capability
	for _, c := range g.Offered {
		if g.Approval.Capabilities != nil && !slices.Contains(*g.Approval.Capabilities, c) {
			missing = append(missing, c)
		}
	}
	row("it offers besides", join(missing))
	devices := "all"
	if g.Approval.Devices != nil {
		devices = devicePatterns(*g.Approval.Devices)
	}
	row("devices", devices)
	row("directories", listOrAll(g.Approval.Roots))
	row("since", a.age(g.Approved))
	if err := t.write(a.env.Stdout, a.style.out, a.style.width()); err != nil {
		return err
	}
	if len(g.Effective.Devices) > 0 {
		a.printf("\n")
		d := table{head: []string{"DEVICE", "MAY BE USED"}}
		for _, reach := range g.Effective.Devices {
			d.add(cell{reach.ID, a.style.out.bold}, a.reachCell(reach))
		}
		if err := d.write(a.env.Stdout, a.style.out, a.style.width()); err != nil {
			return err
		}
	}
	if len(g.Tokens) == 0 {
		return a.outErr
	}
	a.printf("\n")
	k := table{head: []string{"TOKEN", "ENDS", "ITS OWN LIMITS", "MAY USE"}}
	for _, x := range g.Tokens {
		n := count(x.Effective.Devices, func(d client.DeviceReach) bool { return d.Allowed })
		k.add(plain(first(x.Name, x.ID)), plain(a.until(x.ExpiresAt)), plain(ceiling(x.Ceiling)),
			plain(fmt.Sprintf("%s; %d devices", first(join(x.Effective.Capabilities), "nothing"), n)))
	}
	return k.write(a.env.Stdout, a.style.out, a.style.width())
}

// reachCell says what may be done with a device, or what forbids it.
func (a *app) reachCell(d client.DeviceReach) cell {
	if !d.Allowed {
		why := map[string]string{"config": "the machine's own configuration forbids it", "approval": "not among what you allow", "token": "not among what the token allows"}
		return cell{"no: " + first(why[d.Ceiling], d.Ceiling), a.style.out.dim}
	}
	if len(d.Bounds) == 0 {
		return cell{"yes", a.style.out.green}
	}
	var all []string
	for _, bounds := range d.Bounds {
		var any []string
		for _, b := range bounds {
			text := "all lines"
			if b.Lines != nil {
				text = "lines " + listOrAll(b.Lines)
			}
			if b.Ops != nil {
				text += " by " + listOrAll(b.Ops)
			}
			any = append(any, text)
		}
		all = append(all, strings.Join(any, " or "))
	}
	return cell{"only " + strings.Join(all, "; and "), a.style.out.green}
}
