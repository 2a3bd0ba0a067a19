package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"farhand/internal/backoff"
	"farhand/wire"
)

// Event is something that happened to the owner's machines, as the relay tells it.
// A token hears of its machines alone, and not who did it.
type Event struct {
	// Cursor is where to go on after this event.
	Cursor string    `json:"cursor,omitempty"`
	Time   time.Time `json:"time,omitzero"`
	// Type is machine_online, device_removed, grants_changed, …: those of
	// docs/relay-api.md. Others may come later.
	Type        string               `json:"type,omitempty"`
	MachineID   string               `json:"machine_id,omitempty"`
	MachineName string               `json:"machine_name,omitempty"`
	Device      *wire.HardwareDevice `json:"device,omitempty"`
	Holder      string               `json:"holder,omitempty"`
	Subject     string               `json:"subject,omitempty"`
	Address     string               `json:"address,omitempty"`
	Reason      string               `json:"reason,omitempty"`
	// Gap, in an event that has nothing else, says that others are missing before
	// the next: too_old, relay_restarted, whose memory of them is gone, or
	// not_recorded by a part of the relay that was cut off.
	Gap string `json:"gap,omitempty"`
}

// EventQuery says which events are wanted.
type EventQuery struct {
	After   string // the cursor of the last event that was seen; empty: all that are kept
	Machine string // of this one alone: an id, a name or an unambiguous prefix of either
	Follow  bool   // then those that come
	// OnCursor is told how far the events are known, also where none happened.
	OnCursor func(cursor string)
	// OnTrouble is told that the link is lost, and with nil that it is back.
	OnTrouble func(error)
}

const (
	// eventSilence is how long nothing may come of a feed that is followed: the
	// relay gives a sign of life three times as often.
	eventSilence = 60 * time.Second
	maxEvent     = 64 << 10 // bytes of one
)

// Events are the events that the relay keeps, the oldest first, and with Follow
// those that come, until ctx ends: over a lost link too, without missing one but
// by a Gap. An error is the last that it yields.
func (c *Client) Events(ctx context.Context, q EventQuery) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		f := feed{c: c, query: q, yield: yield, pause: backoff.Backoff{Base: 200 * time.Millisecond, Max: 15 * time.Second, Jitter: 200 * time.Millisecond}}
		if err := f.run(ctx); err != nil && !errors.Is(err, errEnoughEvents) {
			yield(Event{}, err)
		}
	}
}

// errEnoughEvents says that the caller wants no more.
var errEnoughEvents = errors.New("enough events")

// feed reads events until one of its readings fails for good.
type feed struct {
	c     *Client
	query EventQuery
	yield func(Event, error) bool
	pause backoff.Backoff
	lost  bool
}

func (f *feed) run(ctx context.Context) error {
	for {
		err := f.read(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case !f.query.Follow || errors.Is(err, errEnoughEvents) || err != nil && !passing(err):
			return err
		}
		if err == nil {
			err = &linkError{RelayUnreachable, "the relay at " + f.c.base.Host + " ended the events", errors.New("the connection was closed")}
		}
		f.trouble(err)
		t := time.NewTimer(f.pause.Next())
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return ctx.Err()
		}
	}
}

func (f *feed) trouble(err error) {
	if f.query.OnTrouble != nil && f.lost != (err != nil) {
		f.query.OnTrouble(err)
	}
	f.lost = err != nil
}

// read is one connection.
func (f *feed) read(ctx context.Context) error {
	outer := ctx
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	values := url.Values{"follow": {strconv.FormatBool(f.query.Follow)}}
	if f.query.After != "" {
		values.Set("after", f.query.After)
	}
	if f.query.Machine != "" {
		values.Set("machine", f.query.Machine)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.c.base.String()+"/api/events?"+values.Encode(), nil)
	if err != nil {
		return err
	}
	f.c.sign(req.Header)
	silence := time.AfterFunc(eventSilence, cancel)
	defer silence.Stop()
	endless := http.Client{Transport: f.c.http.Transport, CheckRedirect: f.c.http.CheckRedirect}
	resp, err := endless.Do(req)
	if err != nil {
		return f.c.linkFailure(outer, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, err := drain(resp.Body)
		if err != nil {
			return f.c.linkFailure(outer, err)
		}
		return f.c.refusal(resp.StatusCode, body)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	for lines.Scan() {
		silence.Reset(eventSilence)
		f.pause.Reset()
		f.trouble(nil)
		if err := f.take(lines.Bytes()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return f.c.linkFailure(outer, err)
	}
	return nil
}

// take takes one line: an event, a gap, the end, or a sign of life with a cursor.
func (f *feed) take(line []byte) error {
	var e struct {
		Event
		End string `json:"end"`
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return &linkError{RelayUnreachable, "what answers at " + f.c.base.Host + " is not a Farhand relay", err}
	}
	if e.End != "" {
		return wire.Errorf(wire.AuthFailed, "the token is no longer good").With("reason", e.End)
	}
	if e.Cursor != "" {
		f.query.After = e.Cursor
		if f.query.OnCursor != nil {
			f.query.OnCursor(e.Cursor)
		}
	}
	if e.Type == "" && e.Gap == "" {
		return nil
	}
	if !f.yield(e.Event, nil) {
		return errEnoughEvents
	}
	return nil
}
