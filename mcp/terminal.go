package mcp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"farhand/client"
	"farhand/wire"
)

func terminalTools() []tool {
	return []tool{
		define("terminal_open", "Open a terminal",
			"Starts a program on a terminal of its own that goes on between calls, a shell unless told otherwise: for what is interactive or runs for long. For a command that ends by itself run_command is simpler. Returns the first output.",
			destroys, wire.Shell, terminalOpen).openWorld(),
		define("terminal_write", "Type into a terminal",
			"Types text into a terminal and returns what comes after it, until a pattern, until nothing more comes for a moment, or a timeout. End a line with \\n; \\u0003 is Ctrl-C.",
			destroys, wire.Shell, terminalWrite).openWorld(),
		define("terminal_read", "Read a terminal",
			"Returns what a terminal has written since the last call, or since a cursor, and waits for more if there is nothing.",
			reads, wire.Shell, terminalRead),
		define("terminal_resize", "Resize a terminal",
			"Sets how many columns and rows a terminal has.",
			changes, wire.Shell, terminalResize).idempotent(),
		define("terminal_list", "List terminals",
			"Lists the terminals of a machine that this connection may use, also those that have ended, with their exit codes.",
			reads, wire.Shell, terminalList),
		define("terminal_close", "Close a terminal",
			"Hangs a terminal up and ends what was started in it.",
			destroys, wire.Shell, terminalClose).idempotent(),
	}
}

const (
	// settled is how long nothing must come until the program is taken to wait:
	// longer than programs pause while they write, and than a slow link hesitates.
	settled = 400 * time.Millisecond
	// maxShown is how much output one answer has at most, and maxKept how much of a
	// terminal is remembered for a cursor.
	maxShown = 64 << 10
	maxKept  = 256 << 10
	// maxTerminals bounds how many terminals a Server follows at once, and maxTold of
	// how many others it knows what it told of them.
	maxTerminals = 32
	maxTold      = 256
	// untended is how long a terminal is followed that no call asks for: longer than
	// an agent thinks between two calls. What a program writes on and on that nobody
	// wants to see would otherwise come all the way here for nothing. The machine
	// keeps the last of it.
	untended = time.Minute
	// followRate is how many bytes a second of a terminal are taken on average, and
	// followBurst how many at once: what writes faster than anybody reads is made to
	// wait, as by any terminal, rather than have the relay carry all of it.
	followRate  = 1 << 20
	followBurst = 2 << 20
	// resting is how many times as long as looking at the output took it isn't looked
	// at again, and longestRest the most: what writes all the time must not have a
	// processor to itself.
	resting     = 10
	longestRest = 500 * time.Millisecond
)

// screen is a terminal as it is followed here: what it wrote last.
type screen struct {
	term *client.Terminal
	stop context.CancelFunc
	done chan struct{} // closed when nothing comes any more

	// Under Server.mu.
	kept    []byte
	from    int64 // offset of kept
	read    int64 // what was told so far
	end     *wire.StreamEnd
	err     error
	changed chan struct{} // closed with every change, and made anew
	calls   int           // that look at it now
	asked   time.Time     // when one last did
}

