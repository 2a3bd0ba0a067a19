package cli

import (
	"slices"
	"testing"
)

func TestShortIDs(t *testing.T) {
	for _, c := range []struct{ ids, want []string }{
		{nil, []string{}},
		{[]string{"a"}, []string{"a"}},
		{[]string{"8f14e45f-ceea-467a", "8f14e45f-ceeb-467a", "1234567890"}, []string{"8f14e45f-ceea", "8f14e45f-ceeb", "12345678"}},
		{[]string{"token-0123456789", "login-0123456789"}, []string{"token-01234567", "login-01234567"}},
		{[]string{"0123456789", "0123456789abc"}, []string{"0123456789", "0123456789a"}},
	} {
		if got := shortIDs(c.ids); !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.ids, got, c.want)
		}
	}
}

func TestPick(t *testing.T) {
	all := []named{{"token-01ab", "ci"}, {"token-01cd", "agent"}, {"token-99", "agent"}, {"agent", "x"}, {"zz", ""}}
	for text, want := range map[string]string{
		"token-01ab": "token-01ab", "ci": "token-01ab", "token-9": "token-99", "agent": "agent", // an id before a name
		"token-01": "", "nobody": "nobody", "": "",
	} {
		got, err := pick(all, text)
		if got != want || (err != nil) != (want == "" && text != "") {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := pick(all[:3], "agent"); err == nil {
		t.Error("a name of two is taken")
	}
}
