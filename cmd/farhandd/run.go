package main

import (
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"farhand/config"
	"farhand/daemon"
)

func (o *options) runCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "run",
		Short: "Run the daemon in the foreground",
		Long: `Run the daemon in the foreground until SIGTERM or SIGINT.

Without tokens it asks the platform for a pairing code and shows it; approve it
with 'farhand approve CODE' or on the page that the QR code opens. Where the
platform offers no device authorisation it exits with status 77 (under systemd it
stays up and says so): then use 'farhandd login'.

Under a service manager SIGHUP has the configuration read again: log_level is put to
use at once, and of every other changed key the log says that it needs a restart.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.load(cmd)
			if err != nil {
				return err
			}
			level := new(slog.LevelVar)
			level.Set(c.LogLevel)
			return daemon.Run(cmd.Context(), daemon.Options{
				Config:  c,
				Log:     o.logTo(level),
				Screen:  o.stdout,
				Environ: o.environ,
				Hangups: o.hangups,
				Load:    func() (config.Config, error) { return o.load(cmd) },
				Level:   level,
			})
		},
	}
}

func (o *options) logger(c config.Config) *slog.Logger { return o.logTo(c.LogLevel) }

func (o *options) logTo(level slog.Leveler) *slog.Logger {
	return slog.New(slog.NewTextHandler(o.stderr, &slog.HandlerOptions{Level: level}))
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("unexpected argument %q", args[0])}
	}
	return nil
}

func (o *options) loginCommand() *cobra.Command {
	var tokens string
	cmd := &cobra.Command{
		Use:   "login",
		Short: "Pair this machine with its platform",
		Long: `Pair this machine: by device code where the platform offers it (approve the
shown code), otherwise by a page that you open in any browser and whose redirected
address you paste back here. --tokens FILE stores tokens obtained elsewhere:
{"access_token": "...", "refresh_token": "...", "access_token_expires_at": "..."}.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.load(cmd)
			if err != nil {
				return err
			}
			login := daemon.LoginOptions{Config: c, Log: o.logger(c), Screen: o.stdout, Input: o.stdin, Environ: o.environ, Local: o.socket(cmd.Context(), c)}
			if tokens != "" {
				if login.Tokens, err = readTokens(tokens, o); err != nil {
					return err
				}
			}
			return daemon.Login(cmd.Context(), login)
		},
	}
	cmd.Flags().StringVar(&tokens, "tokens", "", "store the tokens in this `file` (- for standard input)")
	return cmd
}

func readTokens(name string, o *options) ([]byte, error) {
	const limit = 64 << 10
	if name == "-" {
		return readLimited(o.stdin, limit)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	defer f.Close()
	return readLimited(f, limit)
}

func (o *options) logoutCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "logout",
		Short: "Revoke this machine's tokens and forget them",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.load(cmd)
			if err != nil {
				return err
			}
			return daemon.Logout(cmd.Context(), daemon.LoginOptions{Config: c, Log: o.logger(c), Screen: o.stdout, Environ: o.environ, Local: o.socket(cmd.Context(), c)})
		},
	}
}

func (o *options) resumeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "resume",
		Short: "Let a halted daemon connect again",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := o.load(cmd)
			if err != nil {
				return err
			}
			if err := o.socket(cmd.Context(), c).Resume(cmd.Context()); err != nil {
				return err
			}
			_, err = fmt.Fprintln(o.stdout, "The daemon connects if it was halted; farhandd status shows how it goes.")
			return err
		},
	}
}