// view follows a terminal from an offset on, of which so much was told, unless it
// is followed already. Of too many, the one that wasn't asked for longest isn't followed any
// more.
func (s *Server) view(term *client.Terminal, from, told int64) (*screen, error) {
	ctx, stop := context.WithCancel(context.Background())
	sc := &screen{term: term, stop: stop, done: make(chan struct{}), changed: make(chan struct{}), from: from, read: told, asked: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.screens[term.ID()]
	if old == nil && !s.closed && len(s.screens) >= maxTerminals {
		var oldest *screen
		for _, x := range s.screens {
			if x.calls == 0 && (oldest == nil || x.asked.Before(oldest.asked)) {
				oldest = x
			}
		}
		if oldest != nil {
			s.leave(oldest)
		}
	}
	if old != nil || s.closed || len(s.screens) >= maxTerminals {
		stop()
		if s.closed { // and waited for all: what is left is the client's, which ends with it
			go term.Detach()
		} else {
			s.done.Go(term.Detach) // which waits
		}
		if old != nil {
			return old, nil
		}
		return nil, wire.Errorf(wire.ShimOverloaded, "this connection follows %d terminals already", maxTerminals).With("hint", "close some with terminal_close")
	}
	s.screens[term.ID()] = sc
	s.done.Go(func() { s.follow(ctx, sc) })
	return sc, nil
}

// leave stops following a terminal, which goes on; the next call attaches it where
// it was. Called with mu.
func (s *Server) leave(sc *screen) {
	if len(s.toldOf) >= maxTold {
		clear(s.toldOf)
	}
	id := sc.term.ID()
	s.toldOf[id] = sc.read
	delete(s.screens, id)
	sc.stop()
}

// leaveUntended leaves the terminals that no call has asked for lately.
func (s *Server) leaveUntended(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sc := range s.screens {
		if sc.calls == 0 && now.Sub(sc.asked) > untended {
			s.leave(sc)
		}
	}
}

// follow keeps what a terminal writes until it ends or is dropped.
func (s *Server) follow(ctx context.Context, sc *screen) {
	defer close(sc.done)
	defer sc.term.Detach()
	pace := rate.NewLimiter(followRate, followBurst)
	for {
		o, err := sc.term.Next(ctx)
		s.mu.Lock()
		switch {
		case errors.Is(err, io.EOF):
		case err != nil:
			sc.err = err
		default:
			if o.Lost != nil || o.Reset {
				sc.kept = nil
			}
			if len(sc.kept) == 0 && o.End == nil { // which has no place
				sc.from = o.Offset
			}
			sc.kept = append(sc.kept, o.Data...)
			if len(sc.kept) > 2*maxKept { // moved seldom, since it is all of it
				over := len(sc.kept) - maxKept
				sc.kept = append(sc.kept[:0:0], sc.kept[over:]...)
				sc.from += int64(over)
			}
			sc.end = o.End
		}
		close(sc.changed)
		sc.changed = make(chan struct{})
		s.mu.Unlock()
		if err != nil || o.End != nil {
			return
		}
		_ = pace.WaitN(ctx, min(len(o.Data), followBurst)) // fails with ctx, as Next does
	}
}

// screenOf finds a terminal that is followed, or attaches one that isn't, or not
// from so early on: at the cursor, if one is given, or where it was.
func (s *Server) screenOf(ctx context.Context, at onTerminal, cursor *int64) (*screen, error) {
	s.mu.Lock()
	sc := s.screens[at.Terminal]
	if sc != nil && cursor != nil && *cursor < sc.from && sc.calls == 0 { // the machine may have more of it
		s.leave(sc)
		sc = nil
	}
	if sc != nil {
		sc.asked = time.Now()
		s.mu.Unlock()
		return sc, nil
	}
	told, known := s.toldOf[at.Terminal]
	s.mu.Unlock()
	ses, err := s.session(ctx, at.Machine, "")
	if err != nil {
		return nil, err
	}
	var from *wire.TerminalOffsets
	switch {
	case cursor != nil:
		from = &wire.TerminalOffsets{Out: *cursor}
	case known:
		from = &wire.TerminalOffsets{Out: told}
	}
	term, err := ses.AttachTerminal(ctx, at.Terminal, from)
	if err != nil {
		return nil, err
	}
	begins := int64(0)
	if from != nil {
		begins = from.Out
	}
	return s.view(term, begins, told)
}

// readTo is how far a terminal's output was told.
func (s *Server) readTo(sc *screen) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sc.read
}

// drop stops following a terminal.
func (s *Server) drop(id string) {
	s.mu.Lock()
	sc := s.screens[id]
	delete(s.screens, id)
	delete(s.toldOf, id)
	s.mu.Unlock()
	if sc != nil {
		sc.stop()
		<-sc.done
	}
}

type onTerminal struct {
	onMachine
	Terminal string `json:"terminal" jsonschema:"id of the terminal (terminal_open, terminal_list)" length:"1..128"`
}

// awaiting is how long output is waited for.
type awaiting struct {
	Until       string  `json:"until,omitempty" jsonschema:"wait until this regular expression (RE2) occurs in the output, such as \"\\\\$ $\" or \"done\"; default: until nothing more comes for a moment"`
	WaitSeconds float64 `json:"wait_seconds,omitempty" jsonschema:"and not longer than so many seconds" default:"10" range:"0..600"`
	Raw         bool    `json:"raw,omitempty" jsonschema:"keep escape sequences (colours, cursor movements), which are otherwise removed"`
}

type terminalOutput struct {
	Terminal string `json:"terminal"`
	Output   string `json:"output"`
	Cursor   int64  `json:"cursor" jsonschema:"where the output ends: terminal_read goes on from there by itself"`
	Matched  bool   `json:"matched" jsonschema:"whether until occurred, if it was given"`
	More     bool   `json:"more,omitempty" jsonschema:"there is more already: terminal_read"`
	Lost     bool   `json:"lost,omitempty" jsonschema:"something before this output is no longer there"`
	Running  bool   `json:"running" jsonschema:"false: the program has ended"`
	Ended    string `json:"ended,omitempty" jsonschema:"why it ended"`
	ExitCode *int   `json:"exit_code,omitempty"`
}

