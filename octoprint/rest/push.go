package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"farhand/wire"
)

const (
	// maxPush bounds one message. The first one carries the temperatures of the
	// last half hour.
	maxPush   = 4 << 20
	pushAlive = time.Minute      // without a message or a pong the socket is dead
	pushPing  = 20 * time.Second // well below it
	pushWrite = 5 * time.Second
	// pushBase is the least time between two states (docs: push, "throttle": the
	// base rate limit of one message every 500ms).
	pushBase = 500 * time.Millisecond
	maxLog   = 200 // lines of one message that are passed on
)

// ErrNoPush says that a server has no push socket that we may use; it has to be
// asked.
var ErrNoPush = errors.New("the server pushes nothing")

// Update is one message of the push socket.
type Update struct {
	Status  *wire.PrinterStatus // a state
	Log     []string
	Name    string // an event
	Payload json.RawMessage
}

// Push is an open push socket. Close it when done.
type Push struct {
	c    *Client
	conn *websocket.Conn
	id   wire.PrinterServer
	stop func() bool // no longer closes the socket with the context
	ping chan struct{}
	done chan struct{} // closed when the pinging has ended
}

// Open opens the push socket and logs in (docs: push, "auth"). ctx bounds the
// life of the socket. interval is the least time between two states. It is
// ErrNoPush if there is no such socket.
func (c *Client) Open(ctx context.Context, interval time.Duration) (*Push, error) {
	id, err := c.Identify(ctx)
	if err != nil {
		return nil, err
	}
	if id.Kind == KindMoonraker { // its OctoPrint face has none
		return nil, ErrNoPush
	}
	who, err := c.login(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := c.dialSocket(ctx)
	if err != nil {
		return nil, err
	}
	p := &Push{c: c, conn: conn, id: id, ping: make(chan struct{}), done: make(chan struct{})}
	p.stop = context.AfterFunc(ctx, func() { conn.Close() })
	conn.SetReadLimit(maxPush)
	alive := func(string) error { return conn.SetReadDeadline(time.Now().Add(pushAlive)) }
	conn.SetPongHandler(alive)
	first := []any{map[string]string{"auth": who}}
	if factor := int(interval / pushBase); factor > 1 {
		first = append(first, map[string]int{"throttle": factor})
	}
	go p.keep()
	for _, message := range first {
		if err := p.say(message); err != nil {
			p.Close()
			return nil, c.unreachable(ctx, http.MethodGet, err)
		}
	}
	return p, nil
}

// login gets the name and session that the socket wants (docs: general,
// "Login": passive, with the API key).
func (c *Client) login(ctx context.Context) (string, error) {
	var who struct {
		Name    string `json:"name"`
		Session string `json:"session"`
	}
	err := c.do(ctx, call{method: http.MethodPost, path: []string{"api", "login"}, body: map[string]bool{"passive": true}}, &who)
	if err != nil {
		return "", err
	}
	if who.Session == "" {
		return "", ErrNoPush
	}
	return who.Name + ":" + who.Session, nil
}

// dialSocket opens SockJS's raw WebSocket, which carries the messages without
// SockJS's frames (sockjs-protocol, "Raw WebSocket endpoint": BASE/websocket).
func (c *Client) dialSocket(ctx context.Context) (*websocket.Conn, error) {
	u := c.join("sockjs", "websocket")
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[u.Scheme]
	d := websocket.Dialer{NetDialContext: c.dial, TLSClientConfig: c.trans.TLSClientConfig, HandshakeTimeout: 2 * dialTimeout}
	h := http.Header{}
	if c.agent != "" {
		h.Set("User-Agent", c.agent)
	}
	conn, resp, err := d.DialContext(ctx, u.String(), h)
	if err == nil {
		return conn, nil
	}
	if resp == nil {
		return nil, c.unreachable(ctx, http.MethodGet, err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxFailure)) // only for the message
	if resp.StatusCode < 300 || resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusBadRequest {
		return nil, ErrNoPush // a proxy that passes no upgrades
	}
	return nil, classify(resp, b, call{method: http.MethodGet, path: []string{"sockjs", "websocket"}})
}

func (p *Push) say(v any) error {
	if err := p.conn.SetWriteDeadline(time.Now().Add(pushWrite)); err != nil {
		return err
	}
	return p.conn.WriteJSON(v)
}

// keep pings, so that a server that is gone without a word is noticed.
func (p *Push) keep() {
	defer close(p.done)
	t := time.NewTicker(pushPing)
	defer t.Stop()
	for {
		select {
		case <-p.ping:
			return
		case <-t.C:
			// If it fails the reader sees it.
			_ = p.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(pushWrite))
		}
	}
}

