package shim_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"farhand/shim"
	"farhand/shim/shimtest"
	"farhand/wire"
	"farhand/wire/transcript"
)

// TestTranscripts plays the golden transcripts against a shim. What services
// would answer is taken from the transcript; all else is the shim's own.
func TestTranscripts(t *testing.T) {
	scenes, err := transcript.Read("../wire/testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range scenes {
		if s.Kind != "handshake" {
			t.Run(s.Name(), func(t *testing.T) { playScene(t, s) })
		}
	}
}

// player is one scene under way.
type player struct {
	t      *testing.T
	socket *shimtest.Socket
	vars   map[string]string

	mu      sync.Mutex
	scripts map[string]chan wire.Envelope // golden answers for services, by id
}

func playScene(t *testing.T, s transcript.Scene) {
	r := newRig(t)
	mkdirs(t, r.root, "projects")
	p := &player{
		t: t, scripts: make(map[string]chan wire.Envelope),
		vars: map[string]string{"$root": r.root, "$projects": filepath.Join(r.root, "projects")},
	}
	hello, table := r.cfg.Hello, p.table()
	r.cfg.Hello = func(ctx context.Context, c wire.Channel, root string) (wire.Hello, error) {
		h, err := hello(ctx, c, root)
		h.Capabilities = s.Granted
		return h, err
	}
	r.platform.Extensions, r.platform.MaxConcurrent = s.Granted, s.Max
	r.cfg.Control = shim.Table{
		wire.THardwareListRequest: table[wire.THardwareListRequest], wire.TAuditVerifyRequest: table[wire.TAuditVerifyRequest],
		wire.TMachineListRequest: table[wire.TMachineListRequest], wire.TSettingsGet: table[wire.TSettingsGet], wire.TSettingsSet: table[wire.TSettingsSet],
	}
	r.serve(table)
	p.socket = r.start()
	if s.Kind == "data" {
		p.socket, _ = r.data(p.socket, "session-1")
	}
	silent := map[string]bool{}
	for _, f := range s.Frames {
		e, err := wire.DecodeEnvelope(f.Text)
		if f.Inbound {
			p.request(e, err, f)
			m, _ := wire.MethodOf(e.Type)
			silent[e.ID] = err == nil && (!m.OneWay() || m.Request == "")
			continue
		}
		if err != nil {
			t.Fatalf("line %d: %v", f.Line, err)
		}
		if e.Type == wire.TStreamData { // comes unasked: TestStreams
			continue
		}
		delete(silent, e.ID)
		p.answer(e, f)
	}
	p.socket.Call(wire.TPing, nil) // drains what came unasked; the platform would have dropped the socket
	for id, well := range silent {
		if well && p.expected(id) {
			t.Errorf("%s was to be answered", id)
		}
	}
}

func (p *player) expected(id string) bool {
	return p.socket.Outstanding(id) && !strings.HasPrefix(id, "x")
}

// request sends a frame of the platform.
func (p *player) request(e wire.Envelope, bad error, f transcript.Frame) {
	text := string(f.Text)
	for name, value := range p.vars {
		quoted, _ := json.Marshal(value)
		text = strings.ReplaceAll(text, `"`+name+`"`, string(quoted))
	}
	if e.ID != "" && !p.socket.Outstanding(e.ID) {
		answer := wire.TError
		if m, ok := wire.MethodOf(e.Type); ok && bad == nil {
			answer = m.Response
		}
		oneWay := answer == ""
		p.mu.Lock()
		p.scripts[e.ID] = make(chan wire.Envelope, 10)
		p.mu.Unlock()
		if !wire.IsAnswer(e.Type) && e.ID != "x6" && !oneWay {
			p.socket.Expect(e.ID, answer)
		}
	}
	p.socket.Raw([]byte(text))
}

