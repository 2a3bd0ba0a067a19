package shacrypt

import (
	"os/exec"
	"strings"
	"testing"

	"farhand/internal/testenv"
)

// What crypt(3) of glibc makes of the same.
func TestKnown(t *testing.T) {
	for _, c := range []struct{ password, salt, want string }{
		{"Hello world!", "saltstring", "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1"},
	} {
		if got := HashWith(c.password, c.salt); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// Another implementation agrees, for passwords and salts of every length around
// a block's.
func TestAgainstOpenSSL(t *testing.T) {
	openssl, err := exec.LookPath("openssl")
	testenv.Need(t, "openssl", err == nil, "its passwd command hashes the same passwords")
	for _, n := range []int{1, 7, 63, 64, 65, 130} {
		password, salt := strings.Repeat("pä$s", n)[:n], strings.Repeat("s4/.", n)[:min(n, 16)]
		out, err := exec.Command(openssl, "passwd", "-6", "-salt", salt, password).Output()
		if err != nil {
			t.Fatal(err)
		}
		if got, want := HashWith(password, salt), strings.TrimSpace(string(out)); got != want {
			t.Errorf("%d bytes: got %s, want %s", n, got, want)
		}
	}
}

func TestFreshSalt(t *testing.T) {
	if a, b := Hash("x"), Hash("x"); a == b || !strings.HasPrefix(a, "$6$") {
		t.Errorf("%s and %s", a, b)
	}
}
