package clienttest

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"sync"

	"github.com/gorilla/websocket"

	"farhand/client"
	"farhand/stream"
	"farhand/wire"
)

// sender is the writing side of one WebSocket.
type sender struct {
	ws  *websocket.Conn
	ctx context.Context // ends with the socket
	mu  sync.Mutex
}

func (s *sender) send(m wire.Message) error {
	out, err := m.Encode()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w, err := s.ws.NextWriter(websocket.TextMessage)
	if err != nil {
		return err
	}
	if err := out.WriteFrame(w); err != nil {
		return err
	}
	return w.Close()
}

// operator serves one WebSocket: each request in a goroutine of its own, so that
// answers come in any order.
func (r *Relay) operator(w http.ResponseWriter, q *http.Request) {
	up := websocket.Upgrader{WriteBufferSize: 64 << 10}
	ws, err := up.Upgrade(w, q, nil)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(q.Context()))
	to := &sender{ws: ws, ctx: ctx}
	r.mu.Lock()
	r.sockets[ws] = to
	r.mu.Unlock()
	var tasks sync.WaitGroup
	for {
		_, frame, err := ws.ReadMessage()
		if err != nil {
			break
		}
		env, err := wire.DecodeEnvelope(frame)
		if err != nil {
			continue
		}
		r.note(string(env.Type), env.Payload)
		switch env.Type {
		case wire.TStreamCredit:
			r.credit(env)
			continue
		case wire.TCancel: // noted, and that is all
			continue
		}
		tasks.Go(func() { r.request(to, env) })
	}
	r.mu.Lock()
	delete(r.sockets, ws)
	r.mu.Unlock()
	cancel()
	ws.Close()
	tasks.Wait()
}

func (r *Relay) request(to *sender, env wire.Envelope) {
	t, payload, err := r.answer(env)
	var flow func()
	if errors.Is(err, errAttach) {
		t, payload, flow, err = r.attach(to, env)
	}
	if err != nil {
		t, payload = wire.TError, wire.AsError(err)
	}
	if payload == nil {
		return
	}
	m := wire.Message{Type: t, ID: env.ID, SessionID: env.SessionID, Payload: payload}
	if to.send(m) != nil {
		return
	}
	if flow != nil {
		flow()
	}
	if t == wire.THardwareResult || t == wire.THardwareListResponse || t == wire.TTopResponse {
		r.begin(m, &outlet{to, env})
	}
}

// streamID is how a stream is named in an answer.
var streamID = regexp.MustCompile(`"([0-9a-f]{32})"`)

// begin lets the streams flow that an answer names.
func (r *Relay) begin(m wire.Message, out *outlet) {
	f, err := m.Encode()
	if err != nil {
		return
	}
	var text bytes.Buffer
	f.WriteFrame(&text)
	for _, found := range streamID.FindAllSubmatch(text.Bytes(), -1) {
		r.Streams.Begin(string(found[1]), out)
	}
}

// outlet is where the frames of a stream go.
type outlet struct {
	to  *sender
	env wire.Envelope // the request that they belong to
}

func (o *outlet) Request() string          { return o.env.ID }
func (o *outlet) Context() context.Context { return o.to.ctx }

func (o *outlet) Send(_ context.Context, id string, d wire.StreamData) error {
	return o.to.send(wire.Message{Type: wire.TStreamData, ID: id, SessionID: o.env.SessionID, Payload: d})
}

func (r *Relay) attach(to *sender, env wire.Envelope) (wire.Type, any, func(), error) {
	var q wire.StreamAttach
	if err := wire.Decode(env.Payload, &q); err != nil {
		return "", nil, nil, err
	}
	a, flow, err := r.Streams.Attach(q, stream.Owner{}, &outlet{to, env})
	return wire.TStreamAttached, a, flow, err
}

func (r *Relay) credit(env wire.Envelope) {
	var q wire.StreamCredit
	if wire.Decode(env.Payload, &q) == nil {
		r.Streams.Credit(q, stream.Owner{})
	}
}

// Missed tells every operator what a relay says that lost frames of streams of a
// session, or of a machine where there is none: attach them again.
func (r *Relay) Missed(session string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, to := range r.sockets {
		to.send(wire.Message{Type: wire.TStreamData, ID: "missed", SessionID: session, Payload: wire.Empty{}})
	}
}

// Push sends every operator a frame of a stream, as a device might that keeps to
// no rule.
func (r *Relay) Push(d wire.StreamData) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, to := range r.sockets {
		to.send(wire.Message{Type: wire.TStreamData, ID: "pushed", Payload: d})
	}
}

// Plug tells those who watch the machine's devices of a change: event is
// wire.HardwareAdded, HardwareRemoved or HardwareChanged.
func (r *Relay) Plug(event string, d wire.HardwareDevice) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.hotplug {
		_ = s.Record(wire.HardwareEvent{Event: event, Device: d}) // one that has ended wants no more
	}
}

// errAttach is answer's word that the request is STREAM_ATTACH.
const errAttach wire.Code = "ATTACH"

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
	method, _ := wire.MethodOf(env.Type)
	switch {
	case env.SessionID == "" && method.Channel&wire.Control != 0:
		if e != nil {
			return "", nil, e
		}
	case i < 0:
		return "", nil, wire.Errorf(wire.SessionNotFound, "no session %s", env.SessionID)
	}
	switch env.Type {
	case wire.TStreamAttach:
		return "", nil, errAttach
	case wire.TStreamClose:
		return run(env, wire.TAck, func(q wire.StreamClose) (any, error) {
			r.Streams.CloseStream(q.Stream, stream.Owner{})
			return wire.Ack{OK: true}, nil
		})
	}
	t, payload, err := r.Device.Answer(env, root)
	if list, ok := payload.(wire.HardwareListResponse); ok && err == nil {
		err = r.watch(env, &list)
		return t, list, err
	}
	return t, payload, err
}

// watch opens the stream of a HARDWARE_LIST_REQUEST that asks for one.
func (r *Relay) watch(env wire.Envelope, list *wire.HardwareListResponse) error {
	var q wire.HardwareListRequest
	if err := wire.Decode(env.Payload, &q); err != nil || !q.Watch {
		return err
	}
	s, err := r.Streams.Open(stream.Options{Records: true, Credit: q.Credit})
	if err != nil {
		return err
	}
	list.Stream = s.ID()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.hotplug = append(r.hotplug, s)
	return nil
}
