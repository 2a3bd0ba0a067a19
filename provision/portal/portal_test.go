package portal

import (
	"context"
	"errors"
	"html"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/faketime"
	"farhand/internal/leak"
	"farhand/provision/preseed"
	"farhand/provision/rescue"

	"golang.org/x/net/dns/dnsmessage"
)

// desk is a portal on the loopback, and what came through it.
type desk struct {
	*Portal
	mu       sync.Mutex
	applied  []preseed.Wifi
	country  []string
	entered  int
	active   int
	applyErr error
	hold     chan struct{} // Apply waits for it, or for its context's end
}

func open(t *testing.T, v rescue.Visit) *desk {
	t.Helper()
	leak.Check(t)
	d := &desk{}
	d.Portal = New(Config{
		Apply: func(ctx context.Context, w preseed.Wifi, country string) error {
			if d.hold != nil {
				select {
				case <-d.hold:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			if d.applyErr == nil {
				d.applied, d.country = append(d.applied, w), append(d.country, country)
			}
			return d.applyErr
		},
		Entered: func() { d.mu.Lock(); d.entered++; d.mu.Unlock() },
		Active:  func() { d.mu.Lock(); d.active++; d.mu.Unlock() },
		Name:    "farhand-1a2b3c4d", Country: "DE",
		Address:  netip.MustParseAddr("127.0.0.1"),
		Visitors: netip.MustParsePrefix("127.0.0.0/8"),
	})
	if err := d.Open(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// ask sends a request to the portal, whatever its URL says, and doesn't follow
// where it is sent.
func (d *desk) ask(t *testing.T, method, url string, form url.Values, header ...string) (*http.Response, string) {
	t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	if form != nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, d.host)
		},
		DisableKeepAlives: true,
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

func (d *desk) url() string { return "http://" + d.host + "/" }

var tokenForm = regexp.MustCompile(`name="token" value="([A-Z0-9]+)"`)

// form is a filled form, with the token of a fresh page.
func (d *desk) form(t *testing.T, kv ...string) url.Values {
	t.Helper()
	_, page := d.ask(t, "GET", d.url(), nil)
	m := tokenForm.FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no token on the page:\n%s", page)
	}
	v := url.Values{"token": {m[1]}, "country": {"de"}}
	for i := 0; i < len(kv); i += 2 {
		v.Set(kv[i], kv[i+1])
	}
	return v
}

func around() rescue.Visit {
	return rescue.Visit{Networks: []rescue.Network{
		{SSID: []byte("Workshop"), Signal: -40},
		{SSID: []byte(`<script>"&'`), Signal: -50},
		{SSID: []byte{0xff, 0x00, 0x01}, Signal: -60},
		{SSID: []byte("Caf\u00e9"), Signal: -70, Open: true},
		{SSID: []byte("Workshop"), Signal: -80},
		{SSID: []byte(" \u202e "), Signal: -80},
		{SSID: nil, Signal: -80},
	}}
}

func TestPage(t *testing.T) {
	d := open(t, around())
	resp, page := d.ask(t, "GET", d.url(), nil)
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	for _, want := range []string{
		">Workshop</option>", html.EscapeString(`<script>"&'`) + "</option>", ">0xff0001</option>",
		">Caf\u00e9 (open)</option>", ">0x20e280ae20</option>", `value="DE"`, "<h1>Wi-Fi for farhand-1a2b3c4d</h1>",
	} {
		if strings.Count(page, want) != 1 {
			t.Errorf("%q stands %d times on the page", want, strings.Count(page, want))
		}
	}
	// Nothing from elsewhere, and nothing that runs.
	for _, never := range []string{"<script", "src=", "href=", "@import", "url("} {
		if strings.Contains(page, never) {
			t.Errorf("%q stands on the page", never)
		}
	}
	csp := resp.Header.Get("Content-Security-Policy")
	if !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, styleHash()) {
		t.Errorf("Content-Security-Policy: %s", csp)
	}
	if resp.Header.Get("Cache-Control") != "no-store" {
		t.Error("a browser may keep the page")
	}
	if d.active != 1 {
		t.Errorf("%d visits", d.active)
	}
}

func TestEnter(t *testing.T) {
	key := strings.Repeat("0123456789abcdef", 4)
	for name, c := range map[string]struct {
		form []string
		want preseed.Wifi
	}{
		"of the list":    {[]string{"network", "576f726b73686f70", "password", "correct horse"}, preseed.Wifi{SSID: []byte("Workshop"), Passphrase: "correct horse"}},
		"hidden":         {[]string{"other", "Attic", "hidden", "1", "password", "correct horse"}, preseed.Wifi{SSID: []byte("Attic"), Hidden: true, Passphrase: "correct horse"}},
		"other wins":     {[]string{"network", "576f726b73686f70", "other", "Attic", "password", "12345678"}, preseed.Wifi{SSID: []byte("Attic"), Passphrase: "12345678"}},
		"open":           {[]string{"network", "436166c3a9"}, preseed.Wifi{SSID: []byte("Caf\u00e9")}},
		"bytes, raw key": {[]string{"network", "ff0001", "password", key}, preseed.Wifi{SSID: []byte{0xff, 0, 1}, PSK: key}},
		// Field case 83: what was pasted came with a line end.
		"line end": {[]string{"network", "576f726b73686f70", "password", "correct horse\r\n"}, preseed.Wifi{SSID: []byte("Workshop"), Passphrase: "correct horse"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := open(t, around())
			resp, page := d.ask(t, "POST", d.url(), d.form(t, c.form...), "Origin", "http://"+d.host)
			if resp.StatusCode != http.StatusOK || !strings.Contains(page, "That takes up to a minute") {
				t.Fatalf("%s\n%s", resp.Status, page)
			}
			if len(d.applied) != 1 || d.country[0] != "DE" || d.entered != 1 {
				t.Fatalf("applied %d, entered %d", len(d.applied), d.entered)
			}
			got := d.applied[0]
			if string(got.SSID) != string(c.want.SSID) || got.Hidden != c.want.Hidden || got.Passphrase != c.want.Passphrase || got.PSK != c.want.PSK {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	d := open(t, around())
	for name, c := range map[string]struct {
		form []string
		want string
	}{
		"no name":         {[]string{"password", "12345678"}, "choose a network"},
		"no hex":          {[]string{"network", "zz", "password", "12345678"}, "choose a network"},
		"long name":       {[]string{"other", strings.Repeat("x", 33), "password", "12345678"}, "1 to 32 bytes"},
		"short password":  {[]string{"other", "x", "password", "1234567"}, "8 to 63 characters"},
		"no country":      {[]string{"other", "x", "password", "12345678", "country", ""}, "two letters"},
		"country":         {[]string{"other", "x", "password", "12345678", "country", "D1"}, "two letters"},
		"no such country": {[]string{"other", "x", "password", "12345678", "country", "EN"}, "no country has the code EN"},
		"has a password":  {[]string{"network", "576f726b73686f70"}, "this network has a password"},
	} {
		resp, page := d.ask(t, "POST", d.url(), d.form(t, c.form...))
		if resp.StatusCode != http.StatusBadRequest || !strings.Contains(page, html.EscapeString(c.want)) {
			t.Errorf("%s: %s\n%s", name, resp.Status, page)
		}
		if !tokenForm.MatchString(page) {
			t.Errorf("%s: one can't try again", name)
		}
	}
	d.applyErr = errors.New("the data partition can't be written")
	resp, page := d.ask(t, "POST", d.url(), d.form(t, "other", "x", "password", "12345678"))
	if resp.StatusCode != http.StatusInternalServerError || !strings.Contains(page, "be written") {
		t.Errorf("%s\n%s", resp.Status, page)
	}
	if len(d.applied) != 0 || d.entered != 0 {
		t.Errorf("applied %d, entered %d", len(d.applied), d.entered)
	}
}

func TestNoteOfTheLastAttempt(t *testing.T) {
	d := open(t, rescue.Visit{Note: "could not be joined <b>"})
	if _, page := d.ask(t, "GET", d.url(), nil); !strings.Contains(page, "could not be joined &lt;b&gt;") {
		t.Error(page)
	}
}

func TestOtherPagesCantUseTheForm(t *testing.T) {
	d := open(t, around())
	fill := []string{"network", "576f726b73686f70", "password", "correct horse"}
	refused := func(name string, status int, resp *http.Response) {
		t.Helper()
		if resp.StatusCode != status {
			t.Errorf("%s: %s", name, resp.Status)
		}
		if len(d.applied) != 0 {
			t.Fatalf("%s: applied", name)
		}
	}
	form := d.form(t, fill...)
	resp, _ := d.ask(t, "POST", d.url(), form, "Origin", "http://evil.example")
	refused("origin", http.StatusForbidden, resp)
	resp, _ = d.ask(t, "POST", d.url(), form, "Sec-Fetch-Site", "cross-site")
	refused("site", http.StatusForbidden, resp)
	resp, _ = d.ask(t, "POST", "http://rebound.example/", form)
	refused("host", http.StatusMisdirectedRequest, resp)
	resp, _ = d.ask(t, "PUT", d.url(), form)
	refused("method", http.StatusMethodNotAllowed, resp)
	form.Set("token", "AAAA")
	resp, _ = d.ask(t, "POST", d.url(), form)
	refused("token", http.StatusForbidden, resp)
	form.Del("token")
	resp, _ = d.ask(t, "POST", d.url(), form)
	refused("no token", http.StatusForbidden, resp)
	form.Set("password", strings.Repeat("x", maxForm))
	resp, _ = d.ask(t, "POST", d.url(), form)
	refused("too much", http.StatusBadRequest, resp)

	// A form is good once.
	form = d.form(t, fill...)
	if resp, _ := d.ask(t, "POST", d.url(), form); resp.StatusCode != http.StatusOK {
		t.Error(resp.Status)
	}
	if resp, _ := d.ask(t, "POST", d.url(), form); resp.StatusCode != http.StatusForbidden {
		t.Errorf("the same form again: %s", resp.Status)
	}
	if len(d.applied) != 1 {
		t.Errorf("applied %d times", len(d.applied))
	}
}

func TestTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k tokens
		me, other := netip.MustParseAddr("10.42.0.7"), netip.MustParseAddr("10.42.0.8")
		text := k.make(me, time.Now())
		if k.take(text, other, time.Now()) {
			t.Error("another visitor has used it")
		}
		if !k.take(text, me, time.Now()) || k.take(text, me, time.Now()) {
			t.Error("not good exactly once")
		}
		text = k.make(me, time.Now())
		faketime.Advance(tokenLife)
		if k.take(text, me, time.Now()) {
			t.Error("good for ever")
		}
		first := k.make(me, time.Now())
		for range 10 * maxTokens {
			k.make(other, time.Now())
		}
		if len(k.list) != maxTokens || k.take(first, me, time.Now()) {
			t.Errorf("%d forms are kept", len(k.list))
		}
	})
}

// What phones ask for to find out whether there is an internet: none may get
// the answer that it expects.
func TestPhonesAreSentToThePage(t *testing.T) {
	d := open(t, around())
	for _, probe := range []string{
		"http://captive.apple.com/hotspot-detect.html",
		"http://connectivitycheck.gstatic.com/generate_204",
		"http://clients3.google.com/generate_204",
		"http://www.msftconnecttest.com/connecttest.txt",
		"http://www.msftncsi.com/ncsi.txt",
		"http://detectportal.firefox.com/canonical.html",
		"http://nmcheck.gnome.org/check_network_status.txt",
	} {
		resp, _ := d.ask(t, "GET", probe, nil)
		if resp.StatusCode != http.StatusFound || resp.Header.Get("Location") != d.url() {
			t.Errorf("%s: %s, to %s", probe, resp.Status, resp.Header.Get("Location"))
		}
	}
	if resp, _ := d.ask(t, "GET", d.url()+"generate_204", nil); resp.StatusCode != http.StatusFound {
		t.Errorf("asked by address: %s", resp.Status)
	}
	if d.active != 0 {
		t.Error("a phone that only asks counts as a visitor: the rescue network would stay up for it")
	}
}

func TestOnlyFromTheRescueNetwork(t *testing.T) {
	d := open(t, around())
	d.cfg.Visitors = rescue.Prefix()
	resp, page := d.ask(t, "GET", d.url(), nil)
	if resp.StatusCode != http.StatusForbidden || tokenForm.MatchString(page) {
		t.Errorf("%s\n%s", resp.Status, page)
	}
}

func TestNames(t *testing.T) {
	d := open(t, around())
	c, err := net.Dial("udp4", d.names.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "udp4", d.names.LocalAddr().String())
	}}
	for _, name := range []string{"captive.apple.com.", "x.", "a.b.c.d.example."} {
		addrs, err := resolver.LookupNetIP(t.Context(), "ip4", name)
		if err != nil || !slices.Equal(addrs, []netip.Addr{netip.MustParseAddr("127.0.0.1")}) {
			t.Errorf("%s: %v, %v", name, addrs, err)
		}
	}
	if addrs, err := resolver.LookupNetIP(t.Context(), "ip6", "x.example."); err == nil {
		t.Errorf("IPv6: %v", addrs)
	}
}

