package main

import (
	"github.com/spf13/cobra"
)

// provisionCommand is the appliance's: what its image's units call as root.
func (o *options) provisionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "provision",
		Short: "The appliance's part that needs root",
		Long: `What the units of the appliance's image call as root: 'boot' reads the settings
of a new card, once, and has the system go by them at every start; 'serve' shows
the pairing code and how things are, and answers the daemon's requests.`,
		Args: noArgs,
	}
	cmd.AddCommand(
		&cobra.Command{
			Use:   "boot",
			Short: "Read a new card's settings and have the system go by them",
			Long: `Read a new card's settings, once: they are stored on the data partition and
removed from the card. Then, at every start, render them for the system. Exit
status 1 if some of it failed; the rest is done all the same.`,
			Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return o.provisionBoot(cmd.Context()) },
		},
		&cobra.Command{
			Use:   "serve",
			Short: "Answer the daemon's requests on the activated socket",
			Long: `Answer the daemon's requests on the socket that the service manager passes
(farhand-provision.socket), until nobody needs it.`,
			Args: noArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return o.provisionServe(cmd.Context()) },
		},
	)
	return cmd
}
