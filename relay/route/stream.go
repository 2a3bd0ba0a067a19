package route

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"farhand/wire"
)

// Streams flow from a device to the operator whose request opened or last
// attached them, unasked and one way. The relay keeps nothing of a stream: the
// id of every frame begins with the id of that request, which the relay made
// itself, and in which it wrote which operator's socket it came from. So a frame
// finds its way without its body being read, and also after the device made a
// new connection.
//
// A frame may be lost here: the operator's socket is gone, or isn't read as fast
// as the credit that the operator gave out promised. The offsets in the frames
// show that, as soon as another one comes. Where none may come any more, because
// frames were lost that used up the credit, or because the device's connection
// was lost with frames on it, the relay says so: a STREAM_DATA with an empty
// payload means that whoever has streams at that place attaches them again.

const (
	tagSize   = 6       // random bytes of an operator's tag, twice as many digits
	maxCredit = 1 << 10 // bytes of the payload of STREAM_CREDIT
	// maxPiece is more than any payload of STREAM_DATA has: base64 of
	// wire.StreamDataMax, or as many bytes of records, and what is around them.
	maxPiece = 4 * wire.StreamDataMax
	// flowing is how long a session with a stream counts as used after a sign of
	// it: receivers give a sign every 30 s.
	flowing = 90 * time.Second
)

// scope is a session, or a machine for what needs no session.
type scope struct{ session, machine string }

// listeners are the operators' sockets by their tags.
type listeners struct {
	mu    sync.RWMutex
	byTag map[string]*operator
}

// join lists op under a new tag, which nobody can guess: a device addresses only
// those that asked it for something.
func (l *listeners) join(op *operator) {
	var b [tagSize]byte
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		_, _ = rand.Read(b[:]) // never fails
		op.tag = hex.EncodeToString(b[:])
		if l.byTag[op.tag] == nil {
			l.byTag[op.tag] = op
			return
		}
	}
}

func (l *listeners) part(op *operator) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.byTag, op.tag)
}

func (l *listeners) find(tag string) *operator {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.byTag[tag]
}

func (l *listeners) all(match func(*operator) bool) []*operator {
	l.mu.RLock()
	defer l.mu.RUnlock()
	var found []*operator
	for _, op := range l.byTag {
		if match(op) {
			found = append(found, op)
		}
	}
	return found
}

// newID makes the id of the nth frame to a device: <connection>-<n> for one of
// our own, <connection>-<operator>.<n> for one on behalf of an operator.
func (d *device) newID(from *operator, n uint64) string {
	var room [64]byte
	b := append(room[:0], d.prefix...)
	if from != nil {
		b = append(append(b, from.tag...), '.')
	}
	return string(strconv.AppendUint(b, n, 10))
}

// receiver finds the operator's tag in the id of a frame of a stream, which is
// that of a request on behalf of an operator, a slash and more.
func receiver(id string) (tag string, ok bool) {
	request, _, ok := strings.Cut(id, "/")
	if !ok {
		return "", false
	}
	_, rest, ok := strings.Cut(request, "-")
	if !ok {
		return "", false
	}
	tag, _, ok = strings.Cut(rest, ".")
	return tag, ok && len(tag) == 2*tagSize
}

// stream hands a frame of a stream to its receiver. It says false if the device
// may not send any, or not such a one; the frame is then still the caller's.
func (d *device) stream(env wire.Envelope, frame *frameBuf) bool {
	tag, ok := receiver(env.ID)
	if !ok && d.watching.Load() && d.granted.Has(wire.Streams) && len(env.Payload) <= maxPiece {
		d.hotplug(env.Payload)
		d.sock.srv.buffers.release(frame)
		return true
	}
	if !ok || !d.granted.Has(wire.Streams) || len(env.Payload) > maxPiece {
		return false
	}
	s := d.sock.srv
	if d.session != nil {
		d.session.flowed.Store(time.Now().Unix())
	}
	if op := s.listeners.find(tag); op != nil && op.listensTo(d) {
		op.stream(d, env, frame)
	} else {
		s.buffers.release(frame) // the device's stream runs out of credit, and that is the device's business
	}
	return true
}

