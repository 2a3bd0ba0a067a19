package route

import (
	"encoding/json"
	"errors"
	"flag"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/websocket"

	"farhand/relay/access"
	"farhand/wire"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestUpgradeDenials(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files).connect()
	session := b.openSession(opTok, map[string]any{"machine": machID})
	b.auth.mu.Lock()
	other := b.auth.devices[devTok]
	other.MachineID, other.Family = "pi-2", "fam_2"
	b.auth.devices["other-machine"] = other
	wrong := b.auth.devices[devTok]
	wrong.ClientID = "something-else"
	b.auth.devices["wrong-client"] = wrong
	foreign := b.auth.devices[devTok]
	foreign.Owner = "own_2"
	b.auth.devices["foreign-owner"] = foreign
	unbound := b.auth.devices[devTok]
	unbound.MachineID, unbound.Family = "", "fam_3"
	b.auth.devices["unbound"] = unbound
	b.auth.mu.Unlock()

	data := "/ws/local-executor/" + session
	for name, c := range map[string]struct {
		path, auth, origin string
		want               int
	}{
		"no token":            {"/ws/local-executor", "", "", 401},
		"not bearer":          {"/ws/local-executor", "Basic " + devTok, "", 401},
		"empty bearer":        {"/ws/local-executor", "Bearer  ", "", 401},
		"unknown token":       {"/ws/local-executor", "Bearer nope", "", 401},
		"operator's token":    {"/ws/local-executor", "Bearer " + opTok, "", 401},
		"wrong client":        {"/ws/local-executor", "Bearer wrong-client", "", 403},
		"foreign origin":      {"/ws/local-executor", "Bearer " + devTok, "https://evil.example", 403},
		"null origin":         {"/ws/local-executor", "Bearer " + devTok, "null", 403},
		"unknown session":     {"/ws/local-executor/8b1c0e9e-0000-4000-8000-000000000000", "Bearer " + devTok, "", 403},
		"bad session id":      {"/ws/local-executor/a.b", "Bearer " + devTok, "", 403},
		"unbound machine":     {data, "Bearer other-machine", "", 403},
		"foreign session":     {data, "Bearer foreign-owner", "", 403},
		"token of no machine": {data, "Bearer unbound", "", 403},
		"operator: no token":  {"/ws/operator", "", "", 401},
		"operator: device's":  {"/ws/operator", "Bearer " + devTok, "", 401},
		"operator: origin":    {"/ws/operator", "Bearer " + opTok, "https://evil.example", 403},
		"lower case scheme":   {"/ws/local-executor", "bearer " + devTok, "", 101},
		"own origin":          {"/ws/local-executor", "Bearer " + devTok, b.http.URL, 101},
	} {
		h := http.Header{}
		if c.auth != "" {
			h.Set("Authorization", c.auth)
		}
		if c.origin != "" {
			h.Set("Origin", c.origin)
		}
		if _, got := b.dialWith(c.path, h); got != c.want {
			t.Errorf("%s: status %d, want %d", name, got, c.want)
		}
	}
	b.auth.mu.Lock()
	b.auth.down = errors.New("disk")
	b.auth.mu.Unlock()
	for _, path := range []string{"/ws/local-executor", "/ws/operator"} {
		if _, got := b.dial(path, devTok); got != 503 {
			t.Errorf("%s with the store down: %d, want 503", path, got)
		}
	}
	b.auth.mu.Lock()
	b.auth.down = nil
	b.auth.mu.Unlock()
	_ = r
}

