package cli

import (
	"strings"
	"testing"
	"time"

	"farhand/client"
	"farhand/wire"
)

func TestParseTarget(t *testing.T) {
	for arg, want := range map[string]target{
		"pi:/etc/hosts":     {"pi", "/etc/hosts"},
		"pi:":               {"pi", ""},
		":":                 {"", ""},
		":/etc":             {"", "/etc"},
		"pi:a:b":            {"pi", "a:b"},
		"aa:bb:/etc":        {"aa:bb", "/etc"},
		"pi:dir/x:/y":       {"pi", "dir/x:/y"},
		"pi:/dir:/y":        {"pi", "/dir:/y"},
		"8f14:~/notes":      {"8f14", "~/notes"},
		"pi:with space/ünï": {"pi", "with space/ünï"},
	} {
		if got, ok := parseTarget(arg); !ok || got != want {
			t.Errorf("parseTarget(%q) = %+v, %t; want %+v", arg, got, ok, want)
		}
	}
	for _, arg := range []string{"", "pi", "/etc/hosts", "dir/pi:x", "./a:b"} {
		if got, ok := parseTarget(arg); ok {
			t.Errorf("parseTarget(%q) = %+v, want none", arg, got)
		}
	}
}

func TestLongestRoot(t *testing.T) {
	roots := []client.Root{{Path: "/data"}, {Path: "/data/work"}, {Path: "/srv"}, {Path: "/data/work/a/b"}}
	for paths, want := range map[string]string{
		"/data": "/data", "/data/": "/data", "/data/work": "/data/work", "/data/workshop": "/data", "/data/work/x": "/data/work",
		"/data/work/a/b/c": "/data/work/a/b", "/srv/../data/work/x": "/data/work", "/etc": "", "/": "", "/data/x /srv/y": "",
		"/data/work/x /data/y": "/data", "/data/work/../../etc": "",
	} {
		got, err := longestRoot(roots, strings.Fields(paths))
		if got != want || (err == nil) != (want != "") || err != nil && wire.CodeOf(err) != wire.PathOutsideAllowedRoot {
			t.Errorf("longestRoot(%s) = %q, %v; want %q", paths, got, err, want)
		}
	}
	if got, err := longestRoot([]client.Root{{Path: "/"}, {Path: "/srv"}}, []string{"/etc"}); got != "/" || err != nil {
		t.Errorf("below / = %q, %v", got, err)
	}
}

func TestUnescape(t *testing.T) {
	for in, want := range map[string]string{
		`*IDN?\n`: "*IDN?\n", `\r\n\t\0\\`: "\r\n\t\x00\\", `\x1b[\xFF`: "\x1b[\xff", "plain ü": "plain ü", "": "",
	} {
		if got, err := unescape(in); err != nil || string(got) != want {
			t.Errorf("unescape(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{`\`, `a\`, `\x`, `\x1`, `\xzz`, `\q`, `\N`} {
		if got, err := unescape(in); err == nil {
			t.Errorf("unescape(%q) = %q, want an error", in, got)
		}
	}
}

func TestDuration(t *testing.T) {
	for in, want := range map[string]time.Duration{
		"90": 90 * time.Second, "0.5": 500 * time.Millisecond, "1m30s": 90 * time.Second, "7d": 168 * time.Hour, "1d12h": 36 * time.Hour, "250ms": 250 * time.Millisecond,
	} {
		if got, err := duration(in); err != nil || got != want {
			t.Errorf("duration(%q) = %v, %v; want %v", in, got, err, want)
		}
	}
	for _, in := range []string{"", "soon", "NaN", "1e300", "-1d", "d", "99999999d", "1d-5h", "36500d2562047h", "1d1", "5 m"} {
		if got, err := duration(in); err == nil {
			t.Errorf("duration(%q) = %v, want an error", in, got)
		}
	}
}

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain ünï": "plain ünï", "a\x1b[2J": "a\uFFFD[2J", "a\u202eb": "a\uFFFDb", "a\nb\r": "a\uFFFDb\uFFFD", "\x9b31m": "\uFFFD31m",
	} {
		if got := clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
}

func TestSizeAndSpan(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", 10 << 20: "10.0 MiB", wire.MaxBinary: "11.9 MiB", 1536: "1.5 KiB", 1 << 62: "4096.0 PiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-time.Hour: "1 s", 0: "1 s", 90 * time.Second: "90 s", 3 * time.Minute: "3 min", 25 * time.Hour: "25 h", 71 * time.Hour: "3 days",
		59*time.Minute + 59*time.Second: "60 min",
	} {
		if got := span(d); got != want {
			t.Errorf("span(%v) = %q, want %q", d, got, want)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, seed := range []string{"pi:/etc", ":", "aa:bb:/x", "", "a/b:c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, arg string) {
		got, ok := parseTarget(arg)
		if ok && (got.machine+":"+got.path != arg || strings.Contains(got.machine, "/")) {
			t.Fatalf("parseTarget(%q) = %+v", arg, got)
		}
	})
}

func FuzzUnescape(f *testing.F) {
	for _, seed := range []string{`*IDN?\n`, `\x41`, `\`, `\\n`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		out, err := unescape(in)
		if err == nil && (len(out) > len(in) || !strings.Contains(in, `\`) && string(out) != in) {
			t.Fatalf("unescape(%q) = %q", in, out)
		}
	})
}

func FuzzDuration(f *testing.F) {
	for _, seed := range []string{"90", "1d12h", "-5", "1e9", "d", "36500d2562047h"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		if d, err := duration(in); err == nil && d < 0 && !strings.Contains(in, "-") {
			t.Fatalf("duration(%q) = %v", in, d)
		}
	})
}
