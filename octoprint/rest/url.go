package rest

import (
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"farhand/wire"
)

// join is the base with more segments, each escaped by itself: a name may hold
// anything but a slash. The base keeps its prefix (a path under which a proxy
// offers the server).
func (c *Client) join(segments ...string) *url.URL {
	var escaped strings.Builder
	escaped.WriteString(strings.TrimRight(c.base.EscapedPath(), "/"))
	for _, s := range segments {
		escaped.WriteByte('/')
		escaped.WriteString(url.PathEscape(s))
	}
	u := &url.URL{Scheme: c.base.Scheme, Host: c.base.Host, RawPath: escaped.String()}
	u.Path, _ = url.PathUnescape(u.RawPath) // it was escaped just now
	return u
}

// ours says whether u lies at the configured origin.
func (c *Client) ours(u *url.URL) bool {
	return u.Scheme == c.base.Scheme && hostPort(u) == hostPort(c.base)
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return strings.ToLower(u.Hostname()) + ":" + port
}

// below is a reference that a server gave, as segments under the base: nil if
// it lies elsewhere, as behind a proxy that doesn't tell the server its outer
// address. Then the caller has to make its own.
func (c *Client) below(resp *http.Response, ref string) []string {
	u, err := url.Parse(ref)
	if err != nil || ref == "" {
		return nil
	}
	if resp.Request != nil {
		u = resp.Request.URL.ResolveReference(u)
	}
	rest, ok := strings.CutPrefix(u.EscapedPath(), strings.TrimRight(c.base.EscapedPath(), "/")+"/")
	if !ok || !c.ours(u) || u.RawQuery != "" {
		return nil
	}
	var segments []string
	for s := range strings.SplitSeq(rest, "/") {
		s, err := url.PathUnescape(s)
		if err != nil || s == "" || s == "." || s == ".." {
			return nil
		}
		segments = append(segments, s)
	}
	return segments
}

// lastSegment is the last element of a reference, wherever it points to.
func lastSegment(ref string) string {
	u, err := url.Parse(ref)
	if err != nil {
		return ""
	}
	path := strings.TrimRight(u.Path, "/")
	return path[strings.LastIndexByte(path, '/')+1:]
}

// Segments splits a path on a printer into its elements.
func Segments(key, path string) ([]string, error) {
	if len(path) > wire.MaxPath || !utf8.ValidString(path) {
		return nil, wire.Errorf(wire.InvalidArgument, "%s must be UTF-8 of at most %d bytes", key, wire.MaxPath).With("field", key)
	}
	segments := strings.Split(strings.Trim(path, "/"), "/")
	for _, s := range segments {
		if s == "" || s == "." || s == ".." || strings.ContainsFunc(s, unicode.IsControl) {
			return nil, wire.Errorf(wire.InvalidArgument, "%s must be a path whose elements have a name", key).With("field", key)
		}
	}
	return segments, nil
}
