package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/cobra"

	"farhand/audit"
	"farhand/relay"
	"farhand/relay/oauth"
)

func (a *app) owner() *cobra.Command {
	var publicURL string
	owners := func() relay.Owners {
		return relay.Owners{DataDir: a.dataDir, PublicURL: publicURL, Log: a.logger(slog.LevelWarn)}
	}
	cmd := &cobra.Command{
		Use:   "owner",
		Short: "Owners: add, reset, list",
		Args:  cobra.NoArgs,
		RunE:  help,
	}
	cmd.PersistentFlags().StringVar(&publicURL, "public-url", "", "where the relay is reached, if it isn't running (default: where it was last)")
	cmd.AddCommand(
		a.ownerToken("add NAME", "Print a one-time link and token with which NAME sets up an account",
			func(ctx context.Context, name string) (oauth.Setup, error) { return owners().Add(ctx, name) }),
		a.ownerToken("reset NAME", "Print a one-time link and token that give NAME a new passphrase and end the logins",
			func(ctx context.Context, name string) (oauth.Setup, error) { return owners().Reset(ctx, name) }),
		&cobra.Command{
			Use:   "list",
			Short: "Print the names of the owners",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				names, err := owners().List(cmd.Context())
				if err != nil {
					return err
				}
				text := strings.Join(names, "\n")
				if text != "" {
					text += "\n"
				}
				return a.print(map[string][]string{"owners": names}, text)
			},
		})
	return cmd
}

func (a *app) ownerToken(use, short string, mint func(context.Context, string) (oauth.Setup, error)) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Args:  exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := mint(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return a.print(s, fmt.Sprintf("setup link: %s\nsetup token: %s\n", s.Link, s.Token))
		},
	}
}

func (a *app) audit() *cobra.Command {
	cmd := &cobra.Command{Use: "audit", Short: "The relay's audit log", Args: cobra.NoArgs, RunE: help}
	cmd.AddCommand(&cobra.Command{
		Use:   "verify",
		Short: "Check that no record of the relay's audit log was changed or is missing",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, keyPath := relay.AuditPaths(a.dataDir)
			key, err := audit.ReadKey(keyPath)
			if err != nil {
				return err
			}
			report, err := audit.Verify(cmd.Context(), path, key)
			if err != nil {
				return err
			}
			verdict := "whole"
			if !report.OK {
				verdict = "BROKEN"
			}
			text := fmt.Sprintf("%s: %d records\n", verdict, report.Records)
			for _, p := range report.Problems {
				text += fmt.Sprintf("problem: %v\n", p)
			}
			if err := a.print(report, text); err != nil {
				return err
			}
			if !report.OK {
				return fmt.Errorf("the audit log has %d problems", len(report.Problems))
			}
			return nil
		},
	})
	return cmd
}