func TestHelloRefusals(t *testing.T) {
	tim := quick()
	tim.hello = 200 * time.Millisecond
	b := startWith(t, tim)
	base := func() map[string]any {
		var m map[string]any
		j, _ := json.Marshal(helloFor(nil, wire.DirectoryBrowse, wire.Files))
		_ = json.Unmarshal(j, &m)
		return m
	}
	with := func(key string, value any) string {
		m := base()
		if value == nil {
			delete(m, key)
		} else {
			m[key] = value
		}
		j, _ := json.Marshal(map[string]any{"type": "HELLO", "id": "h", "ts": 1, "payload": m})
		return string(j)
	}
	many := make([]string, 129)
	for i := range many {
		many[i] = "x"
	}
	cases := map[string]struct {
		frame string
		code  int
	}{
		"not JSON":               {"hello", 4400},
		"not an object":          {"[]", 4400},
		"another type":           {`{"type":"STATUS","id":"1","payload":{}}`, 4400},
		"empty id":               {`{"type":"HELLO","id":"","payload":{}}`, 4400},
		"id of another type":     {`{"type":"HELLO","id":7,"payload":{}}`, 4400},
		"payload not an object":  {`{"type":"HELLO","id":"1","payload":[]}`, 4400},
		"too long":               {with("display_name", strings.Repeat("x", 64<<10)), 4400},
		"machine_id missing":     {with("machine_id", nil), 4400},
		"machine_id with space":  {with("machine_id", "my pi"), 4400},
		"machine_id of 129":      {with("machine_id", strings.Repeat("a", 129)), 4400},
		"machine_id starts with": {with("machine_id", "-a"), 4400},
		"display_name markup":    {with("display_name", "<b>"), 4400},
		"display_name control":   {with("display_name", "a\u0007b"), 4400},
		"display_name bidi":      {with("display_name", "a\u202eb"), 4400},
		"display_name of 129":    {with("display_name", strings.Repeat("ä", 129)), 4400},
		"platform":               {with("platform", "plan9"), 4400},
		"arch":                   {with("arch", "armv7l"), 4400},
		"shim_version":           {with("shim_version", "1 2"), 4400},
		"allowed_root":           {with("allowed_root", "/home"), 4400},
		"capabilities":           {with("capabilities", []any{1}), 4400},
		"features too many":      {with("computer_use_features", many), 4400},
		"features with space":    {with("computer_use_features", []string{" a"}), 4400},
		"recording_channels":     {with("recording_channels", []string{"camera"}), 4400},
		"protocol_version":       {with("protocol_version", "one"), 4400},
		"major 2":                {with("protocol_version", "2.0"), 4426},
		"major 0":                {with("protocol_version", "0.9"), 4426},
		"minor 0":                {with("protocol_version", "1.0"), 4426},
		"no version":             {with("protocol_version", nil), 4426},
		"no directory_browse":    {with("capabilities", []string{"files"}), 4426},
		"another machine":        {with("machine_id", "pi-9"), 4403},
		"silence":                {"", 4408},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p, _ := b.dial("/ws/local-executor", devTok)
			p.t = t
			if c.frame != "" {
				p.text(c.frame)
			}
			reason := p.wantClose(c.code)
			var fields struct {
				Error, Hint string
				Shim        string `json:"shim_max"`
				Ours        string `json:"platform_max"`
			}
			if err := json.Unmarshal([]byte(reason), &fields); err != nil || fields.Error == "" || len(reason) > maxReason {
				t.Errorf("reason %q: %v", reason, err)
			}
			if strings.HasPrefix(name, "major") && (fields.Error != "PROTOCOL_VERSION_MISMATCH" || fields.Ours != "1.1" || fields.Shim == "") {
				t.Errorf("reason %q", reason)
			}
		})
	}
}

func TestHelloOnDataMustFitTheSession(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files).connect()
	id := b.openSession(opTok, map[string]any{"machine": machID})
	r.noData = true
	str := func(s string) *string { return &s }
	for name, c := range map[string]struct {
		root *string
		id   string
		code int
	}{
		"no root":         {nil, machID, 4400},
		"blank root":      {str("  "), machID, 4400},
		"root too long":   {str("/" + strings.Repeat("x", 4096)), machID, 4400},
		"root markup":     {str("/a<b"), machID, 4400},
		"another root":    {str(homeDir + "/a"), machID, 4403},
		"root with slash": {str(homeDir + "/"), machID, 4403},
		"another machine": {str(homeDir), "pi-2", 4403},
	} {
		t.Run(name, func(t *testing.T) {
			p, status := b.dial("/ws/local-executor/"+id, devTok)
			if p == nil {
				t.Fatal(status)
			}
			p.t = t
			h := helloFor(c.root, wire.Files)
			h.MachineID = c.id
			p.send(wire.Message{Type: wire.THello, ID: "h", Payload: h})
			p.wantClose(c.code)
		})
	}
	if !b.srv.Online(owner, machID) {
		t.Error("refused data sockets took the control socket along")
	}
}

