package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

func (a *app) terminals() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "terminals [MACHINE]",
		Short: "List and close the terminals of a machine",
		Long: `terminals lists what farhand shell and farhand exec have started on a machine and
that still runs; with --all also what ended within the last day, and
how. farhand shell MACHINE --attach TERMINAL comes back to one, also to see the end of
one that is over.`,
		Example: `  farhand terminals pi
  farhand terminals pi --all --json
  farhand terminals close pi 3c1e1f0a`,
		Args: between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error { return a.listTerminals(cmd, args, all) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return a.completeMachine("")(cmd, args, typed)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "list those too that have ended")
	cmd.AddCommand(&cobra.Command{
		Use:   "close [MACHINE] TERMINAL...",
		Short: "End programs and their terminals",
		Long: `close hangs programs up and ends all that they started. TERMINAL is an id as
terminals shows it, or an unambiguous beginning of one.`,
		Example: "  farhand terminals close pi 3c1e1f0a",
		Args:    between(1, 1000, "a machine, unless there is one alone, and one or more terminals"),
		RunE:    a.closeTerminals,
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return a.completeMachine("")(cmd, args, typed)
			}
			return a.completeTerminal(cmd, args[:1], typed)
		},
	})
	return cmd
}

func (a *app) listTerminals(cmd *cobra.Command, args []string, all bool) error {
	ctx := cmd.Context()
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	machine, err := a.machine(ctx, c, first(args...))
	if err != nil {
		return err
	}
	s, err := c.Open(ctx, client.Place{Machine: machine})
	if err != nil {
		return err
	}
	list, err := s.Terminals(ctx)
	if err != nil {
		return err
	}
	ids := make([]string, len(list))
	for i, t := range list {
		ids[i] = t.Terminal
	}
	ids = shortIDs(ids)
	shown := []wire.TerminalInfo{}
	t := table{head: []string{"TERMINAL", "PROGRAM", "DIRECTORY", "STATE", "SINCE", "VIEWERS"}}
	for i, x := range list {
		if x.Ended != nil && !all {
			continue
		}
		shown = append(shown, x)
		since := x.OpenedAt
		if x.Ended != nil {
			since = x.Ended.At
		}
		t.add(plain(ids[i]), plain(x.Program), plain(x.Cwd), a.terminalState(x), plain(a.age(since)), plain(strconv.Itoa(x.Viewers)))
	}
	if a.json {
		return a.printJSON(map[string]any{"terminals": shown})
	}
	if len(shown) == 0 {
		a.note("No terminals are open there.")
		return nil
	}
	return t.write(a.env.Stdout, a.style.out, a.style.width())
}

func (a *app) terminalState(t wire.TerminalInfo) cell {
	switch {
	case t.Ended == nil:
		return cell{"runs", a.style.out.green}
	case t.Ended.Reason != wire.TerminalExited:
		return cell{t.Ended.Reason, a.style.out.red}
	case t.Ended.ExitCode != nil && *t.Ended.ExitCode < 0:
		return cell{"ended by signal " + strconv.Itoa(-*t.Ended.ExitCode), a.style.out.red}
	case t.Ended.ExitCode != nil && *t.Ended.ExitCode != 0:
		return cell{"exited " + strconv.Itoa(*t.Ended.ExitCode), a.style.out.red}
	}
	return cell{"exited 0", a.style.out.dim}
}

func (a *app) closeTerminals(cmd *cobra.Command, args []string) error {
	ctx := cmd.Context()
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	named, ids := "", args
	if len(args) > 1 {
		named, ids = args[0], args[1:]
	}
	machine, err := a.machine(ctx, c, named)
	if err != nil {
		return err
	}
	s, err := c.Open(ctx, client.Place{Machine: machine})
	if err != nil {
		return err
	}
	closed := []string{}
	for _, text := range ids {
		id, err := terminalID(ctx, s, text)
		if err != nil {
			return err
		}
		if err := s.CloseTerminal(ctx, id); err != nil {
			return err
		}
		closed = append(closed, id)
	}
	return a.done(map[string]any{"closed": closed})
}

// completeTerminal proposes the terminals of the machine that stands before.
func (a *app) completeTerminal(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	directive := cobra.ShellCompDirectiveNoFileComp
	c, err := a.connect()
	if err != nil {
		return nil, directive
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), completionTimeout)
	defer cancel()
	machine, err := a.machine(ctx, c, first(args...))
	if err != nil {
		return nil, directive
	}
	s, err := c.Open(ctx, client.Place{Machine: machine})
	if err != nil {
		return nil, directive
	}
	list, err := s.Terminals(ctx)
	if err != nil {
		return nil, directive
	}
	var ids []string
	for _, t := range list {
		if t.Ended == nil && strings.HasPrefix(t.Terminal, typed) {
			ids = append(ids, t.Terminal[:min(len(t.Terminal), 2*shownID)]+"\t"+clean(t.Program))
		}
	}
	return ids, directive
}
