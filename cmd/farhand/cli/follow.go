package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

// watching is how a verb shows a stream. What a person sees is made by record or
// data, one after the other, and then by redraw; with --json it is a document a
// line: {"opened": ...}, each record as it is or {"offset", "data"},
// {"lost": {"from", "to"}} for what can't be had any more, {"end": {"reason"}};
// record and data are called all the same.
type watching struct {
	opened any // the result of the operation that opened the stream
	record func(json.RawMessage) error
	data   func(offset int64, b []byte) error
	redraw func() // shows what record changed, a moment later at the latest
	view   *live  // what redraw draws, in place; nil: nothing stands there
	lost   func(from, to int64)
	// task is what ends by itself and isn't done before: an interrupt fails it.
	task bool
	// ungranted is the code of a stream that ends because it is no longer allowed;
	// empty: HARDWARE_NOT_GRANTED.
	ungranted wire.Code
}

// untilFlags are the flags that end a watch.
type untilFlags struct {
	count  int
	period string
}

func (f *untilFlags) add(cmd *cobra.Command, what string) {
	cmd.Flags().IntVar(&f.count, "count", 0, "stop after this many "+what)
	cmd.Flags().StringVar(&f.period, "for", "", "stop after this `DURATION`")
}

// check is for before anything is opened.
func (f *untilFlags) check() error {
	_, err := f.limit()
	return err
}

func (f *untilFlags) limit() (time.Duration, error) {
	if f.count < 0 {
		return 0, usage("--count can't be negative")
	}
	if f.period == "" {
		return 0, nil
	}
	d, err := duration(f.period)
	if err != nil || d <= 0 {
		return 0, usage("--for %q is not a duration such as 10s or 5m", f.period)
	}
	return d, nil
}

// bound applies --for to the context of a stream, from now on: what it takes to
// open one doesn't count.
func (f *untilFlags) bound(ctx context.Context) (context.Context, context.CancelFunc, error) {
	d, err := f.limit()
	if err != nil || d == 0 {
		return ctx, func() {}, err
	}
	ctx, cancel := context.WithTimeout(ctx, d)
	return ctx, cancel, nil
}

const (
	// closing bounds the closing of a stream when it isn't wanted any more.
	closing = 3 * time.Second
	// redrawn is how often a live view is drawn at most.
	redrawn = 50 * time.Millisecond
	// looked is how often is looked whether the link is there.
	looked = 500 * time.Millisecond
	// resized is how often is looked whether a live view has another width.
	resized = 100 * time.Millisecond
)

// errEnough ends a watch that has seen what it wanted.
var errEnough = errors.New("enough")

// follow shows a stream to its end, or until ctx ends or a function of w says
// errEnough; then it closes the stream. It is nil if that is how the watch ended.
func (a *app) follow(ctx context.Context, st *client.Stream, w watching) error {
	err := a.pump(ctx, st, w)
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closing)
	defer cancel()
	closed := st.Close(bounded)
	if !errors.Is(err, errEnough) && (w.task || ctx.Err() == nil || !errors.Is(err, ctx.Err())) {
		return err
	}
	a.belowInterrupt(ctx)
	if closed != nil {
		a.note("The machine could not be told that this is over (%s); it finds out by itself.", clean(closed.Error()))
	}
	return nil
}

// belowInterrupt leaves the line on which the terminal has shown Ctrl-C.
func (a *app) belowInterrupt(ctx context.Context) {
	if a.style.errT && errors.Is(ctx.Err(), context.Canceled) && !a.below {
		a.below = true
		a.note("")
	}
}

func (a *app) pump(ctx context.Context, st *client.Stream, w watching) error {
	if a.json && w.opened != nil {
		if err := a.line(map[string]any{"opened": w.opened}); err != nil {
			return err
		}
	}
	var (
		dirty   bool
		trouble error
	)
	for {
		wait := looked
		switch {
		case dirty:
			wait = redrawn
		case w.view != nil && len(w.view.drawn) > 0:
			wait = resized
		}
		bounded, cancel := context.WithTimeout(ctx, wait)
		c, err := st.Next(bounded)
		cancel()
		if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			if a.tellTrouble(st, &trouble, w.view) || w.view.stale() {
				dirty = !a.json
			}
		}
		if dirty && w.redraw != nil && (err != nil || c.End != nil) {
			w.redraw()
			dirty = false
		}
		switch {
		case err == nil:
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.DeadlineExceeded):
			continue
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
		if err := a.show(c, w); err != nil {
			if w.redraw != nil && !a.json {
				w.redraw()
			}
			return err
		}
		if a.outErr != nil { // nobody reads it any more
			return a.outErr
		}
		dirty = !a.json && w.redraw != nil
		if c.End != nil {
			if dirty {
				w.redraw()
			}
			return ended(*c.End, w.ungranted)
		}
	}
}

// tellTrouble says that a link is lost or back, once each time; that takes away
// what is drawn.
func (a *app) tellTrouble(st *client.Stream, told *error, view *live) bool {
	now := st.Trouble()
	said := (now != nil) != (*told != nil)
	if said {
		view.gone()
	}
	switch {
	case now != nil && *told == nil:
		a.note("The link is lost (%s); it is tried again.", clean(now.Error()))
	case now == nil && *told != nil:
		a.note("The link is back.")
	}
	*told = now
	return said
}

