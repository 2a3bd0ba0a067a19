package cli

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"farhand/wire"
)

// priorities are syslog's levels by their number (syslog(3)), as journalctl names
// them.
var priorities = []string{"emerg", "alert", "crit", "err", "warning", "notice", "info", "debug"}

func (a *app) logs() *cobra.Command {
	var (
		request         wire.LogsRequest
		lines           int
		since, priority string
		until           untilFlags
	)
	cmd := &cobra.Command{
		Use:   "logs [MACHINE]",
		Short: "Show what a machine writes into its journal",
		Long: `logs shows the newest entries of a machine's journal, those of one unit with --unit,
and with --follow goes on with what comes, until Ctrl-C. Times are those of the
machine's clock in this computer's time zone. What was written while the link was lost
is shown when it is back.`,
		Example: `  farhand logs pi
  farhand logs pi -f -u ssh
  farhand logs pi --since 2h --priority warning --json`,
		Args: between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("lines") {
				if lines < 0 || lines > wire.MaxLogLines {
					return usage("--lines takes 0 to %d", wire.MaxLogLines)
				}
				request.Lines = &lines
			}
			if since != "" {
				t, err := a.ago(since)
				if err != nil {
					return err
				}
				seconds := float64(t.UnixMicro()) / 1e6
				request.Since = &seconds
			}
			if priority != "" {
				n := slices.Index(priorities, priority)
				if n < 0 {
					return usage("there is no priority %q; there are %s", priority, join(priorities))
				}
				request.Priority = &n
			}
			return a.runLogs(cmd, args, request, until)
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	flags := cmd.Flags()
	flags.BoolVarP(&request.Follow, "follow", "f", false, "go on with what comes")
	flags.StringVarP(&request.Unit, "unit", "u", "", "only this `UNIT` of systemd, or a pattern of some: ssh, 'getty@*'")
	flags.IntVarP(&lines, "lines", "n", wire.LogLinesDefault, "begin with this many of the newest entries")
	flags.StringVar(&since, "since", "", "begin at this `TIME`: 2h or 3d ago, 2030-01-31, or 2030-01-31T12:00:00Z")
	flags.StringVarP(&priority, "priority", "p", "", "only what is as urgent as this `LEVEL` or more: "+join(priorities))
	choices(cmd, "priority", priorities...)
	until.add(cmd, "entries")
	return cmd
}

// ago reads a time in the past: how long ago, or a date and perhaps a time.
func (a *app) ago(s string) (time.Time, error) {
	if d, err := duration(s); err == nil && d >= 0 {
		return a.env.Now().Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, s, time.Local); err == nil && t.Unix() >= 0 {
			return t, nil
		}
	}
	return time.Time{}, usage("--since %q is neither how long ago, such as 2h or 3d, nor a time such as 2030-01-31T12:00:00Z", s)
}

func (a *app) runLogs(cmd *cobra.Command, args []string, request wire.LogsRequest, until untilFlags) error {
	if err := until.check(); err != nil {
		return err
	}
	ctx := cmd.Context()
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := a.at(ctx, c, first(args...))
	if err != nil {
		return err
	}
	st, err := s.Logs(ctx, request)
	if err != nil {
		return err
	}
	ctx, cancel, err := until.bound(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	w := watching{
		opened:    wire.LogsResponse{Opened: wire.Opened{Stream: st.ID()}},
		record:    records(a, until.count, a.printLog),
		lost:      func(from, to int64) { a.note("%d entries could not be read.", to-from) },
		ungranted: wire.CapabilityNotGranted,
	}
	return a.follow(ctx, st, w)
}

// printLog writes an entry as journalctl does, with the further lines of its text
// below the first.
func (a *app) printLog(r wire.LogRecord) error {
	if r.Error != "" {
		return wire.Errorf(wire.InternalError, "the machine can't read its journal: %s", clean(r.Error))
	}
	p := a.style.out
	from := clean(first(r.Identifier, r.Unit))
	if r.PID != 0 {
		from += "[" + strconv.Itoa(r.PID) + "]"
	}
	text := strings.TrimRight(r.Message, "\n")
	if r.Truncated {
		text += " …"
	}
	paint := func(s string) string { return s }
	if r.Priority != nil {
		switch {
		case *r.Priority <= 3:
			paint = p.red
		case *r.Priority <= 5:
			paint = p.bold
		}
	}
	head := p.dim(time.UnixMicro(r.TimeUS).Local().Format("Jan 02 15:04:05")) + " "
	if from != "" {
		head += p.blue(from) + ": "
	}
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			head = "    "
		}
		a.printf("%s\n", foldAt(head+paint(clean(strings.ReplaceAll(line, "\t", "    "))), a.style.fold(), 4))
	}
	return a.outErr
}
