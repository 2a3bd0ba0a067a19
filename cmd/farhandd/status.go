package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"farhand/daemon"
	"farhand/provision/request"
)

func readLimited(r io.Reader, limit int64) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("larger than %d bytes", limit)
	}
	return b, nil
}

func (o *options) statusCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Ask the running daemon how it is",
		Long: `Ask the running daemon how it is: whether it is connected or waits to be approved,
what it offers, its sessions, its devices, its audit log.
Exit status 0 if it answers, whatever its state, 1 if it doesn't run.`,
		Example: "  farhandd status\n  farhandd status --json",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.load(cmd)
			if err != nil {
				return err
			}
			s, err := o.socket(cmd.Context(), c).Status(cmd.Context())
			if errors.Is(err, daemon.ErrNotRunning) {
				return fmt.Errorf("%w; start it with: %s run", err, o.self())
			}
			if err != nil {
				return err
			}
			if o.json {
				return o.printJSON(s)
			}
			return printStatus(o.stdout, s)
		},
	}
	o.jsonFlag(cmd)
	return cmd
}

func printStatus(out io.Writer, s daemon.Status) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row := func(label, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", label, fmt.Sprintf(format, args...))
	}
	row("state", "%s for %s", s.State, time.Since(s.Since).Round(time.Second))
	if s.Detail != "" {
		row("", "%s", s.Detail)
	}
	if p := s.Pairing; p != nil {
		row("pairing code", "%s at %s (until %s)", p.UserCode, p.VerificationURI, p.ExpiresAt.Local().Format(time.TimeOnly))
	}
	row("platform", "%s", s.Platform)
	row("machine", "%s (%s)", s.DisplayName, s.MachineID)
	if s.Board != "" {
		row("board", "%s", s.Board)
	}
	for _, line := range machineRows(s.Machine) {
		row(line[0], "%s", line[1])
	}
	row("version", "%s, pid %d, up %s", s.Version, s.PID, (time.Duration(s.Uptime) * time.Second).String())
	row("roots", "%s", strings.Join(s.Roots, ", "))
	capabilities := make([]string, len(s.Capabilities))
	for i, c := range s.Capabilities {
		capabilities[i] = string(c)
	}
	row("capabilities", "%s", strings.Join(capabilities, ", "))
	row("shell", "%s", s.Shell.Words)
	row("local model", "%s", s.LLM.Words)
	row("sessions", "%d", len(s.Sessions))
	for _, session := range s.Sessions {
		row("", "%s in %s", session.ID, session.Root)
	}
	available := 0
	for _, d := range s.Devices {
		if d.Available {
			available++
		}
	}
	row("devices", "%d, %d available", len(s.Devices), available)
	row("audit", "record %d, %d bytes", s.Audit.Seq, s.Audit.Bytes)
	if s.LastError != "" {
		row("last error", "%s", s.LastError)
	}
	if s.RetryAt != nil {
		row("next try", "%s", s.RetryAt.Local().Format(time.TimeOnly))
	}
	for _, warning := range s.Warnings {
		row("note", "%s", warning)
	}
	return w.Flush()
}

// watchdogWords say with what the hardware's watchdog runs, and what it was to be.
func watchdogWords(w request.Watchdog) string {
	words := "doesn't run"
	if w.EffectiveS > 0 {
		words = fmt.Sprintf("after %d s", w.EffectiveS)
	}
	if w.WantedS > 0 && w.WantedS != w.EffectiveS {
		words += fmt.Sprintf(", %d s wanted", w.WantedS)
	}
	return words + " (" + w.Identity + ")"
}

// machineRows are what is known of the machine below the daemon.
func machineRows(m daemon.MachineStatus) [][2]string {
	var rows [][2]string
	add := func(label, value string) {
		if value != "" {
			rows = append(rows, [2]string{label, value})
		}
	}
	add("name nearby", m.MDNSName)
	add("addresses", strings.Join(m.Addresses, ", "))
	if m.OfflineSince != nil {
		add("offline", "the platform isn't reached since "+m.OfflineSince.Local().Format(time.DateTime))
	}
	add("clock", string(m.ClockState))
	add("wifi", m.Wifi)
	add("power", m.Power)
	if m.Slot != "" {
		add("slot", fmt.Sprintf("%s (by %s)", m.Slot, m.SlotSource))
	}
	if m.Bootloader != nil {
		add("bootloader", m.Bootloader.Format(time.DateOnly))
	}
	if m.NotUpdatable != "" {
		add("updates", "not possible: "+m.NotUpdatable)
	}
	if w := m.Watchdog; w != nil {
		add("watchdog", watchdogWords(*w))
	}
	if m.NewBoard {
		add("board", "another than before: this is a new identity, the old one is kept aside")
	}
	for _, item := range m.Provisioned {
		if item.Outcome != request.OutcomeApplied {
			add("card", strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", item.Item, item.Outcome, item.Why), ": "))
		}
	}
	return rows
}

func (o *options) doctorCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what the daemon needs, and say what to do",
		Long: `Check the clock, the network, the token, the roots, the devices and permissions.
Exit status 0 if nothing stands in the way, 1 if something does, 78 if the
configuration can't be used.`,
		Example: "  farhandd doctor\n  farhandd doctor --config ./farhandd.toml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.load(cmd)
			if err != nil {
				return err
			}
			findings := daemon.Doctor(cmd.Context(), daemon.DoctorOptions{Config: c, Environ: o.environ, Local: o.socket(cmd.Context(), c), Command: o.self()})
			if o.json {
				err = o.printJSON(map[string]any{"findings": findings})
			} else {
				err = printFindings(o.stdout, findings)
			}
			if err != nil {
				return err
			}
			for _, f := range findings {
				if f.Level == daemon.Fail {
					return failed{exitFailed}
				}
			}
			return nil
		},
	}
	o.jsonFlag(cmd)
	return cmd
}

func printFindings(out io.Writer, findings []daemon.Finding) error {
	for _, f := range findings {
		if _, err := fmt.Fprintf(out, "[%-4s] %-12s %s\n", strings.ToUpper(string(f.Level)), f.About, f.Found); err != nil {
			return err
		}
		if f.Do != "" {
			if _, err := fmt.Fprintf(out, "       %-12s → %s\n", "", f.Do); err != nil {
				return err
			}
		}
	}
	return nil
}
