package rest

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"farhand/wire"
)

func base(t testing.TB, s string) *Client {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	c := New(Options{Base: u})
	t.Cleanup(c.Close)
	return c
}

func TestJoinKeepsPrefix(t *testing.T) {
	for _, c := range []struct {
		base     string
		segments []string
		want     string
	}{
		{"http://x", []string{"api", "version"}, "http://x/api/version"},
		{"https://x:8443/a%20b/octo/", []string{"api", "files", "local", "a/b", "50% #1?.gcode"}, "https://x:8443/a%20b/octo/api/files/local/a%2Fb/50%25%20%231%3F.gcode"},
	} {
		if got := base(t, c.base).join(c.segments...).String(); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

func TestBelow(t *testing.T) {
	c := base(t, "http://host:80/octo")
	resp := &http.Response{Request: &http.Request{URL: c.join("plugin", "appkeys", "request")}}
	for ref, want := range map[string]string{
		"http://host/octo/plugin/appkeys/request/abc": "plugin|appkeys|request|abc",
		"/octo/api/files/local/a%20b.gcode":           "api|files|local|a b.gcode",
		"http://HOST/octo/x":                          "x",
		"http://host/plugin/appkeys/request/abc":      "", // the prefix is missing
		"https://host/octo/x":                         "",
		"http://elsewhere/octo/x":                     "",
		"//elsewhere/octo/x":                          "",
		"/octo/../etc":                                "",
		"/octo/x?apikey=1":                            "",
		"http://user@host:99/octo/x":                  "",
		"":                                            "",
		"%zz":                                         "",
	} {
		if got := strings.Join(c.below(resp, ref), "|"); got != want {
			t.Errorf("%q: %q, want %q", ref, got, want)
		}
	}
}

func TestStates(t *testing.T) {
	for text, want := range map[string]string{
		"Operational": wire.PrinterReady, "Printing": wire.PrinterPrinting, "Printing from SD": wire.PrinterPrinting, "Starting": wire.PrinterPrinting,
		"Finishing": wire.PrinterPrinting, "Resuming": wire.PrinterPrinting, "Transferring file to SD": wire.PrinterPrinting,
		"Pausing": wire.PrinterPausing, "Paused": wire.PrinterPaused, "Cancelling": wire.PrinterCancelling,
		"Offline": wire.PrinterOffline, "Offline after error": wire.PrinterOffline, "Closed": wire.PrinterOffline,
		"Opening serial connection": wire.PrinterConnecting, "Detecting serial connection": wire.PrinterConnecting, "Connecting": wire.PrinterConnecting,
		"Error": wire.PrinterError, "Error: cable": wire.PrinterError, "Danse macabre": wire.PrinterUnknown, "": wire.PrinterUnknown,
		"Offline (Error: Printer halted. kill() called!)": wire.PrinterNeedsFirmwareRestart,
	} {
		if got := stateOf(text, "", nil); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if got := stateOf("Error", "Klipper reports: SHUTDOWN. Use FIRMWARE_RESTART", &Flags{Error: true}); got != wire.PrinterNeedsFirmwareRestart {
		t.Errorf("Klipper's shutdown: %s", got)
	}
	if got := stateOf("Druckt", "", &Flags{Operational: true, Printing: true}); got != wire.PrinterPrinting {
		t.Errorf("another language: %s", got)
	}
}

func TestParseSize(t *testing.T) {
	for in, want := range map[string]float64{"3.2GB": 3.2 * (1 << 30), "512 KB": 512 << 10, "7bytes": 7, "1TB": 1 << 40, "": -1, "GB": -1, "1XB": -1, "-3GB": 3 << 30} {
		got, ok := parseSize(in)
		if in == "-3GB" { // a sign is no digit
			continue
		}
		if ok != (want >= 0) || ok && got != want {
			t.Errorf("%q: %g %v", in, got, ok)
		}
	}
}

func TestPushMessages(t *testing.T) {
	u, again := decodePush([]byte(`{"current":{"state":{"text":"Printing","flags":{"printing":true,"operational":true}},"job":{"file":{"name":"a.gcode","path":"a.gcode","origin":"local","size":"unknown"}},
		"progress":{"completion":12.5,"filepos":"x"},"temps":[{"time":1,"tool0":{"actual":20.5,"target":null}},{"time":2,"tool0":{"actual":21,"target":200},"bed":{"actual":null,"target":null}}],"logs":["Send: G28\u0007"]}}`))
	if again || u.Status == nil || u.Status.State != wire.PrinterPrinting || *u.Status.Job.Completion != 12.5 || u.Status.Job.Size != nil || *u.Status.Temperatures["tool0"].Target != 200 || u.Log[0] != "Send: G28" {
		t.Errorf("%+v", u)
	}
	if _, again := decodePush([]byte(`{"reauthRequired":{"reason":"stale"}}`)); !again {
		t.Error("a new login isn't asked for")
	}
	for _, ignored := range []string{`{"plugin":{}}`, `{"connected":{}}`, `{}`, `[]`, `null`, `{"event":{}}`, `{"current":7}`, "\xff"} {
		if u, again := decodePush([]byte(ignored)); u.Status != nil || u.Name != "" || again {
			t.Errorf("%s: %+v", ignored, u)
		}
	}
	if got := unframe([]byte(`a["{\"a\":1}","{}"]`)); len(got) != 2 || string(got[0]) != `{"a":1}` {
		t.Errorf("%q", got)
	}
	for _, none := range []string{"o", "h", `c[3000,"Go away!"]`, "", "a{", "x"} {
		if got := unframe([]byte(none)); len(got) != 0 {
			t.Errorf("%q: %q", none, got)
		}
	}
}

func TestClassifyGoesByContent(t *testing.T) {
	for _, c := range []struct {
		status       int
		typ, body    string
		code         wire.Code
		reason       any
		challenge    bool
		html, klippy bool
	}{
		{401, "text/html", "<html>", wire.HardwareOpenFailed, "proxy", true, true, false},
		{401, "", "  <!DOCTYPE html>", wire.HardwareOpenFailed, "proxy", false, true, false},
		{403, "application/json", `{"error":"no"}`, wire.HardwareOpenFailed, "api_key", false, false, false},
		{403, "text/html", `{"error":"no"}`, wire.HardwareOpenFailed, "api_key", false, false, false}, // labelled wrongly
		{401, "application/json", `{"error":{"code":401,"message":"Unauthorized"}}`, wire.HardwareOpenFailed, "address_not_trusted", false, false, true},
		{403, "application/json", `{"error":{"code":403,"message":"File is loaded, upload not permitted"}}`, wire.HardwareBusy, "file_in_use", false, false, true},
		{503, "application/json", `{"error":{"code":503,"message":"Klippy Host not connected"}}`, wire.HardwareOpenFailed, "printer_offline", false, false, true},
		{503, "text/html", "<html>", wire.HardwareOpenFailed, "proxy", false, true, false},
		{413, "text/html", "<html>", wire.FileTooLarge, nil, false, true, false},
		{405, "", "", wire.FeatureNotSupported, nil, false, false, false},
		{500, "text/html", "<h1>", wire.HardwareTransferFailed, nil, false, true, false},
	} {
		resp := &http.Response{StatusCode: c.status, Header: http.Header{"Content-Type": {c.typ}}}
		if c.challenge {
			resp.Header.Set("Www-Authenticate", "Basic")
		}
		f := classify(resp, []byte(c.body), call{path: []string{"api", "x"}})
		e := wire.AsError(f)
		if e.Code != c.code || e.Details["reason"] != c.reason || f.HTML != c.html || f.Moonraker != c.klippy || status(f) != c.status {
			t.Errorf("%d %s %s: %s %v", c.status, c.typ, c.body, e.Code, e.Details)
		}
	}
}

// FuzzAnswers reads whatever a server may send; nothing of it may be dangerous to
// show.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"files":[{"name":"a","path":"a","type":"folder","children":[{"path":"a/b","size":1e999,"date":"x"}]}],"free":"3.2GB"}`))
	f.Add([]byte(`{"current":{"state":{"text":"Printing"},"temps":[{"tool0":{"actual":"x"}}]}}`))
	f.Add([]byte(`{"job":{"file":{"path":"<b>\u202e"}},"progress":{"completion":1e308},"state":"Operational"}`))
	f.Add([]byte(`{"error":{"code":401,"message":"\u0000"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, m := range unframe(b) {
			decodePush(m)
		}
		decodePush(b)
		errorText(b)
		looksHTML(http.Header{}, b)
		var l listing
		if json.Unmarshal(b, &l) == nil {
			for _, file := range flatten(nil, l.Files, "", 0) {
				if !wire.Plain(file.Path) || !wire.Plain(file.Location) || !wire.Plain(file.Display) {
					t.Errorf("%+v", file)
				}
			}
			l.free()
		}
		var j job
		if json.Unmarshal(b, &j) == nil {
			w := j.wire()
			if !wire.Plain(w.File) || !wire.Plain(w.Text) {
				t.Errorf("%+v", w)
			}
			if _, err := json.Marshal(w); err != nil {
				t.Errorf("%+v can't be sent: %v", w, err)
			}
		}
		var heaters map[string]json.RawMessage
		if json.Unmarshal(b, &heaters) == nil {
			if got := heats(heaters); len(got) > maxHeaters {
				t.Errorf("%d heaters", len(got))
			}
		}
	})
}
