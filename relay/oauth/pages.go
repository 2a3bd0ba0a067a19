package oauth

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	_ "embed"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"farhand/relay/access"
	"farhand/wire"
)

//go:embed html/pages.html
var pagesHTML string

//go:embed html/style.css
var styleCSS string

// pages are the templates, and the policy that goes with their one style.
type pages struct {
	templates *template.Template
	style     template.CSS
	styleHash string
}

func newPages() *pages {
	style := strings.TrimSpace(styleCSS)
	sum := sha256.Sum256([]byte(style))
	return &pages{
		templates: template.Must(template.New("").Parse(pagesHTML)),
		style:     template.CSS(style), //nolint:gosec // our own file
		styleHash: "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'",
	}
}

// page is what every template gets.
type page struct {
	Title      string
	Host       string // where the browser should think it is
	Style      template.CSS
	Problem    string
	Account    string // who is signed in
	LogoutForm string
	Form       string // proof that the form is ours, for this browser and this purpose
}

// tick is one box of an approval.
type tick struct {
	Value   wire.Capability
	Label   string
	Warning string
	Ticked  bool
}

// ticks is the part of an approval that the owner fills in.
type ticks struct {
	Ticks                []tick
	Devices, Roots, Name string
}

var labels = map[wire.Capability]string{
	wire.Files:           "Files in its directories",
	wire.Shell:           "Shell: run any command on it",
	wire.LocalLLM:        "Its local language model",
	wire.LLMManage:       "Download and remove language models",
	wire.ComputerUse:     "Its screen, keyboard and mouse",
	wire.Recording:       "Recording its screen",
	wire.HardwareSerial:  "Serial ports",
	wire.HardwareUSB:     "USB devices",
	wire.HardwareGPIO:    "GPIO pins",
	wire.HardwareI2C:     "I2C buses",
	wire.HardwareSPI:     "SPI buses",
	wire.HardwarePrinter: "Printers",
	wire.Observe:         "Its logs, and how it is doing",
	wire.Forward:         "TCP connections from it, to what its configuration names",
}

const observeWarning = "The logs are those of the whole machine, with whatever its programs write into them."

const shellWarning = "A command isn't confined to the directories. Unless the machine runs commands as a user of their own, this means everything that Farhand may do there, its keys included."

// offer makes the boxes. What reaches beyond the machine's files and devices
// is never ticked beforehand.
func offer(caps []wire.Capability) ticks {
	if len(caps) == 0 {
		caps = known
	}
	var t ticks
	var risky []tick
	for _, c := range caps {
		one := tick{Value: c, Label: label(c), Ticked: !c.Sensitive()}
		switch c {
		case wire.Shell:
			one.Warning = shellWarning
		case wire.Observe:
			one.Warning = observeWarning
		}
		if one.Ticked {
			t.Ticks = append(t.Ticks, one)
		} else {
			risky = append(risky, one)
		}
	}
	t.Ticks = append(t.Ticks, risky...)
	return t
}

func label(c wire.Capability) string {
	if text := labels[c]; text != "" {
		return text
	}
	return string(c)
}

// chosen keeps what the owner filled in when a form is shown again.
func (t *ticks) chosen(form url.Values) {
	for i := range t.Ticks {
		t.Ticks[i].Ticked = slices.Contains(form["cap"], string(t.Ticks[i].Value))
	}
	t.Devices, t.Roots, t.Name = form.Get("devices"), form.Get("roots"), form.Get("name")
}

// readTicks is the ceiling and the name that the owner chose.
func readTicks(form url.Values) (name string, c wire.Ceiling, err error) {
	caps := []wire.Capability{}
	for _, v := range form["cap"] {
		caps = append(caps, wire.Capability(v))
	}
	c.Capabilities = &caps
	if lines := nonEmptyLines(form.Get("devices")); len(lines) > 0 {
		devices := []wire.DeviceGrant{}
		for _, l := range lines {
			devices = append(devices, wire.DeviceGrant{Pattern: l})
		}
		c.Devices = &devices
	}
	if lines := nonEmptyLines(form.Get("roots")); len(lines) > 0 {
		c.Roots = &lines
	}
	if name = strings.TrimSpace(form.Get("name")); name != "" && !validName(name) {
		return "", c, badArgument("a name has letters, digits and \"._-\", and begins with a letter or digit")
	}
	c, err = checkCeiling(c)
	return name, c, err
}