// listensTo says whether an operator may be sent frames of streams that come on
// this socket: of its own sessions, and of machines that it may use.
func (op *operator) listensTo(d *device) bool {
	switch {
	case op.who.Owner != d.token.Owner:
		return false
	case d.session != nil:
		return op.who.Holder == d.session.rec.Holder
	default:
		return op.who.MayUse(d.machine.key.id)
	}
}

// scope is where an operator finds what is on this socket.
func (d *device) scope() scope {
	if d.session != nil {
		return d.session.scope()
	}
	return scope{machine: d.machine.key.id}
}

// scope is where an operator finds what is in this session.
func (ses *session) scope() scope {
	at := scope{session: ses.rec.ID}
	if ses.rec.Span || ses.rec.Joined {
		at.machine = ses.rec.Machine
	}
	return at
}

// stream sends a frame of a stream, or loses it, and takes over buf.
func (op *operator) stream(d *device, env wire.Envelope, buf *frameBuf) {
	op.mayStream()
	at, payload := d.scope(), env.Payload
	if c := op.who.Ceiling; d.session == nil && c != nil && (c.Devices != nil || c.Capabilities != nil) {
		payload = eventsAllowed(payload, c)
	}
	f := encode(wire.Message{Type: wire.TStreamData, ID: env.ID, SessionID: at.session, TargetMachine: at.machine, Payload: wire.Raw(payload)})
	f.buf, f.most = buf, op.srv.bounds.streams
	err := op.sock.send(f)
	if err == nil {
		return
	}
	op.srv.buffers.release(buf)
	if !errors.Is(err, errBehind) {
		return
	}
	op.srv.metrics.Lost()
	op.mu.Lock()
	if op.missed == nil {
		op.missed = make(map[scope]struct{})
	}
	op.missed[at] = struct{}{}
	op.mu.Unlock()
	if !op.sock.isBehind() { // any more: it caught up before it could know of this
		op.caughtUp()
	}
}

// opensStream says whether the answer to a request may name a stream, which comes
// to the socket that asked.
func opensStream(t wire.Type) bool {
	switch t {
	case wire.TStreamCredit, wire.THardwareOp, wire.THardwareListRequest, wire.TStreamAttach, wire.TTerminalOpen, wire.TTerminalAttach, wire.TLLMPull, wire.TLLMInstall,
		wire.TTopRequest, wire.TLogsRequest, wire.TForwardOpen:
		return true
	}
	return false
}

// mayStream notes that the operator may have streams from now on: it asked for
// something that can open one, or has received a frame of one.
func (op *operator) mayStream() {
	if !op.streamed.Load() { // so that the line isn't written again and again
		op.streamed.Store(true)
	}
}

// eventsAllowed replaces the records of a stream on the control socket, where
// the device knows nothing of tokens, by null where they aren't about a device
// that the token's ceiling lets be seen. So the offsets stay right.
func eventsAllowed(payload []byte, c *wire.Ceiling) []byte {
	var data wire.StreamData
	if wire.Decode(payload, &data) != nil {
		return []byte("{}")
	}
	data.Data = nil
	for i, raw := range data.Records {
		var e wire.HardwareEvent
		if json.Unmarshal(raw, &e) != nil || !visibleTo(c, e.Device) {
			data.Records[i] = json.RawMessage("null")
		}
	}
	kept, err := json.Marshal(data)
	if err != nil {
		return []byte("{}")
	}
	return kept
}

// caughtUp tells the operator where it lost frames while it didn't read.
func (op *operator) caughtUp() {
	op.mu.Lock()
	missed := op.missed
	op.missed = nil
	op.mu.Unlock()
	for at := range missed {
		op.lookAgain(at)
	}
}

