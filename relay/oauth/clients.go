package oauth

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"farhand/wire"
)

// Bounds of a registration. What is registered travels in the client's id, which
// stands in the address of the consent page.
const (
	maxRedirects  = 8
	maxRedirect   = 256 // bytes
	maxClientName = 64  // characters
	maxClientID   = 3 << 10
)

// client is a program that registered itself (RFC 7591). Anybody may, so nothing of
// it is believed and nothing is kept: its id is what it said, sealed with the
// relay's own key.
type client struct {
	Name      string   `json:"n,omitempty"`
	Redirects []string `json:"r"`
}

// id is the client's id: what the client is, and a MAC over it.
func (s *Server) clientID(c client) (string, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	return prefixClient + base64.RawURLEncoding.EncodeToString(append(keyed(s.key, "client", string(body)), body...)), nil
}

// registered is the client that an id was made for; false if we made no such id.
func (s *Server) registered(id string) (client, bool) {
	text, ok := strings.CutPrefix(id, prefixClient)
	if !ok || len(id) > maxClientID {
		return client{}, false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) < secretSize {
		return client{}, false
	}
	var c client
	if json.Unmarshal(raw[secretSize:], &c) != nil {
		return client{}, false
	}
	// The same client has one id, so comparing ids compares seals.
	if own, err := s.clientID(c); err != nil || !hashSecret(own).matches(id) {
		return client{}, false
	}
	return c, true
}

// knownClient says whether an id is a client's at all.
func (s *Server) knownClient(id string) bool {
	if s.clients[id] {
		return true
	}
	_, ok := s.registered(id)
	return ok
}

// mayRedirect says whether an answer may go to an address: one of those registered,
// at whatever port of loopback (RFC 8252 section 7.3), since programs take the one
// that is free.
func (c client) mayRedirect(uri string) bool {
	u, err := loopbackRedirect(uri)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(c.Redirects, func(one string) bool {
		r, err := url.Parse(one)
		// Programs that make an address of it write the path that isn't there as "/".
		return err == nil && r.Hostname() == u.Hostname() && cmp.Or(r.EscapedPath(), "/") == cmp.Or(u.EscapedPath(), "/")
	})
}

// loopbackRedirect checks an address of a program on the browser's own machine.
// Other addresses are refused: with them anybody could have tokens sent anywhere
// under any name.
func loopbackRedirect(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxRedirect || u.Scheme != "http" || u.User != nil || strings.ContainsAny(text, "#?") {
		return nil, errRedirect
	}
	host := u.Hostname()
	if ip := net.ParseIP(host); host != "localhost" && (ip == nil || !ip.IsLoopback()) {
		return nil, errRedirect
	}
	return u, nil
}

// Errors of RFC 7591 section 3.2.2 and RFC 8707 section 2.
var (
	errRedirect = &oauthError{status: 400, code: "invalid_redirect_uri",
		description: "redirect_uris must be http addresses of the user's own machine: http://127.0.0.1/…, http://[::1]/… or http://localhost/…"}
	errMetadata = &oauthError{status: 400, code: "invalid_client_metadata", description: "the registration must be a JSON object with redirect_uris"}
	errTarget   = &oauthError{status: 400, code: "invalid_target", description: "no such resource here"}
)

// register is RFC 7591 for public clients on the user's own machine.
func (s *Server) register(r *http.Request) (any, error) {
	body, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxBody))
	if err != nil {
		return nil, errMetadata
	}
	var in struct {
		Name      string   `json:"client_name"`
		Redirects []string `json:"redirect_uris"`
		Grants    []string `json:"grant_types"`
		Responses []string `json:"response_types"`
	}
	if json.Unmarshal(body, &in) != nil || len(in.Redirects) == 0 {
		return nil, errMetadata
	}
	if in.Grants != nil && !slices.Contains(in.Grants, grantCode) || in.Responses != nil && !slices.Contains(in.Responses, "code") {
		return nil, &oauthError{status: 400, code: "invalid_client_metadata", description: "only the authorization_code grant with the response type code"}
	}
	// Some programs name addresses of pages of theirs beside those on the user's own
	// machine. What isn't registered isn't answered to (RFC 7591 section 3.2.1).
	c := client{Name: wire.Clean(in.Name, maxClientName), Redirects: slices.DeleteFunc(in.Redirects, func(uri string) bool {
		_, err := loopbackRedirect(uri)
		return err != nil
	})}
	if len(c.Redirects) == 0 || len(c.Redirects) > maxRedirects {
		return nil, errRedirect
	}
	id, err := s.clientID(c)
	if err != nil {
		return nil, err
	}
	if len(id) > maxClientID {
		return nil, errMetadata
	}
	return struct {
		ID         string   `json:"client_id"`
		Name       string   `json:"client_name,omitempty"`
		Redirects  []string `json:"redirect_uris"`
		Grants     []string `json:"grant_types"`
		Responses  []string `json:"response_types"`
		AuthMethod string   `json:"token_endpoint_auth_method"`
		Scope      string   `json:"scope"`
	}{id, c.Name, c.Redirects, []string{grantCode, grantRefresh}, []string{"code"}, "none", AgentScope}, nil
}

// resource is the address that agents' tokens are for.
func (s *Server) resource() string { return s.public + agentPath }

// ResourceMetadataURL is where the document about it is (RFC 9728 section 3.1).
func (s *Server) ResourceMetadataURL() string {
	return s.public + "/.well-known/oauth-protected-resource" + agentPath
}

// resourceMetadata is RFC 9728.
func (s *Server) resourceMetadata(w http.ResponseWriter, _ *http.Request) {
	forAnyPage(w.Header())
	writeJSON(w, http.StatusOK, struct {
		Resource string   `json:"resource"`
		Name     string   `json:"resource_name"`
		Servers  []string `json:"authorization_servers"`
		Scopes   []string `json:"scopes_supported"`
		Methods  []string `json:"bearer_methods_supported"`
	}{s.resource(), "Farhand", []string{s.public}, []string{AgentScope}, []string{"header"}})
}

// forAnyPage lets any page of a browser read a document: what stands in it is
// public, and web agents look for it.
func forAnyPage(h http.Header) {
	h.Set("Access-Control-Allow-Origin", "*")
	h.Set("Cache-Control", "no-cache")
}
