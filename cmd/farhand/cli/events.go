package cli

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"farhand/client"
)

func (a *app) events() *cobra.Command {
	var (
		query client.EventQuery
		until untilFlags
	)
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Show what happens to your machines",
		Long: `events shows what the relay keeps of what happened (machines that come and go, their
devices, grants, claims, logins), and with --follow goes on with what happens, until
Ctrl-C. After a lost link nothing is missing, unless it says so: the relay keeps the
last 1024 events, and on its own none over its restart. A token sees its machines alone.

With --json there is an event a line; give the cursor of the last one that was seen to
--after, to go on there another time.`,
		Example: `  farhand events
  farhand events -f --machine pi
  farhand events -f --json --after 0f6c2d4e8a1b.17`,
		Args: between(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel, err := until.bound(cmd.Context())
			if err != nil {
				return err
			}
			defer cancel()
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			return a.runEvents(ctx, c, query, until.count)
		},
	}
	cmd.Flags().BoolVarP(&query.Follow, "follow", "f", false, "go on with what happens")
	cmd.Flags().StringVar(&query.Machine, "machine", "", "only what happens to this `MACHINE`")
	cmd.Flags().StringVar(&query.After, "after", "", "only what came after this `CURSOR`")
	until.add(cmd, "events")
	if err := cmd.RegisterFlagCompletionFunc("machine", func(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		return a.completeMachine("")(cmd, nil, typed)
	}); err != nil {
		panic(err) // as in choices
	}
	return cmd
}

func (a *app) runEvents(ctx context.Context, c *client.Client, query client.EventQuery, count int) error {
	query.OnTrouble = func(err error) {
		if err != nil {
			a.note("The link is lost (%s); it is tried again.", clean(err.Error()))
		} else {
			a.note("The link is back.")
		}
	}
	seen := 0
	for e, err := range c.Events(ctx, query) {
		switch {
		case err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()):
			a.belowInterrupt(ctx)
			return nil
		case err != nil:
			return err
		case a.json:
			if err := a.line(e); err != nil {
				return err
			}
		case e.Gap != "":
			a.note("%s", gapText(e.Gap))
		default:
			a.printEvent(e)
		}
		if a.outErr != nil {
			return a.outErr
		}
		if e.Gap == "" {
			if seen++; seen == count {
				return nil
			}
		}
	}
	if seen == 0 && !query.Follow {
		a.note("The relay keeps no events; farhand events -f waits for some.")
	}
	return nil
}

func gapText(gap string) string {
	switch gap {
	case "relay_restarted":
		return "The relay was started anew: what happened before that, and wasn't shown, is not known any more."
	case "not_recorded":
		return "Events are missing here: a part of the relay was cut off from the others for too long."
	case "too_old":
		return "Events are missing here: more happened since than the relay keeps."
	}
	return "Events are missing here (" + clean(gap) + ")."
}

// printEvent writes an event on one line.
func (a *app) printEvent(e client.Event) {
	p := a.style.out
	what := strings.ReplaceAll(e.Type, "_", " ")
	switch e.Type {
	case "machine_online", "device_added", "machine_paired":
		what = p.green(what)
	case "machine_offline", "machine_removed", "device_removed", "access_revoked", "login_refused", "audit_anchor_differs":
		what = p.red(what)
	default:
		what = p.bold(clean(what))
	}
	parts := []string{p.dim(e.Time.Local().Format(time.DateTime)), what}
	add := func(text string) {
		if text != "" {
			parts = append(parts, clean(text))
		}
	}
	add(first(e.MachineName, e.MachineID))
	if e.Device != nil {
		add(e.Device.ID)
		if e.Type == "device_changed" && !e.Device.Available {
			add(first(e.Device.Reason, "not available"))
		}
	}
	add(e.Subject)
	if e.Address != "" {
		add("from " + e.Address)
	}
	if e.Reason != "" {
		add("(" + e.Reason + ")")
	}
	a.tell("%s", strings.Join(parts, "  "))
}
