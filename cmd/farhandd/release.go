package main

import (
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/spf13/cobra"

	"farhand/daemon"
)

func (o *options) releaseCommand() *cobra.Command {
	var refuse bool
	cmd := &cobra.Command{
		Use:   "release [ID]",
		Short: "Let an answer about private files go",
		Long: `Let go what the local model said about private files, with privacy.release on.
Without ID, show the answers that wait: each whole, as it would leave the machine.
Only root and the daemon's own user may.
Exit status 0 if it was done, 1 if no such answer waits or the daemon doesn't run.`,
		Example: "  farhandd release\n  farhandd release 5f0c1a2b\n  farhandd release --refuse 5f0c1a2b",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 || refuse && len(args) == 0 {
				return usageError{fmt.Errorf("release takes one ID at most, and --refuse needs it")}
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := o.load(cmd)
			if err != nil {
				return err
			}
			local := o.socket(cmd.Context(), c)
			if len(args) == 1 {
				return local.Decide(cmd.Context(), args[0], !refuse)
			}
			answers, err := local.Answers(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return o.printJSON(answers)
			}
			return printAnswers(o.stdout, answers, time.Now())
		},
	}
	cmd.Flags().BoolVar(&refuse, "refuse", false, "don't let it go")
	o.jsonFlag(cmd)
	return cmd
}

func printAnswers(out io.Writer, answers []daemon.Answer, now time.Time) error {
	if len(answers) == 0 {
		_, err := fmt.Fprintln(out, "No answer waits.")
		return err
	}
	var b strings.Builder
	for _, a := range answers {
		fmt.Fprintf(&b, "%s  %s for session %s, %d characters, waits until %s (%s)\n",
			a.ID, a.Model, a.Session, len([]rune(a.Text)), a.Until.Local().Format(time.TimeOnly), a.Until.Sub(now).Round(time.Second))
		for line := range strings.SplitSeq(a.Text, "\n") {
			fmt.Fprintf(&b, "  | %s\n", harmless(line))
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// harmless is a line without what a terminal would do something at.
func harmless(line string) string {
	return strings.Map(func(r rune) rune {
		if r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, line)
}