var (
	tsField   = regexp.MustCompile(`"ts":[0-9.]+`)
	uuidField = regexp.MustCompile(`"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"`)
)

// TestHelloAckGolden holds the exact frames: a stock shim refuses any other key.
func TestHelloAckGolden(t *testing.T) {
	b := start(t)
	approved := []wire.Capability{wire.Files}
	b.auth.approve(wire.Ceiling{Capabilities: &approved})
	offers := wire.Capabilities{wire.Shell, wire.Files, "telepathy", wire.Files, wire.HardwareSerial, wire.AuditAnchor}
	var got strings.Builder
	ack := func(title, path string, h wire.Hello) {
		p, status := b.dial(path, devTok)
		if p == nil {
			t.Fatalf("%s: %d", title, status)
		}
		p.send(wire.Message{Type: wire.THello, ID: "h-1", Payload: h})
		_, raw, err := p.next()
		if err != nil {
			t.Fatal(err)
		}
		line := tsField.ReplaceAllString(string(raw), `"ts":0`)
		line = uuidField.ReplaceAllString(line, `"UUID"`)
		got.WriteString("# " + title + "\n" + line + "\n")
	}
	for _, c := range []struct {
		title string
		caps  wire.Capabilities
	}{{"without grants", offers}, {"with grants", append(offers[:len(offers):len(offers)], wire.Grants)}} {
		ack("control "+c.title, "/ws/local-executor", helloFor(nil, append(wire.Capabilities{wire.DirectoryBrowse}, c.caps...)...))
		r := b.robot(c.caps...).connect()
		caps := []wire.Capability{wire.Files, wire.Shell}
		id := b.openSession(opTok, map[string]any{"machine": machID, "capabilities": caps})
		root := homeDir
		ack("data "+c.title, "/ws/local-executor/"+id, helloFor(&root, c.caps...))
		r.stop()
	}
	h := helloFor(nil, wire.DirectoryBrowse)
	h.ProtocolVersion = "1.7"
	ack("control of a newer minor", "/ws/local-executor", h)

	file := filepath.Join("testdata", "hello_ack.golden")
	if *update {
		if err := os.WriteFile(file, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got.String()); d != "" {
		t.Error(d)
	}
}

func TestLenientHello(t *testing.T) {
	b := start(t)
	p, _ := b.dial("/ws/local-executor", devTok)
	frame := `{"payload":{"machine_id":"pi-1","platform":"wsl2","arch":"x86_64","protocol_version":"1.1","allowed_root":null,
		"capabilities":["directory_browse"],"screen_resolution":"big","hardware_devices":[1,{"type":"serial","id":"serial:x"},null],
		"local_llm_models":null,"some_future_key":{"a":[1]}},"id":"x","type":"HELLO"}`
	if err := p.ws.WriteMessage(websocket.BinaryMessage, []byte(frame)); err != nil {
		t.Fatal(err)
	}
	p.want(wire.THelloAck)
	h := recv(t, b.auth.seen)
	if len(h.HardwareDevices) != 1 || h.HardwareDevices[0].ID != "serial:x" || h.Platform != "wsl2" {
		t.Errorf("remembered %+v", h)
	}
}

func TestTakeover(t *testing.T) {
	b := start(t)
	hello := wire.Message{Type: wire.THello, ID: "h", Payload: helloFor(nil, wire.DirectoryBrowse)}
	first, _ := b.dial("/ws/local-executor", devTok)
	first.send(hello)
	first.want(wire.THelloAck)
	second, _ := b.dial("/ws/local-executor", devTok)
	second.send(hello)
	second.want(wire.THelloAck)
	var why wire.SessionRevoked
	if err := wire.Decode(first.want(wire.TSessionRevoked).Payload, &why); err != nil || why.Reason != wire.ReasonAnotherShim {
		t.Errorf("%+v %v", why, err)
	}
	first.wantClose(4427)
	if !b.srv.Online(owner, machID) {
		t.Error("the machine went offline with its older socket")
	}
	_ = second.ws.Close()
	until(t, "offline", func() bool { return !b.srv.Online(owner, machID) })
}

// What a machine offers is known as soon as it has its answer, however long
// storing that takes.
func TestHelloIsKnownAtOnce(t *testing.T) {
	b := start(t)
	b.auth.slow = make(chan struct{})
	p, _ := b.dial("/ws/local-executor", devTok)
	p.send(wire.Message{Type: wire.THello, ID: "h", Payload: helloFor(nil, wire.DirectoryBrowse, wire.Files)})
	p.want(wire.THelloAck)
	if h := b.srv.Hello(owner, machID); h == nil || !h.Capabilities.Has(wire.Files) {
		t.Errorf("after the answer HELLO is %+v", h)
	}
	close(b.auth.slow)
	until(t, "stored", func() bool { return b.srv.Hello(owner, machID) == nil })
	if h := <-b.auth.seen; !h.Capabilities.Has(wire.Files) {
		t.Errorf("stored is %+v", h)
	}
	if b.srv.Hello(owner, "nobody") != nil {
		t.Error("somebody unknown said HELLO")
	}
}

// A frame of another major version ends the socket (protocol 1.1, Versioning);
// another minor one, or none, does not.
func TestFramesOfAnotherMajor(t *testing.T) {
	b := start(t)
	p, _ := b.dial("/ws/local-executor", devTok)
	p.send(wire.Message{Type: wire.THello, ID: "h", Payload: helloFor(nil, wire.DirectoryBrowse)})
	p.want(wire.THelloAck)
	for _, version := range []string{"1.0", "1.7", "", "new"} {
		p.send(wire.Message{Type: wire.TPing, ID: "p" + version, Version: version, Payload: wire.Empty{}})
		p.want(wire.TPong)
	}
	p.send(wire.Message{Type: wire.TPing, ID: "p", Version: "2.0", Payload: wire.Empty{}})
	p.wantClose(4426)
}

func TestFamilyIsBoundByItsFirstHello(t *testing.T) {
	b := start(t)
	b.auth.mu.Lock()
	b.auth.devices["pkce"] = access.Device{Owner: owner, Family: "fam_p", ClientID: "autogpt-local-executor", Expires: time.Now().Add(time.Hour)}
	b.auth.mu.Unlock()
	connect := func(id string) *peer {
		p, _ := b.dial("/ws/local-executor", "pkce")
		h := helloFor(nil, wire.DirectoryBrowse)
		h.MachineID = id
		p.send(wire.Message{Type: wire.THello, ID: "h", Payload: h})
		return p
	}
	connect("pi-7").want(wire.THelloAck)
	connect("pi-8").wantClose(4403)
	connect("pi-7").want(wire.THelloAck)
}

func TestTokenExpiryCloses(t *testing.T) {
	b := start(t)
	b.auth.mu.Lock()
	d := b.auth.devices[devTok]
	d.Expires = time.Now().Add(300 * time.Millisecond)
	b.auth.devices[devTok] = d
	o := b.auth.operators[opTok]
	o.Expires = d.Expires
	b.auth.operators[opTok] = o
	b.auth.mu.Unlock()
	p, _ := b.dial("/ws/local-executor", devTok)
	p.send(wire.Message{Type: wire.THello, ID: "h", Payload: helloFor(nil, wire.DirectoryBrowse)})
	p.want(wire.THelloAck)
	op := b.operator(opTok)
	p.wantClose(4401)
	op.wantClose(4401)
}

func TestRevocation(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files).connect()
	id := b.openSession(opTok, map[string]any{"machine": machID})
	b.srv.RevokeFamily(owner, "another family")
	b.srv.RevokeFamily("own_2", "fam_1")
	b.srv.RevokeFamily(owner, "fam_1")
	r.await("control closed 4428")
	until(t, "offline", func() bool { return !b.srv.Online(owner, machID) })

	r2 := b.robot(wire.Files).connect()
	r2.bound[id] = r.bound[id]
	op := b.operator(opTok)
	op.request(id, "1", wire.TFileStat, wire.Empty{}) // restored on the new socket
	op.want(wire.TFileStatResponse)
	b.srv.RevokeMachine(owner, machID)
	until(t, "sessions forgotten", func() bool {
		b.srv.mu.Lock()
		defer b.srv.mu.Unlock()
		return len(b.srv.sessions) == 0
	})
	if _, out := b.api("GET", "/api/sessions", opTok, nil); len(out["sessions"].([]any)) != 0 {
		t.Errorf("%v", out)
	}
	op.request(id, "2", wire.TFileStat, wire.Empty{})
	if e := op.wantError("2"); e.Code != wire.SessionNotFound {
		t.Errorf("after the machine was revoked: %v", e.Code)
	}
}

