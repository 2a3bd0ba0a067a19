package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"farhand/internal/version"
	"farhand/relay"
)

// Exit statuses. 78 is EX_CONFIG of sysexits.h: another start won't help.
const (
	exitOK     = 0
	exitFailed = 1
	exitUsage  = 2
	exitConfig = 78
)

type env struct {
	args           []string
	getenv         func(string) string
	stdout, stderr io.Writer
}

// usageError is a command line that can't be understood.
type usageError struct{ error }

func run(ctx context.Context, e env) int {
	a := &app{env: e}
	root := a.root()
	root.SetArgs(e.args)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if a.json {
		line, _ := json.Marshal(map[string]string{"error": err.Error()}) // strings always encode
		fmt.Fprintf(e.stderr, "%s\n", line)
	} else {
		fmt.Fprintln(e.stderr, "farhand-relay:", err)
	}
	if errors.Is(err, relay.ErrConfig) {
		return exitConfig
	}
	if _, ok := errors.AsType[usageError](err); ok || strings.HasPrefix(err.Error(), "unknown command") {
		return exitUsage
	}
	return exitFailed
}

// app is one run of the program.
type app struct {
	env
	dataDir string
	json    bool
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "farhand-relay",
		Short: "The relay between operators and their machines",
		Long: `farhand-relay lets machines in that their owner approved, and carries what
operators ask of them. It keeps everything in one data directory.

Every flag can be set by the environment: --data-dir by FARHAND_RELAY_DATA_DIR.

Exit status: 0 all well, 1 something failed, 2 the command line is wrong, 78 the
configuration is wrong.`,
		Example: `  farhand-relay run                          # on this machine alone, plain HTTP
  farhand-relay init --name relay.lan        # a certificate, for the network
  farhand-relay run --listen :7443
  farhand-relay owner add ann`,
		SilenceErrors:     true,
		SilenceUsage:      true,
		Args:              cobra.NoArgs,
		RunE:              help,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return a.fromEnv(cmd.Flags()) },
	}
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	flags := root.PersistentFlags()
	flags.StringVar(&a.dataDir, "data-dir", a.defaultDataDir(), "where everything is kept")
	flags.BoolVar(&a.json, "json", false, "print and log JSON")
	root.AddCommand(a.run(), a.initTLS(), a.owner(), a.audit(), a.version())
	return root
}

// help is what a command does that only has commands below it.
func help(cmd *cobra.Command, _ []string) error { return cmd.Help() }

// exactly takes n arguments.
func exactly(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.ExactArgs(n)(cmd, args); err != nil {
			return usageError{fmt.Errorf("%s: %w", cmd.UseLine(), err)}
		}
		return nil
	}
}

// fromEnv sets every flag that wasn't given from its variable.
func (a *app) fromEnv(flags *pflag.FlagSet) error {
	var errs []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "FARHAND_RELAY_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v := a.getenv(name); v != "" && !f.Changed && f.Name != "help" {
			if err := flags.Set(f.Name, v); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w: %w", name, err, relay.ErrConfig))
			}
		}
	})
	return errors.Join(errs...)
}

// defaultDataDir is the service manager's directory, else the XDG one.
func (a *app) defaultDataDir() string {
	if dir, _, _ := strings.Cut(a.getenv("STATE_DIRECTORY"), ":"); dir != "" {
		return dir
	}
	if dir := a.getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "farhand-relay")
	}
	if home := a.getenv("HOME"); home != "" {
		return filepath.Join(home, ".local", "state", "farhand-relay")
	}
	return ""
}

// logger writes to stderr; service managers and people read it there.
func (a *app) logger(level slog.Level) *slog.Logger {
	opts := &slog.HandlerOptions{Level: level}
	if a.json {
		return slog.New(slog.NewJSONHandler(a.stderr, opts))
	}
	return slog.New(slog.NewTextHandler(a.stderr, opts))
}

// print writes v as JSON, or else the text.
func (a *app) print(v any, text string) error {
	if !a.json {
		_, err := io.WriteString(a.stdout, text)
		return err
	}
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "%s\n", line)
	return err
}

func (a *app) version() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which version this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return a.print(map[string]string{"version": version.String()}, version.String()+"\n")
		},
	}
}

func (a *app) initTLS() *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use:   "init --name HOST",
		Short: "Make a private CA and a certificate for the relay",
		Long: `init makes a CA that can vouch for the given names alone, and a certificate
that the relay renews by itself. It prints the hash by which machines and
operators trust it: farhand login --ca-sha256 HEX, tls.pin_sha256 of farhandd.

Once made, the CA stays: the same names again print the hash again.`,
		Example: `  farhand-relay init --name relay.lan
  farhand-relay init --name relay.example.org --name 192.0.2.7`,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if len(names) == 0 {
				return usageError{errors.New("init needs --name HOST: what machines and operators call this relay")}
			}
			if err := a.needDataDir(); err != nil {
				return err
			}
			sum, err := relay.Init(a.dataDir, names)
			if err != nil {
				return err
			}
			return a.print(map[string]any{"ca_sha256": sum, "names": names}, "ca_sha256: "+sum+"\n")
		},
	}
	cmd.Flags().StringArrayVar(&names, "name", nil, "a host name or IP address of the relay; the first stands in links")
	return cmd
}

func (a *app) needDataDir() error {
	if a.dataDir == "" {
		return usageError{errors.New("no home directory: give --data-dir")}
	}
	return os.MkdirAll(a.dataDir, 0o700)
}
