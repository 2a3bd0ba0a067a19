package route

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"time"

	"farhand/relay/access"
	"farhand/relay/events"
	"farhand/wire"
)

const (
	maxFollowers = 16 // of one operator's login or token
	// eventWrite bounds one write: whoever doesn't read comes back with the cursor.
	eventWrite = 30 * time.Second
)

// eventSign is the line that says where the reader stands: after what is kept, and
// then now and then.
type eventSign struct {
	Cursor string `json:"cursor"`
}

// eventGap is the line that says what is missing before the next.
type eventGap struct {
	Gap events.Gap `json:"gap"`
}

// eventEnd is the last line of a feed that ends by itself.
type eventEnd struct {
	End string `json:"end"`
}

// getEvents is GET /api/events: what is kept, and with follow what comes, as lines
// of JSON.
func (s *Server) getEvents(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		s.replyError(w, wire.Errorf(wire.MachineUnreachable, "the relay is shutting down"))
		return
	}
	defer s.leave()
	if s.cutOff() {
		s.replyError(w, wire.Errorf(codeUnavailable, "cut off from NATS: try again"))
		return
	}
	op, ok := s.operatorOf(w, r)
	if !ok {
		return
	}
	f := feedReader{srv: s, r: r, cursor: r.URL.Query().Get("after")}
	var err error
	if text := r.URL.Query().Get("follow"); text != "" {
		if f.follow, err = strconv.ParseBool(text); err != nil {
			s.replyError(w, wire.Errorf(wire.InvalidArgument, "follow must be true or false").With("field", "follow"))
			return
		}
	}
	if name := r.URL.Query().Get("machine"); name != "" {
		rec, err := s.resolve(r.Context(), op, name)
		if err != nil {
			s.replyError(w, err)
			return
		}
		f.machine = rec.ID
	}
	if _, _, _, _, err := s.events.Since(op.Owner, f.cursor); err != nil {
		s.replyError(w, err)
		return
	}
	if f.follow {
		if !s.followers.enter(op.Owner + "/" + op.Holder) {
			s.replyError(w, wire.Errorf(wire.ShimOverloaded, "events are followed %d times already by this login or token", maxFollowers))
			return
		}
		defer s.followers.leave(op.Owner + "/" + op.Holder)
		s.watch(op.Owner)
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	f.out, f.control = bufio.NewWriterSize(w, writeBuffer), http.NewResponseController(w)
	// The server's bounds for requests don't fit one that goes on. That they can't
	// be moved, under a server of another kind, only means that it ends sooner.
	_ = f.control.SetReadDeadline(time.Time{})
	f.run(op)
}

// feedReader is one reading of the feed.
type feedReader struct {
	srv     *Server
	r       *http.Request
	out     *bufio.Writer
	control *http.ResponseController
	follow  bool
	machine string // only of this one; empty: all
	cursor  string
}

// run writes until the reader is gone, the token is no longer good or the relay
// stops; without follow, what is kept.
func (f *feedReader) run(op access.Operator) {
	sign := time.NewTicker(f.srv.timing.ping)
	defer sign.Stop()
	for {
		list, next, gap, wake, err := f.srv.events.Since(op.Owner, f.cursor)
		if err != nil || f.write(op, list, gap, next) != nil || !f.follow {
			return
		}
		f.cursor = next
		select {
		case <-wake:
		case <-sign.C:
		case <-f.r.Context().Done():
			return
		case <-f.srv.ctx.Done():
			return
		}
		if f.srv.cutOff() { // others hear what happens, and the reader comes to one of them
			return
		}
		// What it may see, if anything, is asked anew each time.
		token, _ := bearer(f.r)
		op, err = f.srv.authority.Operator(f.r.Context(), token)
		if errors.Is(err, access.ErrUnauthorized) {
			_ = f.line(eventEnd{"token_revoked"})
			_ = f.flush()
			return
		}
		if err != nil {
			return // the reader comes back with its cursor
		}
	}
}

func (f *feedReader) write(op access.Operator, list []events.Event, gap events.Gap, next string) error {
	_ = f.control.SetWriteDeadline(time.Now().Add(eventWrite))
	if gap != "" {
		if err := f.line(eventGap{gap}); err != nil {
			return err
		}
	}
	names := f.names(op, list)
	for _, e := range list {
		if e.Gap != "" {
			if err := f.line(eventGap{e.Gap}); err != nil {
				return err
			}
			continue
		}
		e, visible := seenBy(op, e)
		if !visible || f.machine != "" && e.Machine != f.machine {
			continue
		}
		e.Name = names[e.Machine]
		if err := f.line(e); err != nil {
			return err
		}
	}
	if err := f.line(eventSign{next}); err != nil {
		return err
	}
	return f.flush()
}

func (f *feedReader) line(v any) error {
	enc := json.NewEncoder(f.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

func (f *feedReader) flush() error { return errors.Join(f.out.Flush(), f.control.Flush()) }

// names are the owner's names of the machines that events are about.
func (f *feedReader) names(op access.Operator, list []events.Event) map[string]string {
	if len(list) == 0 {
		return nil
	}
	all, err := f.srv.authority.Machines(f.r.Context(), op.Owner)
	if err != nil {
		return nil // the ids do without
	}
	names := make(map[string]string, len(all))
	for _, m := range all {
		names[m.ID] = m.Name
	}
	return names
}

// seenBy is an event as an operator may see it: a token sees what happens to its
// machines and their devices, and not who did it.
func seenBy(op access.Operator, e events.Event) (events.Event, bool) {
	if op.Login {
		return e, true
	}
	switch e.Type {
	case events.MachineOnline, events.MachineOffline, events.MachineRemoved, events.GrantsChanged:
	case events.DeviceAdded, events.DeviceRemoved, events.DeviceChanged:
		if op.Ceiling != nil && (e.Device == nil || !visibleTo(op.Ceiling, *e.Device)) {
			return e, false
		}
	default:
		return e, false
	}
	e.Holder, e.Subject, e.Address = "", "", ""
	return e, op.MayUse(e.Machine)
}

// lost publishes that a machine's control socket is gone, unless another instance
// has one by now, or is about to say that this whole instance is gone.
func (m *machine) lost(reason string) {
	s := m.srv
	if s.isClosed() || s.places.online(m.key) || s.places != nil && !s.places.node.Alive(s.places.node.ID()) {
		return
	}
	m.happened(events.Event{Type: events.MachineOffline, Reason: reason, Still: s.places.stillGone(m.key)})
	s.spawn(func() {
		if err := s.authority.Left(s.ctx, m.key.owner, m.key.id); err != nil && s.ctx.Err() == nil {
			s.log.Warn("when the machine was last seen is not stored", "machine", m.key.id, "error", err)
		}
	})
}

// abandoned publishes that machines are offline because the instance that had them
// is gone.
func (s *Server) abandoned(machines []machineKey) {
	for _, key := range machines {
		if s.places.online(key) { // it was fast
			continue
		}
		s.events.Publish(key.owner, events.Event{Type: events.MachineOffline, Machine: key.id,
			Reason: "the relay's instance that it was connected to is gone", Still: s.places.stillGone(key)})
	}
}

// happened publishes what happened to a machine.
func (m *machine) happened(e events.Event) {
	e.Machine = m.key.id
	m.srv.events.Publish(m.key.owner, e)
}
