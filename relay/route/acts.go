package route

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"farhand/relay/access"
	"farhand/relay/acts"
	"farhand/wire"
)

// The acts that are no requests of the protocol.
const (
	opSessionOpen = "SESSION_OPEN"
	opSessionEnd  = "SESSION_END"
)

// unknownOp stands for a type of a request that nobody knows: it could be
// anything, a secret included.
const unknownOp = "UNKNOWN"

// defaultTail is how many records GET /api/audit gives that is told no number.
const defaultTail = 100

// asked is what is remembered of a request until it has its answer.
type asked struct {
	what    wire.Type
	op      string // empty: it isn't recorded
	machine string
	at      time.Time
	lane    *lane // where it went; nil: nowhere here
}

// ask is what is to be remembered of a request. Keepalives are no acts, and neither
// are the pieces of one that was recorded when it began: what is typed into a
// terminal or over a forwarded connection, what is written in a transfer.
func ask(env wire.Envelope) asked {
	a := asked{what: env.Type, at: time.Now()}
	switch env.Type {
	case wire.TPing, wire.TTerminalInput, wire.TTerminalResize, wire.TForwardData, wire.TTransferChunk:
		return a
	}
	a.op = unknownOp
	if _, ok := wire.MethodOf(env.Type); ok {
		a.op = string(env.Type)
	}
	return a
}

// intend records that a request is about to be passed on, if it changes
// something. What can't be recorded is refused.
func (op *operator) intend(env wire.Envelope, method wire.Method, machine string) *wire.Error {
	s := op.srv
	if s.acts == nil || op.guest {
		return nil
	}
	ref := requestRef{env.SessionID, env.ID}
	op.mu.Lock()
	a, waits := op.waiting[ref]
	a.machine = machine
	if waits {
		op.waiting[ref] = a
	}
	op.mu.Unlock()
	if method.Repeatable || a.op == "" {
		return nil
	}
	err := s.acts.Append(acts.Act{Owner: op.who.Owner, Holder: op.who.Holder, Machine: machine, Session: sessionOf(env.SessionID), Op: a.op, Intent: true})
	if err == nil {
		return nil
	}
	s.log.Error("act not recorded, so not passed on", "op", a.op, "error", err)
	return wire.Errorf(cmp.Or(wire.CodeOf(err), wire.InternalError), "the relay can't record what is asked of it")
}

// ended counts and records how a request ended; code is empty if well.
func (op *operator) ended(ref requestRef, a asked, code wire.Code) {
	s := op.srv
	if !op.guest { // a guest's is counted where it came from
		s.metrics.Request(a.what, code, time.Since(a.at))
	}
	if s.acts == nil || op.guest || a.op == "" {
		return
	}
	s.acts.Note(acts.Act{Owner: op.who.Owner, Holder: op.who.Holder, Machine: a.machine, Session: sessionOf(ref.session),
		Op: a.op, Code: code, Took: time.Since(a.at)})
}

// sessionOf is a session's id as far as it is one: what an operator sends may be
// anything.
func sessionOf(id string) string {
	if isSessionID(id) {
		return id
	}
	return ""
}

// codeOf is the code of an ERROR; empty for any other answer.
func codeOf(env wire.Envelope) wire.Code {
	if env.Type != wire.TError {
		return ""
	}
	var e wire.Error
	if wire.Decode(env.Payload, &e) != nil || e.Code == "" {
		return wire.InternalError
	}
	return e.Code
}

// does records a call of the API before its effect, and gives what records how it
// ended.
func (s *Server) does(op access.Operator, what, machine, session string) (ended func(error), err error) {
	if s.acts == nil {
		return func(error) {}, nil
	}
	began := time.Now()
	a := acts.Act{Owner: op.Owner, Holder: op.Holder, Machine: machine, Session: session, Op: what}
	before := a
	before.Intent = true
	if err := s.acts.Append(before); err != nil {
		return nil, err
	}
	return func(err error) {
		a.Took = time.Since(began)
		if err != nil {
			a.Code = cmp.Or(wire.CodeOf(err), codeUnavailable)
		}
		if err := s.acts.Append(a); err != nil {
			s.log.Error("end of an act not recorded", "op", what, "error", err)
		}
	}, nil
}

