package cli

import (
	"context"

	"github.com/spf13/cobra"

	"farhand/client"
)

func (a *app) sessions() *cobra.Command {
	list := func(cmd *cobra.Command, _ []string) error { return a.listSessions(cmd) }
	g := group("sessions", "List and close sessions",
		&cobra.Command{Use: "list", Short: "List the sessions", Args: between(0, 0, "no arguments"), RunE: list},
		&cobra.Command{
			Use: "close SESSION...", Short: "End sessions, with the commands that run in them",
			Long: `close ends sessions on their machines, with the commands that run in them. SESSION
is an id as sessions shows it, or an unambiguous beginning of one.`,
			Example: "  farhand sessions close 1d40c77b",
			Args:    between(1, 1000, "one or more sessions"),
			RunE: func(cmd *cobra.Command, args []string) error {
				return a.each(cmd.Context(), args, "closed", sessionsByID, (*client.Client).CloseSession)
			},
		})
	g.Long = `A session is a place on a machine, one directory in which commands run and files
are looked up. exec, ls and the others open and reuse them by themselves; an idle one
costs nothing and comes back by itself.`
	g.Example = "  farhand sessions\n  farhand sessions close 1d40c77b"
	help := g.RunE
	g.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return list(cmd, args)
		}
		return help(cmd, args)
	}
	return g
}

func (a *app) listSessions(cmd *cobra.Command) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	all, err := c.Sessions(cmd.Context())
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(map[string]any{"sessions": append([]client.SessionInfo{}, all...)})
	}
	if len(all) == 0 {
		a.note("There are no sessions.")
		return nil
	}
	ids := make([]string, len(all))
	for i, s := range all {
		ids[i] = s.ID
	}
	ids = shortIDs(ids)
	t := table{head: []string{"SESSION", "MACHINE", "ROOT", "STATE", "LAST USED"}}
	for i, s := range all {
		state := cell{"idle", a.style.out.dim}
		if s.Live {
			state = cell{"live", a.style.out.green}
		}
		t.add(plain(ids[i]), plain(first(s.MachineName, s.MachineID)), plain(s.Root), state, plain(a.age(s.LastUsed)))
	}
	return t.write(a.env.Stdout, a.style.out, a.style.width())
}

func sessionsByID(ctx context.Context, c *client.Client) ([]named, error) {
	all, err := c.Sessions(ctx)
	var list []named
	for _, s := range all {
		list = append(list, named{id: s.ID})
	}
	return list, err
}
