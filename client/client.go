package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"

	"farhand/wire"
)

// Config says which relay and who asks.
type Config struct {
	URL      string // https://host[:port], or http:// to a loopback address
	Token    string // operator token; empty before Login
	CASHA256 string // pin: hex SHA-256 of a certificate's DER; empty: the system's roots
	Agent    string // User-Agent, for the relay's log
	Log      *slog.Logger
	// Dial replaces the TCP dialler, below TLS; nil: the system's.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Client talks to one relay with one token. Close it to end its WebSocket.
type Client struct {
	base  *url.URL
	token string
	agent string
	http  *http.Client
	tls   *tls.Config
	log   *slog.Logger
	net   func(ctx context.Context, network, addr string) (net.Conn, error) // nil: the system's
	sock  *socket
}

// New makes a Client. It opens no connection. A URL that may not be used (plain
// http to another host, no host, a malformed pin) is an error.
func New(cfg Config) (*Client, error) {
	base, err := ParseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	tlsConfig, err := trust(base.Hostname(), cfg.CASHA256)
	if err != nil {
		return nil, err
	}
	log := cfg.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	c := &Client{base: base, token: cfg.Token, agent: cfg.Agent, tls: tlsConfig, log: log, net: cfg.Dial}
	c.http = &http.Client{
		Transport: &http.Transport{
			Proxy:                 http.ProxyFromEnvironment,
			DialContext:           cfg.Dial,
			TLSClientConfig:       tlsConfig.Clone(), // the transport adds h2 to it, which no WebSocket speaks
			TLSHandshakeTimeout:   10 * time.Second,
			ForceAttemptHTTP2:     true,
			MaxIdleConns:          2,
			IdleConnTimeout:       90 * time.Second,
			ResponseHeaderTimeout: httpTimeout,
		},
		Timeout: httpTimeout,
		// The API never redirects; following one would carry the request, and
		// what it says, to a place that nobody named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.sock = newSocket(c.dial, log)
	return c, nil
}

// URL is the relay's address, as it is remembered.
func (c *Client) URL() string { return c.base.String() }

// Close ends the WebSocket and waits for its goroutines. Requests under way
// fail. It doesn't end sessions on the relay. Idempotent.
func (c *Client) Close() error {
	c.sock.close()
	c.http.CloseIdleConnections()
	return nil
}

// httpTimeout bounds one call of the management API. The longest is verifying an
// audit log, for which the relay gives a device 60 s.
const httpTimeout = 90 * time.Second

// maxAnswer bounds the body of a management answer (a fleet's machine list with
// all devices is below 1 MiB).
const maxAnswer = 8 << 20

// RelayUnreachable and RelayUntrusted are made here: the first says that the
// relay itself gave no answer, the second that its certificate was refused.
const (
	RelayUnreachable wire.Code = "RELAY_UNREACHABLE"
	RelayUntrusted   wire.Code = "RELAY_UNTRUSTED"
)

// relayUnavailable is the relay's word that it can't answer just now, as while its
// store is out of reach.
const relayUnavailable wire.Code = "UNAVAILABLE"

// relayAway says whether there is no relay to ask just now.
func relayAway(err error) bool {
	return errors.Is(err, RelayUnreachable) || errors.Is(err, relayUnavailable)
}

// linkError is a failure to reach the relay. It is its code and its cause.
type linkError struct {
	code wire.Code
	text string
	err  error
}

func (e *linkError) Error() string   { return e.text + ": " + e.err.Error() }
func (e *linkError) Unwrap() []error { return []error{e.code, e.err} }

// linkFailure turns a transport error into what callers see. A done context is
// the caller's own decision and stays as it is.
func (c *Client) linkFailure(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	var asked *url.Error
	if errors.As(err, &asked) {
		err = asked.Err // without the URL, which the text names already
	}
	if untrusted(err) {
		return &linkError{RelayUntrusted, "the certificate of the relay at " + c.base.Host + " is not trusted", err}
	}
	// Of a connection that wasn't made it is said why, and where to if that is news.
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" && op.Err != nil {
		if err = op.Err; op.Addr != nil && op.Addr.String() != c.base.Host {
			err = fmt.Errorf("%s: %w", op.Addr, op.Err)
		}
	}
	return &linkError{RelayUnreachable, "the relay at " + c.base.Host + " can't be reached", err}
}

// drain reads a bounded body to its end.
func drain(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxAnswer+1))
	if err == nil && len(b) > maxAnswer {
		err = fmt.Errorf("the answer is longer than %d bytes", maxAnswer)
	}
	return b, err
}
