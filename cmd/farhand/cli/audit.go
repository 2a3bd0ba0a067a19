package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (a *app) audit() *cobra.Command {
	verify := &cobra.Command{
		Use:   "verify [MACHINE]",
		Short: "Check that a machine's audit log is whole",
		Long: `verify has the machine check the chain of its audit log and compares its head with
the highest that the relay has seen, so that a log that was cut or rolled back shows.
It gives 1 if there is a problem.`,
		Example: "  farhand audit verify pi",
		Args:    between(0, 1, "at most one machine"),
		RunE: func(cmd *cobra.Command, args []string) error {
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
				a.printf("%s\n", a.verdict(report.OK, report.Seq))
				for _, p := range report.Problems {
					a.printf("  %s\n", clean(p))
				}
				if report.Anchor != nil {
					a.printf("  the relay has seen record %d\n", report.Anchor.Seq)
				}
			}
			if !report.OK {
				return exitStatus(exitFailed)
			}
			return nil
		},
		ValidArgsFunction: a.completeMachine(""),
	}
	return group("audit", "Check audit logs", verify)
}

func (a *app) verdict(ok bool, seq int64) string {
	if ok {
		return a.style.out.green("ok") + fmt.Sprintf(": the log is whole up to record %d", seq)
	}
	return a.style.out.red("not ok") + fmt.Sprintf(": the log is not whole; its head is record %d", seq)
}
