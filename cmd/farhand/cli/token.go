package cli

import (
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"farhand/client"
)

func (a *app) token() *cobra.Command {
	g := group("token", "Make and revoke tokens for programs and other people", a.tokenCreate(), a.tokenList(), a.tokenRevoke())
	g.Long = `A token lets somebody else, a program or an agent, use your machines within limits:
which machines, which capabilities, devices and directories, until when. The lowest
limit counts: a token never gives more than the machine's approval does. It is used
with farhand login URL --token-file FILE, or from the environment: FARHAND_URL and
FARHAND_TOKEN or FARHAND_TOKEN_FILE.`
	g.Example = `  farhand token create --name ci --machine pi --capability files --expires 30d > token
  farhand token list
  farhand token revoke ci`
	return g
}

func (a *app) tokenCreate() *cobra.Command {
	var (
		name, expires                             string
		machines, capability, device, directories []string
	)
	cmd := &cobra.Command{
		Use:   "create",
		Short: "Make a token",
		Long: `create prints the new token, once, on standard output. What no flag limits is not
limited; an empty list ("") allows nothing of its kind.`,
		Example: `  farhand token create --name ci --machine pi --capability files --expires 30d
  farhand token create --capability hardware_serial --device 'serial:usb-2341:*' > token`,
		Args: between(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			caps, err := capabilities(capability)
			if err != nil {
				return err
			}
			devices, err := deviceGrants(device)
			if err != nil {
				return err
			}
			ends, err := a.expiry(expires)
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			ids, err := machineIDs(cmd.Context(), c, nonEmpty(machines))
			if err != nil {
				return err
			}
			made, err := c.CreateToken(cmd.Context(), client.NewToken{
				Name: name, Machines: ids, Capabilities: caps, Devices: devices,
				Roots: nonEmpty(directories), Expires: ends,
			})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(made)
			}
			a.note("Token %s; %s. It is shown this once:", made.ID, a.ending(made.ExpiresAt))
			a.printf("%s\n", made.Token)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "what it is for")
	flags.StringArrayVar(&machines, "machine", nil, "for this `MACHINE` alone; may be repeated")
	flags.StringSliceVar(&capability, "capability", nil, "allow these `CAPABILITIES` alone, separated by commas; may be repeated")
	completeCapabilities(cmd, "capability")
	flags.StringArrayVar(&device, "device", nil, "allow only devices whose id fits this `PATTERN`, of them only ;lines=… and ;ops=… if given (see grants); may be repeated")
	flags.StringArrayVar(&directories, "root", nil, "allow only this `DIRECTORY` and what is below it; may be repeated")
	flags.StringVar(&expires, "expires", "", "when it ends: a `TIME`, or a duration such as 24h or 30d (default: never)")
	return cmd
}

// nonEmpty keeps nil, which allows all, apart from a list with nothing in it.
func nonEmpty(list []string) []string {
	if list == nil {
		return nil
	}
	out := []string{}
	for _, s := range list {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

// machineIDs turns names into ids: a token is for the machine, not for whichever
// bears the name later.
func machineIDs(ctx context.Context, c *client.Client, names []string) ([]string, error) {
	if names == nil {
		return nil, nil
	}
	ids := make([]string, len(names))
	for i, name := range names {
		m, err := c.Machine(ctx, name)
		if err != nil {
			return nil, err
		}
		ids[i] = m.ID
	}
	return ids, nil
}

func (a *app) tokenList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the tokens and your own logins", Args: between(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := c.Tokens(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				for _, list := range []*[]client.Token{&all.Tokens, &all.Agents, &all.Logins} {
					*list = append([]client.Token{}, *list...)
				}
				return a.printJSON(all)
			}
			names, err := machineNames(cmd.Context(), c)
			if err != nil {
				return err
			}
			var ids []string
			limited := slices.Concat(all.Tokens, all.Agents)
			for _, x := range slices.Concat(limited, all.Logins) {
				ids = append(ids, x.ID)
			}
			ids = shortIDs(ids)
			t := table{head: []string{"ID", "NAME", "MACHINES", "ALLOWED", "MADE", "ENDS"}}
			for i, x := range limited {
				t.add(plain(ids[i]), plain(dash(x.Name)), plain(listOrAll(renamed(x.Machines, names))), plain(ceiling(x.Ceiling())),
					plain(a.age(x.CreatedAt)), plain(a.until(x.ExpiresAt)))
			}
			for i, x := range all.Logins {
				t.add(plain(ids[len(limited)+i]), cell{"own login", a.style.out.dim}, plain("all"), plain("everything"),
					plain(a.age(x.CreatedAt)), plain(a.until(x.ExpiresAt)))
			}
			return t.write(a.env.Stdout, a.style.out, a.style.width())
		},
	}
}

// machineNames are the names of the machines by their ids.
func machineNames(ctx context.Context, c *client.Client) (map[string]string, error) {
	all, err := c.Machines(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(all))
	for _, m := range all {
		names[m.ID] = m.Name
	}
	return names, nil
}

// renamed puts names for ids; a machine that is gone keeps its id.
func renamed(ids *[]string, names map[string]string) *[]string {
	if ids == nil {
		return nil
	}
	out := make([]string, len(*ids))
	for i, id := range *ids {
		out[i] = first(names[id], id)
	}
	return &out
}

func (a *app) tokenRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke TOKEN...", Short: "End tokens or logins, with their sessions and connections",
		Long: `revoke ends tokens, or logins of your own, at once. TOKEN is an id as token list
shows it, an unambiguous beginning of one, or the name that it was made with.`,
		Example: "  farhand token revoke ci\n  farhand token revoke token-290423af login-a3249f50",
		Args:    between(1, 1000, "one or more tokens, as token list shows them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, "revoked", tokensByName, (*client.Client).RevokeToken)
		},
	}
}

func tokensByName(ctx context.Context, c *client.Client) ([]named, error) {
	all, err := c.Tokens(ctx)
	var list []named
	for _, x := range slices.Concat(all.Tokens, all.Agents, all.Logins) {
		list = append(list, named{x.ID, x.Name})
	}
	return list, err
}

// each does one thing for several things, each named by an id or what stands for
// it, and stops at the first failure. done is what --json calls the ids afterwards.
func (a *app) each(ctx context.Context, args []string, done string,
	list func(context.Context, *client.Client) ([]named, error), do func(*client.Client, context.Context, string) error) error {
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	all, err := list(ctx, c)
	if err != nil {
		return err
	}
	ids := make([]string, len(args))
	for i, arg := range args {
		if ids[i], err = pick(all, arg); err != nil {
			return err
		}
	}
	for _, id := range ids {
		if err := do(c, ctx, id); err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
	}
	return a.done(map[string]any{done: ids})
}
