package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"farhand/client"
)

func (a *app) audit() *cobra.Command {
	var relay bool
	var lines int
	verify := &cobra.Command{
		Use:   "verify [MACHINE]",
		Short: "Check that a machine's audit log is whole, or the relay's of you",
		Long: `verify has the machine check the chain of its audit log and compares its head with
the highest that the relay has seen, so that a log that was cut or rolled back shows.
With --relay the relay checks its own log of what your logins and tokens asked for.
It gives 1 if there is a problem.`,
		Example: "  farhand audit verify pi\n  farhand audit verify --relay",
		Args:    between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if relay && len(args) > 0 {
				return usage("either a machine or --relay")
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			if relay {
				return a.verifyActs(ctx, c)
			}
			machine, err := a.machine(ctx, c, first(args...))
			if err != nil {
				return err
			}
			report, err := c.AuditVerify(ctx, machine)
			if err != nil {
				return err
			}
			report.Problems = append([]string{}, report.Problems...)
			if a.json {
				if err := a.printJSON(report); err != nil {
					return err
				}
			} else {
				a.tell("%s", a.verdict(report.OK, report.Seq))
				for _, p := range report.Problems {
					a.tell("  %s", clean(p))
				}
				if report.Anchor != nil {
					a.tell("  the relay has seen record %d", report.Anchor.Seq)
				}
			}
			if !report.OK {
				return exitStatus(exitFailed)
			}
			return nil
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	g := group("audit", "Check audit logs, and read the relay's of you", verify)
	g.Long = `Each machine records what was done on it, and the relay what your logins and
tokens asked for: when, by which of them, on which machine, what kind of request and
how it ended, never what was in it. audit --relay shows the relay's records of you;
it needs your own login. What changes something has two: before (asked) and after.

Here --relay takes no URL. Which relay is asked says --relay-url, FARHAND_URL, or
--relay URL before the word audit.`
	g.Example = "  farhand audit --relay\n  farhand audit --relay --lines 1000 --json\n  farhand audit verify pi\n  farhand audit --relay --relay-url https://relay.example.org"
	g.PersistentFlags().BoolVar(&relay, "relay", false, "the relay's log of you, not a machine's")
	g.PersistentFlags().StringVar(&a.relay, "relay-url", "", "ask the relay at this `URL`, as --relay does elsewhere (FARHAND_URL; default: the one logged in to)")
	g.Flags().IntVarP(&lines, "lines", "n", 50, "how many records, up to 1000")
	help := g.RunE
	g.RunE = func(cmd *cobra.Command, args []string) error {
		if !relay || len(args) > 0 {
			return help(cmd, args)
		}
		if lines < 1 || lines > 1000 {
			return usage("--lines is a number from 1 to 1000")
		}
		c, err := a.connect()
		if err != nil {
			return err
		}
		defer c.Close()
		return a.showActs(cmd.Context(), c, lines)
	}
	return g
}

// auditArgs are the arguments as the command takes them: of audit --relay is a flag
// of its own, so that --relay URL, which all verbs may have before them, has another
// name there.
func auditArgs(args []string) []string {
	out := slices.Clone(args)
	named := -1 // where --relay and its URL begin
	for i := 0; i < len(out); i++ {
		switch {
		case out[i] == "--relay" && i+1 < len(out):
			named = i
			i++
		case strings.HasPrefix(out[i], "--relay="):
			named = i
		case out[i] == "--config":
			i++
		case out[i] == "--" || !strings.HasPrefix(out[i], "-"):
			if out[i] != "audit" || named < 0 {
				return out
			}
			if out[named] == "--relay" {
				out[named+1] = "--relay=" + out[named+1]
				out = slices.Delete(out, named, named+1)
			}
			out[named] = "--relay-url=" + strings.TrimPrefix(out[named], "--relay=")
			return out
		}
	}
	return out
}

// showActs prints what the owner's logins and tokens asked of the relay.
func (a *app) showActs(ctx context.Context, c *client.Client, lines int) error {
	got, err := c.Acts(ctx, lines)
	if err != nil {
		return err
	}
	a.noteMissing(got.InstancesMissing)
	if a.json {
		got.Records = append([]client.Act{}, got.Records...)
		return a.printJSON(got)
	}
	names, err := machineNames(ctx, c)
	if err != nil {
		return err
	}
	by, err := holderNames(ctx, c)
	if err != nil {
		return err
	}
	t := table{head: []string{"WHEN", "WHO", "MACHINE", "WHAT", "HOW"}}
	for _, r := range got.Records {
		when := time.UnixMilli(int64(r.TS * 1000)).Local().Format(time.DateTime)
		machine := r.Details.MachineID
		how := plain("done")
		switch {
		case r.Details.Phase != "":
			how = cell{"asked", a.style.out.dim}
		case !r.Result.OK && r.Result.ErrorCode != nil:
			how = cell{clean(*r.Result.ErrorCode), a.style.out.red}
		case !r.Result.OK:
			how = cell{"failed", a.style.out.red}
		}
		t.add(plain(when), plain(dash(first(by[r.Details.Holder], shortIDs([]string{r.Details.Holder})[0]))), plain(dash(first(names[machine], machine))), plain(clean(r.Op)), how)
	}
	return t.write(a.env.Stdout, a.style.out, a.style.width())
}

// noteMissing says that what follows isn't all.
func (a *app) noteMissing(instances int) {
	if instances > 0 {
		a.note("%d of the relay's instances didn't answer: their records are missing here", instances)
	}
}

// holderNames are what people call logins and tokens, by the ids in records.
func holderNames(ctx context.Context, c *client.Client) (map[string]string, error) {
	all, err := c.Tokens(ctx)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string)
	for _, t := range slices.Concat(all.Tokens, all.Agents) {
		names[t.ID] = first(t.Name, shortIDs([]string{t.ID})[0])
	}
	for _, l := range all.Logins {
		names[l.ID] = "own login"
	}
	return names, nil
}

func (a *app) verifyActs(ctx context.Context, c *client.Client) error {
	report, err := c.VerifyActs(ctx)
	if err != nil {
		return err
	}
	a.noteMissing(report.InstancesMissing)
	report.Problems = append([]string{}, report.Problems...)
	switch {
	case a.json:
		if err := a.printJSON(report); err != nil {
			return err
		}
	case report.OK:
		a.tell("%s: the relay's %d records of you are whole", a.style.out.green("ok"), report.Records)
	default:
		a.tell("%s: the relay's records of you are not whole", a.style.out.red("not ok"))
	}
	if !a.json {
		for _, p := range report.Problems {
			a.tell("  %s", clean(p))
		}
	}
	if !report.OK {
		return exitStatus(exitFailed)
	}
	return nil
}

func (a *app) verdict(ok bool, seq int64) string {
	if ok {
		return a.style.out.green("ok") + fmt.Sprintf(": the log is whole up to record %d", seq)
	}
	return a.style.out.red("not ok") + fmt.Sprintf(": the log is not whole; its head is record %d", seq)
}
