package oauth

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"time"

	"farhand/wire"
)

func (s *Server) devicePage(w http.ResponseWriter, r *http.Request) {
	v, q, ok := s.begin(w, r, "", nil)
	if !ok {
		return
	}
	if v.session == nil {
		s.toLogin(w, r)
		return
	}
	if code := q.Get("user_code"); code != "" {
		s.showApproval(w, r, v, code, nil, "")
		return
	}
	s.showCodeForm(w, r, http.StatusOK, v, "")
}

func (s *Server) devicePost(w http.ResponseWriter, r *http.Request) {
	v, form, ok := s.begin(w, r, "code", nil)
	if !ok {
		return
	}
	if v.session == nil {
		s.seeOther(w, r, "/login?next=%2Fdevice")
		return
	}
	s.showApproval(w, r, v, form.Get("user_code"), nil, "")
}

func (s *Server) showCodeForm(w http.ResponseWriter, r *http.Request, status int, v visitor, text string) {
	p := s.page(v, "Connect a machine", "code", "")
	p.Problem = text
	s.show(w, r, status, "code", p)
}

// showApproval shows what asks and what may be allowed. filled is what the
// owner had filled in already, if something was wrong with it.
func (s *Server) showApproval(w http.ResponseWriter, r *http.Request, v visitor, text string, filled url.Values, wrong string) {
	_, rec, err := s.findCode(r.Context(), v.event, text, v.from)
	if err != nil {
		status, text := problem(w, err)
		if status == 0 {
			s.unavailable(w, r, v, err)
			return
		}
		s.showCodeForm(w, r, status, v, text)
		return
	}
	was, err := s.already(r.Context(), v.event.Owner, rec)
	if err != nil {
		s.unavailable(w, r, v, err)
		return
	}
	code, _ := readCode(text)
	p := s.page(v, "Approve a machine?", "decide", code)
	p.Problem = wrong
	t := offer(rec.Wants)
	status := http.StatusOK
	if filled != nil {
		t.chosen(filled)
		status = http.StatusBadRequest
	}
	s.show(w, r, status, "approve", struct {
		page
		ticks
		Code, Display, Board, Suffix, Address, Age string
		Was                                        *paired
	}{p, t, showCode(code), rec.Display, rec.Board, rec.Suffix, rec.Address, age(now().Sub(rec.Asked)), was})
}

// age tells a duration as a person would.
func age(d time.Duration) string {
	switch {
	case d < 2*time.Second:
		return "a second"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d seconds", d/time.Second)
	}
	return fmt.Sprintf("%d minutes", d/time.Minute)
}

func (s *Server) decidePost(w http.ResponseWriter, r *http.Request) {
	v, form, ok := s.begin(w, r, "decide", func(f url.Values) string {
		code, _ := readCode(f.Get("user_code"))
		return code
	})
	if !ok {
		return
	}
	if v.session == nil {
		s.seeOther(w, r, "/login?next=%2Fdevice")
		return
	}
	text := form.Get("user_code")
	d := decision{approve: form.Get("decision") == "approve"}
	if !d.approve && form.Get("decision") != "deny" {
		s.showApproval(w, r, v, text, form, "Approve or deny?")
		return
	}
	if d.approve {
		var err error
		if d.name, d.ceiling, err = readTicks(form); err != nil {
			_, wrong := problem(w, err)
			s.showApproval(w, r, v, text, form, wrong)
			return
		}
	}
	id, rec, err := s.findCode(r.Context(), v.event, text, v.from)
	name := ""
	if err == nil {
		name, err = s.decide(r.Context(), v.event, id, rec, d)
	}
	if err != nil {
		status, wrong := problem(w, err)
		switch {
		case status == 0:
			s.unavailable(w, r, v, err)
		case errors.Is(err, errNameTaken):
			s.showApproval(w, r, v, text, form, wrong)
		default:
			s.showCodeForm(w, r, status, v, wrong)
		}
		return
	}
	if !d.approve {
		s.message(w, r, http.StatusOK, s.page(v, "Denied", "", ""), "The machine was told no, and nothing was allowed. You can close this page.")
		return
	}
	s.showApproved(w, r, v, name, rec.Wants, d.ceiling)
}