func TestWhatIsNoQueryIsNotAnswered(t *testing.T) {
	name := dnsmessage.MustNewName("x.example.")
	question := dnsmessage.Question{Name: name, Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET}
	for what, m := range map[string]dnsmessage.Message{
		"a response":    {Header: dnsmessage.Header{Response: true}, Questions: []dnsmessage.Question{question}},
		"an update":     {Header: dnsmessage.Header{OpCode: 5}, Questions: []dnsmessage.Question{question}},
		"no question":   {},
		"two questions": {Questions: []dnsmessage.Question{question, question}},
	} {
		b, err := m.Pack()
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := answer(b, rescue.Address()); ok {
			t.Errorf("%s is answered", what)
		}
	}
}

// An answer is never much longer than its query, so that nobody is flooded by
// way of it.
func FuzzNames(f *testing.F) {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{
		{Name: dnsmessage.MustNewName("captive.apple.com."), Type: dnsmessage.TypeA, Class: dnsmessage.ClassINET},
	}}
	b, err := m.Pack()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0, 1, 2})
	f.Fuzz(func(t *testing.T, query []byte) {
		reply, ok := answer(query, rescue.Address())
		if !ok {
			return
		}
		var got dnsmessage.Message
		if err := got.Unpack(reply); err != nil || !got.Response || len(got.Questions) != 1 {
			t.Fatalf("%v: %v", err, got)
		}
		// A compressed name may be expanded, which a real query's never is.
		if len(reply) > len(query)+300 {
			t.Errorf("%d bytes answer %d", len(reply), len(query))
		}
	})
}

