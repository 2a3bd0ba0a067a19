package llm

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"
)

// maxStream bounds what one answer of the server may take in all: every token
// comes as a line of its own, of some hundred bytes.
const maxStream = 256 << 20

// newTransport goes to the server straight: a local one is not reached through a
// proxy, and nothing compresses a loopback.
func newTransport(vet func(net.Conn) error) *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	return &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(ctx, network, address)
			if err != nil || vet == nil {
				return conn, err
			}
			if err := vet(conn); err != nil {
				conn.Close()
				return nil, err
			}
			return conn, nil
		},
		TLSHandshakeTimeout: 10 * time.Second,
		DisableCompression:  true,
		MaxIdleConns:        2,
		IdleConnTimeout:     30 * time.Second,
	}
}

// checked turns every answer but 200 into a *backendError and bounds the rest.
// The client library would overlook a failure without a body.
type checked struct{ next http.RoundTripper }

func (c checked) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		resp.Body = &bounded{resp.Body, maxStream}
		return resp, nil
	}
	defer resp.Body.Close()
	const most = 64 << 10
	body, _ := io.ReadAll(io.LimitReader(resp.Body, most))
	return nil, &backendError{status: resp.StatusCode, text: errorText(body)}
}

// backendError is a refusal by the server.
type backendError struct {
	status int    // 0: it came in the middle of an answer
	text   string // at most 200 characters, may be empty
}

func (e *backendError) Error() string {
	switch {
	case e.status == 0:
		return "the model's server gave up: " + e.text
	case e.text == "":
		return fmt.Sprintf("the model's server answered HTTP %d", e.status)
	}
	return fmt.Sprintf("the model's server answered HTTP %d: %s", e.status, e.text)
}

// refusesThink says whether the server objects to the think option itself.
func (e *backendError) refusesThink() bool {
	return e.status >= 400 && e.status < 500 && strings.Contains(strings.ToLower(e.text), "think")
}

// errorText is the error in {"error": "…"}, {"error": {"message": "…"}} or
// {"message": "…"}, or the beginning of what else it is.
func errorText(body []byte) string {
	var doc struct {
		Error   json.RawMessage `json:"error"`
		Message string          `json:"message"`
	}
	if json.Unmarshal(body, &doc) != nil {
		return excerpt(string(body))
	}
	var text string
	switch {
	case json.Unmarshal(doc.Error, &text) == nil && text != "":
		return excerpt(text)
	case json.Unmarshal(doc.Error, &doc) == nil, doc.Message != "":
		return excerpt(orElse(doc.Message, string(body)))
	}
	return excerpt(string(body))
}

// maxLine bounds one line of an answer.
const maxLine = 8 << 20

// newLines reads the lines of an answer that grows. One that nothing ends was cut and
// is none, unless it is whole.
func newLines(body io.Reader, whole func([]byte) bool) *bufio.Scanner {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	lines.Split(func(data []byte, end bool) (int, []byte, error) { return bufio.ScanLines(data, end && whole(data)) })
	return lines
}

// endOf is how an answer ended of which there are no more lines: nil, if nothing is
// wrong, errTruncated, if the server has gone.
func endOf(lines *bufio.Scanner) error {
	switch err := lines.Err(); {
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return errTruncated
	case errors.Is(err, bufio.ErrTooLong):
		return fmt.Errorf("the server sent a line of more than %d bytes", maxLine)
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	}
	return nil
}

// bounded is a body that fails rather than go on for ever.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, fmt.Errorf("the answer is longer than %d bytes", int64(maxStream))
	}
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	return n, err
}
