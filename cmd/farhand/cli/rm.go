package cli

import (
	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) rm() *cobra.Command {
	var recursive, force bool
	cmd := &cobra.Command{
		Use:     "rm MACHINE:PATH...",
		Short:   "Remove files of a machine",
		Long:    "rm removes files, links (not what they lead to) and, with -r, directories.",
		Example: "  farhand rm pi:/data/work/old.txt\n  farhand rm -r pi:/data/work/build",
		Args:    between(1, 1000, "MACHINE:PATH, once or more"),
		RunE: func(cmd *cobra.Command, args []string) error {
			targets := make([]target, len(args))
			for i, arg := range args {
				var err error
				if targets[i], err = remote(arg); err != nil {
					return err
				}
				if targets[i].path == "" {
					return usage("%q names nothing to remove", arg)
				}
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			removed := make([]place, 0, len(targets))
			for _, t := range targets {
				s, err := a.at(cmd.Context(), c, t.machine, t.path)
				if err != nil {
					return err
				}
				if err := s.Delete(cmd.Context(), wire.FileDelete{Path: t.path, Recursive: recursive, MissingOK: force}); err != nil {
					return err
				}
				removed = append(removed, place{s.Info().MachineID, t.path})
			}
			return a.done(map[string]any{"removed": removed})
		},
		ValidArgsFunction: a.completeMachine(":"),
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "directories with what is in them")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "it is fine if there is none")
	return cmd
}
