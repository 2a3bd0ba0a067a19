package portal

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"farhand/provision/preseed"
)

// guard lets nothing in that isn't from the rescue network, and sends whoever
// looks for another host to the page.
func (p *Portal) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.answering.RLock()
		defer p.answering.RUnlock()
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; style-src '"+styleHash()+"'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if from, ok := visitor(r); !ok || !p.cfg.Visitors.Contains(from) {
			http.Error(w, "This page is for the machine's own Wi-Fi network.", http.StatusForbidden)
			return
		}
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		switch {
		case r.Host != p.host && reads:
			// A phone that wants to know whether there is an internet asks for
			// captive.apple.com/hotspot-detect.html,
			// connectivitycheck.gstatic.com/generate_204,
			// www.msftconnecttest.com/connecttest.txt or the like. Whatever is
			// not the answer that it expects makes it show the page.
			http.Redirect(w, r, "http://"+p.host+"/", http.StatusFound)
		case r.Host != p.host:
			http.Error(w, "Open http://"+p.host+"/", http.StatusMisdirectedRequest)
		case !reads && !p.ownOrigin(r):
			http.Error(w, "This form belongs to another page.", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ownOrigin says whether a form was sent by our page, as far as the browser
// tells.
func (p *Portal) ownOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" {
		return false
	}
	origin := r.Header.Get("Origin")
	return origin == "" || origin == "http://"+p.host
}

func visitor(r *http.Request) (netip.Addr, bool) {
	a, err := netip.ParseAddrPort(r.RemoteAddr)
	return a.Addr().Unmap(), err == nil
}

func (p *Portal) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", p.show)
	mux.HandleFunc("POST /{$}", p.enter)
	mux.HandleFunc("GET /favicon.ico", http.NotFound)
	mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "/", http.StatusFound)
	})
	return mux
}

func (p *Portal) show(w http.ResponseWriter, r *http.Request) {
	p.cfg.Active()
	p.form(w, r, http.StatusOK, p.cfg.Country, "")
}

// form sends the page with a fresh token. problem is what was wrong with the
// last one.
func (p *Portal) form(w http.ResponseWriter, r *http.Request, status int, country, problem string) {
	from, _ := visitor(r)
	p.mu.Lock()
	page := formPage{
		Name: p.cfg.Name, Country: country, Problem: problem,
		Note: p.visit.Note, Networks: p.visit.Networks,
		Token: p.tokens.make(from, time.Now()),
	}
	p.mu.Unlock()
	send(w, status, page.html())
}

func send(w http.ResponseWriter, status int, html string) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(html)) // to a visitor who may have left
}

func (p *Portal) enter(w http.ResponseWriter, r *http.Request) {
	p.cfg.Active()
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		p.form(w, r, http.StatusBadRequest, p.cfg.Country, "The form was not understood. Please try again.")
		return
	}
	from, _ := visitor(r)
	p.mu.Lock()
	mine := p.tokens.take(r.PostForm.Get("token"), from, time.Now())
	p.mu.Unlock()
	country := r.PostForm.Get("country")
	if !mine {
		p.form(w, r, http.StatusForbidden, country, "This page was open for too long, or was sent twice. Please try again.")
		return
	}
	network, code, err := parse(r.PostForm)
	if err == nil {
		err = p.openOnly(network)
	}
	if err != nil {
		p.form(w, r, http.StatusBadRequest, country, err.Error())
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), applyLimit)
	defer cancel()
	if err := p.cfg.Apply(ctx, network, code); err != nil {
		p.log.Warn("a network that was entered can't be used", "error", err)
		p.form(w, r, http.StatusInternalServerError, country, "It could not be stored: "+err.Error())
		return
	}
	p.log.Info("a network was entered on the rescue network's page", "country", code)
	send(w, http.StatusOK, donePage{Name: p.cfg.Name, SSID: network.SSID}.html())
	p.cfg.Entered()
}

// openOnly refuses to join a network without its password.
func (p *Portal) openOnly(w preseed.Wifi) error {
	if w.Passphrase != "" || w.PSK != "" {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range p.visit.Networks {
		if string(n.SSID) == string(w.SSID) && !n.Open {
			return errors.New("this network has a password; enter it")
		}
	}
	return nil
}

// parse reads a form. Its error is for the visitor.
func parse(form url.Values) (preseed.Wifi, string, error) {
	name := []byte(form.Get("other"))
	if chosen := form.Get("network"); chosen != "" && len(name) == 0 {
		var err error
		if name, err = hex.DecodeString(chosen); err != nil {
			return preseed.Wifi{}, "", errors.New("choose a network of the list")
		}
	}
	if len(name) == 0 {
		return preseed.Wifi{}, "", errors.New("choose a network of the list, or enter the name of another one")
	}
	country, err := preseed.NewCountry(form.Get("country"))
	if err != nil {
		return preseed.Wifi{}, "", err
	}
	network, err := preseed.NewWifi(name, form.Get("password"), form.Get("hidden") != "")
	return network, country, err
}