// lookAgain tells the operator to attach its streams at that place again.
func (op *operator) lookAgain(at scope) {
	op.send(encode(wire.Message{Type: wire.TStreamData, ID: uuid.NewString(), SessionID: at.session, TargetMachine: at.machine, Payload: wire.Empty{}}))
}

// lookAgain tells it to those who may have streams on this socket, which is new:
// what was sent on the one before may be lost. A machine that is back brings its
// sessions back when somebody asks for something in them, so those who have
// streams in one without a socket are told too: a device that was started anew
// has none of them any more, and nothing else would say so.
func (d *device) lookAgain() {
	if !d.granted.Has(wire.Streams) {
		return
	}
	listeners, at := &d.sock.srv.listeners, d.scope()
	for _, op := range listeners.all(func(op *operator) bool { return op.streamed.Load() && op.listensTo(d) }) {
		op.lookAgain(at)
	}
	if d.session == nil {
		d.machine.callBack()
	}
}

// callBack tells those who have streams in sessions of the machine that have no
// socket here.
func (m *machine) callBack() {
	for _, ses := range m.stranded(time.Now()) {
		rec := ses.rec
		for _, op := range m.srv.listeners.all(func(op *operator) bool {
			return op.streamed.Load() && op.who.Owner == rec.Owner && op.who.Holder == rec.Holder
		}) {
			op.lookAgain(ses.scope())
		}
	}
}

// lookAgain tells this instance's own operators that another has the machine now:
// where it was before, frames were lost.
func (m *machine) lookAgain() {
	for _, op := range m.srv.listeners.all(func(op *operator) bool {
		return op.streamed.Load() && !op.guest && op.who.Owner == m.key.owner && op.who.MayUse(m.key.id)
	}) {
		op.lookAgain(scope{machine: m.key.id})
	}
	m.callBack()
}

// stranded are the machine's sessions that had a stream of late and have no socket,
// or one that is being closed, as all are of a machine that another instance has.
func (m *machine) stranded(now time.Time) []*session {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []*session
	for _, ses := range m.sessions {
		if d := ses.conn(); ses.streaming(now) && (d == nil || d.sock.isClosing()) {
			all = append(all, ses)
		}
	}
	return all
}

// streaming says whether a stream of the session showed life of late.
func (ses *session) streaming(now time.Time) bool {
	return now.Unix()-ses.flowed.Load() < int64(flowing/time.Second)
}

// credit passes STREAM_CREDIT on, which nobody answers: it isn't outstanding and
// takes none of the room that the device has for requests. One that can't be
// delivered is lost; the receiver notices when nothing comes. It says false if
// it is no such frame at all, which then is still the caller's.
func (op *operator) credit(env wire.Envelope, frame *frameBuf) bool {
	if env.Payload[0] != '{' || len(env.Payload) > maxCredit {
		return false
	}
	defer op.srv.buffers.release(frame)
	method, _ := wire.MethodOf(env.Type)
	if env.SessionID == "" {
		if m, refused := op.machineFor(env, method); refused == nil {
			m.lane.post(op, method, env.Payload, frame)
		}
		return true
	}
	if ses, refused := op.sessionFor(env, method); refused == nil {
		now := time.Now().Unix()
		ses.used.Store(now)
		ses.flowed.Store(now)
		ses.lane.post(op, method, env.Payload, frame)
	}
	return true
}

// post sends a small frame that isn't answered past the queue, or loses it.
// The payload lies in buf, which stays the caller's.
func (l *lane) post(from *operator, method wire.Method, payload []byte, buf *frameBuf) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil || !has(l.conn.granted, method.Capability) {
		return
	}
	l.issued++
	f := encode(wire.Message{Type: method.Request, ID: l.conn.newID(from, l.issued), Payload: wire.Raw(payload)})
	f.buf, f.most = buf.retain(), l.srv.bounds.credit
	if l.conn.sock.send(f) != nil {
		l.srv.buffers.release(buf)
	}
}