func FuzzForm(f *testing.F) {
	f.Add("network=576f&password=12345678&country=de")
	f.Add("other=%00%ff&hidden=1&country=DE")
	f.Fuzz(func(t *testing.T, body string) {
		form, err := url.ParseQuery(body)
		if err != nil {
			return
		}
		w, country, err := parse(form)
		if err != nil {
			return
		}
		if len(w.SSID) < 1 || len(w.SSID) > 32 || len(country) != 2 || w.Passphrase != "" && w.PSK != "" {
			t.Fatalf("%+v in %q", w, country)
		}
		if p := w.Passphrase; p != "" && (len(p) < 8 || len(p) > 63 || strings.ContainsAny(p, "\r\n")) {
			t.Fatalf("passphrase %q", p)
		}
	})
}

func FuzzPage(f *testing.F) {
	f.Add([]byte("Workshop"), "name", "note")
	f.Fuzz(func(t *testing.T, ssid []byte, name, note string) {
		page := formPage{Name: name, Note: note, Country: note, Token: "T", Networks: []rescue.Network{{SSID: ssid}}}.html() +
			donePage{Name: name, SSID: ssid}.html()
		empty := formPage{Note: "x", Networks: []rescue.Network{{SSID: []byte("x")}}}.html() + donePage{SSID: []byte("x")}.html()
		if len(ssid) > 0 && len(ssid) <= 32 && note != "" && strings.Count(page, "<") != strings.Count(empty, "<") {
			t.Errorf("a text has become a tag:\n%s", page)
		}
	})
}

