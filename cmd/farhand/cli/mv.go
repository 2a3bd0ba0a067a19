package cli

import (
	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) mv() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "mv MACHINE:PATH [MACHINE:]PATH",
		Short: "Rename a file on a machine",
		Long: `mv renames a file, a link or a directory on one machine, within one of the
directories that it offers. What has the new name already stays, and mv fails,
unless --force replaces it.`,
		Example: "  farhand mv pi:/data/work/a.txt /data/work/b.txt",
		Args:    between(2, 2, "two paths on one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			from, err := remote(args[0])
			if err != nil {
				return err
			}
			to, ok := parseTarget(args[1])
			if !ok {
				to = target{from.machine, args[1]}
			}
			switch {
			case to.machine != "" && to.machine != from.machine:
				return usage("mv works on one machine; to copy to another: farhand get %s - | farhand put - %s", args[0], args[1])
			case from.path == "" || to.path == "":
				return usage("mv needs two paths")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			s, err := a.at(cmd.Context(), c, from.machine, from.path, to.path)
			if err != nil {
				return err
			}
			if err := s.Move(cmd.Context(), wire.FileMove{Src: from.path, Dst: to.path, Overwrite: force}); err != nil {
				return err
			}
			return a.done(map[string]string{"machine_id": s.Info().MachineID, "src": from.path, "dst": to.path})
		},
		ValidArgsFunction: a.completeTargets,
	}
	cmd.Flags().BoolVarP(&force, "force", "f", false, "replace what has the new name")
	return cmd
}
