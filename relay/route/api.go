package route

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"path"
	"slices"
	"sort"
	"time"

	"github.com/google/uuid"

	"farhand/relay/access"
	"farhand/wire"
)

// maxHolderSessions bounds the sessions of one login or token. Beyond it the one
// that was used longest ago, and isn't connected, gives way. A device remembers
// as many.
const maxHolderSessions = 64

type sessionRequest struct {
	Machine string
	Root    string
	Span    bool         // make a session that further machines can join
	Session string       // join this one
	Ceiling wire.Ceiling // its fields stand beside the others
}

// UnmarshalJSON reads the two halves apart: the ceiling has rules of its own.
func (q *sessionRequest) UnmarshalJSON(b []byte) error {
	var place struct {
		Machine string `json:"machine"`
		Root    string `json:"root"`
		Span    bool   `json:"span"`
		Session string `json:"session_id"`
	}
	if err := json.Unmarshal(b, &place); err != nil {
		return err
	}
	q.Machine, q.Root, q.Span, q.Session = place.Machine, place.Root, place.Span, place.Session
	return json.Unmarshal(b, &q.Ceiling)
}

type sessionAnswer struct {
	SessionID    string            `json:"session_id"`
	MachineID    string            `json:"machine_id"`
	MachineName  string            `json:"machine_name"`
	Root         string            `json:"root"`
	Roots        []root            `json:"roots"`
	Capabilities wire.Capabilities `json:"capabilities"`
	Created      bool              `json:"created"`
}

type sessionInfo struct {
	SessionID   string    `json:"session_id"`
	MachineID   string    `json:"machine_id"`
	MachineName string    `json:"machine_name"`
	Root        string    `json:"root"`
	Holder      string    `json:"holder"`
	Live        bool      `json:"live"`
	CreatedAt   time.Time `json:"created_at"`
	LastUsed    time.Time `json:"last_used"`
}

// resolve finds the machine that an operator means among those that its token
// covers.
func (s *Server) resolve(ctx context.Context, op access.Operator, name string) (access.Machine, error) {
	if s.known(op.Owner, name) != nil && op.MayUse(name) { // an id comes before every name
		rec, err := s.authority.Machine(ctx, op.Owner, name)
		if err == nil || !errors.Is(err, access.ErrNotFound) {
			return rec, err
		}
	}
	all, err := s.authority.Machines(ctx, op.Owner)
	if err != nil {
		return access.Machine{}, err
	}
	return access.Resolve(slices.DeleteFunc(slices.Clone(all), func(m access.Machine) bool { return !op.MayUse(m.ID) }), name)
}

// target resolves a machine of the API's paths and bodies to its live state.
func (s *Server) target(ctx context.Context, op access.Operator, name string) (*machine, access.Machine, error) {
	rec, err := s.resolve(ctx, op, name)
	if err != nil {
		return nil, rec, err
	}
	m := s.machine(op.Owner, rec.ID)
	if instance := s.elsewhere(ctx, m.key); instance != "" {
		return nil, rec, &errElsewhere{instance}
	}
	m.learn(rec)
	if m.online() == nil {
		return nil, rec, m.unreachable()
	}
	return m, rec, nil
}

// call wraps a handler of the JSON API.
func (s *Server) call(f func(w http.ResponseWriter, r *http.Request, op access.Operator) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !s.enter() {
			s.replyError(w, wire.Errorf(wire.MachineUnreachable, "the relay is shutting down"))
			return
		}
		defer s.leave()
		op, ok := s.operatorOf(w, r)
		if !ok {
			return
		}
		var body []byte
		if s.places != nil { // it may have to be sent again
			var err error
			if body, err = buffered(w, r); err != nil {
				s.replyError(w, wire.Errorf(wire.InvalidArgument, "the body is too long or was cut off"))
				return
			}
		}
		answer, err := f(w, r, op)
		if other, ok := errors.AsType[*errElsewhere](err); ok {
			r.Body = io.NopCloser(bytes.NewReader(body))
			s.passOn(w, r, other.instance)
			return
		}
		if err != nil {
			s.replyError(w, err)
			return
		}
		reply(w, http.StatusOK, answer)
	}
}

