package portal

import (
	"crypto/rand"
	"net/netip"
	"time"
)

const (
	maxTokens = 64
	tokenLife = 15 * time.Minute
)

// tokens are the forms that may still be sent, each once and by the visitor it
// was made for. The zero value has none.
type tokens struct {
	list []token // the oldest first
}

type token struct {
	text    string
	visitor netip.Addr
	made    time.Time
}

// make adds a form. Of too many the oldest is given up: its visitor gets another
// one with the next page.
func (t *tokens) make(visitor netip.Addr, now time.Time) string {
	if len(t.list) == maxTokens {
		t.list = t.list[1:]
	}
	text := rand.Text() // 128 bits and more
	t.list = append(t.list, token{text, visitor, now})
	return text
}

// take uses up a form.
func (t *tokens) take(text string, visitor netip.Addr, now time.Time) bool {
	for i, k := range t.list {
		if k.text == text {
			if k.visitor != visitor {
				return false
			}
			t.list = append(t.list[:i:i], t.list[i+1:]...)
			return now.Sub(k.made) < tokenLife
		}
	}
	return false
}
