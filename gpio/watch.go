package gpio

import (
	"context"
	"errors"
	"log/slog"
	"syscall"
	"time"

	"farhand/stream"
	"farhand/wire"
)

// eventBuffer is how many edges the kernel keeps for a watch: the most it does.
const eventBuffer = 1024

// watch is a stream that watches lines.
type watch struct {
	b     *board
	log   *slog.Logger
	st    *stream.Stream
	lines []int

	ctx    context.Context // ends with the watch; its cause is why
	cancel context.CancelCauseFunc
	free   []func() // gives the leases free
	done   chan struct{}
}

// watch opens a stream of what happens on lines.
func (x *operation) watch() (any, error) {
	a, err := decodeArgs[wire.GPIOWatch](x.r.Args)
	if err != nil {
		return nil, err
	}
	want, err := edges(a.Edge)
	if err != nil {
		return nil, err
	}
	s, err := settings(wire.GPIOConfigure{
		GPIOSelect: a.GPIOSelect, Direction: directions[In], Pull: a.Pull, Bias: a.Bias, ActiveLow: a.ActiveLow,
		DebounceSeconds: a.DebounceSeconds, DebounceUS: a.DebounceUS,
	})
	if err != nil {
		return nil, err
	}
	var poll time.Duration
	if a.PollSeconds != 0 {
		if poll, err = seconds("poll_seconds", a.PollSeconds, MinPoll, MaxPoll); err != nil {
			return nil, err
		}
	}
	b := x.b
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.mu.Unlock()
	configs := make([]LineConfig, len(x.lines))
	for i, o := range x.lines {
		if err := b.watchable(o); err != nil {
			return nil, err
		}
		if configs[i], err = s.apply(b, o); err != nil {
			return nil, err
		}
		configs[i].Edges = want
	}
	polled, err := b.claimWatched(x.lines, configs, poll > 0)
	if err != nil {
		x.undo()
		return nil, err
	}
	levels, atomic, err := b.levels(x.lines)
	if err != nil {
		x.undo()
		return nil, err
	}
	st, err := x.r.OpenStream(stream.Options{Records: true, Credit: a.Credit})
	if err != nil {
		x.undo()
		return nil, err
	}
	x.start(st, levels, poll)
	return wire.GPIOWatching{Opened: wire.Opened{Stream: st.ID()}, Lines: x.values(levels, atomic).Lines, Polled: polled}, nil
}

// watchable says whether a line may be watched. It is called with b.mu.
func (b *board) watchable(offset int) error {
	l := &b.lines[offset]
	if err := b.unwatched(offset); err != nil {
		return err
	}
	if l.release != "" || l.kept || l.pwm != nil {
		return wire.Errorf(wire.InvalidArgument, "%s is an output", b.call(offset)).With("line", offset).
			With("hint", `GPIO_CONFIGURE with direction "in" makes it an input`)
	}
	return nil
}

// unwatched says that no stream watches a line. It is called with b.mu.
func (b *board) unwatched(offset int) error {
	if u := b.lines[offset].use; u != nil && u.watcher() != nil {
		return wire.Errorf(wire.InvalidArgument, "%s is being watched", b.call(offset)).With("line", offset).
			With("hint", "close the stream of GPIO_WATCH first")
	}
	return nil
}

