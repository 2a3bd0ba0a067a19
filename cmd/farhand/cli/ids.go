package cli

import (
	"strings"
)

// shownID is how many characters of an id a list shows at least, beyond what
// says its kind.
const shownID = 8

// shortIDs cuts ids to as much of their beginnings as tells them apart. Every
// verb takes such a beginning, and --json has the whole id.
func shortIDs(ids []string) []string {
	short := make([]string, len(ids))
	for i, id := range ids {
		n := len(id) - len(strings.TrimPrefix(strings.TrimPrefix(id, "token-"), "login-")) + shownID
		for ; n < len(id); n++ {
			if count(ids, func(other string) bool { return strings.HasPrefix(other, id[:n]) }) == 1 {
				break
			}
		}
		short[i] = id[:min(n, len(id))]
	}
	return short
}

func count[T any](list []T, is func(T) bool) int {
	n := 0
	for _, x := range list {
		if is(x) {
			n++
		}
	}
	return n
}

// named is something that can be asked for by its id, an unambiguous beginning
// of the id, or its name.
type named struct{ id, name string }

// pick finds the id that text stands for. What fits nothing is left to the relay
// to refuse.
func pick(all []named, text string) (string, error) {
	for _, is := range []func(named) bool{
		func(x named) bool { return x.id == text },
		func(x named) bool { return x.name == text },
		func(x named) bool { return strings.HasPrefix(x.id, text) },
	} {
		var fit []string
		for _, x := range all {
			if text != "" && is(x) {
				fit = append(fit, x.id)
			}
		}
		switch len(fit) {
		case 0:
			continue
		case 1:
			return fit[0], nil
		}
		return "", usage("%q stands for %s: name one", text, strings.Join(fit, ", "))
	}
	return text, nil
}
