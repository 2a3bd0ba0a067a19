package octoprint

import (
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"sync"
	"time"

	"farhand/device"
	"farhand/internal/backoff"
	"farhand/octoprint/rest"
	"farhand/stream"
	"farhand/wire"
)

// held is what a lease has of a printer: heaters that go off with it, and the
// streams that end with it.
type held struct {
	p      *printer
	ctx    context.Context
	cancel context.CancelFunc
	pumps  sync.WaitGroup
	hot    map[string]bool
}

// held is the lease's state, made if need be.
func (o *operation) held() *held {
	if h, ok := o.r.Lease.State().(*held); ok {
		return h
	}
	h := &held{p: o.p, hot: make(map[string]bool)}
	h.ctx, h.cancel = context.WithCancel(o.r.Lease.Context())
	o.r.Lease.SetState(h)
	return h
}

// Close ends the streams and switches heaters off. The time that takes is
// bounded; what the network doesn't allow now is tried again later.
func (h *held) Close() error {
	h.cancel()
	h.pumps.Wait()
	if len(h.hot) == 0 {
		return nil
	}
	err := h.p.owe(context.Background(), slices.Collect(maps.Keys(h.hot)))
	if err != nil {
		h.p.coolLater()
	}
	return err
}

// pump opens a stream and runs fn for it until fn returns: its context ends with
// the stream and with the lease, which is kept until then. fn's error is the
// reason of the end, nil an end by itself.
func (o *operation) pump(credit int, fn func(ctx context.Context, st *stream.Stream) error) (wire.Opened, error) {
	st, err := o.r.OpenStream(stream.Options{Records: true, Credit: credit})
	if err != nil {
		return wire.Opened{}, err
	}
	h, lease := o.held(), o.r.Lease
	done := lease.Keep(st.Done())
	ctx, cancel := context.WithCancel(h.ctx)
	h.pumps.Go(func() {
		defer done()
		defer cancel()
		stop := make(chan struct{})
		var closing sync.WaitGroup
		closing.Go(func() {
			select {
			case <-st.Done():
				cancel()
			case <-stop:
			}
		})
		err := fn(ctx, st)
		close(stop)
		closing.Wait()
		st.End(endReason(lease, err), nil)
	})
	return wire.Opened{Stream: st.ID()}, nil
}

func endReason(lease *device.Lease, err error) string {
	switch {
	case lease.Context().Err() != nil:
		return stream.Reason(context.Cause(lease.Context()))
	case err != nil:
		return stream.ReasonFailed
	}
	return stream.ReasonDone
}

const (
	progressEvery = 250 * time.Millisecond
	minWatch      = 500 * time.Millisecond // docs.octoprint.org, push: "not more often than twice per second"
	maxWatch      = time.Minute
	defaultWatch  = time.Second
	pollWatch     = 2 * time.Second // of a server that pushes nothing, at least
)

func (o *operation) upload(a wire.PrinterUpload) (wire.PrinterUploading, error) {
	none := wire.PrinterUploading{}
	loc, err := place(a.Location)
	if err != nil {
		return none, err
	}
	if a.Path == "" {
		return none, invalid("path", "must name a file of this machine")
	}
	if a.Name == "" {
		a.Name = path.Base(a.Path)
	}
	if a.Folder != "" {
		if _, err := rest.Segments("folder", a.Folder); err != nil {
			return none, err
		}
	}
	files := o.p.own.opts.Files
	if files == nil {
		return none, wire.Errorf(wire.FeatureNotSupported, "no files can be read here").With("feature", "files")
	}
	if _, err := o.p.client.Identify(o.ctx); err != nil {
		return none, err
	}
	session := o.r.Caller.Session
	first, size, err := files.Open(o.ctx, session, a.Path)
	if err != nil {
		return none, err
	}
	if size > rest.MaxUpload {
		first.Close()
		return none, wire.Errorf(wire.FileTooLarge, "a file for a printer may have at most %d bytes, not %d", int64(rest.MaxUpload), size)
	}
	t := &transfer{size: size, first: first, again: func(ctx context.Context) (io.ReadCloser, int64, error) { return files.Open(ctx, session, a.Path) }}
	u := rest.Upload{Location: loc, Folder: a.Folder, Name: a.Name, Select: a.Select || a.Print, Print: a.Print, Open: t.open}
	opened, err := o.pump(a.Credit, func(ctx context.Context, st *stream.Stream) error {
		defer t.close()
		return o.p.send(ctx, st, t, u)
	})
	if err != nil {
		t.close()
		return none, err
	}
	return wire.PrinterUploading{Opened: opened, Size: size}, nil
}

