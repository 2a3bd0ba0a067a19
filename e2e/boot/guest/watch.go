package guest

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
)

// Text is what a console printed or a program said, as it comes. It is a writer,
// and safe for concurrent use.
type Text struct {
	mu      sync.Mutex
	buf     []byte
	dropped int // bytes before buf
	changed chan struct{}
	lines   []stamp
	started time.Time
}

// stamp says when the text had reached a length.
type stamp struct {
	end int
	at  time.Duration
}

// maxText is how much is kept, in bytes: a board's console of an hour.
const maxText = 8 << 20

// NewText starts the clock of its stamps.
func NewText() *Text { return &Text{changed: make(chan struct{}), started: time.Now()} }

// Write never fails. Carriage returns and NULs are dropped.
func (t *Text) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, b := range p {
		if b == '\r' || b == 0 {
			continue
		}
		t.buf = append(t.buf, b)
		if b == '\n' {
			t.lines = append(t.lines, stamp{t.dropped + len(t.buf), time.Since(t.started)})
		}
	}
	if len(t.buf) > maxText {
		cut := len(t.buf) - maxText/2
		t.buf = append([]byte(nil), t.buf[cut:]...)
		t.dropped += cut
	}
	close(t.changed)
	t.changed = make(chan struct{})
	return len(p), nil
}

// Mark is the present end, from which Await can look.
func (t *Text) Mark() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropped + len(t.buf)
}

// since is the text after a mark, and what to wait for if it isn't enough.
func (t *Text) since(mark int) ([]byte, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buf[min(max(0, mark-t.dropped), len(t.buf)):], t.changed
}

// Await waits until the text after mark matches, and returns the groups of the
// match. The error holds the text's end.
func (t *Text) Await(ctx context.Context, mark int, pattern *regexp.Regexp) ([]string, error) {
	for {
		text, changed := t.since(mark)
		if m := pattern.FindStringSubmatch(plain(string(text))); m != nil {
			return m, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, fmt.Errorf("%q was never seen: %w; the last was\n%s", pattern, context.Cause(ctx), t.Tail())
		}
	}
}

// escapes are the sequences by which a terminal is steered (ECMA-48 control
// sequences, and the strings that systemd sends to name a window).
var escapes = regexp.MustCompile("\x1b(\\[[0-?]*[ -/]*[@-~]|[]P^_][^\x07\x1b]*(\x07|\x1b\\\\)?|[ -/]*[0-~])")

func plain(s string) string { return escapes.ReplaceAllString(s, "") }

// String is all of it, with the time before each line.
func (t *Text) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out strings.Builder
	from := 0
	for _, l := range t.lines {
		end := l.end - t.dropped
		if end <= 0 {
			continue
		}
		fmt.Fprintf(&out, "[%6.1f] %s", l.at.Seconds(), plain(string(t.buf[from:end])))
		from = end
	}
	out.WriteString(plain(string(t.buf[from:])))
	return out.String()
}

// tailLines is how much of a text is in an error.
const tailLines = 40

// Tail is its last lines.
func (t *Text) Tail() string {
	lines := strings.Split(strings.TrimSpace(t.String()), "\n")
	return strings.Join(lines[max(0, len(lines)-tailLines):], "\n")
}
