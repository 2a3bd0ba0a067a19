package oauth

import (
	"os"
	"strings"
	"testing"
)

// docs/relay-api.md names every call, whether it needs the owner's own login,
// and every code of ours.
func TestDocs(t *testing.T) {
	b, err := os.ReadFile("../../docs/relay-api.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, c := range calls {
		_, after, ok := strings.Cut(text, "| `"+c.pattern+"`")
		if !ok {
			t.Errorf("%s isn't there", c.pattern)
			continue
		}
		if login := strings.HasPrefix(after, " *login* |"); login != c.login {
			t.Errorf("%s: the text says login %t", c.pattern, login)
		}
	}
	for _, code := range []string{string(codeNotFound), string(codeConflict), string(codeLoginRequired), string(codeRateLimited), string(codeUnavailable)} {
		if !strings.Contains(text, "`"+code+"`") {
			t.Errorf("%s isn't there", code)
		}
	}
}