// getAudit is GET /api/audit: the owner's last acts, at all instances.
func (s *Server) getAudit(_ http.ResponseWriter, r *http.Request, op access.Operator) (any, error) {
	if !op.Login {
		return nil, wire.Errorf(codeLoginRequired, "this needs the owner's own login, not a token")
	}
	n := defaultTail
	if text := r.URL.Query().Get("limit"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 || n > acts.MaxTail {
			return nil, wire.Errorf(wire.InvalidArgument, "limit is a number from 1 to %d", acts.MaxTail)
		}
	}
	records, err := s.acts.Tail(op.Owner, n)
	if err != nil {
		return nil, err
	}
	missing := 0
	for _, instance := range s.others() {
		var more []json.RawMessage
		err := s.askJSON(r.Context(), instance, "/cluster/acts", url.Values{"owner": {op.Owner}, "limit": {strconv.Itoa(n)}}, &more)
		if err != nil && s.places.node.Alive(instance) { // one that has just gone isn't asked for
			missing++
		}
		records = append(records, more...)
	}
	if len(s.others()) > 0 {
		slices.SortStableFunc(records, func(a, b json.RawMessage) int { return cmp.Compare(stampOf(a), stampOf(b)) })
	}
	if records = records[max(0, len(records)-n):]; records == nil {
		records = []json.RawMessage{}
	}
	return map[string]any{"records": records, "instances_missing": missing}, nil
}

// actsReport is what an instance finds in an owner's log, and what all together do.
type actsReport struct {
	OK       bool     `json:"ok"`
	Records  int64    `json:"records"`
	Problems []string `json:"problems"`
	Missing  int      `json:"instances_missing"`
}

// getAuditVerify is GET /api/audit/verify: whether the logs of the owner's acts
// are whole, at all instances.
func (s *Server) getAuditVerify(_ http.ResponseWriter, r *http.Request, op access.Operator) (any, error) {
	if !op.Login {
		return nil, wire.Errorf(codeLoginRequired, "this needs the owner's own login, not a token")
	}
	all, err := s.verifyActs(r.Context(), op.Owner)
	if err != nil {
		return nil, err
	}
	for _, instance := range s.others() {
		var one actsReport
		if err := s.askJSON(r.Context(), instance, "/cluster/acts/verify", url.Values{"owner": {op.Owner}}, &one); err != nil {
			if s.places.node.Alive(instance) {
				all.Missing++
			}
			continue
		}
		all.OK = all.OK && one.OK
		all.Records += one.Records
		all.Problems = append(all.Problems, one.Problems...)
	}
	return all, nil
}

func (s *Server) verifyActs(ctx context.Context, owner string) (actsReport, error) {
	report, err := s.acts.Verify(ctx, owner)
	if err != nil {
		return actsReport{}, err
	}
	return actsReport{OK: report.OK, Records: report.Records, Problems: append([]string{}, report.Problems...)}, nil
}

// others are the other instances that are there.
func (s *Server) others() []string {
	if s.places == nil {
		return nil
	}
	return slices.DeleteFunc(s.places.node.Peers(), func(id string) bool { return id == s.places.node.ID() })
}

func (s *Server) askJSON(ctx context.Context, instance, path string, query url.Values, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, hopTime)
	defer cancel()
	body, err := s.hop(ctx, http.MethodGet, instance, path+"?"+query.Encode())
	if err == nil {
		err = json.Unmarshal(body, answer)
	}
	if err != nil {
		s.log.Warn("another instance doesn't answer", "instance", instance, "path", path, "error", err)
	}
	return err
}

// registerActs mounts what instances ask each other of acts.
func (s *Server) registerActs(mux *http.ServeMux) {
	mux.HandleFunc("GET /cluster/acts", func(w http.ResponseWriter, r *http.Request) {
		n, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		records, err := s.acts.Tail(r.URL.Query().Get("owner"), n)
		if err != nil {
			s.replyError(w, err)
			return
		}
		reply(w, http.StatusOK, records)
	})
	mux.HandleFunc("GET /cluster/acts/verify", func(w http.ResponseWriter, r *http.Request) {
		report, err := s.verifyActs(r.Context(), r.URL.Query().Get("owner"))
		if err != nil {
			s.replyError(w, err)
			return
		}
		reply(w, http.StatusOK, report)
	})
}

// stampOf is the time of a record in Unix seconds.
func stampOf(record json.RawMessage) float64 {
	var r struct {
		TS float64 `json:"ts"`
	}
	_ = json.Unmarshal(record, &r) // what can't be read comes first
	return r.TS
}