// postSession is POST /api/sessions.
func (s *Server) postSession(w http.ResponseWriter, r *http.Request, op access.Operator) (_ any, err error) {
	var in sessionRequest
	if err := readBody(w, r, &in); err != nil {
		return nil, err
	}
	m, rec, err := s.target(r.Context(), op, in.Machine)
	if err != nil {
		return nil, err
	}
	var first *session
	if in.Session != "" {
		if first, err = s.joinable(r.Context(), op, in.Session); err != nil {
			return nil, err
		}
	}
	ended, err := s.does(op, opSessionOpen, rec.ID, "")
	if err != nil {
		return nil, err
	}
	defer func() { ended(err) }()
	// A caller that hangs up doesn't leave half a session.
	ctx, cancel := context.WithTimeout(s.ctx, s.timing.open)
	defer cancel()
	lim := ceilings{approval: &rec.Approval, token: op.Ceiling}
	if in.Ceiling != (wire.Ceiling{}) {
		lim.session = &in.Ceiling
	}
	offered, err := m.offered(ctx)
	if err != nil {
		return nil, err
	}
	var refused *wire.Error
	if in.Root == "" {
		in.Root, refused = defaultRoot(offered, lim)
	} else if in.Root, refused = cleanRoot(in.Root); refused == nil {
		refused = lim.checkRoot(in.Root)
	}
	if refused != nil {
		return nil, refused
	}
	if err := m.alone(ctx, op.Holder); err != nil {
		return nil, err
	}
	defer m.next(op.Holder)
	want := record{Owner: op.Owner, Holder: op.Holder, Machine: rec.ID, Root: in.Root,
		Token: op.Ceiling, Session: lim.session, Expires: op.Expires, Span: in.Span}
	var ses *session
	var created bool
	if first != nil {
		ses, created, err = s.openJoined(ctx, m, first, want)
	} else {
		ses, created, err = s.open(ctx, m, want)
	}
	if err != nil {
		return nil, err
	}
	usable := wire.Capabilities{}
	if d := ses.conn(); d != nil {
		for _, c := range lim.strip(grantable(d.offered)) {
			if c.Approvable() || c == wire.Transfer || c == wire.Privacy { // which decide how files are best sent, or used
				usable = append(usable, c)
			}
		}
	}
	s.log.Info("session opened", "owner", op.Owner, "holder", op.Holder, "machine", rec.ID, "session", ses.rec.ID, "created", created)
	return sessionAnswer{ses.rec.ID, rec.ID, rec.Name, ses.rec.Root, visible(offered, lim), usable, created}, nil
}

