package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

func (a *app) machines() *cobra.Command {
	return &cobra.Command{
		Use:   "machines [MACHINE]",
		Short: "List the paired machines, or describe one",
		Long: `machines lists the paired machines: whether they are connected and what you
allowed when they were approved. With a MACHINE it says more about that one: what
it offers, its version, its whole id.`,
		Example: "  farhand machines\n  farhand machines pi\n  farhand machines --json",
		Args:    between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			if len(args) == 1 {
				return a.oneMachine(cmd.Context(), c, args[0])
			}
			return a.allMachines(cmd.Context(), c)
		},
		ValidArgsFunction: a.completeMachine(""),
	}
}

func (a *app) allMachines(ctx context.Context, c *client.Client) error {
	all, err := c.Machines(ctx)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"machines": append([]client.Machine{}, all...)})
	}
	if len(all) == 0 {
		a.note("No machine is paired yet: start farhandd on one and approve the code that it shows with farhand approve CODE.")
		return nil
	}
	ids := make([]string, len(all))
	for i, m := range all {
		ids[i] = m.ID
	}
	ids = shortIDs(ids)
	t := table{head: []string{"NAME", "STATE", "BOARD", "PLATFORM", "ALLOWED", "LAST SEEN", "ID"}}
	for i, m := range all {
		t.add(cell{m.Name, a.style.out.bold}, a.state(m), plain(dash(m.Board)), plain(dash(platform(m))),
			plain(listOrAll(m.Approval.Capabilities)), plain(a.seen(m)), plain(ids[i]))
	}
	return t.write(a.env.Stdout, a.style.out, a.style.width())
}

func (a *app) oneMachine(ctx context.Context, c *client.Client, name string) error {
	m, err := c.Machine(ctx, name)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(m)
	}
	var t table
	row := func(what, value string) { t.add(plain(what), plain(dash(value))) }
	row("name", m.Name)
	t.add(plain("state"), a.state(m))
	row("id", m.ID)
	row("calls itself", m.DisplayName)
	if len(m.Labels) > 0 {
		row("labels", strings.Join(m.Labels, ", "))
	}
	if m.Default {
		row("default", "yes")
	}
	row("board", m.Board)
	row("platform", platform(m))
	row("version", m.ShimVersion)
	row("offers", join(slices.DeleteFunc(slices.Clone(m.Capabilities), func(c wire.Capability) bool { return !c.Approvable() })))
	row("allowed", ceiling(m.Approval))
	row("approved", a.age(m.ApprovedAt))
	row("last seen", a.seen(m))
	if !m.DaemonStarted.IsZero() {
		row("daemon started", a.age(m.DaemonStarted))
	}
	for _, f := range facts(m.Facts) {
		row(f[0], f[1])
	}
	return t.write(a.env.Stdout, a.style.out, a.style.width())
}

// facts are what the machine told of itself, as rows.
func facts(f *wire.MachineFacts) [][2]string {
	if f == nil {
		return nil
	}
	var rows [][2]string
	add := func(what, value string) {
		if value != "" {
			rows = append(rows, [2]string{what, value})
		}
	}
	add("name nearby", f.MDNSName)
	add("addresses", strings.Join(f.Addresses, ", "))
	add("clock", f.ClockState)
	add("wifi", f.Wifi)
	add("power", f.Power)
	if f.Slot != "" {
		add("slot", f.Slot+" (by "+f.SlotSource+")")
	}
	if f.Bootloader > 0 {
		add("bootloader", time.Unix(f.Bootloader, 0).UTC().Format(time.DateOnly))
	}
	add("no updates", f.NotUpdatable)
	if f.WatchdogS > 0 {
		add("watchdog", strconv.Itoa(f.WatchdogS)+" s")
	}
	if f.NewBoard {
		add("new board", "its card was in another board before")
	}
	add("degraded", f.Degraded)
	return rows
}

func (a *app) state(m client.Machine) cell {
	if m.Online {
		return cell{"online", a.style.out.green}
	}
	return cell{"offline", a.style.out.dim}
}

func (a *app) seen(m client.Machine) string {
	if m.Online {
		return "now"
	}
	return a.age(m.LastSeen)
}

// completionTimeout is how long a person waits for the tab key.
const completionTimeout = 3 * time.Second

// completeMachine completes the first argument with machine names. It never
// fails: a shell that completes shows no errors.
func (a *app) completeMachine(suffix string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		directive := cobra.ShellCompDirectiveNoFileComp
		if suffix != "" {
			directive |= cobra.ShellCompDirectiveNoSpace
		}
		if len(args) > 0 || strings.Contains(typed, ":") { // what follows is no file here
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		c, err := a.connect()
		if err != nil {
			return nil, directive
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		all, err := c.Machines(ctx)
		if err != nil {
			return nil, directive
		}
		var names []string
		for _, m := range all {
			if strings.HasPrefix(m.Name, typed) {
				names = append(names, m.Name+suffix)
			}
		}
		return names, directive
	}
}

// completeTargets completes every argument with MACHINE:, whose paths are the machine's.
func (a *app) completeTargets(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	return a.completeMachine(":")(cmd, nil, typed)
}

func platform(m client.Machine) string { return strings.Trim(m.Platform+"/"+m.Arch, "/") }