// output waits for what a terminal writes from an offset on.
func (s *Server) output(ctx context.Context, sc *screen, from int64, w awaiting) (terminalOutput, string, error) {
	out := terminalOutput{Terminal: sc.term.ID(), Running: true}
	var until *regexp.Regexp
	if w.Until != "" {
		var err error
		if until, err = regexp.Compile(w.Until); err != nil {
			return out, "", wire.Errorf(wire.InvalidArgument, "until: %v", err).With("field", "until")
		}
	}
	s.mu.Lock()
	sc.calls++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		sc.calls--
		sc.asked = time.Now()
	}()
	limit := time.NewTimer(time.Duration(w.WaitSeconds * float64(time.Second)))
	defer limit.Stop()
	still := time.NewTimer(settled)
	defer still.Stop()
	expired := false
	for {
		began := time.Now()
		s.mu.Lock()
		first := max(from, sc.from)
		text := string(sc.kept[min(first-sc.from, int64(len(sc.kept))):])
		end, failed, changed := sc.end, sc.err, sc.changed
		s.mu.Unlock()
		if failed != nil {
			s.drop(sc.term.ID())
			return out, "", failed
		}
		if until != nil && until.MatchString(plain(text)) {
			out.Matched = true
		}
		if out.Matched || end != nil || expired {
			return s.told(sc, out, text, first, first > from, end, w)
		}
		var quiet <-chan time.Time
		if until == nil && text != "" {
			still.Reset(settled)
			quiet = still.C
		}
		select {
		case <-changed:
			rest := time.NewTimer(min(resting*time.Since(began), longestRest))
			select {
			case <-rest.C:
			case <-limit.C:
				expired = true
			case <-ctx.Done():
			}
			rest.Stop()
		case <-quiet:
			expired = true
		case <-limit.C:
			expired = true
		case <-ctx.Done():
			return out, "", ctx.Err()
		}
	}
}

// told makes an answer of output, and notes that it was given.
func (s *Server) told(sc *screen, out terminalOutput, text string, from int64, lost bool, end *wire.StreamEnd, w awaiting) (terminalOutput, string, error) {
	if len(text) > maxShown {
		text, out.More = text[:maxShown-cutRune([]byte(text[:maxShown]))], true
	}
	out.Cursor, out.Lost = from+int64(len(text)), lost
	s.mu.Lock()
	sc.read = out.Cursor
	s.mu.Unlock()
	if end != nil && !out.More {
		out.Running, out.Ended, out.ExitCode = false, end.Reason, end.ExitCode
	}
	out.Output = strings.ToValidUTF8(text, "\uFFFD")
	if !w.Raw {
		out.Output = plain(text)
	}
	shown := out.Output
	switch {
	case !out.Running && out.ExitCode != nil:
		shown += fmt.Sprintf("\n[ended: %s, exit code %d]", out.Ended, *out.ExitCode)
	case !out.Running:
		shown += fmt.Sprintf("\n[ended: %s]", out.Ended)
	case w.Until != "" && !out.Matched:
		shown += "\n[until didn't occur]"
	case shown == "":
		shown = "[nothing yet]"
	}
	return out, shown, nil
}

// escapes are what terminals are told beside text: ECMA-48 control sequences,
// operating system commands and single shifts.
var escapes = regexp.MustCompile("\x1b\\[[0-?]*[ -/]*[@-~]|\x1b\\][^\x07\x1b]*(?:\x07|\x1b\\\\)|\x1b[ -/]*[0-~]")

// plain is output without what only a screen understands.
func plain(text string) string {
	text = escapes.ReplaceAllString(strings.ToValidUTF8(text, "\uFFFD"), "")
	text = strings.ReplaceAll(text, "\r\n", "\n")
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' && r != '\r' || r == 0x7f {
			return -1
		}
		return r
	}, text)
}

// closeTime bounds closing a terminal that nobody wants.
const closeTime = 10 * time.Second

type terminalOpenAsked struct {
	onMachine
	Argv    []string          `json:"argv,omitempty" jsonschema:"the program and its arguments; default: the user's shell" length:"1..4096"`
	Cwd     string            `json:"cwd,omitempty" jsonschema:"directory to start in, absolute or relative to the first root; default: the first root"`
	Env     map[string]string `json:"env,omitempty" jsonschema:"variables to add to the environment"`
	Columns int               `json:"columns,omitempty" default:"120" range:"1..1000"`
	Rows    int               `json:"rows,omitempty" default:"40" range:"1..1000"`
	awaiting
}

