package cli

import (
	"github.com/spf13/cobra"

	"farhand/client"
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
			for _, arg := range args {
				if t, ok := parseTarget(arg); ok && t.path == "" {
					return usage("%q names nothing to remove", arg)
				}
			}
			removed := make([]place, 0, len(args))
			err := a.eachFile(cmd.Context(), args, func(s *client.Session, t target) error {
				removed = append(removed, place{s.Info().MachineID, t.path})
				return s.Delete(cmd.Context(), wire.FileDelete{Path: t.path, Recursive: recursive, MissingOK: force})
			})
			if err != nil {
				return err
			}
			return a.done(map[string]any{"removed": removed})
		},
		ValidArgsFunction: a.completeTargets,
	}
	cmd.Flags().BoolVarP(&recursive, "recursive", "r", false, "directories with what is in them")
	cmd.Flags().BoolVarP(&force, "force", "f", false, "it is fine if there is none")
	return cmd
}
