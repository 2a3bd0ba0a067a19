package clienttest

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"time"

	"farhand/client"
	"farhand/wire"
)

func quiet() *log.Logger { return log.New(io.Discard, "", 0) }

// codes of the management API that the wire doesn't know.
const (
	notFound   wire.Code = "NOT_FOUND"
	badRequest wire.Code = "BAD_REQUEST"
)

func (r *Relay) serve(w http.ResponseWriter, q *http.Request) {
	r.mu.Lock()
	refuse := r.Refuse
	r.mu.Unlock()
	if refuse != nil {
		if status, e := refuse(q); status != 0 {
			fail(w, status, e)
			return
		}
	}
	if q.URL.Path == "/ws/operator" {
		if !authorised(q) {
			fail(w, 401, wire.Errorf("UNAUTHORIZED", "token unknown, expired or revoked"))
			return
		}
		r.operator(w, q)
		return
	}
	body, _ := io.ReadAll(q.Body)
	r.note(q.Method+" "+q.URL.Path, body)
	switch q.URL.Path {
	case "/api/login":
		r.login(w, body, "")
	case "/api/setup":
		r.login(w, body, SetupToken)
	default:
		if !authorised(q) {
			fail(w, 401, wire.Errorf("UNAUTHORIZED", "token unknown, expired or revoked"))
			return
		}
		r.managed(w, q, body)
	}
}

func authorised(q *http.Request) bool { return q.Header.Get("Authorization") == "Bearer "+OwnerToken }

func (r *Relay) login(w http.ResponseWriter, body []byte, setup string) {
	var in struct {
		SetupToken string `json:"setup_token"`
		Name       string `json:"name"`
		Passphrase string `json:"passphrase"`
	}
	if json.Unmarshal(body, &in) != nil || in.Name != OwnerName || in.Passphrase != Passphrase || in.SetupToken != setup {
		fail(w, 401, wire.Errorf("UNAUTHORIZED", "name or passphrase is wrong"))
		return
	}
	answer(w, client.LoginAnswer{Token: OwnerToken, TokenType: "Bearer", ExpiresAt: Epoch().Add(30 * 24 * time.Hour), Owner: owner()})
}

func owner() client.Owner { return client.Owner{ID: "o-1", Name: OwnerName} }

func (r *Relay) managed(w http.ResponseWriter, q *http.Request, body []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	parts := strings.Split(strings.TrimPrefix(q.URL.Path, "/api/"), "/")
	switch q.Method + " " + parts[0] {
	case "POST logout":
		answer(w, struct{}{})
	case "GET whoami":
		answer(w, client.Identity{Owner: owner(), Holder: "h-1", Login: true, ExpiresAt: Epoch().Add(30 * 24 * time.Hour)})
	case "GET machines", "DELETE machines", "POST machines", "PUT machines":
		r.machines(w, q, parts, body)
	case "GET approvals", "POST approvals":
		r.approvals(w, q.Method, parts, body)
	case "GET tokens", "POST tokens", "DELETE tokens":
		r.tokensAPI(w, q.Method, parts, body)
	case "GET claims", "POST claims", "DELETE claims":
		r.claimsAPI(w, q.Method, parts, body)
	case "GET sessions", "POST sessions", "DELETE sessions":
		r.sessionsAPI(w, q.Method, parts, body)
	default:
		fail(w, 404, wire.Errorf(notFound, "no such call"))
	}
}

func (r *Relay) find(name string) (int, *wire.Error) {
	found := -1
	for i, m := range r.Machines {
		if m.ID == name || m.Name == name {
			return i, nil
		}
		if strings.HasPrefix(m.ID, name) || strings.HasPrefix(m.Name, name) {
			if found >= 0 {
				return 0, wire.Errorf(wire.MachineAmbiguous, "several machines begin with %q", name)
			}
			found = i
		}
	}
	if found < 0 {
		return 0, wire.Errorf(wire.MachineNotAttached, "no machine %q is paired", name)
	}
	return found, nil
}

func (r *Relay) machines(w http.ResponseWriter, q *http.Request, parts []string, body []byte) {
	method := q.Method
	if len(parts) == 1 {
		answer(w, map[string]any{"machines": r.Machines})
		return
	}
	i, e := r.find(parts[1])
	if e != nil {
		fail(w, 404, e)
		return
	}
	switch what := strings.Join(parts[2:], "/"); {
	case method == "GET" && what == "":
		answer(w, r.Machines[i])
	case method == "DELETE" && what == "":
		r.Machines = slices.Delete(r.Machines, i, i+1)
		answer(w, struct{}{})
	case method == "GET" && what == "grants":
		g := r.Grants
		m := r.Machines[i]
		g.MachineID, g.Name, g.Online, g.Revision, g.Approval = m.ID, m.Name, m.Online, fmt.Sprint(r.revision), m.Approval
		answer(w, g)
	case method == "PUT" && what == "approval":
		var allow wire.Ceiling
		if json.Unmarshal(body, &allow) != nil {
			fail(w, 400, wire.Errorf(wire.InvalidArgument, "no ceiling"))
			return
		}
		if tag := q.Header.Get("If-Match"); tag != "" && tag != fmt.Sprintf("%q", fmt.Sprint(r.revision)) {
			fail(w, 412, wire.Errorf("CONFLICT", "the approval was changed meanwhile: look at it again"))
			return
		}
		r.revision++
		r.Machines[i].Approval = allow
		answer(w, r.Machines[i])
	case !r.Machines[i].Online:
		fail(w, 503, wire.Errorf(wire.MachineUnreachable, "%s is offline", r.Machines[i].Name))
	case what == "roots":
		answer(w, map[string]any{"roots": r.Roots})
	case what == "audit/verify":
		answer(w, r.Audit)
	default:
		fail(w, 404, wire.Errorf(notFound, "no such call"))
	}
}