// Close closes the socket and waits until nothing of it runs. Call it once, from
// the goroutine that reads.
func (p *Push) Close() {
	p.stop()
	p.conn.Close()
	close(p.ping)
	<-p.done
}

// Next waits for the next message that says something.
func (p *Push) Next(ctx context.Context) (Update, error) {
	for {
		if err := p.conn.SetReadDeadline(time.Now().Add(pushAlive)); err != nil {
			return Update{}, p.c.unreachable(ctx, http.MethodGet, err)
		}
		_, b, err := p.conn.ReadMessage()
		if err != nil {
			return Update{}, p.c.unreachable(ctx, http.MethodGet, err)
		}
		for _, message := range unframe(b) {
			u, again := decodePush(message)
			if again {
				who, err := p.c.login(ctx)
				if err == nil {
					err = p.say(map[string]string{"auth": who})
				}
				if err != nil {
					return Update{}, err
				}
			}
			if u.Status != nil {
				u.Status.Server = &p.id
			}
			if u.Status != nil || u.Name != "" {
				return u, nil
			}
		}
	}
}

// unframe takes SockJS's framing off, should a server add it also here
// (sockjs-protocol: o open, h heartbeat, c close, a[...] messages, each a
// string).
func unframe(b []byte) [][]byte {
	b = bytes.TrimSpace(b)
	if len(b) == 0 {
		return nil
	}
	switch b[0] {
	case '{':
		return [][]byte{b}
	case 'a':
		var texts []string
		if json.Unmarshal(b[1:], &texts) != nil {
			return nil
		}
		var all [][]byte
		for _, t := range texts {
			all = append(all, []byte(t))
		}
		return all
	}
	return nil
}

// decodePush reads a message; what it doesn't know is an empty Update (docs:
// push, "Clients must ignore any unknown messages"). again says that we have to
// log in once more.
func decodePush(b []byte) (u Update, again bool) {
	var m struct {
		Current *pushState      `json:"current"`
		History *pushState      `json:"history"`
		Reauth  json.RawMessage `json:"reauthRequired"`
		Event   *struct {
			Type    string          `json:"type"`
			Payload json.RawMessage `json:"payload"`
		} `json:"event"`
	}
	if json.Unmarshal(b, &m) != nil {
		return Update{}, false
	}
	s := m.Current
	if s == nil {
		s = m.History
	}
	switch {
	case s != nil:
		status := s.status()
		return Update{Status: &status, Log: s.log(m.History != nil)}, false
	case m.Event != nil && m.Event.Type != "":
		u.Name = wire.Clean(m.Event.Type, 64)
		if len(m.Event.Payload) <= wire.StreamDataMax/2 {
			u.Payload = m.Event.Payload
		}
		return u, false
	}
	return Update{}, len(m.Reauth) > 0
}

// pushState is docs: push, "current and history payload".
type pushState struct {
	State struct {
		Text  string `json:"text"`
		Flags *Flags `json:"flags"`
		Error string `json:"error"`
	} `json:"state"`
	jobPart
	Temps []map[string]json.RawMessage `json:"temps"`
	Logs  []string                     `json:"logs"`
}

func (s *pushState) status() wire.PrinterStatus {
	var heaters map[string]json.RawMessage
	if n := len(s.Temps); n > 0 {
		heaters = s.Temps[n-1]
	}
	j := job{jobPart: s.jobPart, State: s.State.Text, Error: s.State.Error}
	return assemble(s.State.Text, s.State.Flags, heaters, &j)
}

// log is what was said on the line. The history is older than the watch.
func (s *pushState) log(history bool) []string {
	if history {
		return nil
	}
	var lines []string
	for _, l := range s.Logs[max(0, len(s.Logs)-maxLog):] {
		lines = append(lines, wire.Clean(l, 256))
	}
	return lines
}
