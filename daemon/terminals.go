package daemon

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"farhand/audit"
	"farhand/grant"
	"farhand/shell"
	"farhand/shim"
	"farhand/systemd"
	"farhand/terminal"
	"farhand/wire"
)

// openTerminals takes over the terminals of an earlier life, where there are any.
func (d *services) openTerminals(_ context.Context, o Options) error {
	if d.shell == nil || d.helper == nil {
		defer d.giveBack(o, terminal.StorePrefix)
	}
	if d.shell == nil {
		return nil
	}
	options := terminal.Options{
		Hub: d.streams, Path: filepath.Join(o.Config.StateDir, "terminals.json"), OnEnd: d.terminalEnded, Log: o.Log,
	}
	if s := systemd.NewStore(getenv(o.Environ, "NOTIFY_SOCKET")); s != nil && d.helper != nil {
		options.Keep = &terminal.Keep{Store: s, Restored: d.restored, Adopt: func(f *os.File) (terminal.Program, error) {
			p, err := d.helper.Adopt(f)
			if err != nil {
				return nil, err
			}
			return programOf(p), nil
		}}
	}
	var err error
	if d.terminals, err = terminal.New(options); err != nil {
		d.log.Error("terminals of an earlier start are not all known", "error", err)
	}
	d.closers = append(d.closers, d.terminals)
	return nil
}

// giveBack lets go of what the service manager kept under such names, of which
// nobody here makes use any more.
func (d *services) giveBack(o Options, prefix string) {
	store := systemd.NewStore(getenv(o.Environ, "NOTIFY_SOCKET"))
	for name, f := range d.restored {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		delete(d.restored, name)
		err := f.Close()
		if store != nil {
			err = errors.Join(err, store.Remove(name))
		}
		if err != nil {
			d.log.Warn("a descriptor stays with the service manager", "name", name, "error", err)
		}
	}
}

// program is a command as a terminal has it.
type program struct{ shell.Process }

// portable is one that outlives this process.
type portable struct {
	program
	kept shell.Portable
}

var _ terminal.Kept = portable{}

func programOf(p shell.Process) terminal.Program {
	if kept, ok := p.(shell.Portable); ok {
		return portable{program{p}, kept}
	}
	return program{p}
}

// Reap is how it ended.
func (p program) Reap() (int, error) {
	status, err := p.Process.Reap()
	return status.WireCode(), err
}

// Descriptor does something with what stands for the program.
func (p portable) Descriptor(do func(fd uintptr) error) error { return p.kept.Descriptor(do) }

// Leave lets go of it.
func (p portable) Leave() { p.kept.Leave() }

// endTerminals ends those of a session, or all ("").
func (d *services) endTerminals(session, reason string) {
	if d.terminals != nil {
		d.terminals.EndSession(session, reason)
	}
}

// bindings are the root grants; a session that is detached while it has no socket
// loses its terminals, too.
type bindings struct {
	*grant.Store
	d *services
}

// Detach forgets the binding of a session.
func (b bindings) Detach(session string) error {
	b.d.endTerminals(session, "session_ended")
	return b.Store.Detach(session)
}

// terminalEnded leaves a record of what went through a terminal.
func (d *services) terminalEnded(e terminal.Ended) {
	entry := audit.Entry{
		SessionID: e.Session, Op: audit.OpTerminalEnd, Result: audit.Result{OK: true, ExitCode: e.ExitCode, Duration: e.Lasted},
		Details: []audit.Field{
			audit.String("terminal", e.ID), audit.String("reason", e.Reason), audit.Int("bytes_written", e.Written), audit.Int("bytes_typed", e.Typed),
		},
	}
	if err := d.audit.Append(entry); err != nil {
		d.log.Error("the end of a terminal can't be recorded", "terminal", e.ID, "error", err)
	}
}

// terminalMethods are those of a session.
func (s *session) terminalMethods() shim.Table {
	if s.d.terminals == nil {
		return nil
	}
	return shim.Table{
		wire.TTerminalOpen:   {Handle: shim.Unary(s.openTerminal)},
		wire.TTerminalAttach: {Handle: shim.Unary(s.attachTerminal), Quick: true},
		wire.TTerminalInput:  {Handle: shim.Unary(s.typeInto), Lane: terminalLane, Quick: true},
		wire.TTerminalResize: {Handle: shim.Unary(s.resizeTerminal), Quick: true},
		wire.TTerminalList:   {Handle: shim.Unary(s.listTerminals), Quick: true},
		wire.TTerminalClose:  {Handle: shim.Unary(s.closeTerminal)},
	}
}

// terminalLane keeps what is typed in the order of the wire.
func terminalLane(c *shim.Call) string {
	var r struct {
		Terminal string `json:"terminal"`
	}
	if wire.Decode(c.Payload, &r) != nil {
		return ""
	}
	return "terminal:" + r.Terminal
}

