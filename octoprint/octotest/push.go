package octotest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/gorilla/websocket"
)

// pushBase: docs: push: "not more often than twice per second".
const pushBase = 500 * time.Millisecond

// socket is one push socket.
type socket struct {
	s      *Server
	conn   *websocket.Conn
	framed bool
	events chan map[string]any
	told   chan told // what the client said
}

// told is a message of the client (docs: push, "auth" and "throttle").
type told struct {
	Auth     *string `json:"auth"`
	Throttle int     `json:"throttle"`
}

// login: docs: general, "Login": passive, with the key.
func (q *request) login() {
	q.s.mu.Lock()
	q.s.serial++
	session := fmt.Sprintf("session%d", q.s.serial)
	q.s.sessions["admin:"+session] = true
	q.s.mu.Unlock()
	q.json(http.StatusOK, map[string]any{"name": "admin", "session": session, "active": true, "admin": true, "user": true, "apikey": nil, "_is_external_client": false})
}

// Event pushes an event to all sockets (docs: push, "event payload"). One that
// doesn't keep up misses it.
func (s *Server) Event(name string, payload any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.sockets {
		select {
		case c.events <- map[string]any{"event": map[string]any{"type": name, "payload": payload}}:
		default:
		}
	}
}

// Reauth ends every session and asks all sockets to log in anew (docs: push,
// "reauthRequired").
func (s *Server) Reauth() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.sessions)
	for c := range s.sockets {
		select {
		case c.events <- map[string]any{"reauthRequired": map[string]string{"reason": "stale"}}:
		default:
		}
	}
}

// Hangup closes all push sockets.
func (s *Server) Hangup() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.sockets {
		c.conn.Close()
	}
}

// Sockets is how many push sockets are open.
func (s *Server) Sockets() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sockets)
}

// push: SockJS's raw WebSocket.
func (q *request) push() {
	if q.faults.NoPush {
		page(q.w, http.StatusBadRequest, "Can \"Upgrade\" only to \"WebSocket\".")
		return
	}
	conn, err := upgrader().Upgrade(q.w, q.r, nil)
	if err != nil {
		return // it was answered
	}
	c := &socket{s: q.s, conn: conn, framed: q.faults.Framed, events: make(chan map[string]any, 64), told: make(chan told, 4)}
	q.s.mu.Lock()
	if q.s.ctx.Err() != nil {
		q.s.mu.Unlock()
		conn.Close()
		return
	}
	q.s.sockets[c] = struct{}{}
	q.s.work.Add(2)
	q.s.mu.Unlock()
	gone := make(chan struct{})
	go func() {
		defer q.s.work.Done()
		defer close(gone)
		c.read()
	}()
	go func() {
		defer q.s.work.Done()
		c.write(gone)
		conn.Close()
		<-gone
		q.s.mu.Lock()
		delete(q.s.sockets, c)
		q.s.mu.Unlock()
	}()
}

func (c *socket) read() {
	c.conn.SetReadLimit(64 << 10)
	for {
		_, b, err := c.conn.ReadMessage()
		if err != nil {
			return
		}
		var t told
		if json.Unmarshal(b, &t) != nil {
			continue
		}
		select {
		case c.told <- t:
		default:
			return // nobody says so much
		}
	}
}

// write sends until the socket is gone: connected at once, the history once the
// session is known, then the state in its rhythm and events as they come (docs:
// push: without the STATUS permission there are no status messages).
func (c *socket) write(gone <-chan struct{}) {
	if c.send(map[string]any{"connected": map[string]any{"version": "1.11.4", "display_version": "1.11.4", "branch": "", "plugin_hash": "0", "config_hash": "0"}}) != nil {
		return
	}
	t := time.NewTicker(pushBase)
	defer t.Stop()
	known, seen := false, 0
	for {
		var message map[string]any
		select {
		case <-gone:
			return
		case <-c.s.ctx.Done():
			return
		case said := <-c.told:
			if said.Throttle > 1 && said.Throttle < 1000 {
				t.Reset(pushBase * time.Duration(said.Throttle))
			}
			if said.Auth == nil {
				continue
			}
			c.s.mu.Lock()
			known = c.s.sessions[*said.Auth]
			c.s.mu.Unlock()
			if !known {
				continue
			}
			message = map[string]any{"history": c.state(&seen, true)}
		case message = <-c.events:
			if _, reauth := message["reauthRequired"]; reauth {
				known = false
			} else if !known {
				continue
			}
		case <-t.C:
			if !known {
				continue
			}
			message = map[string]any{"current": c.state(&seen, false)}
		}
		if c.send(message) != nil {
			return
		}
	}
}