// alone waits until no other session of this holder is in the making on m.
func (m *machine) alone(ctx context.Context, holder string) error {
	for {
		m.mu.Lock()
		busy := m.creating[holder]
		if busy == nil {
			m.creating[holder] = make(chan struct{})
			m.mu.Unlock()
			return nil
		}
		m.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *machine) next(holder string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	close(m.creating[holder])
	delete(m.creating, holder)
}

// open reuses the session that fits want or makes it.
func (s *Server) open(ctx context.Context, m *machine, want record) (*session, bool, error) {
	records, err := s.listRecords(ctx, want.Owner)
	if err != nil {
		return nil, false, err
	}
	own := records[:0]
	for _, r := range records {
		if r.Holder == want.Holder {
			own = append(own, r)
		}
	}
	for _, r := range own {
		if want.Span || r.Span || r.Joined || r.Machine != want.Machine || r.Root != want.Root || !same(r.Session, want.Session) || !same(r.Token, want.Token) {
			continue
		}
		ses := s.adopt(r)
		err := ses.ensure(ctx)
		if err == nil {
			ses.used.Store(time.Now().Unix())
			return ses, false, nil
		}
		if !lost(err) {
			return nil, false, err
		}
		s.log.Warn("session given up", "machine", m.key.id, "session", r.ID, "error", err)
		if err := s.end(ctx, ses); err != nil {
			return nil, false, err
		}
	}
	if err := s.makeRoom(ctx, own); err != nil {
		return nil, false, err
	}
	want.ID = uuid.NewString()
	ses, err := s.make(ctx, m, want)
	return ses, err == nil, err
}

// make makes a session on a machine.
func (s *Server) make(ctx context.Context, m *machine, want record) (*session, error) {
	for try := 1; ; try++ {
		want.Created = time.Now().UTC()
		want.LastUsed = want.Created
		ses, err := m.attach(ctx, want)
		// A device keeps few browses; others may have pushed ours out.
		if err != nil && try < 3 && errors.Is(err, wire.DirectoryReferenceInvalid) {
			continue
		}
		return ses, err
	}
}

// lost says whether a session can't come back, so that a new one takes its place.
func lost(err *wire.Error) bool {
	switch err.Code {
	case wire.RootGrantInvalid, wire.SessionRevisionMismatch, wire.SessionNotAttached, wire.DirectoryUnavailable, wire.SessionNotFound:
		return true
	}
	return false
}

// makeRoom ends the session of a holder that was used longest ago if it has too many.
func (s *Server) makeRoom(ctx context.Context, own []record) error {
	if len(own) < maxHolderSessions {
		return nil
	}
	sort.Slice(own, func(i, j int) bool { return own[i].LastUsed.Before(own[j].LastUsed) })
	for _, r := range own {
		if ses := s.adopt(r); ses.conn() == nil {
			return s.end(ctx, ses)
		}
	}
	return wire.Errorf(wire.ShimOverloaded, "too many sessions at once").With("max_concurrent", maxHolderSessions)
}

// visible is what the ceilings leave of the offered roots: a root that lies in an
// allowed directory, and the allowed directories that lie in a root.
func visible(offered []root, lim ceilings) []root {
	kept := append([]root{}, offered...)
	// No ceiling refuses here: it narrows what the next one gets.
	_ = lim.each(func(_ string, c *wire.Ceiling) *wire.Error {
		if c.Roots != nil {
			kept = narrowed(kept, *c.Roots)
		}
		return nil
	})
	return kept
}

// narrowed is the meet of roots with one ceiling's directories, each once.
func narrowed(roots []root, allowed []string) []root {
	kept := []root{}
	for _, r := range roots {
		if slices.ContainsFunc(allowed, func(p string) bool { return within(r.Path, p) }) {
			kept = append(kept, r)
			continue
		}
		for _, p := range allowed {
			p = path.Clean(p)
			if within(p, r.Path) && !slices.ContainsFunc(kept, func(k root) bool { return k.Path == p }) {
				kept = append(kept, root{path.Base(p), p})
			}
		}
	}
	return kept
}

// getSessions is GET /api/sessions: those of the token; of the owner's login, all.
func (s *Server) getSessions(_ http.ResponseWriter, r *http.Request, op access.Operator) (any, error) {
	records, err := s.listRecords(r.Context(), op.Owner)
	if err != nil {
		return nil, err
	}
	machines, err := s.authority.Machines(r.Context(), op.Owner)
	if err != nil {
		return nil, err
	}
	names := make(map[string]string, len(machines))
	for _, m := range machines {
		names[m.ID] = m.Name
	}
	list := []sessionInfo{}
	for _, rec := range records {
		if !mayManage(op, rec) {
			continue
		}
		info := sessionInfo{rec.ID, rec.Machine, names[rec.Machine], rec.Root, rec.Holder, false, rec.Created, rec.LastUsed}
		s.mu.Lock()
		ses := s.sessions[sessionRef{rec.Owner, rec.key()}]
		s.mu.Unlock()
		if ses != nil {
			info.Live = ses.conn() != nil
			info.LastUsed = time.Unix(max(ses.used.Load(), rec.LastUsed.Unix()), 0).UTC()
		}
		if used, live := s.toldOf(rec.Owner, rec.Machine).Live[rec.ID]; live {
			info.Live, info.LastUsed = true, time.Unix(max(used, info.LastUsed.Unix()), 0).UTC()
		}
		list = append(list, info)
	}
	return map[string]any{"sessions": list}, nil
}

func mayManage(op access.Operator, rec record) bool { return op.Login || rec.Holder == op.Holder }

// deleteSession is DELETE /api/sessions/{session_id}.
func (s *Server) deleteSession(_ http.ResponseWriter, r *http.Request, op access.Operator) (any, error) {
	id := r.PathValue("session_id")
	if !isSessionID(id) {
		return nil, noSession(id)
	}
	ses, err := s.session(r.Context(), op.Owner, id)
	if errors.Is(err, errNoSession) || err == nil && !mayManage(op, ses.rec) {
		return nil, noSession(id)
	}
	if err != nil {
		return nil, err
	}
	if instance := s.elsewhere(r.Context(), ses.machine.key); instance != "" {
		return nil, &errElsewhere{instance}
	}
	ended, err := s.does(op, opSessionEnd, ses.rec.Machine, id)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.timing.open)
	defer cancel()
	err = s.end(ctx, ses)
	if ended(err); err != nil {
		return nil, err
	}
	s.log.Info("session ended", "owner", op.Owner, "holder", op.Holder, "machine", ses.rec.Machine, "session", id)
	return struct{}{}, nil
}

