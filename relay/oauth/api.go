package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"farhand/internal/fnmatch"
	"farhand/relay/access"
	"farhand/relay/store"
	"farhand/wire"
)

// caller is who makes a call of the management API.
type caller struct {
	access.Operator
	address string
	from    string // what limits count
}

func (c caller) event() Event {
	return Event{Owner: c.Owner, Holder: c.Holder, Address: c.address}
}

// call is one entry of the management API.
type call struct {
	pattern string
	login   bool // needs the owner's own login
	do      func(*Server, *http.Request, caller) (any, error)
}

// calls is the management API behind a bearer token.
var calls = []call{
	{"GET /api/whoami", false, (*Server).whoami},
	{"POST /api/logout", true, (*Server).apiLogout},
	{"GET /api/machines", false, (*Server).apiMachines},
	{"GET /api/machines/{machine}", false, (*Server).apiMachine},
	{"DELETE /api/machines/{machine}", true, (*Server).apiRemoveMachine},
	{"GET /api/machines/{machine}/grants", false, (*Server).apiGrants},
	{"PUT /api/machines/{machine}/approval", true, (*Server).apiSetApproval},
	{"PATCH /api/machines/{machine}/labels", true, (*Server).apiLabel},
	{"PUT /api/default-machine", true, (*Server).apiSetDefault},
	{"DELETE /api/default-machine", true, (*Server).apiClearDefault},
	{"GET /api/approvals/{user_code}", true, (*Server).apiPending},
	{"POST /api/approvals/{user_code}", true, (*Server).apiDecide},
	{"GET /api/claims", true, (*Server).apiClaims},
	{"POST /api/claims", true, (*Server).apiNewClaim},
	{"DELETE /api/claims/{id}", true, (*Server).apiRevokeClaim},
	{"GET /api/tokens", true, (*Server).apiTokens},
	{"POST /api/tokens", true, (*Server).apiNewToken},
	{"DELETE /api/tokens/{id}", true, (*Server).apiRevokeToken},
}

func (s *Server) registerAPI(mux *http.ServeMux) {
	mux.HandleFunc("POST /api/login", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.apiLogin(r)
		s.answerAPI(w, r, v, err)
	})
	mux.HandleFunc("POST /api/setup", func(w http.ResponseWriter, r *http.Request) {
		v, err := s.apiSetup(r)
		s.answerAPI(w, r, v, err)
	})
	for _, c := range calls {
		mux.HandleFunc(c.pattern, func(w http.ResponseWriter, r *http.Request) {
			who, err := s.caller(r)
			var v any
			switch {
			case err != nil:
			case c.login && !who.Manage:
				err = apiErrorf(http.StatusForbidden, codeLoginRequired, "this needs the owner's own login, not a token")
			default:
				v, err = c.do(s, r, who)
			}
			s.answerAPI(w, r, v, err)
		})
	}
}

// bearer takes the credential out of a request's Authorization header.
func bearer(r *http.Request) (string, bool) {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	return token, ok && strings.EqualFold(scheme, "Bearer") && token != "" && len(r.Header.Values("Authorization")) == 1
}

func (s *Server) caller(r *http.Request) (caller, error) {
	token, ok := bearer(r)
	if !ok {
		return caller{}, errNoBearer
	}
	op, err := s.Operator(r.Context(), token)
	if errors.Is(err, access.ErrUnauthorized) {
		return caller{}, errNoBearer
	}
	if err == nil {
		if refused := s.limits.Call(op.Holder); refused != nil {
			wait, _ := refused.Details["retry_after_seconds"].(float64)
			return caller{}, &apiError{http.StatusTooManyRequests, refused, int(math.Ceil(wait))}
		}
	}
	return caller{op, shownAddress(r), clientAddress(r)}, err
}

type ownerJSON struct {
	ID   string `json:"id"`
	Name string `json:"name"`
}

type loginJSON struct {
	Token   string    `json:"token"`
	Type    string    `json:"token_type"`
	Expires time.Time `json:"expires_at"`
	Owner   ownerJSON `json:"owner"`
}

func (s *Server) apiLogin(r *http.Request) (any, error) {
	var in struct{ Name, Passphrase string }
	if err := readJSON(r, &in); err != nil {
		return nil, err
	}
	acc, err := s.logIn(r.Context(), r, in.Name, in.Passphrase)
	if err != nil {
		return nil, err
	}
	return s.newLogin(r.Context(), acc)
}