// state: docs: push, "current and history payload".
func (c *socket) state(seen *int, history bool) (payload map[string]any) {
	c.s.do(func(m *machine) {
		temps := temperatures(m)
		temps["time"] = time.Now().Unix()
		lines := m.log[max(0, len(m.log)-(m.logN-*seen)):]
		*seen = m.logN
		state := map[string]any{"text": m.state, "flags": flags(m)}
		if m.errText != "" {
			state["error"] = m.errText
		}
		payload = map[string]any{
			"state": state, "job": jobInfo(m), "progress": progress(m),
			"currentZ": m.axes["z"], "offsets": map[string]any{}, "temps": []any{temps}, "logs": append([]string{}, lines...), "messages": []string{},
			"resends": map[string]int{"count": 0, "transmitted": 0, "ratio": 0},
		}
		if history {
			payload["temps"] = []any{temps, temps}
		}
	})
	return payload
}

func (c *socket) send(message map[string]any) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if c.framed { // sockjs-protocol: a["text"]
		if b, err = json.Marshal([]string{string(b)}); err != nil {
			return err
		}
		b = append([]byte{'a'}, b...)
	}
	if err := c.conn.SetWriteDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return err
	}
	return c.conn.WriteMessage(websocket.TextMessage, b)
}

// join is a request for an application key.
type join struct {
	app, user string
	decision  int // 0 none yet, 1 granted, -1 denied
	key       string
	polled    time.Time
	began     time.Time
}

const (
	joinStale = 5 * time.Second  // docs: appkeys: without a poll "for more than 5s"
	joinLife  = 10 * time.Minute // octoprint.plugins.appkeys, CUTOFF_TIME
)

// Decide decides on every request for a key that waits, and answers how many
// did.
func (s *Server) Decide(grant bool) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for token, j := range s.joins {
		if j.decision != 0 || time.Since(j.polled) > joinStale {
			continue
		}
		n++
		j.decision = -1
		if grant {
			j.decision, j.key = 1, "APPKEY"+strings.ToUpper(token)
			s.keys[j.key] = true
		}
	}
	return n
}

// Joins are the names of the applications that ask for a key.
func (s *Server) Joins() (apps []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, j := range s.joins {
		if j.decision == 0 && time.Since(j.polled) <= joinStale {
			apps = append(apps, j.app)
		}
	}
	return apps
}

// RevokeKeys makes every key but the configured one invalid.
func (s *Server) RevokeKeys() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = map[string]bool{s.opts.Key: true}
}

// appkeys: docs: appkeys, "API".
func (q *request) appkeys() {
	route := q.r.Method + " " + strings.Join(q.path[2:min(len(q.path), 3)], "/")
	switch {
	case q.faults.NoAppKeys:
		page(q.w, http.StatusNotFound, "Not Found")
	case route == "GET probe" && len(q.path) == 3:
		q.done()
	case route == "POST request" && len(q.path) == 3:
		q.joinRequest()
	case route == "GET request" && len(q.path) == 4:
		q.joinPoll(q.path[3])
	default:
		page(q.w, http.StatusNotFound, "Not Found")
	}
}

func (q *request) joinRequest() {
	var a struct {
		App  string `json:"app"`
		User string `json:"user"`
	}
	if !q.body(&a) {
		return
	}
	if a.App == "" {
		q.fail(http.StatusBadRequest, "app is missing")
		return
	}
	q.s.mu.Lock()
	q.s.serial++
	token := fmt.Sprintf("token%d", q.s.serial)
	q.s.joins[token] = &join{app: a.App, user: a.User, polled: time.Now(), began: time.Now()}
	q.s.mu.Unlock()
	q.w.Header().Set("Location", q.ref("plugin", "appkeys", "request", token))
	q.json(http.StatusCreated, map[string]string{"app_token": token, "auth_dialog": q.ref("plugin", "appkeys", "auth", token)})
}

func (q *request) joinPoll(token string) {
	q.s.mu.Lock()
	defer q.s.mu.Unlock()
	j, now := q.s.joins[token], time.Now()
	switch {
	case j == nil, now.Sub(j.polled) > joinStale, now.Sub(j.began) > joinLife, j.decision < 0:
		delete(q.s.joins, token)
		q.fail(http.StatusNotFound, "Not Found")
	case j.decision > 0:
		delete(q.s.joins, token)
		q.json(http.StatusOK, map[string]string{"api_key": j.key})
	default:
		j.polled = now
		q.json(http.StatusAccepted, map[string]string{"message": "Awaiting decision"})
	}
}
