package cli

import (
	"errors"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) logout() *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "End the login and forget it",
		Long: `logout ends the login on the relay, with its sessions, and forgets it here. A token
that was made with farhand token create is only forgotten: its owner ends it with
farhand token revoke.`,
		Args: between(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx := cmd.Context()
			kept, err := a.load()
			if err != nil {
				// Nothing in it can be used.
				return errors.Join(a.forget(), a.done(map[string]string{"url": ""}))
			}
			if kept.Token == "" {
				return errNotLoggedIn
			}
			c, err := a.client(kept)
			if err != nil {
				return err
			}
			defer c.Close()
			me, err := c.Whoami(ctx)
			if err == nil && me.Login {
				err = c.Logout(ctx)
			}
			if errors.Is(err, wire.AuthFailed) {
				err = nil // it had ended already
			}
			// What could not be told to the relay is forgotten here all the same.
			if gone := a.forget(); gone != nil {
				return gone
			}
			if err != nil {
				a.note("Forgotten here, but %s did not hear of it: the login ends there when it expires.", kept.URL)
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"url": kept.URL})
			}
			a.tell("Logged out of %s.", kept.URL)
			return nil
		},
	}
}
