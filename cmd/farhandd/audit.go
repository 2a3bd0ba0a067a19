package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"farhand/audit"
	"farhand/daemon"
)

func (o *options) auditCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "Read, check and export the audit log",
		Example: "  farhandd audit tail -n 5\n  farhandd audit verify\n  farhandd audit export -o audit.zip"}
	cmd.AddCommand(o.auditTail(), o.auditVerify(), o.auditExport())
	return cmd
}

func (o *options) auditTail() *cobra.Command {
	var n int
	cmd := &cobra.Command{
		Use:   "tail",
		Short: "Print the last records, one JSON object a line",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.load(cmd)
			if err != nil {
				return err
			}
			if n < 1 {
				return usageError{fmt.Errorf("-n must be at least 1")}
			}
			records, err := audit.Tail(daemon.AuditPath(c.StateDir), n)
			if err != nil {
				return err
			}
			for _, r := range records {
				if _, err := fmt.Fprintf(o.stdout, "%s\n", r); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().IntVarP(&n, "lines", "n", 20, "how many records")
	o.jsonFlag(cmd) // records are JSON either way
	return cmd
}

func (o *options) auditVerify() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Check that no record was changed, cut off or taken out",
		Long:  "Check the whole chain, over all rotated files, against the sealed head.\nExit status 0 if it is whole, 1 if it isn't.",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.load(cmd)
			if err != nil {
				return err
			}
			key, err := daemon.AuditKey(c.StateDir)
			if err != nil {
				return err
			}
			report, err := audit.Verify(cmd.Context(), daemon.AuditPath(c.StateDir), key)
			if err != nil {
				return err
			}
			if o.json {
				err = o.printJSON(report)
			} else {
				err = o.printReport(report)
			}
			if err == nil && !report.OK {
				return failed{exitFailed}
			}
			return err
		},
	}
	o.jsonFlag(cmd)
	return cmd
}

func (o *options) printReport(r audit.Report) error {
	verdict := "whole"
	if !r.OK {
		verdict = "BROKEN"
	}
	files := "1 file"
	if n := len(r.Files); n != 1 {
		files = fmt.Sprintf("%d files", n)
	}
	if _, err := fmt.Fprintf(o.stdout, "%s: %d records in %s, head %d %s\n", verdict, r.Records, files, r.Seq, r.HMAC); err != nil {
		return err
	}
	for _, p := range r.Problems {
		if _, err := fmt.Fprintln(o.stdout, "  "+p); err != nil {
			return err
		}
	}
	return nil
}

func (o *options) auditExport() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "export",
		Short: "Write a zip of the log with a signed manifest",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.load(cmd)
			if err != nil {
				return err
			}
			key, err := daemon.AuditKey(c.StateDir)
			if err != nil {
				return err
			}
			if output == "-" {
				return audit.Export(cmd.Context(), o.stdout, daemon.AuditPath(c.StateDir), key)
			}
			f, err := os.OpenFile(output, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
			if err != nil {
				return fmt.Errorf("export: %w", err)
			}
			err = audit.Export(cmd.Context(), f, daemon.AuditPath(c.StateDir), key)
			if closeErr := f.Close(); err == nil {
				err = closeErr
			}
			if err != nil {
				return fmt.Errorf("export to %s: %w", output, err)
			}
			_, err = fmt.Fprintln(o.stdout, "written", output)
			return err
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "farhand-audit.zip", "the `file` to write (- for standard output)")
	return cmd
}
