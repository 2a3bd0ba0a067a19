package route

import (
	"regexp"
	"strings"
	"testing"
)

func TestIsSessionID(t *testing.T) {
	pattern := regexp.MustCompile(`^[A-Za-z0-9-]{1,128}$`)
	for c := range 256 {
		for _, s := range []string{string([]byte{byte(c)}), string([]byte{'a', byte(c), 'Z'})} {
			if isSessionID(s) != pattern.MatchString(s) {
				t.Errorf("%q: %v", s, isSessionID(s))
			}
		}
	}
	for _, n := range []int{0, 1, 128, 129} {
		s := strings.Repeat("a", n)
		if isSessionID(s) != pattern.MatchString(s) {
			t.Errorf("length %d: %v", n, isSessionID(s))
		}
	}
}
