package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

type shellFlags struct {
	root, cwd string
	env       []string
	attach    string
	escape    string
}

func (a *app) shell() *cobra.Command {
	var f shellFlags
	cmd := &cobra.Command{
		Use:   "shell [MACHINE] [-- ARGV...]",
		Short: "Open a terminal on a machine, or come back to one",
		Long: `shell opens a terminal on a machine with your shell, or with the program after --,
and exits as that does. The terminal lives on the machine: a lost link is waited for
and nothing of the screen is lost, and Ctrl-] leaves it to itself. --attach comes back
to it, from here or from elsewhere, several at once if you like; each sees and types
the same. farhand terminals lists them.

To send Ctrl-] itself, choose another key with --escape ^X, or none.`,
		Example: `  farhand shell pi
  farhand shell pi -- htop
  farhand shell pi --attach last
  farhand shell pi --attach 3c1e1f`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error { return a.runShell(cmd, args, f) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			return a.completeMachine("")(cmd, args, typed)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.root, "root", "", "start in this `DIRECTORY`, which the machine must offer")
	flags.StringVar(&f.cwd, "cwd", "", "start in this `DIRECTORY` below the root")
	flags.StringArrayVar(&f.env, "env", nil, "set `NAME=VALUE` for the program; may be repeated")
	flags.StringVar(&f.attach, "attach", "", "come back to this `TERMINAL`: its id, an unambiguous beginning of it, or last for the newest that runs")
	flags.StringVar(&f.escape, "escape", "^]", "leave the terminal with this `KEY`: ^A to ^_, or none")
	// The flag is there, so this can't fail.
	_ = cmd.RegisterFlagCompletionFunc("attach", a.completeTerminal)
	cmd.MarkFlagsMutuallyExclusive("attach", "cwd")
	cmd.MarkFlagsMutuallyExclusive("attach", "env")
	return cmd
}

func (a *app) runShell(cmd *cobra.Command, args []string, f shellFlags) error {
	machine, argv := args, []string(nil)
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		machine, argv = args[:dash], args[dash:]
		if len(argv) == 0 {
			argv = nil
		}
	}
	switch {
	case a.json:
		return usage("shell is a terminal, which has no JSON; farhand exec --json runs a command")
	case len(machine) > 1:
		return usage("one machine at most stands before --; the program stands after it")
	case f.attach != "" && argv != nil:
		return usage("--attach comes back to a program, so there is none after --")
	}
	escape, err := escapeKey(f.escape)
	if err != nil {
		return err
	}
	env, err := environment(f.env)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	name, err := a.machine(ctx, c, first(machine...))
	if err != nil {
		return err
	}
	s, err := c.Open(ctx, client.Place{Machine: name, Root: f.root})
	if err != nil {
		return err
	}
	screen := a.screen()
	columns, rows := screen.size()
	var t *client.Terminal
	if f.attach != "" {
		id, err := terminalID(ctx, s, f.attach)
		if err != nil {
			return err
		}
		if t, err = s.AttachTerminal(ctx, id, nil); err != nil {
			return err
		}
		if t.PTY() && screen.tty {
			if err := t.Resize(ctx, columns, rows, true); err != nil {
				t.Detach()
				return err
			}
		}
	} else {
		r := wire.TerminalOpen{Argv: argv, Env: env, Columns: columns, Rows: rows, Term: a.env.Getenv("TERM")}
		if f.cwd != "" {
			r.Cwd = &f.cwd
		}
		for _, name := range []string{"COLORTERM", "NO_COLOR"} { // what colours there may be
			if v := a.env.Getenv(name); v != "" && env[name] == "" {
				if r.Env == nil {
					r.Env = make(map[string]string)
				}
				r.Env[name] = v
			}
		}
		if t, err = s.OpenTerminal(ctx, r); err != nil {
			return err
		}
	}
	end, err := a.sit(ctx, t, screen, escape)
	switch {
	case errors.Is(err, errLeft):
		a.note("Left the terminal to itself. Come back with: farhand shell %s --attach %s", s.Info().MachineName, t.ID()[:8])
		return nil
	case err != nil:
		return err
	}
	return terminalEnded(end)
}

