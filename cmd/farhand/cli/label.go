package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

func (a *app) label() *cobra.Command {
	var remove []string
	cmd := &cobra.Command{
		Use:   "label MACHINE [LABEL...]",
		Short: "Show and change the labels of a machine",
		Long: `label shows the labels of a machine, adds those that are named, and takes off those
of --remove. All machines with one label are a group: see farhand groups, and exec
--group. A label has letters, digits and "._-=", such as garden or rack=2. To change
labels takes your own login.`,
		Example: "  farhand label pi garden rack=2\n  farhand label pi --remove garden\n  farhand label pi",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("%s takes a MACHINE; see %s --help", cmd.CommandPath(), cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			var m client.Machine
			if len(args) == 1 && len(remove) == 0 {
				m, err = c.Machine(cmd.Context(), args[0])
			} else {
				m, err = c.Label(cmd.Context(), args[0], args[1:], remove)
			}
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"machine_id": m.ID, "name": m.Name, "labels": append([]string{}, m.Labels...)})
			}
			for _, l := range m.Labels {
				a.printf("%s\n", clean(l))
			}
			return nil
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	cmd.Flags().StringSliceVar(&remove, "remove", nil, "take these `LABELS` off, separated by commas")
	return cmd
}

// machineGroup is a label and the machines that have it.
type machineGroup struct {
	Name     string   `json:"name"`
	Machines []string `json:"machines"` // their names
	Online   int      `json:"online"`
}

func (a *app) groups() *cobra.Command {
	return &cobra.Command{
		Use:   "groups",
		Short: "List the groups of machines",
		Long: `groups lists the labels of your machines, and which machines have each: a label is
a group. farhand label puts a machine into one.`,
		Example: "  farhand groups\n  farhand exec --group garden -- uptime",
		Args:    between(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := c.Machines(cmd.Context())
			if err != nil {
				return err
			}
			groups := groupsOf(all)
			if a.json {
				return a.printJSON(map[string]any{"groups": groups})
			}
			if len(groups) == 0 {
				a.note("No machine has a label: farhand label MACHINE LABEL gives it one.")
				return nil
			}
			t := table{head: []string{"GROUP", "ONLINE", "MACHINES"}}
			for _, g := range groups {
				t.add(cell{g.Name, a.style.out.bold}, plain(strconv.Itoa(g.Online)+" of "+strconv.Itoa(len(g.Machines))), plain(strings.Join(g.Machines, ", ")))
			}
			return t.write(a.env.Stdout, a.style.out, a.style.width())
		},
	}
}

// groupsOf are the groups of machines, sorted by name.
func groupsOf(all []client.Machine) []machineGroup {
	groups := []machineGroup{}
	for _, m := range all {
		for _, l := range m.Labels {
			i, found := slices.BinarySearchFunc(groups, l, func(g machineGroup, l string) int { return strings.Compare(g.Name, l) })
			if !found {
				groups = slices.Insert(groups, i, machineGroup{Name: l})
			}
			groups[i].Machines = append(groups[i].Machines, first(m.Name, m.ID))
			if m.Online {
				groups[i].Online++
			}
		}
	}
	return groups
}

// inGroup are the machines of a group; of all if it is empty.
func inGroup(all []client.Machine, group string) ([]client.Machine, error) {
	if group == "" {
		if len(all) == 0 {
			return nil, wire.Errorf(wire.MachineNotAttached, "no machine is paired yet").With("machines", 0)
		}
		return all, nil
	}
	members := slices.DeleteFunc(slices.Clone(all), func(m client.Machine) bool { return !slices.Contains(m.Labels, group) })
	if len(members) > 0 {
		return members, nil
	}
	var names []string
	for _, g := range groupsOf(all) {
		names = append(names, g.Name)
	}
	return nil, wire.Errorf(wire.MachineNotAttached, "no machine has the label %q", group).With("candidates", names).With("group", group)
}

// completeGroup completes a flag with the names of groups. It never fails.
func (a *app) completeGroup(cmd *cobra.Command, flag string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		c, err := a.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer c.Close()
		ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
		defer cancel()
		all, err := c.Machines(ctx)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var names []string
		for _, g := range groupsOf(all) {
			names = append(names, g.Name)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil {
		panic(err) // the command has no such flag, or completes it already
	}
}