func (s *Server) apiSetup(r *http.Request) (any, error) {
	var in struct {
		Token      string `json:"setup_token"`
		Name       string `json:"name"`
		Passphrase string `json:"passphrase"`
	}
	if err := readJSON(r, &in); err != nil {
		return nil, err
	}
	acc, err := s.setUp(r.Context(), in.Token, in.Name, in.Passphrase, shownAddress(r))
	if err != nil {
		return nil, err
	}
	return s.newLogin(r.Context(), acc)
}

func (s *Server) newLogin(ctx context.Context, acc account) (loginJSON, error) {
	text, op, err := s.newOperator(ctx, kindLogin, operator{Owner: acc.Owner, Account: acc.Name, Expires: now().Add(loginLife)})
	return loginJSON{text, "Bearer", op.Expires, ownerJSON{acc.Owner, acc.Name}}, err
}

func (s *Server) apiLogout(r *http.Request, who caller) (any, error) {
	kind, id, _ := strings.Cut(who.Holder, "-")
	if err := s.dropOperator(r.Context(), kind, who.Owner, id); err != nil {
		return nil, err
	}
	e := who.event()
	e.Op = OpLogout
	s.record(e)
	return okJSON{true}, nil
}

type okJSON struct {
	OK bool `json:"ok"`
}

func (s *Server) whoami(_ *http.Request, who caller) (any, error) {
	return struct {
		Owner    ownerJSON     `json:"owner"`
		Holder   string        `json:"holder"`
		Login    bool          `json:"login"`
		Expires  *time.Time    `json:"expires_at"`
		Machines *[]string     `json:"machines"`
		Ceiling  *wire.Ceiling `json:"ceiling"`
	}{ownerJSON{who.Owner, who.Name}, who.Holder, who.Login, timeOrNull(who.Expires), who.Machines, who.Ceiling}, nil
}

func timeOrNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// machineJSON is a machine as the API shows it.
type machineJSON struct {
	ID           string                `json:"machine_id"`
	Name         string                `json:"name"`
	Labels       []string              `json:"labels"`
	Default      bool                  `json:"default,omitempty"`
	Display      string                `json:"display_name"`
	Online       bool                  `json:"online"`
	Platform     string                `json:"platform"`
	Arch         string                `json:"arch"`
	ShimVersion  string                `json:"shim_version"`
	Board        string                `json:"board"`
	Capabilities wire.Capabilities     `json:"capabilities"`
	Approval     wire.Ceiling          `json:"approval"`
	Revision     string                `json:"approval_revision"`
	ApprovedAt   time.Time             `json:"approved_at"`
	LastSeen     *time.Time            `json:"last_seen"`
	Devices      []wire.HardwareDevice `json:"devices"`
	Truncated    bool                  `json:"devices_truncated,omitempty"`
	BootID       string                `json:"boot_id,omitempty"`
	Started      *time.Time            `json:"daemon_started,omitempty"`
	Facts        *wire.MachineFacts    `json:"facts,omitempty"`
}

// machineJSON shows a machine to a caller: of its devices those that the caller's
// token reaches.
func (s *Server) machineJSON(m access.Machine, who caller) machineJSON {
	out := machineJSON{
		ID: m.ID, Name: m.Name, Display: m.Name, Online: s.sockets().Online(m.Owner, m.ID), Board: m.Board,
		Approval: m.Approval, Revision: revision(m.ApprovedAt), ApprovedAt: m.ApprovedAt, LastSeen: timeOrNull(m.LastSeen),
		Capabilities: wire.Capabilities{}, Devices: []wire.HardwareDevice{},
		Labels: append([]string{}, m.Labels...), Default: m.Default,
	}
	h, fresh := m.Hello, s.sockets().Hello(m.Owner, m.ID)
	if fresh != nil {
		h, out.LastSeen = fresh, timeOrNull(now())
	}
	if h != nil {
		if h.DisplayName != "" {
			out.Display = h.DisplayName
		}
		out.Platform, out.Arch, out.ShimVersion, out.Truncated = h.Platform, h.Arch, h.ShimVersion, h.HardwareTruncated
		out.Capabilities = append(out.Capabilities, h.Capabilities...)
		out.Devices = append(out.Devices, reached(h.HardwareDevices, who.Ceiling)...)
		out.BootID, out.Started = h.BootID, timeOrNull(m.Started)
		if fresh != nil && m.Hello != nil && m.Hello.BootID != h.BootID {
			out.Started = out.LastSeen
		}
	}
	if who.Ceiling == nil { // a network's addresses are its owner's business
		out.Facts = s.sockets().Facts(m.Owner, m.ID)
	}
	return out
}