// getRoots is GET /api/machines/{machine}/roots.
func (s *Server) getRoots(_ http.ResponseWriter, r *http.Request, op access.Operator) (any, error) {
	m, rec, err := s.target(r.Context(), op, r.PathValue("machine"))
	if err != nil {
		return nil, err
	}
	offered, err := m.offered(r.Context())
	if err != nil {
		return nil, err
	}
	return map[string]any{"roots": visible(offered, ceilings{approval: &rec.Approval, token: op.Ceiling})}, nil
}

type verifyAnswer struct {
	wire.AuditVerifyResponse
	Anchor *wire.Anchor `json:"anchor"`
}

// postVerify is POST /api/machines/{machine}/audit/verify.
func (s *Server) postVerify(_ http.ResponseWriter, r *http.Request, op access.Operator) (any, error) {
	m, _, err := s.target(r.Context(), op, r.PathValue("machine"))
	if err != nil {
		return nil, err
	}
	// The anchor is read before the device is asked: its head only grows.
	rec, err := s.authority.Machine(r.Context(), op.Owner, m.key.id)
	if err != nil {
		return nil, err
	}
	body, err := m.call(r.Context(), wire.TAuditVerifyRequest, wire.AuditVerifyRequest{}, s.timing.verify)
	if err != nil {
		return nil, err
	}
	var v wire.AuditVerifyResponse
	if err := wire.Decode(body, &v); err != nil {
		return nil, badAnswer(wire.TAuditVerifyResponse)
	}
	return s.judge(r.Context(), m, v, rec.Anchor), nil
}

// judge holds what the device says of its log against the highest head that it
// ever reported here.
func (s *Server) judge(ctx context.Context, m *machine, v wire.AuditVerifyResponse, anchor *wire.Anchor) verifyAnswer {
	if v.Problems == nil {
		v.Problems = []string{}
	}
	switch {
	case anchor == nil:
	case v.Seq < anchor.Seq:
		v.OK = false
		v.Problems = append(v.Problems, "the log ends before the head that the relay has seen: it was cut or rolled back")
	case v.Seq == anchor.Seq && v.HMAC != anchor.HMAC:
		v.OK = false
		v.Problems = append(v.Problems, "the head of the log differs from the one that the relay has seen")
	}
	if v.OK && v.HMAC != "" {
		kept, err := s.authority.Anchored(ctx, m.key.owner, m.key.id, wire.Anchor{Seq: v.Seq, HMAC: v.HMAC})
		if err != nil {
			s.log.Warn("audit head not taken", "machine", m.key.id, "seq", v.Seq, "error", err)
		} else {
			anchor = &kept
		}
	}
	return verifyAnswer{v, anchor}
}