func (r *Relay) approvals(w http.ResponseWriter, method string, parts []string, body []byte) {
	p, ok := r.Approvals[parts[1]]
	if !ok {
		fail(w, 404, wire.Errorf(notFound, "no machine asks with that code"))
		return
	}
	if method == "GET" {
		answer(w, p)
		return
	}
	var in struct{ Decision, Name string }
	json.Unmarshal(body, &in)
	delete(r.Approvals, parts[1])
	if in.Name == "" {
		in.Name = p.DisplayName
	}
	answer(w, client.Approved{MachineID: p.MachineID, Name: in.Name})
}

// limits are the lists of tokens and claims.
type limits struct {
	Name        string    `json:"name"`
	MachineName string    `json:"machine_name"`
	Machines    *[]string `json:"machines"`
	Expires     time.Time `json:"expires"`
	client.Limits
}

func (r *Relay) tokensAPI(w http.ResponseWriter, method string, parts []string, body []byte) {
	switch method {
	case "GET":
		answer(w, client.TokenList{Tokens: r.tokens, Logins: []client.Token{{ID: "login-1", CreatedAt: Epoch(), ExpiresAt: Epoch().Add(30 * 24 * time.Hour)}}})
	case "POST":
		var in limits
		if err := json.Unmarshal(body, &in); err != nil {
			fail(w, 400, wire.Errorf(badRequest, "%v", err))
			return
		}
		r.next++
		id := fmt.Sprintf("t-%d", r.next)
		r.tokens = append(r.tokens, client.Token{ID: id, Name: in.Name, Machines: in.Machines, CreatedAt: Epoch(), ExpiresAt: in.Expires, Limits: in.Limits})
		answer(w, client.IssuedToken{ID: id, Token: "fh_op_" + id, ExpiresAt: in.Expires})
	default:
		n := len(r.tokens)
		r.tokens = slices.DeleteFunc(r.tokens, func(t client.Token) bool { return t.ID == parts[1] })
		gone(w, n != len(r.tokens))
	}
}

func (r *Relay) claimsAPI(w http.ResponseWriter, method string, parts []string, body []byte) {
	switch method {
	case "GET":
		answer(w, map[string]any{"claims": r.claims})
	case "POST":
		var in limits
		if err := json.Unmarshal(body, &in); err != nil {
			fail(w, 400, wire.Errorf(badRequest, "%v", err))
			return
		}
		r.next++
		id := fmt.Sprintf("c-%d", r.next)
		if in.Expires.IsZero() {
			in.Expires = Epoch().Add(7 * 24 * time.Hour)
		}
		r.claims = append(r.claims, client.Claim{ID: id, MachineName: in.MachineName, CreatedAt: Epoch(), ExpiresAt: in.Expires, Limits: in.Limits})
		answer(w, client.IssuedClaim{ID: id, ClaimKey: "fh_ck_" + id, ExpiresAt: in.Expires})
	default:
		n := len(r.claims)
		r.claims = slices.DeleteFunc(r.claims, func(c client.Claim) bool { return c.ID == parts[1] })
		gone(w, n != len(r.claims))
	}
}

func (r *Relay) sessionsAPI(w http.ResponseWriter, method string, parts []string, body []byte) {
	switch method {
	case "GET":
		answer(w, map[string]any{"sessions": r.sessions})
		return
	case "DELETE":
		n := len(r.sessions)
		r.sessions = slices.DeleteFunc(r.sessions, func(s client.SessionInfo) bool { return s.ID == parts[1] })
		gone(w, n != len(r.sessions))
		return
	}
	var in struct{ Machine, Root string }
	json.Unmarshal(body, &in)
	i, e := r.find(in.Machine)
	if e != nil {
		fail(w, 404, e)
		return
	}
	m := r.Machines[i]
	if !m.Online {
		fail(w, 503, wire.Errorf(wire.MachineUnreachable, "%s is offline", m.Name))
		return
	}
	if in.Root == "" {
		in.Root = r.Roots[0].Path
	}
	open := client.Opened{MachineID: m.ID, MachineName: m.Name, Root: in.Root, Roots: r.Roots, Capabilities: m.Capabilities}
	for _, s := range r.sessions {
		if s.MachineID == m.ID && s.Root == in.Root {
			open.ID = s.ID
			answer(w, open)
			return
		}
	}
	r.next++
	open.ID, open.Created = fmt.Sprintf("s-%d", r.next), true
	r.sessions = append(r.sessions, client.SessionInfo{
		ID: open.ID, MachineID: m.ID, MachineName: m.Name, Root: in.Root, Holder: "h-1", Live: true, CreatedAt: Epoch(), LastUsed: Epoch(),
	})
	answer(w, open)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

func fail(w http.ResponseWriter, status int, e *wire.Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]any{"error": map[string]any{"code": e.Code, "message": e.Message}})
}

func gone(w http.ResponseWriter, was bool) {
	if !was {
		fail(w, 404, wire.Errorf(notFound, "there is none"))
		return
	}
	answer(w, struct{}{})
}