func (s *session) openTerminal(ctx context.Context, c *shim.Call, r wire.TerminalOpen) (any, error) {
	if err := needStreams(c); err != nil {
		return nil, err
	}
	if err := s.d.commands(ctx); err != nil {
		return nil, err
	}
	cwd := s.Root()
	if r.Cwd != nil {
		cwd = *r.Cwd
	}
	told := s.told(ctx, cwd)
	details := func(dir string, t shell.Trace, id string) []audit.Field {
		keys := t.EnvKeys
		if keys == nil {
			keys = slices.Sorted(maps.Keys(r.Env))
		}
		return []audit.Field{
			audit.StringOrNull("command", r.Command), argvField(r.Argv), audit.String("shell", t.Shell), audit.String("cwd", dir),
			audit.Strings("env_keys", keys), audit.Bool("pty", r.HasPTY()), audit.String("terminal", id),
		}
	}
	return change(s, c, told, details(told, shell.Trace{Shell: r.Shell}, ""), func() (any, []audit.Field, error) {
		dir, canonical, err := s.root.OpenDir(ctx, cwd)
		if err != nil {
			return nil, details(told, shell.Trace{}, ""), err
		}
		defer dir.Close()
		var trace shell.Trace
		opened, err := s.d.terminals.Open(terminal.Request{
			TerminalOpen: r, Owner: caller(c), Cwd: canonical, Hold: s.Hold,
			Start: func(f terminal.Files) (terminal.Program, string, error) {
				var p shell.Process
				var err error
				p, trace, err = s.d.shell.Begin(ctx, command(r), shell.Place{Dir: dir, Path: canonical},
					shell.Files{Stdin: f.In, Stdout: f.Out, Stderr: f.Err, Terminal: f.Terminal})
				if err != nil {
					return nil, "", err
				}
				return programOf(p), programName(r, trace), nil
			},
		})
		if err != nil {
			return nil, details(canonical, trace, ""), err
		}
		s.flow(c, opened)
		return opened, details(canonical, trace, opened.Terminal), nil
	})
}

// command is what a terminal runs.
func command(r wire.TerminalOpen) wire.ExecuteCommand {
	cmd := wire.ExecuteCommand{Command: r.Command, Argv: r.Argv, Shell: r.Shell, Env: maps.Clone(r.Env)}
	if r.HasPTY() {
		if cmd.Env == nil {
			cmd.Env = make(map[string]string, 1)
		}
		if r.Term == "" {
			r.Term = "xterm-256color"
		}
		cmd.Env["TERM"] = r.Term
	}
	return cmd
}

// programName is what a terminal is called: never by its arguments, which may
// hold secrets.
func programName(r wire.TerminalOpen, t shell.Trace) string {
	name := t.Shell
	if len(r.Argv) > 0 {
		name = filepath.Base(r.Argv[0])
	}
	return wire.Clean(name, 64)
}

// flow lets the streams of a viewer flow once the answer has left.
func (s *session) flow(c *shim.Call, o wire.TerminalOpened) {
	c.OnAnswered(func() {
		s.d.streams.Begin(o.Streams.Out, c.Outlet())
		if o.Streams.Err != "" {
			s.d.streams.Begin(o.Streams.Err, c.Outlet())
		}
	})
}

func (s *session) attachTerminal(ctx context.Context, c *shim.Call, r wire.TerminalAttach) (any, error) {
	if err := s.d.commands(ctx); err != nil {
		return nil, err
	}
	if err := needStreams(c); err != nil {
		return nil, err
	}
	return look(s, c, "", func() (any, []audit.Field, error) {
		opened, err := s.d.terminals.Attach(r, caller(c))
		if err == nil {
			s.flow(c, opened)
		}
		return opened, []audit.Field{audit.String("terminal", wire.Clean(r.Terminal, 64)), audit.Bool("resumed", opened.Resumed)}, err
	})
}

// typeInto records that somebody begins to type, and how much it was in the end
// with the terminal's end: a record for each key would say nothing more.
func (s *session) typeInto(ctx context.Context, c *shim.Call, r wire.TerminalInput) (any, error) {
	if err := s.d.mayGoOn(ctx); err != nil {
		return nil, err
	}
	run := func() (any, []audit.Field, error) {
		taken, err := s.d.terminals.Input(ctx, r, caller(c))
		return taken, []audit.Field{audit.String("terminal", wire.Clean(r.Terminal, 64))}, err
	}
	if !s.d.terminals.First(r) {
		taken, _, err := run()
		return taken, err
	}
	return change(s, c, "", []audit.Field{audit.String("terminal", wire.Clean(r.Terminal, 64))}, run)
}

func (s *session) resizeTerminal(_ context.Context, c *shim.Call, r wire.TerminalResize) (any, error) {
	return nil, s.d.terminals.Resize(r, caller(c))
}

func (s *session) listTerminals(_ context.Context, c *shim.Call, _ wire.Empty) (any, error) {
	return wire.TerminalListResponse{Terminals: s.d.terminals.List(caller(c))}, nil
}

// closeTime bounds waiting for a program that is hung up.
const closeTime = 5 * time.Second

func (s *session) closeTerminal(ctx context.Context, c *shim.Call, r wire.TerminalClose) (any, error) {
	about := []audit.Field{audit.String("terminal", wire.Clean(r.Terminal, 64))}
	return change(s, c, "", about, func() (any, []audit.Field, error) {
		ctx, cancel := context.WithTimeout(ctx, closeTime)
		defer cancel()
		return wire.Ack{OK: true}, about, s.d.terminals.CloseTerminal(ctx, r.Terminal, caller(c))
	})
}
