package cli

import "github.com/spf13/cobra"

func (a *app) cat() *cobra.Command {
	return &cobra.Command{
		Use:     "cat MACHINE:PATH...",
		Short:   "Write files of a machine to standard output",
		Example: "  farhand cat pi:/data/work/log.txt | tail",
		Args:    between(1, 1000, "MACHINE:PATH, once or more"),
		RunE: func(cmd *cobra.Command, args []string) error {
			targets := make([]target, len(args))
			for i, arg := range args {
				var err error
				if targets[i], err = remote(arg); err != nil {
					return err
				}
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			for _, t := range targets {
				s, err := a.at(cmd.Context(), c, t.machine, t.path)
				if err != nil {
					return err
				}
				if _, err := s.ReadAll(cmd.Context(), t.here(), a.env.Stdout, nil); err != nil {
					return err
				}
			}
			return nil
		},
		ValidArgsFunction: a.completeMachine(":"),
	}
}
