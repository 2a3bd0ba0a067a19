package oauth

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"farhand/relay/access"
	"farhand/wire"
)

// An agent's tokens run out as a device's do, and all of it when its owner said so;
// what it is known by inside lasts exactly as long.
func TestAgentExpires(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openIn(t, dir)
		none := []wire.Capability{}
		a := agent{
			family: family{ID: newID(), Owner: newOwner(), ClientID: "c", Grant: approved{Ceiling: wire.Ceiling{Capabilities: &none}}},
			Name:   "x", Ends: now().Add(90 * time.Minute),
		}
		out, err := f.s.newAgent(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		who, inner, err := f.s.Agent(t.Context(), out.access)
		if err != nil || who.Holder != "agent-"+a.ID || who.Login || who.Manage || who.Ceiling == nil || !who.Expires.Equal(a.Ends) {
			t.Fatalf("%+v, %v", who, err)
		}
		if _, err := f.s.Operator(t.Context(), out.access); !errors.Is(err, access.ErrUnauthorized) {
			t.Errorf("an agent's token as an operator's: %v", err)
		}
		if _, err := f.s.Device(t.Context(), out.access); !errors.Is(err, access.ErrUnauthorized) {
			t.Errorf("an agent's token as a device's: %v", err)
		}
		pass(accessLife + time.Second)
		if _, _, err := f.s.Agent(t.Context(), out.access); !errors.Is(err, access.ErrUnauthorized) {
			t.Errorf("an access token after its time: %v", err)
		}
		if got, err := f.s.Operator(t.Context(), inner); err != nil || got.Holder != who.Holder {
			t.Errorf("inside: %+v, %v", got, err)
		}
		open, _ := parseRefresh(out.refresh)
		again, err := f.s.refreshAgent(t.Context(), map[string]string{"refresh_token": out.refresh, "client_id": "c"}, open)
		if err != nil || !again.accessExpires.Equal(a.Ends) {
			t.Fatalf("refreshed until %v, %v", again.accessExpires, err)
		}
		pass(30 * time.Minute)
		if _, _, err := f.s.Agent(t.Context(), again.access); !errors.Is(err, access.ErrUnauthorized) {
			t.Errorf("after the end: %v", err)
		}
		if _, err := f.s.Operator(t.Context(), inner); !errors.Is(err, access.ErrUnauthorized) {
			t.Errorf("inside, after the end: %v", err)
		}
	})
}

// A client's id is what we sealed, or it is none.
func FuzzRegistered(f *testing.F) {
	s := &Server{key: []byte("key")}
	id, err := s.clientID(client{Name: "x", Redirects: []string{"http://127.0.0.1/cb"}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(id)
	f.Add(id + "A")
	f.Add(prefixClient)
	f.Fuzz(func(t *testing.T, text string) {
		if c, ok := s.registered(text); ok && (text != id || !c.mayRedirect("http://127.0.0.1:5/cb")) {
			t.Fatalf("%q is a client: %+v", text, c)
		}
	})
}

// Whatever is registered is refused or can only lead to loopback.
func FuzzRegistration(f *testing.F) {
	s := &Server{key: []byte("key")}
	for _, body := range []string{`{"redirect_uris":["http://[::1]:1/cb"],"client_name":"\u202e"}`, `{"redirect_uris":["http://localhost@x/"]}`, `{`, `null`} {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, body string) {
		_, err := s.register(httptest.NewRequestWithContext(t.Context(), "POST", "/", strings.NewReader(body)))
		if fail, ok := err.(*oauthError); err != nil && (!ok || fail.status != 400) {
			t.Fatalf("%v", err)
		}
	})
}