// Field case 85: who holds the port is named.
func TestPortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := New(Config{Address: netip.MustParseAddr("127.0.0.1")})
	p.http = uint16(l.Addr().(*net.TCPAddr).Port)
	err = p.Open(t.Context(), rescue.Visit{})
	if err == nil || !strings.Contains(err.Error(), "holds port") {
		t.Errorf("%v", err)
	}
	comm, rerr := os.ReadFile("/proc/self/comm")
	if rerr == nil && !strings.Contains(err.Error(), strings.TrimSpace(string(comm))) {
		t.Errorf("%v; this is %s", err, comm)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestOpenAndCloseAgain(t *testing.T) {
	d := open(t, around())
	if err := d.Open(t.Context(), rescue.Visit{}); err == nil {
		t.Error("opened twice")
	}
	for range 3 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if err := d.Open(t.Context(), around()); err != nil {
			t.Fatal(err)
		}
		if resp, _ := d.ask(t, "GET", d.url(), nil); resp.StatusCode != http.StatusOK {
			t.Error(resp.Status)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// A form that is being stored when the rescue network ends has ended when Close
// returns.
func TestCloseWaitsForTheForm(t *testing.T) {
	d := open(t, around())
	d.hold = make(chan struct{})
	form := d.form(t, "other", "x", "password", "12345678")
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		resp, err := http.PostForm(d.url(), form)
		if err == nil {
			resp.Body.Close()
		}
		http.DefaultClient.CloseIdleConnections()
	}()
	for { // until Apply has begun
		d.mu.Lock()
		n := d.active
		d.mu.Unlock()
		if n == 2 {
			break
		}
		select {
		case <-sent:
			t.Fatal("answered too early")
		default:
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	<-sent
	if d.entered != 0 {
		t.Error("entered after all")
	}
}

// More visitors than there is room for wait; none of them is lost.
func TestManyVisitors(t *testing.T) {
	d := open(t, around())
	var held []net.Conn
	for range maxConns {
		c, err := net.Dial("tcp4", d.host)
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, c)
	}
	answered := make(chan error, 1)
	go func() {
		c, err := net.Dial("tcp4", d.host)
		if err == nil {
			_, _ = c.Write([]byte("GET / HTTP/1.0\r\nHost: " + d.host + "\r\n\r\n"))
			_, err = io.Copy(io.Discard, c)
			c.Close()
		}
		answered <- err
	}()
	for _, c := range held {
		c.Close()
	}
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