func nonEmptyLines(text string) []string {
	var lines []string
	for l := range strings.Lines(text) {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	return lines
}

func (s *Server) registerPages(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", s.loginPage)
	mux.HandleFunc("POST /login", s.loginPost)
	mux.HandleFunc("POST /logout", s.logoutPost)
	mux.HandleFunc("GET /setup", s.setupPage)
	mux.HandleFunc("POST /setup", s.setupPost)
	mux.HandleFunc("GET /device", s.devicePage)
	mux.HandleFunc("POST /device", s.devicePost)
	mux.HandleFunc("POST /device/decide", s.decidePost)
	mux.HandleFunc("GET /auth/authorize", s.authorizePage)
	mux.HandleFunc("POST /auth/authorize", s.authorizePost)
}

// show writes a page. formTo is one more origin that its form may lead to.
func (s *Server) show(w http.ResponseWriter, r *http.Request, status int, name string, data any, formTo ...string) {
	var b bytes.Buffer
	if err := s.pages.templates.ExecuteTemplate(&b, name, data); err != nil {
		s.failed(r, err)
		http.Error(w, "the page can't be shown", http.StatusInternalServerError)
		return
	}
	h := w.Header()
	pageHeaders(h)
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src "+s.pages.styleHash+"; form-action "+
		strings.Join(append([]string{"'self'"}, formTo...), " ")+"; base-uri 'none'; frame-ancestors 'none'")
	w.WriteHeader(status)
	// A write that fails means that the browser has gone.
	_, _ = b.WriteTo(w)
}

func pageHeaders(h http.Header) {
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	// Not no-referrer: with that, browsers send "Origin: null" with a form.
	h.Set("Referrer-Policy", "same-origin")
}

// message is a page of text alone.
func (s *Server) message(w http.ResponseWriter, r *http.Request, status int, p page, lines ...string) {
	s.show(w, r, status, "message", struct {
		page
		Lines []string
	}{p, lines})
}