// answer feeds the golden frame to the service, if one serves the request, and
// compares it with what arrives.
func (p *player) answer(e wire.Envelope, f transcript.Frame) {
	p.t.Helper()
	var got wire.Envelope
	if e.Type == wire.TStatus {
		got = <-p.socket.Status
	} else {
		p.mu.Lock()
		script := p.scripts[e.ID]
		p.mu.Unlock()
		p.socket.Call(wire.TPing, nil) // all that was sent before has been seen
		script <- e
		got = p.socket.Wait(e.ID)
	}
	if got.Type != e.Type {
		p.t.Fatalf("line %d: %s %s instead of %s", f.Line, got.Type, got.Payload, e.Type)
	}
	if e.Type != wire.TStatus && got.ID != e.ID || fmt.Sprint(deref(got.PendingCapacity)) != fmt.Sprint(deref(e.PendingCapacity)) {
		p.t.Errorf("line %d: id %q, capacity %v", f.Line, got.ID, deref(got.PendingCapacity))
	}
	var want, have any
	json.Unmarshal(e.Payload, &want)
	json.Unmarshal(got.Payload, &have)
	if why := p.compare(want, have, e.Type == wire.TError); why != "" {
		p.t.Errorf("line %d (%s): %s\n got %s\nwant %s", f.Line, f.Why, why, got.Payload, e.Payload)
	}
}

func deref(n *int) any {
	if n == nil {
		return nil
	}
	return *n
}

// volatile are the keys whose values are of the moment.
var volatile = map[string]bool{"expires_at": true, "audit_log_bytes": true, "uptime_seconds": true}

// compare says how have differs from want.
func (p *player) compare(want, have any, isError bool) string {
	switch w := want.(type) {
	case string:
		if strings.HasPrefix(w, "$") {
			s, ok := have.(string)
			if known, bound := p.vars[w]; bound && known != s || !ok || s == "" {
				return fmt.Sprintf("%s is %q by now %v", w, known, have)
			}
			p.vars[w] = s
			return ""
		}
	case []any:
		h, ok := have.([]any)
		if !ok || len(h) != len(w) {
			return fmt.Sprintf("%v instead of %v", have, want)
		}
		for i := range w {
			if why := p.compare(w[i], h[i], false); why != "" {
				return why
			}
		}
		return ""
	case map[string]any:
		h, ok := have.(map[string]any)
		if !ok || len(h) != len(w) {
			return fmt.Sprintf("keys differ: %v instead of %v", have, want)
		}
		for k := range w {
			if volatile[k] || isError && k == "message" {
				if h[k] == nil || h[k] == "" {
					return "no " + k
				}
				continue
			}
			if why := p.compare(w[k], h[k], false); why != "" {
				return k + ": " + why
			}
		}
		return ""
	}
	if !reflect.DeepEqual(want, have) {
		return fmt.Sprintf("%v instead of %v", have, want)
	}
	return ""
}

// table serves every data request from the transcript.
func (p *player) table() shim.Table {
	table := shim.Table{}
	for _, m := range wire.Methods() {
		if m.Refused || m.Request == wire.TPing || m.Request == wire.TGrantsUpdate || m.Capability == wire.DirectoryBrowse {
			continue
		}
		table[m.Request] = shim.Method{Handle: p.service}
	}
	return table
}

// service decodes its request for real and then does what the transcript says.
func (p *player) service(ctx context.Context, c *shim.Call) (any, error) {
	if c.Type == wire.TFileWrite {
		if _, err := wire.DecodeFileWrite(c.Payload); err != nil {
			return nil, err
		}
	} else if err := wire.Decode(c.Payload, transcript.Payload(c.Type)); err != nil {
		return nil, err
	}
	if m, _ := wire.MethodOf(c.Type); m.OneWay() {
		return nil, nil
	}
	p.mu.Lock()
	script := p.scripts[c.ID]
	p.mu.Unlock()
	for {
		var e wire.Envelope
		select {
		case e = <-script:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		payload := transcript.Payload(e.Type)
		if err := json.NewDecoder(bytes.NewReader(e.Payload)).Decode(payload); err != nil {
			return nil, err
		}
		switch v := payload.(type) {
		case *wire.Error:
			switch v.Code {
			case wire.CapabilityNotGranted, wire.FeatureNotSupported, wire.ShimOverloaded:
				p.t.Errorf("%s reached the service although the shim is to refuse it with %s", c.Type, v.Code)
			}
			return nil, v
		case *wire.Ack:
			if *v == (wire.Ack{OK: true}) {
				return nil, nil
			}
		}
		if !e.Type.IsChunk() {
			return payload, nil
		}
		if err := c.Emit(e.Type, payload); err != nil {
			return nil, err
		}
	}
}
