package cli

import (
	"slices"

	"github.com/spf13/cobra"

	"farhand/client"
)

func (a *app) defaultMachine() *cobra.Command {
	var clear bool
	cmd := &cobra.Command{
		Use:   "default [MACHINE]",
		Short: "Show and set the machine that is meant where none is named",
		Long: `default shows the machine that is meant where none is named and there are several,
and with a MACHINE sets it, for all your logins and for the tokens that cover it. To
set it takes your own login.`,
		Example: "  farhand default pi\n  farhand default\n  farhand default --clear",
		Args:    between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if clear && len(args) > 0 {
				return usage("--clear takes no MACHINE")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			if clear || len(args) > 0 {
				if err := c.SetDefault(cmd.Context(), first(args...)); err != nil {
					return err
				}
			}
			all, err := c.Machines(cmd.Context())
			if err != nil {
				return err
			}
			var id, name *string
			if i := slices.IndexFunc(all, func(m client.Machine) bool { return m.Default }); i >= 0 {
				id, name = &all[i].ID, &all[i].Name
			}
			switch {
			case a.json:
				return a.printJSON(map[string]*string{"machine_id": id, "name": name})
			case name == nil:
				a.note("No machine is the default one.")
			default:
				a.printf("%s\n", clean(*name))
			}
			return nil
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	cmd.Flags().BoolVar(&clear, "clear", false, "no machine is the default one any more")
	return cmd
}