// claimWatched makes lines inputs with edges, in one request as far as they can
// be. Lines that have no interrupt are claimed without edges if they may be
// polled; it answers which. It is called with b.mu.
func (b *board) claimWatched(lines []int, configs []LineConfig, mayPoll bool) (polled []int, err error) {
	b.loosen(lines)
	b.freeInputs(lines)
	var have, fresh []LineConfig
	for i, o := range lines {
		if b.lines[o].claim != nil {
			have = append(have, configs[i])
		} else {
			fresh = append(fresh, configs[i])
		}
	}
	if err := b.change(have); err != nil {
		return nil, err
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	_, err = b.request(fresh, eventBuffer)
	if !errors.Is(err, wire.FeatureNotSupported) {
		return nil, err
	}
	for _, c := range fresh { // one of them has no interrupt
		_, err := b.request([]LineConfig{c}, eventBuffer)
		if errors.Is(err, wire.FeatureNotSupported) && mayPoll {
			c.Edges, c.Debounce = 0, 0
			_, err = b.request([]LineConfig{c}, 0)
			polled = append(polled, c.Offset)
		}
		if err != nil {
			return nil, err
		}
	}
	return polled, nil
}

// freeInputs gives back requests whose lines are all among these and all only
// inputs, so that they can be requested anew together. It is called with b.mu.
func (b *board) freeInputs(lines []int) {
	among := make(map[int]bool, len(lines))
	for _, o := range lines {
		among[o] = true
	}
	for _, o := range lines {
		cl := b.lines[o].claim
		if cl == nil || cl.reader != nil {
			continue
		}
		all := true
		for _, m := range cl.offsets {
			all = all && among[m] && b.lines[m].config.Direction != Out
		}
		if all {
			b.unclaim(cl)
		}
	}
}

// undo is for a watch that couldn't begin: inputs stay inputs, without edges.
// It is called with b.mu.
func (x *operation) undo() {
	b := x.b
	for _, o := range x.lines {
		l := &b.lines[o]
		if l.claim == nil || l.config.Edges == 0 {
			continue
		}
		c := l.config
		c.Edges = 0
		if err := b.change([]LineConfig{c}); err != nil {
			b.s.o.Log.Debug("edges stay on", "device", b.id, "line", o, "err", err)
		}
	}
}

// start lets the watch run. It is called with b.mu.
func (x *operation) start(st *stream.Stream, levels []int, poll time.Duration) {
	b := x.b
	w := &watch{b: b, log: b.s.o.Log, st: st, lines: x.lines, done: make(chan struct{})}
	w.ctx, w.cancel = context.WithCancelCause(context.Background())
	for i, lease := range x.r.Parts {
		ctx := lease.Context()
		off := context.AfterFunc(ctx, func() { w.cancel(context.Cause(ctx)) })
		done := lease.Keep(st.Done())
		w.free = append(w.free, func() { off(); done() })
		x.uses[i].setWatcher(w)
	}
	for i, o := range x.lines {
		l := &b.lines[o]
		if l.claim.reader == nil {
			l.claim.reader = newReader(b, l.claim)
		}
		l.claim.reader.add(o, w, levels[i], poll)
	}
	for _, g := range b.groups(x.lines) {
		g.claim.reader.start()
	}
	go w.run()
}

// run waits for the end. It belongs to the uses of the lines: close waits for it.
func (w *watch) run() {
	defer close(w.done)
	select {
	case <-w.ctx.Done():
	case <-w.st.Done():
	}
	w.cancel(nil)
	w.b.unwatch(w)
	w.st.End(stream.Reason(context.Cause(w.ctx)), nil)
	for _, free := range w.free {
		free()
	}
}

// close ends the watch, with why its lease has ended if it has, and waits until
// it has.
func (w *watch) close(cause error) {
	w.cancel(cause) // what AfterFunc does as well, but maybe later
	<-w.done
}

// over says whether the watch has ended, or is about to.
func (w *watch) over() bool {
	select {
	case <-w.ctx.Done():
		return true
	case <-w.st.Done():
		return true
	default:
		return false
	}
}

// fail ends the watch with a record that says why.
func (w *watch) fail(line int, name string, err error) {
	e := wire.AsError(err)
	w.record(wire.GPIORecord{Kind: wire.GPIOError, Line: line, Name: name, Error: e})
	w.cancel(err)
}

func (w *watch) record(r wire.GPIORecord) {
	// It fails only when the stream has ended, and then so does the watch.
	_ = w.st.Record(r)
}

// unwatch takes a watch from its readers.
func (b *board) unwatch(w *watch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, o := range w.lines {
		l := &b.lines[o]
		if l.claim == nil || l.claim.reader == nil || !l.claim.reader.remove(o, w) {
			continue
		}
		if l.claim.reader.empty() {
			l.claim.reader.stop()
			l.claim.reader = nil
		}
		if b.gone.Load() {
			continue
		}
		c := l.config
		c.Edges = 0
		if err := b.change([]LineConfig{c}); err != nil && !errors.Is(err, syscall.ENODEV) {
			w.log.Debug("edges stay on", "device", b.id, "line", o, "err", err)
		}
	}
}
