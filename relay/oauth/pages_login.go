package oauth

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
)

func (s *Server) showLogin(w http.ResponseWriter, r *http.Request, status int, v visitor, next, name, problem string) {
	p := s.page(v, "Sign in", "login", "")
	p.Problem = problem
	next = safeNext(next)
	s.show(w, r, status, "login", struct {
		page
		Next, Name string
		ToApprove  bool
	}{p, next, name, strings.HasPrefix(next, "/device?")})
}

func (s *Server) loginPage(w http.ResponseWriter, r *http.Request) {
	v, q, ok := s.begin(w, r, "", nil)
	if !ok {
		return
	}
	if v.session != nil {
		s.seeOther(w, r, safeNext(q.Get("next")))
		return
	}
	s.showLogin(w, r, http.StatusOK, v, q.Get("next"), "", "")
}

func (s *Server) loginPost(w http.ResponseWriter, r *http.Request) {
	v, form, ok := s.begin(w, r, "login", nil)
	if !ok {
		return
	}
	name := strings.TrimSpace(form.Get("name"))
	acc, err := s.logIn(r.Context(), r, name, form.Get("passphrase"))
	if err != nil {
		status, text := problem(w, err)
		if status == 0 {
			s.unavailable(w, r, v, err)
			return
		}
		if !validName(name) {
			name = "" // not to be repeated on the page: it may be a passphrase
		}
		s.showLogin(w, r, status, v, form.Get("next"), name, text)
		return
	}
	if err := s.signIn(r.Context(), w, acc); err != nil {
		s.unavailable(w, r, v, err)
		return
	}
	s.seeOther(w, r, safeNext(form.Get("next")))
}

// signIn gives the browser a login of its own: it can do what the pages do,
// not what the API does.
func (s *Server) signIn(ctx context.Context, w http.ResponseWriter, acc account) error {
	text, _, err := s.newOperator(ctx, kindPage, operator{Owner: acc.Owner, Account: acc.Name, Expires: now().Add(pageLife)})
	if err != nil {
		return err
	}
	s.dropCookie(w, "form")
	s.setCookie(w, "login", text, pageLife)
	return nil
}

func (s *Server) logoutPost(w http.ResponseWriter, r *http.Request) {
	v, _, ok := s.begin(w, r, "logout", nil)
	if !ok {
		return
	}
	if v.session != nil {
		if err := s.dropOperator(r.Context(), kindPage, v.session.Owner, v.session.ID); err != nil {
			s.unavailable(w, r, v, err)
			return
		}
		v.event.Op = OpLogout
		s.record(v.event)
	}
	s.dropCookie(w, "login")
	s.seeOther(w, r, "/login")
}

const setupHelp = "A new one is printed when the relay starts, as long as it has no owner, and by “farhand-relay owner add NAME” on its host."

func (s *Server) setupPage(w http.ResponseWriter, r *http.Request) {
	v, q, ok := s.begin(w, r, "", nil)
	if !ok {
		return
	}
	s.showSetup(w, r, http.StatusOK, v, q.Get("token"), "", "")
}

func (s *Server) showSetup(w http.ResponseWriter, r *http.Request, status int, v visitor, token, name, text string) {
	_, rec, err := s.findSetup(r.Context(), token)
	if err != nil {
		status, text := problem(w, err)
		if status == 0 {
			s.unavailable(w, r, v, err)
			return
		}
		s.message(w, r, status, s.page(v, "Set up", "", ""), text, setupHelp)
		return
	}
	p := s.page(v, "Set up", "setup", token)
	p.Problem = text
	fixed := rec.value.Name != ""
	if fixed {
		name = rec.value.Name
	}
	s.show(w, r, status, "setup", struct {
		page
		Token, Name  string
		Fixed, Reset bool
	}{p, token, name, fixed, rec.value.Reset})
}

var errDifferent = badArgument("the two passphrases differ")

func (s *Server) setupPost(w http.ResponseWriter, r *http.Request) {
	v, form, ok := s.begin(w, r, "setup", func(f url.Values) string { return f.Get("token") })
	if !ok {
		return
	}
	token, name := form.Get("token"), strings.TrimSpace(form.Get("name"))
	var acc account
	err := error(errDifferent)
	if form.Get("passphrase") == form.Get("again") {
		acc, err = s.setUp(r.Context(), token, name, form.Get("passphrase"), v.event.Address)
	}
	if err == nil {
		err = s.signIn(r.Context(), w, acc)
	}
	if err != nil {
		status, text := problem(w, err)
		switch {
		case status == 0:
			s.unavailable(w, r, v, err)
		case errors.Is(err, errSetupToken):
			s.message(w, r, status, s.page(v, "Set up", "", ""), text, setupHelp)
		default:
			if !validName(name) {
				name = ""
			}
			s.showSetup(w, r, status, v, token, name, text)
		}
		return
	}
	s.seeOther(w, r, "/device")
}