// reached are the devices that a ceiling allows something on.
func reached(devices []wire.HardwareDevice, c *wire.Ceiling) []wire.HardwareDevice {
	if c == nil {
		return devices
	}
	return slices.DeleteFunc(slices.Clone(devices), func(d wire.HardwareDevice) bool {
		return c.Capabilities != nil && !slices.Contains(*c.Capabilities, wire.HardwareCapability(d.Type)) ||
			c.Devices != nil && !slices.ContainsFunc(*c.Devices, func(g wire.DeviceGrant) bool { return fnmatch.Match(g.Pattern, d.ID) })
	})
}

// machinesOf are the machines that the caller may use.
func (s *Server) machinesOf(ctx context.Context, who caller) ([]access.Machine, error) {
	all, err := s.Machines(ctx, who.Owner)
	if err != nil {
		return nil, err
	}
	mine := all[:0]
	for _, m := range all {
		if who.MayUse(m.ID) {
			mine = append(mine, m)
		}
	}
	return mine, nil
}

func (s *Server) resolve(r *http.Request, who caller) (access.Machine, error) {
	ms, err := s.machinesOf(r.Context(), who)
	if err != nil {
		return access.Machine{}, err
	}
	return access.Resolve(ms, r.PathValue("machine"))
}

func (s *Server) apiMachines(r *http.Request, who caller) (any, error) {
	ms, err := s.machinesOf(r.Context(), who)
	if err != nil {
		return nil, err
	}
	out := make([]machineJSON, len(ms))
	for i, m := range ms {
		out[i] = s.machineJSON(m, who)
	}
	return struct {
		Machines []machineJSON `json:"machines"`
	}{out}, nil
}

func (s *Server) apiMachine(r *http.Request, who caller) (any, error) {
	m, err := s.resolve(r, who)
	if err != nil {
		return nil, err
	}
	return s.machineJSON(m, who), nil
}

func (s *Server) apiRemoveMachine(r *http.Request, who caller) (any, error) {
	m, err := s.resolve(r, who)
	if err != nil {
		return nil, err
	}
	if err := s.removeMachine(r.Context(), who.event(), m); err != nil {
		return nil, err
	}
	return machineName{m.ID, m.Name}, nil
}

type machineName struct {
	ID   string `json:"machine_id"`
	Name string `json:"name"`
}

func (s *Server) apiSetApproval(r *http.Request, who caller) (any, error) {
	var c wire.Ceiling
	if err := readJSON(r, &c); err != nil {
		return nil, err
	}
	c, err := checkCeiling(c)
	if err != nil {
		return nil, err
	}
	m, err := s.resolve(r, who)
	if err != nil {
		return nil, err
	}
	if err := s.setApproval(r.Context(), who.event(), m.ID, c, expected(r)); err != nil {
		return nil, err
	}
	if m, err = s.Machine(r.Context(), who.Owner, m.ID); err != nil {
		return nil, err
	}
	return s.machineJSON(m, who), nil
}

func (s *Server) apiPending(r *http.Request, who caller) (any, error) {
	_, rec, err := s.findCode(r.Context(), who.event(), r.PathValue("user_code"), who.from)
	if err != nil {
		return nil, err
	}
	was, err := s.already(r.Context(), who.Owner, rec)
	if err != nil {
		return nil, err
	}
	code, _ := readCode(r.PathValue("user_code"))
	return struct {
		UserCode     string            `json:"user_code"`
		MachineID    string            `json:"machine_id"`
		Display      string            `json:"display_name"`
		Board        string            `json:"board"`
		Suffix       string            `json:"serial_suffix"`
		Address      string            `json:"address"`
		Asked        time.Time         `json:"requested_at"`
		Expires      time.Time         `json:"expires_at"`
		Capabilities []wire.Capability `json:"capabilities"`
		Paired       *paired           `json:"paired"`
	}{showCode(code), rec.MachineID, rec.Display, rec.Board, rec.Suffix, rec.Address, rec.Asked, rec.Expires, rec.Wants, was}, nil
}