func terminalOpen(ctx context.Context, c *call, in terminalOpenAsked) (terminalOutput, string, error) {
	ses, err := c.at(ctx, in.Machine, in.Cwd)
	if err != nil {
		return terminalOutput{}, "", err
	}
	term, err := ses.OpenTerminal(ctx, wire.TerminalOpen{Argv: in.Argv, Cwd: optional(in.Cwd), Env: in.Env, Columns: in.Columns, Rows: in.Rows})
	if err != nil {
		return terminalOutput{}, "", err
	}
	sc, err := c.view(term, 0, 0)
	if err != nil {
		// Nobody knows of it: what can't be followed isn't left running.
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTime)
		defer cancel()
		return terminalOutput{}, "", errors.Join(err, ses.CloseTerminal(bounded, term.ID()))
	}
	out, text, err := c.output(ctx, sc, 0, in.awaiting)
	return out, "terminal " + term.ID() + "\n" + text, err
}

type terminalWriteAsked struct {
	onTerminal
	Text string `json:"text" jsonschema:"what to type; \\n is Enter, \\u0003 Ctrl-C, \\u0004 Ctrl-D, \\t Tab, \\u001b Escape" length:"1..65536"`
	awaiting
}

func terminalWrite(ctx context.Context, c *call, in terminalWriteAsked) (terminalOutput, string, error) {
	sc, err := c.screenOf(ctx, in.onTerminal, nil)
	if err != nil {
		return terminalOutput{}, "", err
	}
	from := c.readTo(sc)
	if _, err := sc.term.Write(ctx, []byte(in.Text)); err != nil {
		return terminalOutput{}, "", err
	}
	return c.output(ctx, sc, from, in.awaiting)
}

type terminalReadAsked struct {
	onTerminal
	Cursor *int64 `json:"cursor,omitempty" jsonschema:"read from here on; default: where the last call ended" range:"0.."`
	awaiting
}

func terminalRead(ctx context.Context, c *call, in terminalReadAsked) (terminalOutput, string, error) {
	sc, err := c.screenOf(ctx, in.onTerminal, in.Cursor)
	if err != nil {
		return terminalOutput{}, "", err
	}
	from := c.readTo(sc)
	if in.Cursor != nil {
		from = *in.Cursor
	}
	return c.output(ctx, sc, from, in.awaiting)
}

type terminalResizeAsked struct {
	onTerminal
	Columns int `json:"columns" range:"1..1000"`
	Rows    int `json:"rows" range:"1..1000"`
}

type terminalNamed struct {
	Terminal string `json:"terminal"`
}

func terminalResize(ctx context.Context, c *call, in terminalResizeAsked) (terminalNamed, string, error) {
	sc, err := c.screenOf(ctx, in.onTerminal, nil)
	if err != nil {
		return terminalNamed{}, "", err
	}
	err = sc.term.Resize(ctx, in.Columns, in.Rows, false)
	return terminalNamed{in.Terminal}, fmt.Sprintf("%d columns, %d rows", in.Columns, in.Rows), err
}

type terminalsFound struct {
	Terminals []terminalFound `json:"terminals"`
}

type terminalFound struct {
	Terminal string `json:"terminal"`
	Program  string `json:"program"`
	Cwd      string `json:"cwd" jsonschema:"where it was started"`
	Opened   string `json:"opened_at" jsonschema:"RFC 3339"`
	Running  bool   `json:"running"`
	Ended    string `json:"ended,omitempty" jsonschema:"why it ended"`
	ExitCode *int   `json:"exit_code,omitempty"`
}

func terminalList(ctx context.Context, c *call, in onMachine) (terminalsFound, string, error) {
	out := terminalsFound{Terminals: []terminalFound{}}
	ses, err := c.session(ctx, in.Machine, "")
	if err != nil {
		return out, "", err
	}
	list, err := ses.Terminals(ctx)
	if err != nil {
		return out, "", err
	}
	var text strings.Builder
	for _, t := range list {
		found := terminalFound{Terminal: t.Terminal, Program: t.Program, Cwd: t.Cwd, Opened: t.OpenedAt.Format(time.RFC3339), Running: t.Ended == nil}
		state := "running"
		if t.Ended != nil {
			found.Ended, found.ExitCode, state = t.Ended.Reason, t.Ended.ExitCode, "ended: "+t.Ended.Reason
		}
		out.Terminals = append(out.Terminals, found)
		fmt.Fprintf(&text, "%s %s in %s, %s\n", t.Terminal, t.Program, t.Cwd, state)
	}
	if len(list) == 0 {
		text.WriteString("no terminals\n")
	}
	return out, text.String(), nil
}

func terminalClose(ctx context.Context, c *call, in onTerminal) (terminalNamed, string, error) {
	ses, err := c.session(ctx, in.Machine, "")
	if err != nil {
		return terminalNamed{}, "", err
	}
	c.drop(in.Terminal)
	err = ses.CloseTerminal(ctx, in.Terminal)
	return terminalNamed{in.Terminal}, "closed " + in.Terminal, err
}