func (s *Server) seeOther(w http.ResponseWriter, r *http.Request, to string) {
	pageHeaders(w.Header())
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// visitor is who looks at a page.
type visitor struct {
	session *operator // nil: not signed in
	secret  string    // of the cookie that forms are bound to
	event   Event
	from    string
}

func (s *Server) cookieName(kind string) string {
	name := "farhand-" + kind
	if s.secure {
		return "__Host-" + name
	}
	return name
}

func (s *Server) setCookie(w http.ResponseWriter, kind, value string, life time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: s.cookieName(kind), Value: value, Path: "/", MaxAge: int(life / time.Second),
		Secure: s.secure, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
}

func (s *Server) dropCookie(w http.ResponseWriter, kind string) {
	s.setCookie(w, kind, "", -time.Second)
}

// visitor reads the cookies. Somebody who isn't signed in gets one that his
// forms are bound to.
func (s *Server) visitor(w http.ResponseWriter, r *http.Request) (visitor, error) {
	v := visitor{from: clientAddress(r), event: Event{Address: shownAddress(r)}}
	if c, err := r.Cookie(s.cookieName("login")); err == nil {
		op, err := s.findOperator(r.Context(), kindPage, c.Value)
		switch {
		case err == nil:
			v.session, v.secret = &op, c.Value
			v.event.Owner, v.event.Holder = op.Owner, holder(kindPage, op.ID)
			return v, nil
		case !errors.Is(err, access.ErrUnauthorized):
			return v, err
		}
	}
	if c, err := r.Cookie(s.cookieName("form")); err == nil && len(c.Value) == 2*secretSize {
		v.secret = c.Value
		return v, nil
	}
	v.secret = hex.EncodeToString(randomBytes(secretSize))
	s.setCookie(w, "form", v.secret, pageLife)
	return v, nil
}

// form is the proof that a form was made by us for this browser, this purpose
// and this subject.
func (s *Server) form(v visitor, purpose, subject string) string {
	return hex.EncodeToString(keyed(s.key, "form", v.secret, purpose, subject))
}

func (s *Server) page(v visitor, title, purpose, subject string) page {
	_, host, _ := strings.Cut(s.public, "://")
	p := page{Title: title, Host: host, Style: s.pages.style, Form: s.form(v, purpose, subject)}
	if v.session != nil {
		p.Account, p.LogoutForm = v.session.Account, s.form(v, "logout", "")
	}
	return p
}

// refusedForm says why a form isn't looked at.
type refusedForm struct {
	status int
	why    string
}

// readForm takes a form that came from our own page in this browser: our
// origin, and (checked by the caller through ours) our proof.
func (s *Server) readForm(r *http.Request) (url.Values, *refusedForm) {
	origin := r.Header.Values("Origin")
	if len(origin) != 1 || subtle.ConstantTimeCompare([]byte(origin[0]), []byte(s.public)) != 1 {
		return nil, &refusedForm{http.StatusForbidden, fmt.Sprintf("This form didn't come from %s. Open that address and try again.", s.public)}
	}
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "application/x-www-form-urlencoded" {
		return nil, &refusedForm{http.StatusUnsupportedMediaType, "This isn't a form."}
	}
	r.Body = http.MaxBytesReader(nil, r.Body, maxBody)
	if err := r.ParseForm(); err != nil {
		return nil, &refusedForm{http.StatusBadRequest, "The form is malformed or too long."}
	}
	return r.PostForm, nil
}

func (s *Server) ours(v visitor, form url.Values, purpose, subject string) bool {
	return subtle.ConstantTimeCompare([]byte(form.Get("form")), []byte(s.form(v, purpose, subject))) == 1
}

// begin is the beginning of every page: who looks, and for a POST a form that
// is ours. It has answered if it returns false.
func (s *Server) begin(w http.ResponseWriter, r *http.Request, purpose string, subject func(url.Values) string) (visitor, url.Values, bool) {
	v, err := s.visitor(w, r)
	if err != nil {
		s.unavailable(w, r, v, err)
		return v, nil, false
	}
	if r.Method != http.MethodPost {
		return v, r.URL.Query(), true
	}
	form, refused := s.readForm(r)
	if refused == nil {
		about := ""
		if subject != nil {
			about = subject(form)
		}
		if !s.ours(v, form, purpose, about) {
			refused = &refusedForm{http.StatusForbidden, "The form has expired. Go back, load the page again and send it once more."}
		}
	}
	if refused != nil {
		s.message(w, r, refused.status, s.page(v, "Not accepted", "", ""), refused.why)
		return v, nil, false
	}
	return v, form, true
}

func (s *Server) unavailable(w http.ResponseWriter, r *http.Request, v visitor, err error) {
	s.failed(r, err)
	s.message(w, r, http.StatusServiceUnavailable, s.page(v, "Not now", "", ""), "The relay can't answer now. Try again in a minute.")
}

// problem turns an error into a status and a sentence for a page; 0 if the
// error is the relay's own.
func problem(w http.ResponseWriter, err error) (int, string) {
	e, ok := toAPI(err)
	if !ok {
		return 0, ""
	}
	setRetryAfter(w.Header(), e.retryAfter)
	text := e.fail.Message
	return e.status, strings.ToUpper(text[:1]) + text[1:] + "."
}

// safeNext is where a login may lead: the approval and the consent page.
func safeNext(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Opaque != "" || u.User != nil {
		return "/device"
	}
	switch u.Path {
	case "/device", "/auth/authorize":
		return (&url.URL{Path: u.Path, RawQuery: u.RawQuery}).String()
	}
	return "/device"
}

func (s *Server) toLogin(w http.ResponseWriter, r *http.Request) {
	s.seeOther(w, r, "/login?next="+url.QueryEscape(r.URL.RequestURI()))
}