func (s *Server) apiDecide(r *http.Request, who caller) (any, error) {
	var in struct {
		Decision string `json:"decision"`
		Name     string `json:"name"`
	}
	var c wire.Ceiling
	if err := readJSON(r, &in, &c); err != nil {
		return nil, err
	}
	d := decision{approve: in.Decision == "approve", name: in.Name}
	switch {
	case in.Decision != "approve" && in.Decision != "deny":
		return nil, badArgument("decision must be approve or deny")
	case d.approve && c.Capabilities == nil:
		return nil, badArgument("capabilities is missing: say what to allow")
	case d.name != "" && !validName(d.name):
		return nil, badArgument("a name has letters, digits and \"._-\", at most %d, and begins with a letter or digit", maxName)
	}
	var err error
	if d.ceiling, err = checkCeiling(c); err != nil {
		return nil, err
	}
	id, rec, err := s.findCode(r.Context(), who.event(), r.PathValue("user_code"), who.from)
	if err != nil {
		return nil, err
	}
	name, err := s.decide(r.Context(), who.event(), id, rec, d)
	if err != nil {
		return nil, err
	}
	return machineName{rec.MachineID, name}, nil
}

func (s *Server) apiNewClaim(r *http.Request, who caller) (any, error) {
	var in struct {
		Name    string `json:"machine_name"`
		Expires expiry `json:"expires"`
	}
	var c wire.Ceiling
	if err := readJSON(r, &in, &c); err != nil {
		return nil, err
	}
	if c.Capabilities == nil {
		return nil, badArgument("capabilities is missing: say what to allow")
	}
	if in.Name != "" && !validName(in.Name) {
		return nil, badArgument("a name has letters, digits and \"._-\", at most %d, and begins with a letter or digit", maxName)
	}
	c, err := checkCeiling(c)
	if err != nil {
		return nil, err
	}
	if in.Expires.IsZero() {
		in.Expires.Time = now().Add(claimLife)
	}
	if in.Expires.After(now().Add(maxClaimLife)) {
		return nil, badArgument("a claim key lives %d days at most", maxClaimLife/(24*time.Hour))
	}
	text, made, err := s.newClaim(r.Context(), who.event(), claim{Name: in.Name, Ceiling: c, Expires: in.Expires.Time})
	if err != nil {
		return nil, err
	}
	return struct {
		ID      string    `json:"id"`
		Key     string    `json:"claim_key"`
		Expires time.Time `json:"expires_at"`
	}{made.ID, text, made.Expires}, nil
}

type claimJSON struct {
	ID           string              `json:"id"`
	Name         string              `json:"machine_name"`
	Capabilities *[]wire.Capability  `json:"capabilities,omitempty"`
	Devices      *[]wire.DeviceGrant `json:"devices,omitempty"`
	Roots        *[]string           `json:"roots,omitempty"`
	Created      time.Time           `json:"created_at"`
	Expires      time.Time           `json:"expires_at"`
	Used         *time.Time          `json:"used_at"`
	Machine      string              `json:"machine_id,omitempty"`
	Address      string              `json:"address,omitempty"`
}

func (s *Server) apiClaims(r *http.Request, who caller) (any, error) {
	claims, err := list[claim](r.Context(), s.store, store.Prefix("o", who.Owner, "claim"))
	if err != nil {
		return nil, err
	}
	out := make([]claimJSON, len(claims))
	for i, c := range claims {
		out[i] = claimJSON{c.ID, c.Name, c.Ceiling.Capabilities, c.Ceiling.Devices, c.Ceiling.Roots, c.Created, c.Expires, c.UsedAt, c.UsedBy, c.Address}
	}
	return struct {
		Claims []claimJSON `json:"claims"`
	}{out}, nil
}

func (s *Server) apiRevokeClaim(r *http.Request, who caller) (any, error) {
	id := r.PathValue("id")
	e := who.event()
	e.Op, e.Subject = OpClaimRevoked, wire.Clean(id, maxName)
	if err := s.intend(e); err != nil {
		return nil, err
	}
	key := claimKey(who.Owner, id)
	if _, err := s.store.Get(r.Context(), key); err != nil {
		return nil, notFound(err)
	}
	if err := s.store.Delete(r.Context(), key, 0); err != nil {
		return nil, err
	}
	return okJSON{true}, nil
}

func notFound(err error) error {
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) {
		return access.ErrNotFound
	}
	return err
}

