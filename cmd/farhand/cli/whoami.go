package cli

import (
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

func (a *app) whoami() *cobra.Command {
	return &cobra.Command{
		Use:   "whoami",
		Short: "Say as whom you are signed in, where and until when",
		Args:  between(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			me, err := c.Whoami(cmd.Context())
			if err != nil {
				return err
			}
			if a.json {
				return a.printJSON(struct {
					URL string `json:"url"`
					client.Identity
				}{c.URL(), me})
			}
			var t table
			kind := "the owner's own login"
			if !me.Login {
				kind = "a token"
			}
			t.add(plain("relay"), plain(c.URL()))
			t.add(plain("owner"), plain(me.Owner.Name))
			t.add(plain("signed in by"), plain(kind))
			t.add(plain("ends"), plain(a.until(me.ExpiresAt)))
			if !me.Login {
				t.add(plain("machines"), plain(listOrAll(me.Machines)))
				if me.Ceiling != nil {
					t.add(plain("allowed"), plain(ceiling(*me.Ceiling)))
				}
			}
			return t.write(a.env.Stdout, a.style.out, a.style.width())
		},
	}
}

func listOrAll[T ~string](list *[]T) string {
	switch {
	case list == nil:
		return "all"
	case len(*list) == 0:
		return "none"
	}
	return join(*list)
}

// ceiling says in a line what a ceiling allows.
func ceiling(c wire.Ceiling) string {
	parts := []string{listOrAll(c.Capabilities)}
	if c.Capabilities == nil {
		parts[0] = "everything"
	}
	if c.Devices != nil {
		parts = append(parts, "devices "+devicePatterns(*c.Devices))
	}
	if c.Roots != nil {
		parts = append(parts, "roots "+listOrAll(c.Roots))
	}
	return strings.Join(parts, "; ")
}

func devicePatterns(grants []wire.DeviceGrant) string {
	if len(grants) == 0 {
		return "none"
	}
	parts := make([]string, len(grants))
	for i, g := range grants {
		parts[i] = g.Pattern
		if g.Lines != nil {
			parts[i] += " lines " + listOrAll(g.Lines)
		}
		if g.Ops != nil {
			parts[i] += " ops " + listOrAll(g.Ops)
		}
	}
	return strings.Join(parts, ", ")
}