// show shows one chunk.
func (a *app) show(c client.Chunk, w watching) error {
	if c.Lost != nil {
		switch {
		case a.json:
			if err := a.line(map[string]any{"lost": c.Lost}); err != nil {
				return err
			}
		case w.lost != nil:
			w.lost(c.Lost.From, c.Lost.To)
		default:
			w.view.gone()
			a.note("%d were lost.", c.Lost.To-c.Lost.From)
		}
	}
	if len(c.Data) > 0 && w.data != nil {
		if a.json {
			if err := a.line(struct {
				Offset int64  `json:"offset"`
				Data   []byte `json:"data"`
			}{c.Offset, c.Data}); err != nil {
				return err
			}
		}
		if err := w.data(c.Offset, c.Data); err != nil {
			return err
		}
	}
	for _, r := range c.Records {
		if string(r) == "null" { // hidden from this token
			continue
		}
		if a.json {
			if err := a.line(r); err != nil {
				return err
			}
		}
		if err := w.record(r); err != nil {
			return err
		}
	}
	if c.End != nil && a.json {
		return a.line(map[string]any{"end": c.End})
	}
	return nil
}

// records makes the record function of a stream whose records are T's, which
// show shows to people; count is --count.
func records[T any](a *app, count int, show func(T) error) func(json.RawMessage) error {
	seen := 0
	return func(raw json.RawMessage) error {
		if !a.json {
			var v T
			if err := json.Unmarshal(raw, &v); err != nil {
				return wire.Errorf(wire.InternalError, "a record of the stream can't be read: %v", err)
			}
			if err := show(v); err != nil {
				return err
			}
		}
		if seen++; seen == count {
			return errEnough
		}
		return nil
	}
}

// line writes one document of several, on a line of its own.
func (a *app) line(v any) error {
	enc := json.NewEncoder(a.env.Stdout)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// ended is the end of a stream as an error; nil if somebody of this login wanted
// it.
func ended(end wire.StreamEnd, ungranted wire.Code) error {
	code := wire.HardwareTransferFailed
	why := "the device stopped answering"
	switch end.Reason {
	case "closed", "released", "done":
		return nil
	case "device_gone":
		code, why = wire.DeviceGone, "the device was unplugged"
	case "grant_revoked":
		code, why = cmp.Or(ungranted, wire.HardwareNotGranted), "it is no longer allowed"
	case "session_ended":
		code, why = wire.SessionNotFound, "the session has ended"
	case "daemon_stopping":
		code, why = wire.MachineUnreachable, "the daemon on the machine stops"
	case "idle":
		why = "nothing was heard from here for too long"
	case "deadman":
		code, why = wire.SessionNotFound, "the session was silent for longer than it had promised"
	case "port_shared":
		code, why = wire.HardwareBusy, "another program on the machine takes what the port receives"
	case "failed":
	default:
		why = clean(end.Reason)
	}
	return wire.Errorf(code, "the stream has ended: %s", why).With("reason", end.Reason)
}

// live is a few lines on a terminal that are written again in place.
type live struct {
	a     *app
	drawn []int // how many columns each line has that stands there
	width int   // the terminal had, then
}

// draw writes a table in the place of the one before, or as much of it as the
// terminal has lines for: what has left it above can't be written again.
func (l *live) draw(t table) {
	style := l.a.style
	text := t.text(style.out, style.width())
	if most := current(style.height) - 1; most > 0 {
		lines := strings.SplitAfter(text, "\n")
		if taken := rows(widths(text), style.width()); taken > most {
			for len(lines) > 0 && taken > most-1 {
				lines = lines[:len(lines)-1]
				text = strings.Join(lines, "")
				taken = rows(widths(text), style.width())
			}
			text += style.out.dim("…") + "\n"
		}
	}
	l.a.printf("%s", l.over(text))
}

// over puts text in the place of what was drawn before. A terminal that was made
// narrower meanwhile has broken the lines that became too wide.
func (l *live) over(text string) string {
	width, up := l.a.style.width(), ""
	if n := rows(l.drawn, width); n > 0 {
		up = "\x1b[" + strconv.Itoa(n) + "A"
	}
	l.drawn, l.width = widths(text), width
	return up + "\r\x1b[J" + text
}

// gone takes away what is drawn, before something is told that stays above.
func (l *live) gone() {
	if l != nil && len(l.drawn) > 0 {
		l.a.printf("%s", l.over(""))
	}
}

// stale says whether the terminal has another width than when this was drawn.
func (l *live) stale() bool {
	return l != nil && len(l.drawn) > 0 && l.width != l.a.style.width()
}

// widths are how many columns the lines of a text have.
func widths(text string) []int {
	var all []int
	for line := range strings.Lines(text) {
		all = append(all, shown(strings.TrimRight(line, "\n")))
	}
	return all
}

// rows is how many lines of a terminal lines of so many columns take.
func rows(lines []int, width int) int {
	n := len(lines)
	for _, columns := range lines { // a word that is wider than the terminal takes several
		if width > 0 && columns > width {
			n += (columns - 1) / width
		}
	}
	return n
}
