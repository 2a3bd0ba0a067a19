package rest

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"farhand/wire"
)

const (
	// maxBody bounds an answer that is read as JSON. A list of 1000 files with
	// their analysis has about 1 MiB.
	maxBody = 8 << 20
	// maxFailure bounds what is read of an answer that is no success.
	maxFailure = 64 << 10

	dialTimeout = 5 * time.Second
	// identityAge is how long what a server said about itself is believed.
	identityAge = 5 * time.Minute
	// apiVersion asks OctoPrint 2.0 for its own shapes; older ones ignore it
	// (docs: version, general).
	apiVersion = "2.0.0"
)

// DialFunc connects to a server.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Options describe a server.
type Options struct {
	// Base is the configured address, with the path prefix under which a proxy
	// offers the server, if any.
	Base      *url.URL
	Key       string   // empty: none is known yet
	Dial      DialFunc // nil: the network
	UserAgent string
}

// Client speaks with one server. Close it when done.
type Client struct {
	base  *url.URL
	dial  DialFunc
	agent string
	key   atomic.Pointer[string]
	http  *http.Client
	trans *http.Transport

	mu       sync.Mutex
	identity wire.PrinterServer
	known    time.Time // zero: not known
}

// New makes a client; it connects to nothing yet.
func New(o Options) *Client {
	base := *o.Base
	c := &Client{base: &base, dial: o.Dial, agent: o.UserAgent}
	if c.dial == nil {
		c.dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	c.SetKey(o.Key)
	c.trans = &http.Transport{
		// A printer stands in the same network; a proxy for the rest of the
		// world must not see its key.
		Proxy: nil, DialContext: c.dial, TLSHandshakeTimeout: dialTimeout,
		MaxConnsPerHost: 8, MaxIdleConnsPerHost: 1, IdleConnTimeout: 30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
		ExpectContinueTimeout: time.Second,
		TLSClientConfig:       &tls.Config{MinVersion: tls.VersionTLS12},
	}
	c.http = &http.Client{Transport: c.trans, CheckRedirect: c.checkRedirect}
	return c
}

// Close lets go of idle connections. Requests that run end with their contexts.
func (c *Client) Close() { c.trans.CloseIdleConnections() }

// SetKey replaces the API key.
func (c *Client) SetKey(key string) {
	c.key.Store(&key)
	c.forget()
}

// HasKey says whether there is a key.
func (c *Client) HasKey() bool { return *c.key.Load() != "" }

// Origin is scheme and host of the server, for people.
func (c *Client) Origin() string { return c.base.Scheme + "://" + c.base.Host }

// checkRedirect follows a redirect to the same origin alone, so that the key
// and what is sent never go elsewhere.
func (c *Client) checkRedirect(req *http.Request, via []*http.Request) error {
	if len(via) >= 3 || !c.ours(req.URL) || via[0].Method != http.MethodGet {
		return http.ErrUseLastResponse
	}
	return nil
}

// call is one request.
type call struct {
	method string
	path   []string // below the base, unescaped
	query  url.Values
	body   any // JSON; nil: none
}

// do runs a call and decodes a success into out, if that is not nil.
func (c *Client) do(ctx context.Context, q call, out any) error {
	resp, err := c.send(ctx, q)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := c.failure(resp, q); err != nil {
		return err
	}
	if out == nil || resp.StatusCode == http.StatusNoContent {
		return nil
	}
	return c.decode(resp, q, out)
}

func (c *Client) send(ctx context.Context, q call) (*http.Response, error) {
	var body io.Reader
	if q.body != nil {
		b, err := json.Marshal(q.body)
		if err != nil {
			return nil, fmt.Errorf("encoding a request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	u := c.join(q.path...)
	u.RawQuery = q.query.Encode()
	req, err := http.NewRequestWithContext(ctx, q.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	if q.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	c.dress(req)
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(ctx, q.method, err)
	}
	return resp, nil
}

// dress adds what every request carries.
func (c *Client) dress(req *http.Request) {
	req.Header.Set("Accept", "application/json")
	req.Header.Set("X-OctoPrint-Api-Version", apiVersion)
	if c.agent != "" {
		req.Header.Set("User-Agent", c.agent)
	}
	if key := *c.key.Load(); key != "" {
		req.Header.Set("X-Api-Key", key) // docs: general, "Authorization"
	}
}

// decode reads a success, which must be JSON (docs: general, "Content Type").
func (c *Client) decode(resp *http.Response, q call, out any) error {
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return c.unreachable(resp.Request.Context(), q.method, err)
	}
	if len(b) > maxBody {
		return wire.Errorf(wire.HardwareTransferFailed, "the printer's server answers with more than %d bytes", maxBody)
	}
	if looksHTML(resp.Header, b) {
		return proxyAnswer(resp, b)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return wire.Errorf(wire.HardwareTransferFailed, "the printer's server answers %s with something that is not its documented form", pathOf(q)).
			With("reason", "bad_answer")
	}
	return nil
}

// unreachable makes an error of a request that got no answer.
func (c *Client) unreachable(ctx context.Context, method string, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	c.forget()
	what, hint := "doesn't answer", "see that the server is running and that its address in hardware.printers is right"
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		what = "can't be reached"
	} else if method != http.MethodGet {
		// It may have arrived; sending it again could start a second job.
		hint = "it may have taken effect: look at PRINTER_STATUS before you try again"
	}
	e := wire.Errorf(wire.HardwareOpenFailed, "the printer's server at %s %s", c.Origin(), what).
		With("reason", "unreachable").With("os_error", plain(err)).With("hint", hint)
	if method != http.MethodGet && what == "doesn't answer" {
		e.Code = wire.HardwareTransferFailed
	}
	return e
}

// plain is the reason of a transport error without the URL, which says nothing
// new.
func plain(err error) string {
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "timed out"
	}
	return wire.Clean(err.Error(), 200)
}

func (c *Client) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = time.Time{}
}
