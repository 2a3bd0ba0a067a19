package cli

import "github.com/spf13/cobra"

// choices has the shell complete a flag with the values that it takes.
func choices(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the command has no such flag, or completes it already
	}
}