// environment reads NAME=VALUE.
func environment(pairs []string) (map[string]string, error) {
	var env map[string]string
	for _, pair := range pairs {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return nil, usage("--env %q is not NAME=VALUE", pair)
		}
		if env == nil {
			env = make(map[string]string)
		}
		env[name] = value
	}
	return env, nil
}

// escapeKey is the byte that a key is typed as; -1: none.
func escapeKey(s string) (int, error) {
	switch {
	case s == "none":
		return -1, nil
	case len(s) == 2 && s[0] == '^' && strings.ToUpper(s)[1] >= 'A' && strings.ToUpper(s)[1] <= '_':
		return int(strings.ToUpper(s)[1] - '@'), nil
	}
	return 0, usage("--escape %q is no key such as ^] or ^X, nor none", s)
}

// terminalEnded is the end of a terminal as an error; nil if the program succeeded.
func terminalEnded(end wire.StreamEnd) error {
	if end.Reason == wire.TerminalExited && end.ExitCode != nil {
		if code := exitCode(wire.CommandResult{ExitCode: *end.ExitCode}); code != exitOK {
			return exitStatus(code)
		}
		return nil
	}
	code, why := wire.InternalError, clean(end.Reason)
	switch end.Reason {
	case "closed":
		why = "it was closed"
	case wire.TerminalLost:
		why = "what runs commands on the machine stopped, and the program with it"
	case wire.TerminalRestarted, "daemon_stopping":
		code, why = wire.MachineUnreachable, "the daemon on the machine was stopped or started anew, and the program ended with it"
	case "grant_revoked":
		code, why = wire.CapabilityNotGranted, "it is no longer allowed"
	case "session_ended":
		code, why = wire.SessionNotFound, "the session was ended"
	}
	return wire.Errorf(code, "the terminal has ended: %s", why).With("reason", end.Reason)
}

// errLeft is the escape key.
var errLeft = errors.New("left")

// screen is the terminal on this side, or what stands for one.
type screen struct {
	in, out  *os.File // nil: none
	tty      bool     // both are terminals
	fallback int      // columns, where nothing tells
}

func (a *app) screen() screen {
	var s screen
	s.in, _ = a.env.Stdin.(*os.File)
	s.out, _ = a.env.Stdout.(*os.File)
	s.tty = isTerminal(a.env.Stdin) && a.style.outTTY
	s.fallback = a.style.width()
	return s
}

// size is 0, 0 where nothing tells.
func (s screen) size() (columns, rows int) {
	if s.out != nil {
		if c, r := terminalSize(s.out); c > 0 {
			return min(c, wire.MaxTerminalSide), min(r, wire.MaxTerminalSide)
		}
	}
	return min(s.fallback, wire.MaxTerminalSide), 0
}

// sit shows a terminal and types into it until it ends (its end), the escape key is
// typed (errLeft) or ctx ends. Whatever happens, the terminal on this side is as it
// was, and the one on the machine is viewed no more.
func (a *app) sit(ctx context.Context, t *client.Terminal, s screen, escape int) (end wire.StreamEnd, err error) {
	defer t.Detach()
	var drawn modes
	if s.tty {
		restore, err := raw(s.in, s.out)
		if err != nil {
			return end, err
		}
		defer func() {
			io.WriteString(a.env.Stdout, drawn.undo())
			restore()
			if err == nil || errors.Is(err, errLeft) {
				fmt.Fprintln(a.env.Stderr)
			}
		}()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel(nil)
	tasks.Go(func() {
		if err := a.typeAll(ctx, t, escape); err != nil {
			cancel(err)
		}
	})
	if s.tty && t.PTY() {
		tasks.Go(func() { followSize(ctx, s, t) })
	}
	return a.pumpTerminal(ctx, t, s, &drawn)
}

// pumpTerminal shows what comes from a terminal until it ends.
func (a *app) pumpTerminal(ctx context.Context, t *client.Terminal, s screen, drawn *modes) (end wire.StreamEnd, err error) {
	var trouble error
	for {
		bounded, stop := context.WithTimeout(ctx, looked)
		o, err := t.Next(bounded)
		stop()
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return end, context.Cause(ctx)
		case errors.Is(err, context.DeadlineExceeded):
			a.tellLink(t, s, &trouble)
			continue
		default:
			return end, err
		}
		if err := a.draw(o, drawn, s); err != nil {
			return end, err
		}
		if o.End != nil {
			return *o.End, nil
		}
	}
}