// showApproved says what the owner allowed, so that a slip shows.
func (s *Server) showApproved(w http.ResponseWriter, r *http.Request, v visitor, name string, wanted []wire.Capability, c wire.Ceiling) {
	if name == "" {
		name = "The machine"
	}
	data := struct {
		page
		Name    string
		Allowed []string
		NoShell bool
	}{page: s.page(v, "Approved", "", ""), Name: name}
	allowed := *c.Capabilities // the form always has the list
	for _, one := range allowed {
		data.Allowed = append(data.Allowed, label(one))
	}
	data.NoShell = slices.Contains(wanted, wire.Shell) && !slices.Contains(allowed, wire.Shell)
	s.show(w, r, http.StatusOK, "approved", data)
}

type hidden struct{ Name, Value string }

// authParams are the parameters of an authorisation request that the consent
// form carries along.
var authParams = []string{"response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method", "resource"}

func authSubject(f url.Values) string {
	q := url.Values{}
	for _, k := range authParams {
		q[k] = f[k]
	}
	return q.Encode()
}

func (s *Server) authorizePage(w http.ResponseWriter, r *http.Request) {
	v, q, ok := s.begin(w, r, "", nil)
	if !ok {
		return
	}
	a, done := s.authRequest(w, r, v, q)
	if done {
		return
	}
	if v.session == nil {
		s.toLogin(w, r)
		return
	}
	s.showConsent(w, r, v, a, q, nil, "")
}

// authRequest reads the request, and answers it if it can't be asked about.
func (s *Server) authRequest(w http.ResponseWriter, r *http.Request, v visitor, q url.Values) (authRequest, bool) {
	q = pick(q, authParams)
	a, err := s.readAuthRequest(q)
	if err == nil {
		return a, false
	}
	if fail, ok := err.(*oauthError); ok {
		s.seeOther(w, r, s.refuse(a, fail))
		return a, true
	}
	s.message(w, r, http.StatusBadRequest, s.page(v, "Unknown program", "", ""),
		"The program that asks, or the address that the answer should go to, isn't known here. Nothing was allowed.")
	return a, true
}

func pick(q url.Values, keys []string) url.Values {
	out := url.Values{}
	for _, k := range keys {
		if v, ok := q[k]; ok {
			out[k] = v
		}
	}
	return out
}

func (s *Server) showConsent(w http.ResponseWriter, r *http.Request, v visitor, a authRequest, q, filled url.Values, wrong string) {
	if a.Agent != nil {
		s.showAgentConsent(w, r, v, a, q, filled, wrong)
		return
	}
	p := s.page(v, "Connect a machine?", "authorize", authSubject(q))
	p.Problem = wrong
	t := offer(nil)
	status := http.StatusOK
	if filled != nil {
		t.chosen(filled)
		status = http.StatusBadRequest
	}
	s.show(w, r, status, "authorize", struct {
		page
		ticks
		Client, Redirect string
		Hidden           []hidden
	}{p, t, a.ClientID, a.Redirect, carried(q)}, redirectOrigin(a.Redirect))
}

// carried are the parameters of a request as the consent form carries them.
func carried(q url.Values) []hidden {
	var carry []hidden
	for _, k := range authParams {
		if q.Has(k) {
			carry = append(carry, hidden{k, q.Get(k)})
		}
	}
	return carry
}

func (s *Server) authorizePost(w http.ResponseWriter, r *http.Request) {
	v, form, ok := s.begin(w, r, "authorize", authSubject)
	if !ok {
		return
	}
	a, done := s.authRequest(w, r, v, form)
	if done {
		return
	}
	if v.session == nil {
		s.seeOther(w, r, "/login?next="+url.QueryEscape("/auth/authorize?"+pick(form, authParams).Encode()))
		return
	}
	switch form.Get("decision") {
	case "approve":
	case "deny":
		s.seeOther(w, r, s.refuse(a, errDenied))
		return
	default:
		s.showConsent(w, r, v, a, form, form, "Allow or deny?")
		return
	}
	name, ceiling, err := readTicks(form)
	var to *forAgent
	if err == nil && a.Agent != nil {
		to, err = s.readAgentConsent(r.Context(), v, a, form)
	}
	if err != nil {
		status, wrong := problem(w, err)
		if status == 0 {
			s.unavailable(w, r, v, err)
			return
		}
		s.showConsent(w, r, v, a, form, form, wrong)
		return
	}
	code, err := s.grantCodeTo(r.Context(), v.event, a, approved{Name: name, Ceiling: ceiling, At: now()}, to)
	if err != nil {
		s.unavailable(w, r, v, err)
		return
	}
	s.seeOther(w, r, s.redirect(a, url.Values{"code": {code}}))
}
