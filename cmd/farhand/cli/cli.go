// Package cli is the farhand command as a function of its arguments, streams
// and environment, so that tests and the first-run demonstration call it in
// their own process. One file holds one verb.
//
// Answers go to standard output, everything else (questions, progress, hints,
// errors) to standard error. With --json the answer is one JSON document, with
// the field names of the relay's API or of the wire, and an error is
// {"error": {code, message, details, hint}} on standard error.
package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// Env is everything that the command takes from outside.
type Env struct {
	Args   []string // without the program's name
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
	Getenv func(string) string // nil: an empty environment
	Home   string              // home directory: holds the configuration unless FARHAND_CONFIG_DIR or XDG_CONFIG_HOME is set
	Now    func() time.Time    // nil: time.Now
}

// Run runs the command and returns its exit code (`farhand help exit-codes`).
// Cancelling the context interrupts it. Run may be called concurrently; a call
// that was cancelled while it waited for the terminal leaves one goroutine
// behind that ends with the next line of input.
func Run(ctx context.Context, env Env) int {
	if env.Getenv == nil {
		env.Getenv = func(string) string { return "" }
	}
	if env.Now == nil {
		env.Now = time.Now
	}
	a := &app{env: env, style: styleFor(env)}
	root := a.command()
	a.root = root
	root.SetArgs(auditArgs(env.Args))
	err := root.ExecuteContext(ctx)
	if err == nil {
		err = a.outErr
	}
	return a.finish(ctx, err)
}

// app is one run of the command.
type app struct {
	env     Env
	style   style
	root    *cobra.Command
	started bool // a verb is running: what fails now isn't a matter of usage
	verb    string
	path    string // of commands down to it: "farhand usb describe"
	setup   bool   // login sets an account up
	below   bool   // the line on which the terminal shows Ctrl-C has been left
	outErr  error  // the first failure of printf
	secrets *term.Terminal

	json   bool
	relay  string
	config string
}

func (a *app) command() *cobra.Command {
	root := &cobra.Command{
		Use:   "farhand",
		Short: "Use a machine and everything wired to it from anywhere",
		Long: `farhand reaches paired machines through a relay: their files, their shell and
what is wired to them.

Where MACHINE stands it is a machine's name, its id or an unambiguous beginning of
either. It may be left out where there is a single one, or one is farhand default:
farhand exec -- uptime, farhand ls :/etc.`,
		Example: `  farhand login https://relay.example.org
  farhand approve BCDF-GHJK
  farhand machines
  farhand exec pi -- uname -a
  farhand put report.txt pi:/data/work/report.txt
  farhand gpio set pi GPIO17=on
  farhand serial transact pi serial:usb-2341:0043-95530 '*IDN?\n' --until '\n'`,
		SilenceErrors: true,
		SilenceUsage:  true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(cmd.ValidateRequiredFlags(), cmd.ValidateFlagGroups()); err != nil {
				return err // cobra would check after this, and call it a failure of the verb
			}
			a.started, a.verb, a.path = true, cmd.Name(), cmd.CommandPath()
			return nil
		},
	}
	root.SetIn(a.env.Stdin)
	root.SetOut(a.env.Stdout)
	root.SetErr(a.env.Stderr)
	flags := root.PersistentFlags()
	flags.BoolVar(&a.json, "json", false, "answer in JSON")
	flags.StringVar(&a.relay, "relay", "", "ask the relay at this `URL` (FARHAND_URL; default: the one logged in to)")
	flags.StringVar(&a.config, "config", "", "the login is remembered in this `FILE` (default: farhand.json in $FARHAND_CONFIG_DIR, else farhand/farhand.json in the configuration directory)")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage("%v; see %s --help", err, cmd.CommandPath())
	})
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		var text strings.Builder
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(a.env.Stdout)
		a.printf("%s", foldHelp(text.String(), a.style.width()))
	})
	root.AddGroup(
		&cobra.Group{ID: "use", Title: "Use machines:"},
		&cobra.Group{ID: "manage", Title: "Pair and manage:"},
		&cobra.Group{ID: "account", Title: "Sign in:"},
	)
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add("use",
		a.machines(), a.devices(),
		a.exec(), a.shell(), a.terminals(),
		a.ls(), a.stat(), a.cat(), a.put(), a.get(), a.cp(), a.rm(), a.mv(),
		a.serial(), a.gpio(), a.i2c(), a.spi(), a.usb(), a.print(), a.release(),
		a.llm(), a.askPrivate(), a.stub(),
		a.logs(), a.top(), a.forward(),
		a.mcp(),
	)
	add("manage", a.approve(), a.grants(), a.settings(), a.label(), a.groups(), a.defaultMachine(), a.flash(), a.claim(), a.token(), a.sessions(), a.revoke(), a.audit())
	add("manage", a.events())
	add("account", a.login(), a.logout(), a.whoami())
	root.AddCommand(a.version(), exitCodes())
	noFiles(root)
	// cobra's own ones, which would answer what they don't know with help and a 0.
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "help":
			c.RunE, c.Run = func(_ *cobra.Command, args []string) error {
				found, rest, err := root.Find(args)
				if err != nil || len(rest) > 0 {
					return usage("there is no help on %q; see %s --help", strings.Join(args, " "), root.Name())
				}
				found.InitDefaultHelpFlag()
				return found.Help()
			}, nil
		case "completion":
			inner := group("completion", c.Short)
			c.Args, c.RunE, c.Run = inner.Args, inner.RunE, nil
		}
	}
	return root
}

// noFiles has the shell offer no files where a verb takes something else, or nothing:
// flash alone takes files and says nothing of it.
func noFiles(c *cobra.Command) {
	for _, inner := range c.Commands() {
		noFiles(inner)
	}
	if c.ValidArgsFunction == nil && !c.HasSubCommands() && c.Name() != "flash" {
		c.ValidArgsFunction = cobra.NoFileCompletions
	}
}

// group makes a command that only holds others.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: use, Short: short,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage("%s knows no %q; see %s --help", cmd.CommandPath(), args[0], cmd.CommandPath())
			}
			return cmd.Help()
		},
	}
	g.AddCommand(commands...)
	return g
}

// askedJSON says whether --json was given, also where the flags could not be
// parsed to their end.
func (a *app) askedJSON() bool {
	if a.json {
		return true
	}
	for _, arg := range a.env.Args {
		switch {
		case arg == "--":
			return false
		case arg == "--json" || strings.HasPrefix(arg, "--json=t"):
			return true
		}
	}
	return false
}

// between checks the number of arguments; what names them in the message.
func between(least, most int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usage("%s takes %s; see %s --help", cmd.CommandPath(), what, cmd.CommandPath())
		}
		return nil
	}
}