func (s *Server) apiNewToken(r *http.Request, who caller) (any, error) {
	var in struct {
		Name     string      `json:"name"`
		Machines machineList `json:"machines"`
		Expires  expiry      `json:"expires"`
	}
	var c wire.Ceiling
	if err := readJSON(r, &in, &c); err != nil {
		return nil, err
	}
	c, err := checkCeiling(c)
	if err != nil {
		return nil, err
	}
	op := operator{Owner: who.Owner, Account: who.Name, Name: wire.Clean(in.Name, maxName), Ceiling: &c, Expires: in.Expires.Time}
	if in.Machines.given {
		ids, err := s.machineIDs(r.Context(), who, in.Machines.names)
		if err != nil {
			return nil, err
		}
		op.Machines = &ids
	}
	e := who.event()
	e.Op, e.Subject = OpTokenCreated, op.Name
	if err := s.intend(e); err != nil {
		return nil, err
	}
	text, op, err := s.newOperator(r.Context(), kindToken, op)
	if err != nil {
		return nil, err
	}
	return struct {
		ID      string     `json:"id"`
		Token   string     `json:"token"`
		Expires *time.Time `json:"expires_at"`
	}{holder(kindToken, op.ID), text, timeOrNull(op.Expires)}, nil
}

// machineList is a list in a request that allows everything if it is absent. Null
// is an empty one, as in a ceiling: it is what an empty list becomes in some
// languages, and must not allow everything.
type machineList struct {
	names []string
	given bool
}

// UnmarshalJSON implements json.Unmarshaler.
func (l *machineList) UnmarshalJSON(b []byte) error {
	l.given = true
	if json.Unmarshal(b, &l.names) != nil {
		return badArgument("machines must be a list of names")
	}
	return nil
}

func (s *Server) machineIDs(ctx context.Context, who caller, names []string) ([]string, error) {
	ms, err := s.machinesOf(ctx, who)
	if err != nil {
		return nil, err
	}
	ids := []string{}
	for _, name := range names {
		if name == "" {
			return nil, badArgument("a machine's name is empty")
		}
		m, err := access.Resolve(ms, name)
		if err != nil {
			return nil, err
		}
		ids = append(ids, m.ID)
	}
	return ids, nil
}

type tokenJSON struct {
	ID           string              `json:"id"`
	Name         string              `json:"name"`
	Machines     *[]string           `json:"machines"`
	Capabilities *[]wire.Capability  `json:"capabilities,omitempty"`
	Devices      *[]wire.DeviceGrant `json:"devices,omitempty"`
	Roots        *[]string           `json:"roots,omitempty"`
	Created      time.Time           `json:"created_at"`
	Expires      *time.Time          `json:"expires_at"`
}

func (s *Server) apiTokens(r *http.Request, who caller) (any, error) {
	var lists [2][]tokenJSON
	for i, kind := range []string{kindToken, kindLogin} {
		ops, err := list[operator](r.Context(), s.store, store.Prefix("o", who.Owner, kind))
		if err != nil {
			return nil, err
		}
		lists[i] = make([]tokenJSON, len(ops))
		for j, op := range ops {
			t := tokenJSON{ID: holder(kind, op.ID), Name: op.Name, Machines: op.Machines, Created: op.Created, Expires: timeOrNull(op.Expires)}
			if op.Ceiling != nil {
				t.Capabilities, t.Devices, t.Roots = op.Ceiling.Capabilities, op.Ceiling.Devices, op.Ceiling.Roots
			}
			lists[i][j] = t
		}
	}
	agents, err := s.agentsOf(r.Context(), who.Owner)
	if err != nil {
		return nil, err
	}
	all := make([]tokenJSON, len(agents))
	for i, a := range agents {
		c := a.Grant.Ceiling
		all[i] = tokenJSON{holder(kindAgent, a.ID), a.Name, a.Machines, c.Capabilities, c.Devices, c.Roots, a.Created, timeOrNull(a.Ends)}
	}
	return struct {
		Tokens []tokenJSON `json:"tokens"`
		Agents []tokenJSON `json:"agents"`
		Logins []tokenJSON `json:"logins"`
	}{lists[0], all, lists[1]}, nil
}

func (s *Server) apiRevokeToken(r *http.Request, who caller) (any, error) {
	kind, id, ok := strings.Cut(r.PathValue("id"), "-")
	if !ok || (kind != kindToken && kind != kindLogin && kind != kindAgent) {
		return nil, access.ErrNotFound
	}
	if _, err := s.store.Get(r.Context(), operatorKey(kind, who.Owner, id)); err != nil {
		return nil, notFound(err)
	}
	e := who.event()
	e.Op, e.Subject = OpTokenRevoked, kind+"-"+wire.Clean(id, maxName)
	if err := s.intend(e); err != nil {
		return nil, err
	}
	end := func() error { return s.dropOperator(r.Context(), kind, who.Owner, id) }
	if kind == kindAgent {
		end = func() error { return s.revokeAgent(r.Context(), who.Owner, id, "revoked by the owner") }
	}
	if err := end(); err != nil {
		return nil, err
	}
	return okJSON{true}, nil
}
