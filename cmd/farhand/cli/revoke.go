package cli

import (
	"github.com/spf13/cobra"
)

func (a *app) revoke() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "revoke MACHINE",
		Short: "Shut a machine out and forget it",
		Long: `revoke withdraws a machine's tokens, ends its connections and sessions and forgets
it. To come back it has to be approved again: a daemon that still runs there shows a
new code at once. On a terminal revoke asks first.`,
		Example: "  farhand revoke pi",
		Args:    between(1, 1, "one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			m, err := c.Machine(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !yes && a.interactive() {
				ok, err := a.confirm(cmd.Context(), "Shut out "+clean(m.Name)+" ("+clean(m.ID)+")?")
				if err != nil {
					return err
				}
				if !ok {
					return exitStatus(exitFailed)
				}
			}
			if err := c.Revoke(cmd.Context(), m.ID); err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]string{"machine_id": m.ID, "name": m.Name})
			}
			a.tell("%s is shut out.", clean(first(m.Name, m.ID)))
			a.note("If its daemon still runs, it shows a new code to be approved with.")
			return nil
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "don't ask")
	return cmd
}
