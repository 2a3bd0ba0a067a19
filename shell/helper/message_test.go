package helper

import (
	"errors"
	"io/fs"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"farhand/shell"
)

func TestRequestSurvives(t *testing.T) {
	for _, want := range []request{
		{},
		{flags: withDir | withStdout | withStderr, path: "/bin", argv: []string{"sh", "-c", "a\nb", ""}, env: []string{"A=", "B=\xff\n"}},
	} {
		b, err := want.encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseRequest(b)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
	}
}

func TestRequestsThatCannotBe(t *testing.T) {
	for name, r := range map[string]request{
		"NUL in an argument": {argv: []string{"a\x00b"}},
		"NUL in a variable":  {env: []string{"A=\x00"}},
		"NUL in PATH":        {path: "\x00"},
		"8 MiB":              {argv: []string{strings.Repeat("x", maxRequest)}},
		"many arguments":     {argv: make([]string, maxStrings+1)},
	} {
		if _, err := r.encode(); err == nil {
			t.Errorf("%s: encoded", name)
		}
	}
}

func TestFailuresKeepTheirMeaning(t *testing.T) {
	for _, want := range []error{
		fs.ErrNotExist, fs.ErrPermission, shell.ErrDirGone, shell.ErrDirForbidden, syscall.ENOEXEC, syscall.E2BIG,
	} {
		got := parseFailure(failure(want)[headerLen:])
		if !errors.Is(got, want) || got.Error() != want.Error() {
			t.Errorf("%v became %v", want, got)
		}
	}
	if got := parseFailure(failure(errors.New("else"))[headerLen:]); got.Error() != "else" {
		t.Errorf("%v", got)
	}
}

func FuzzRequest(f *testing.F) {
	b, err := request{flags: withDir, path: "/bin", argv: []string{"sh", "-c", "x"}, env: []string{"A=b"}}.encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{0, 255, 255, 0, 0, 1, 0, 0, 0, 'x'})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRequest(b)
		if err != nil {
			return
		}
		again, err := r.encode()
		if err != nil || string(again) != string(b) {
			t.Errorf("%q became %q (%v)", b, again, err)
		}
	})
}

func FuzzFailure(f *testing.F) {
	f.Add(failure(shell.ErrDirGone)[headerLen:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if parseFailure(b) == nil {
			t.Error("no error")
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add(string(numbers(kill, 300)))
	f.Add("\xff\xff\xff\xff")
	f.Fuzz(func(t *testing.T, s string) {
		k, body, err := readMessage(strings.NewReader(s), maxMessage)
		if err == nil && !strings.HasPrefix(s, string(message(k, body))) {
			t.Errorf("%q read from %q", message(k, body), s)
		}
	})
}
