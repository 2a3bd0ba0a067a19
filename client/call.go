package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"

	"farhand/wire"
)

// call makes one request of the management API. in and out may be nil.
func (c *Client) call(ctx context.Context, method, path string, in, out any) error {
	return c.callWith(ctx, method, path, nil, in, out)
}

// callWith is call with more headers.
func (c *Client) callWith(ctx context.Context, method, path string, more http.Header, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encode %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	maps.Copy(req.Header, more)
	c.sign(req.Header)
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.linkFailure(ctx, err)
	}
	defer resp.Body.Close()
	answer, err := drain(resp.Body)
	if err != nil {
		return c.linkFailure(ctx, err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return c.refusal(resp.StatusCode, answer)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return &linkError{RelayUnreachable, "what answers at " + c.base.Host + " is not a Farhand relay", err}
	}
	return nil
}

// sign adds who asks.
func (c *Client) sign(h http.Header) {
	h.Set("Accept", "application/json")
	if c.agent != "" {
		h.Set("User-Agent", c.agent)
	}
	if c.token != "" {
		h.Set("Authorization", "Bearer "+c.token)
	}
}

// refusal turns an answer other than 2xx into an error. The relay's own have a
// code; what a proxy in between says has none and is named by its status.
func (c *Client) refusal(status int, body []byte) error {
	var answer struct {
		Error wire.Error `json:"error"`
	}
	e := &answer.Error
	if c.base.Scheme == "http" && status == http.StatusBadRequest && bytes.Contains(body, []byte("HTTPS server")) { // net/http's own words
		return &linkError{RelayUnreachable, "the relay at " + c.base.Host + " can't be reached by http", errors.New("it speaks https")}
	}
	if err := json.Unmarshal(body, &answer); err != nil || e.Code == "" {
		e = &wire.Error{Message: fmt.Sprintf("the relay at %s answered %d %s", c.base.Host, status, http.StatusText(status))}
		e.Code = statusCode(status)
		if status >= 500 {
			return &linkError{RelayUnreachable, "the relay at " + c.base.Host + " can't serve", fmt.Errorf("HTTP %d %s", status, http.StatusText(status))}
		}
	}
	if status == http.StatusServiceUnavailable && e.Code == relayUnavailable { // the relay itself, and not the machine
		return &linkError{RelayUnreachable, "the relay at " + c.base.Host + " can't serve", errors.New(e.Message)}
	}
	if status == http.StatusUnauthorized && e.Code != wire.AuthFailed {
		// Whatever it is called, callers ask one question: sign in again?
		e.With("relay_code", string(e.Code))
		e.Code = wire.AuthFailed
	}
	return e.With("status", status)
}

func statusCode(status int) wire.Code {
	switch status {
	case http.StatusUnauthorized:
		return wire.AuthFailed
	case http.StatusForbidden:
		return wire.CapabilityNotGranted
	default:
		return wire.InternalError
	}
}

// escape makes one segment of a path.
func escape(segment string) string { return url.PathEscape(segment) }