// transfer is the file of an upload.
type transfer struct {
	size  int64
	first io.ReadCloser // what was opened to see that it can be; nil once used
	again func(ctx context.Context) (io.ReadCloser, int64, error)

	mu   sync.Mutex
	last time.Time // of a progress record
	sent int64
}

func (t *transfer) open(ctx context.Context) (io.ReadCloser, int64, error) {
	if f := t.first; f != nil {
		t.first = nil
		return f, t.size, nil
	}
	return t.again(ctx)
}

func (t *transfer) close() {
	if t.first != nil {
		t.first.Close()
	}
}

// send uploads and tells about it. A record that the stream won't take is lost
// with the receiver.
func (p *printer) send(ctx context.Context, st *stream.Stream, t *transfer, u rest.Upload) error {
	u.Progress = func(sent int64, retry string) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.sent = sent
		if now := time.Now(); retry != "" || now.Sub(t.last) >= progressEvery {
			t.last = now
			_ = st.Record(wire.PrinterProgress{Sent: sent, Size: t.size, Retry: retry})
		}
	}
	result, err := p.client.Send(ctx, u)
	t.mu.Lock()
	defer t.mu.Unlock()
	last := wire.PrinterProgress{Sent: t.sent, Size: t.size}
	if err != nil {
		last.Error = wire.AsError(err)
	} else {
		last.Result = &result
		if result.Renamed || result.Transliterated != "" {
			p.change(func(r *record) { r.remember(result.Location, result.Path, u.Name) })
		}
	}
	_ = st.Record(last)
	return err
}

func (o *operation) join(a wire.PrinterJoin) (wire.PrinterJoining, error) {
	if len(a.User) > maxUser {
		return wire.PrinterJoining{}, invalid("user", "may have at most %d bytes", maxUser)
	}
	if o.p.Key != "" || o.p.KeyFile != "" {
		return wire.PrinterJoining{}, wire.Errorf(wire.InvalidArgument, "the configuration names this printer's API key").
			With("hint", "take it out of hardware.printer_keys to ask for another")
	}
	j, err := o.p.client.Join(o.ctx, o.p.own.opts.App, a.User)
	if err != nil {
		return wire.PrinterJoining{}, err
	}
	opened, err := o.pump(a.Credit, func(ctx context.Context, st *stream.Stream) error {
		_ = st.Record(wire.PrinterJoinEvent{Decision: wire.JoinWaiting})
		last := o.p.decide(ctx, j)
		_ = st.Record(last)
		if last.Error != nil {
			return last.Error
		}
		return nil
	})
	return wire.PrinterJoining{Opened: opened, Dialog: j.Dialog, Hint: "the owner allows it on the server's page, at " + o.p.client.Origin()}, err
}

// decide waits for the decision and keeps the key.
func (p *printer) decide(ctx context.Context, j *rest.Joining) wire.PrinterJoinEvent {
	key, err := j.Wait(ctx)
	switch {
	case err != nil:
		return wire.PrinterJoinEvent{Decision: wire.JoinFailed, Error: wire.AsError(err)}
	case key == "":
		return wire.PrinterJoinEvent{Decision: wire.JoinDenied}
	}
	p.client.SetKey(key)
	if err := p.own.store.change(p.Name, p.URL.String(), func(r *record) { r.Key = key }); err != nil {
		p.log.Error("the printer's API key can't be kept beyond this run", "error", err)
		return wire.PrinterJoinEvent{Decision: wire.JoinGranted, Error: wire.Errorf(wire.InternalError, "the key could not be stored and is lost with the daemon's end")}
	}
	p.log.Info("the owner granted an API key")
	p.own.notify()
	return wire.PrinterJoinEvent{Decision: wire.JoinGranted}
}

