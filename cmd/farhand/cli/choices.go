package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// completeCapabilities completes a flag that takes them, separated by commas.
func completeCapabilities(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		err := cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			given := typed[:strings.LastIndexByte(typed, ',')+1]
			var all []string
			for _, c := range approvable {
				if !slices.Contains(strings.Split(given, ","), string(c)) {
					all = append(all, given+string(c))
				}
			}
			return all, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		})
		if err != nil {
			panic(err) // the flag isn't there
		}
	}
}

// choices has the shell complete a flag with the values that it takes.
func choices(cmd *cobra.Command, flag string, values ...string) {
	err := cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	if err != nil {
		panic(err) // the command has no such flag, or completes it already
	}
}