func TestRevokedWhileConnecting(t *testing.T) {
	b := start(t)
	p, _ := b.dial("/ws/local-executor", devTok)
	until(t, "tracked", func() bool { return len(b.srv.tracked()) == 1 })
	b.srv.RevokeFamily(owner, "fam_1")
	p.want(wire.TSessionRevoked)
	p.wantClose(4428)
}

func TestRevokeHolder(t *testing.T) {
	b := start(t)
	b.auth.mu.Lock()
	b.auth.operators["agent"] = access.Operator{Owner: owner, Name: "ada", Holder: "hold_agent", Ceiling: &wire.Ceiling{}}
	b.auth.mu.Unlock()
	r := b.robot(wire.Files).connect()
	mine := b.openSession(opTok, map[string]any{"machine": machID})
	agents := b.openSession("agent", map[string]any{"machine": machID})
	if mine == agents {
		t.Fatal("two holders share a session")
	}
	op, agent := b.operator(opTok), b.operator("agent")
	b.auth.mu.Lock()
	delete(b.auth.operators, "agent") // in this order, so that a socket just being opened is caught too
	b.auth.mu.Unlock()
	b.srv.RevokeHolder(owner, "hold_agent")
	agent.want(wire.TSessionRevoked)
	agent.wantClose(4428)
	r.await("detach " + agents)
	op.request(mine, "1", wire.TFileStat, wire.Empty{})
	op.want(wire.TFileStatResponse)
	until(t, "one session left", func() bool {
		_, out := b.api("GET", "/api/sessions", opTok, nil)
		return len(out["sessions"].([]any)) == 1
	})
}

func TestShutdownTellsToComeBack(t *testing.T) {
	b := start(t)
	r := b.robot(wire.Files, wire.Shell).connect()
	id := b.openSession(opTok, map[string]any{"machine": machID})
	r.await("data")
	got := make(chan struct{}, 2)
	r.onData = func(*peer, wire.Envelope) { got <- struct{}{} }
	op := b.operator(opTok)
	op.request(id, "w", wire.TExecuteCommand, map[string]any{"argv": []string{"true"}})
	recv(t, got)
	op.request(id, "r", wire.TFileStat, wire.Empty{})
	recv(t, got)
	go func() { _ = b.srv.Close() }()
	codes := map[string]wire.Code{}
	for range 2 {
		var e wire.Error
		env := op.want(wire.TError)
		_ = wire.Decode(env.Payload, &e)
		codes[env.ID] = e.Code
	}
	if codes["w"] != wire.OpUnconfirmed || codes["r"] != wire.MachineUnreachable {
		t.Errorf("%v", codes)
	}
	op.wantClose(1012)
	r.await("data closed 1012")
	r.await("control closed 1012")
}
