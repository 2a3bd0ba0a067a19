package clienttest

import (
	"errors"
	"net/http"
	"slices"
	"sync"

	"github.com/gorilla/websocket"

	"farhand/client"
	"farhand/wire"
)

// operator serves one WebSocket: each request in a goroutine of its own, so that
// answers come in any order.
func (r *Relay) operator(w http.ResponseWriter, q *http.Request) {
	up := websocket.Upgrader{WriteBufferSize: 64 << 10}
	ws, err := up.Upgrade(w, q, nil)
	if err != nil {
		return
	}
	r.mu.Lock()
	r.sockets[ws] = true
	r.mu.Unlock()
	var tasks sync.WaitGroup
	var writing sync.Mutex
	for {
		_, frame, err := ws.ReadMessage()
		if err != nil {
			break
		}
		tasks.Go(func() { r.request(ws, &writing, frame) })
	}
	r.mu.Lock()
	delete(r.sockets, ws)
	r.mu.Unlock()
	ws.Close()
	tasks.Wait()
}

func (r *Relay) request(ws *websocket.Conn, writing *sync.Mutex, frame []byte) {
	env, err := wire.DecodeEnvelope(frame)
	if err != nil {
		return
	}
	r.note(string(env.Type), env.Payload)
	t, payload, err := r.answer(env)
	if err != nil {
		t, payload = wire.TError, wire.AsError(err)
	}
	if payload == nil {
		return
	}
	out, err := wire.Message{Type: t, ID: env.ID, SessionID: env.SessionID, Payload: payload}.Encode()
	if err != nil {
		return
	}
	writing.Lock()
	defer writing.Unlock()
	if w, err := ws.NextWriter(websocket.TextMessage); err == nil {
		out.WriteFrame(w)
		w.Close()
	}
}

func (r *Relay) answer(env wire.Envelope) (wire.Type, any, error) {
	r.mu.Lock()
	handle := r.Handle
	r.mu.Unlock()
	if handle != nil {
		if t, payload, err := handle(env); !errors.Is(err, ErrPass) {
			return t, payload, err
		}
	}
	r.mu.Lock()
	i := slices.IndexFunc(r.sessions, func(s client.SessionInfo) bool { return s.ID == env.SessionID })
	root := ""
	if i >= 0 {
		root = r.sessions[i].Root
	}
	_, e := r.find(env.TargetMachine)
	r.mu.Unlock()
	switch {
	case env.Type == wire.THardwareListRequest && env.SessionID == "":
		if e != nil {
			return "", nil, e
		}
	case i < 0:
		return "", nil, wire.Errorf(wire.SessionNotFound, "no session %s", env.SessionID)
	}
	return r.Device.Answer(env, root)
}
