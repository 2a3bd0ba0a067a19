package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"farhand/client"
)

func (a *app) claim() *cobra.Command {
	g := group("claim", "Make and revoke keys with which a machine pairs by itself", a.claimCreate(), a.claimList(), a.claimRevoke())
	g.Long = `A claim key lets one machine pair without a screen and without an approval: it is
written onto its card and used once. What the machine is allowed is fixed here.`
	g.Example = `  farhand claim create --name greenhouse --allow files,hardware_gpio > claim-key
  farhand claim list
  farhand claim revoke greenhouse`
	return g
}

func (a *app) claimCreate() *cobra.Command {
	var (
		name, expires             string
		capability, device, roots []string
	)
	cmd := &cobra.Command{
		Use:     "create",
		Short:   "Make a claim key",
		Long:    "create prints the new key, once, on standard output.",
		Example: "  farhand claim create --name greenhouse --allow files,hardware_gpio --expires 24h",
		Args:    between(0, 0, "no arguments"),
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
			made, err := c.CreateClaim(cmd.Context(), client.NewClaim{
				MachineName: name, Capabilities: caps, Devices: devices, Roots: nonEmpty(roots), Expires: ends,
			})
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(made)
			}
			a.note("Claim %s for one machine, good until used; %s. It is shown this once:", made.ID, a.ending(made.ExpiresAt))
			a.printf("%s\n", made.ClaimKey)
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&name, "name", "", "your name for the machine (default: its own)")
	flags.StringSliceVar(&capability, "allow", nil, "allow these `CAPABILITIES`, separated by commas")
	completeCapabilities(cmd, "allow")
	flags.StringArrayVar(&device, "device", nil, "allow only devices whose id fits this `PATTERN`, of them only ;lines=… and ;ops=… if given (see grants); may be repeated")
	flags.StringArrayVar(&roots, "root", nil, "allow only this `DIRECTORY` and what is below it; may be repeated")
	flags.StringVar(&expires, "expires", "", "when it ends: a `TIME`, or a duration such as 24h or 7d (default 7d)")
	cmd.MarkFlagRequired("allow")
	return cmd
}

func (a *app) claimList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the claim keys", Args: between(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			all, err := c.Claims(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(map[string]any{"claims": append([]client.Claim{}, all...)})
			}
			if len(all) == 0 {
				a.note("There are no claim keys.")
				return nil
			}
			ids := make([]string, len(all))
			for i, x := range all {
				ids[i] = x.ID
			}
			ids = shortIDs(ids)
			t := table{head: []string{"ID", "FOR", "ALLOWED", "STATE"}}
			for i, x := range all {
				state := "ends " + a.until(x.ExpiresAt)
				if !x.UsedAt.IsZero() {
					state = fmt.Sprintf("used %s by %s from %s", a.age(x.UsedAt), dash(x.MachineID), dash(x.Address))
				}
				t.add(plain(ids[i]), plain(dash(x.MachineName)), plain(ceiling(x.Ceiling())), plain(state))
			}
			return t.write(a.env.Stdout, a.style.out, a.style.width())
		},
	}
}

func (a *app) claimRevoke() *cobra.Command {
	return &cobra.Command{
		Use: "revoke CLAIM...", Short: "Make unused claim keys worthless",
		Long: `revoke makes claim keys that no machine has used yet worthless. CLAIM is an id as
claim list shows it, or an unambiguous beginning of one, or the name that was given
for the machine.`,
		Example: "  farhand claim revoke greenhouse",
		Args:    between(1, 1000, "one or more claims, as claim list shows them"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.each(cmd.Context(), args, "revoked", claimsByName, (*client.Client).RevokeClaim)
		},
	}
}

func claimsByName(ctx context.Context, c *client.Client) ([]named, error) {
	all, err := c.Claims(ctx)
	var list []named
	for _, x := range all {
		list = append(list, named{x.ID, x.MachineName})
	}
	return list, err
}
