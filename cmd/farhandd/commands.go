package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"farhand/config"
	"farhand/daemon"
	"farhand/internal/version"
)

// Exit statuses. 77 and 78 are EX_NOPERM and EX_CONFIG of sysexits.h, which the
// service unit names in RestartPreventExitStatus.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitLoginNeeded = 77
	exitConfig      = 78
)

type env struct {
	args    []string
	environ []string
	stdin   io.Reader
	stdout  io.Writer
	stderr  io.Writer
	hangups <-chan os.Signal // ask for the configuration to be read again
}

// usageError is a command line that can't be understood.
type usageError struct{ error }

// failed is a command that did its work and found something wrong; its report
// is already printed.
type failed struct{ status int }

func (f failed) Error() string { return fmt.Sprintf("exit status %d", f.status) }

func run(ctx context.Context, e env) int {
	root := newRoot(e)
	root.SetArgs(e.args)
	root.SetIn(e.stdin)
	root.SetOut(e.stdout)
	root.SetErr(e.stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	if f, ok := errors.AsType[failed](err); ok {
		return f.status
	}
	fmt.Fprintln(e.stderr, "farhandd:", err)
	if _, ok := errors.AsType[*config.Error](err); ok {
		return exitConfig
	}
	if _, ok := errors.AsType[*daemon.ConfigError](err); ok {
		return exitConfig
	}
	if errors.Is(err, daemon.ErrLoginNeeded) {
		return exitLoginNeeded
	}
	if _, ok := errors.AsType[usageError](err); ok || strings.HasPrefix(err.Error(), "unknown command") {
		return exitUsage
	}
	return exitFailed
}

// options are what every verb shares: how the configuration is found.
type options struct {
	env
	file  string
	flags map[string]*string
	bools map[string]*bool
	json  bool
}

func newRoot(e env) *cobra.Command {
	o := &options{env: e, flags: make(map[string]*string), bools: make(map[string]*bool)}
	root := &cobra.Command{
		Use:   "farhandd",
		Short: "The daemon that makes this machine the far hand of an agent",
		Long: `farhandd connects this machine to a Farhand relay or to the AutoGPT platform and
serves its files, commands, devices and local model within what you allow.

Configuration: --config FILE, else /etc/farhand/farhandd.toml for root and
services and $XDG_CONFIG_HOME/farhand/farhandd.toml for others. FARHAND_ variables
go over the file (limits.max_concurrent is FARHAND_LIMITS_MAX_CONCURRENT), flags
over both.

Exit status: 0 clean stop, 1 failure, 2 usage, 77 login needed, 78 configuration.`,
		Example: `  farhandd run --platform-url https://relay.example.org --tls-pin-sha256 3b1c…
  farhandd run --config ./farhandd.toml
  farhandd status
  farhandd doctor`,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: false},
	}
	// --limits.max_concurrent is --limits-max-concurrent: the key's own spelling
	// will do.
	root.SetGlobalNormalizationFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.NewReplacer(".", "-", "_", "-").Replace(name))
	})
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.PersistentFlags().StringVar(&o.file, "config", "", "configuration `file`")
	for _, k := range config.Keys() {
		usage := fmt.Sprintf("%s (%s)", k.Doc, k.Env())
		if k.IsBool() {
			o.bools[k.Name] = root.PersistentFlags().Bool(k.Flag(), false, usage)
		} else {
			o.flags[k.Name] = root.PersistentFlags().String(k.Flag(), "", usage)
		}
	}
	root.AddCommand(o.runCommand(), o.loginCommand(), o.logoutCommand(), o.statusCommand(), o.resumeCommand(), o.releaseCommand(), o.doctorCommand(), o.auditCommand(), o.execHelperCommand(), o.installCommand(), o.uninstallCommand(), o.provisionCommand(), o.versionCommand())
	for _, c := range root.Commands() {
		if c.Name() != "run" { // the others have the same flags; once is enough
			c.SetUsageFunc(shortUsage)
		}
	}
	return root
}

// shortUsage is a command's usage without the keys of the configuration. It is
// a function and no template, because templates call methods by name, which keeps
// the linker from leaving out what nobody calls: a fifth of the program.
func shortUsage(c *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", c.UseLine())
	if c.HasAvailableSubCommands() {
		b.WriteString("\nAvailable Commands:\n")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	if c.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableLocalFlags() {
		fmt.Fprintf(&b, "\nFlags:\n%s", c.LocalFlags().FlagUsages())
	}
	b.WriteString("\nGlobal Flags:\n      --config file   configuration file\n\nEvery key of the configuration is a flag, too: farhandd run --help lists them.\n")
	_, err := c.OutOrStderr().Write([]byte(b.String()))
	return err
}

// input is where the configuration of this call comes from.
func (o *options) input(cmd *cobra.Command) config.Input {
	in := config.Input{File: o.file, Environ: o.environ, Flags: make(map[string]string), UID: os.Getuid()}
	for _, k := range config.Keys() {
		if !cmd.Flags().Changed(k.Flag()) {
			continue
		}
		if k.IsBool() {
			in.Flags[k.Name] = fmt.Sprint(*o.bools[k.Name])
		} else {
			in.Flags[k.Name] = *o.flags[k.Name]
		}
	}
	in.Home = o.getenv("HOME")
	if in.Home == "" {
		in.Home, _ = os.UserHomeDir() // none: paths with ~ are refused by name
	}
	in.Hostname, _ = os.Hostname() // empty: the machine id stands in
	return in
}

func (o *options) load(cmd *cobra.Command) (config.Config, error) {
	return config.Load(o.input(cmd))
}

func (o *options) getenv(name string) string {
	for _, pair := range o.environ {
		if n, v, _ := strings.Cut(pair, "="); n == name {
			return v
		}
	}
	return ""
}

// self is how this program is called again with the same configuration.
func (o *options) self() string {
	if o.file == "" {
		return "farhandd"
	}
	return "farhandd --config " + o.file
}

func (o *options) socket(ctx context.Context, c config.Config) daemon.Local {
	return daemon.FindLocal(ctx, o.getenv("RUNTIME_DIRECTORY"), c.StateDir)
}

func (o *options) jsonFlag(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.json, "json", false, "print JSON")
}

func (o *options) printJSON(v any) error {
	enc := json.NewEncoder(o.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func (o *options) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(o.stdout, "farhandd", version.String())
			return err
		},
	}
}