// draw writes one piece of output.
func (a *app) draw(o client.Output, drawn *modes, s screen) error {
	if (o.Reset || o.Lost != nil) && !s.tty {
		a.note("Some output was lost here.")
	} else if o.Reset || o.Lost != nil {
		// All modes off, and the screen empty.
		if _, err := io.WriteString(a.env.Stdout, drawn.undo()+"\x1b[H\x1b[2J"); err != nil {
			return err
		}
	}
	to := a.env.Stdout
	if o.Stderr {
		to = a.env.Stderr
	} else {
		drawn.see(o.Data)
	}
	_, err := to.Write(o.Data)
	return err
}

// tellLink says that a link is lost or back, once each time.
func (a *app) tellLink(t *client.Terminal, s screen, told *error) {
	now := t.Trouble()
	end := "\n"
	if s.tty {
		end = "\r\n"
	}
	switch {
	case now != nil && *told == nil:
		fmt.Fprintf(a.env.Stderr, "%s[The link is lost (%s); it is tried again.]%s", end, clean(now.Error()), end)
	case now == nil && *told != nil:
		fmt.Fprintf(a.env.Stderr, "[The link is back.]%s", end)
	}
	*told = now
}

// typeAll types what comes on standard input until that ends, ctx does or the
// escape key comes.
func (a *app) typeAll(ctx context.Context, t *client.Terminal, escape int) error {
	pieces := reading(ctx, a.env.Stdin)
	for {
		var typed []byte
		select {
		case piece, more := <-pieces:
			switch {
			case more:
				typed = piece
			case t.PTY():
				return nil
			default:
				return t.CloseInput(ctx)
			}
		case <-ctx.Done():
			return nil
		}
		left := false
		if i := bytes.IndexByte(typed, byte(escape)); escape >= 0 && i >= 0 {
			typed, left = typed[:i], true
		}
		if _, err := t.Write(ctx, typed); err != nil {
			return err
		}
		if left {
			return errLeft
		}
	}
}

// reading is what comes on r, until it ends or ctx does. Reading can't be
// interrupted, so the goroutine stays behind until more input comes.
func reading(ctx context.Context, r io.Reader) <-chan []byte {
	pieces := make(chan []byte)
	go func() {
		defer close(pieces)
		buf := make([]byte, wire.MaxTerminalInput)
		for {
			n, err := r.Read(buf)
			if n > 0 {
				select {
				case pieces <- bytes.Clone(buf[:n]):
				case <-ctx.Done():
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	return pieces
}

// followSize has the machine know the size of the terminal here.
func followSize(ctx context.Context, s screen, t *client.Terminal) {
	columns, rows := s.size()
	for range sizeChanges(ctx) {
		if c, r := s.size(); r > 0 && (c != columns || r != rows) {
			if t.Resize(ctx, c, r, false) == nil { // else at the next change
				columns, rows = c, r
			}
		}
	}
}

// terminalID finds a terminal by the beginning of its id.
func terminalID(ctx context.Context, s *client.Session, name string) (string, error) {
	all, err := s.Terminals(ctx)
	if err != nil {
		return "", err
	}
	if name == "last" {
		for i := len(all) - 1; i >= 0; i-- {
			if all[i].Ended == nil {
				return all[i].Terminal, nil
			}
		}
		return "", wire.Errorf(wire.TerminalNotFound, "no terminal of this login runs there").With("hint", "farhand terminals --all also lists those that have ended")
	}
	list := make([]named, 0, len(all))
	for _, t := range all {
		list = append(list, named{id: t.Terminal})
	}
	return pick(list, name)
}