func (o *operation) watch(a wire.PrinterWatch) (wire.PrinterWatching, error) {
	interval := defaultWatch
	if s := a.IntervalSeconds; s != 0 {
		interval = time.Duration(s * float64(time.Second))
		if !(interval >= minWatch && interval <= maxWatch) {
			return wire.PrinterWatching{}, invalid("interval_seconds", "must be %g to %g", minWatch.Seconds(), maxWatch.Seconds())
		}
	}
	status, err := o.p.client.Status(o.ctx) // that it can be watched is known before the answer
	if err != nil {
		return wire.PrinterWatching{}, err
	}
	w := &watcher{p: o.p, interval: interval, log: a.Log}
	opened, err := o.pump(a.Credit, func(ctx context.Context, st *stream.Stream) error {
		w.st = st
		w.state(&status, nil)
		return w.run(ctx)
	})
	return wire.PrinterWatching{Opened: opened, Push: status.Server.Kind == rest.KindOctoPrint}, err
}

// watcher feeds one PRINTER_WATCH.
type watcher struct {
	p        *printer
	st       *stream.Stream
	interval time.Duration
	log      bool

	poll bool      // the server pushes nothing
	lost bool      // told so
	last time.Time // of a state record
	seen *wire.PrinterStatus
	held []string // lines that wait for the next state record
}

// run watches until ctx ends, through failures of the network.
func (w *watcher) run(ctx context.Context) error {
	wait := backoff.Backoff{Base: time.Second, Max: 30 * time.Second, Jitter: time.Second}
	for {
		began := time.Now()
		err := w.follow(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, rest.ErrNoPush) {
			w.poll = true
			continue
		}
		if time.Since(began) > time.Minute {
			wait.Reset()
		}
		if !w.lost {
			w.lost = true
			w.record(wire.PrinterEvent{Type: wire.PrinterEventLost, Error: wire.AsError(err)})
		}
		t := time.NewTimer(wait.Next())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil
		}
	}
}

func (w *watcher) follow(ctx context.Context) error {
	if w.poll {
		return w.ask(ctx)
	}
	push, err := w.p.client.Open(ctx, w.interval)
	if err != nil {
		return err
	}
	defer push.Close()
	for {
		u, err := push.Next(ctx)
		if err != nil {
			return err
		}
		w.back()
		if u.Status != nil {
			w.state(u.Status, u.Log)
		}
		if u.Name != "" {
			w.record(wire.PrinterEvent{Type: wire.PrinterEventEvent, Name: u.Name, Payload: u.Payload})
		}
	}
}

// ask polls.
func (w *watcher) ask(ctx context.Context) error {
	t := time.NewTicker(max(w.interval, pollWatch))
	defer t.Stop()
	for {
		each, cancel := context.WithTimeout(ctx, opTimeout)
		s, err := w.p.client.Status(each)
		cancel()
		if err != nil {
			return err
		}
		w.back()
		w.state(&s, nil)
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (w *watcher) back() {
	if w.lost {
		w.lost = false
		w.record(wire.PrinterEvent{Type: wire.PrinterEventBack})
	}
}

// state writes a state if it is time, or if it says something else than the
// last; lines of the log wait for it, so far as they are few.
func (w *watcher) state(s *wire.PrinterStatus, log []string) {
	if w.log {
		const most = 500
		w.held = append(w.held, log...)
		w.held = w.held[max(0, len(w.held)-most):]
	}
	if w.seen != nil {
		if len(s.Temperatures) == 0 { // most messages have none
			s.Temperatures = w.seen.Temperatures
		}
		if s.Storage == nil {
			s.Storage = w.seen.Storage
		}
	}
	changed := w.seen == nil || w.seen.State != s.State
	w.seen = s
	if !changed && time.Since(w.last) < w.interval {
		return
	}
	w.last = time.Now()
	w.record(wire.PrinterEvent{Type: wire.PrinterEventState, Status: s, Log: w.held})
	w.held = nil
}

// record writes one record; what can't be written is a gap in the stream.
func (w *watcher) record(e wire.PrinterEvent) {
	e.Time = float64(time.Now().UnixMilli()) / 1000
	_ = w.st.Record(e)
}
