package identity

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unicode"

	"farhand/wire"
)

// Platform is HELLO.platform: linux, wsl2, darwin or windows.
func Platform() string {
	if runtime.GOOS != "linux" {
		return runtime.GOOS
	}
	return platform("/")
}

func platform(root string) string {
	b, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/osrelease"))
	if err == nil && strings.Contains(strings.ToLower(string(b)), "microsoft") {
		return "wsl2"
	}
	return "linux"
}

// Arch is HELLO.arch: x86_64 or arm64. The protocol knows no other:
// UNSUPPORTED_ARCH.
func Arch() (string, error) { return arch(runtime.GOARCH) }

func arch(goarch string) (string, error) {
	switch goarch {
	case "amd64":
		return "x86_64", nil
	case "arm64":
		return "arm64", nil
	default:
		return "", wire.Errorf(wire.UnsupportedArch, "the protocol knows no machine of architecture %s", goarch).With("arch", goarch)
	}
}

// DisplayName is name as HELLO.display_name may carry it: without control and
// format characters, "<" and ">", at most 128 characters. An empty one becomes
// the host name, and that failing "farhand".
func DisplayName(name string) string {
	if name = clean(name, wire.MaxDisplayName); name != "" {
		return name
	}
	if host, err := os.Hostname(); err == nil {
		if host = clean(host, wire.MaxDisplayName); host != "" {
			return host
		}
	}
	return "farhand"
}

// clean drops what HELLO may not carry (Unicode category C and the line
// separators, angle brackets), trims spaces and cuts at max characters.
func clean(s string, max int) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case r == '<' || r == '>' || r == '\u2028' || r == '\u2029':
			return -1
		case !unicode.In(r, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S, unicode.Z):
			return -1 // all of category C, unassigned characters included
		default:
			return r
		}
	}, strings.ToValidUTF8(s, ""))
	s = strings.TrimSpace(s)
	if runes := []rune(s); len(runes) > max {
		s = strings.TrimSpace(string(runes[:max]))
	}
	return s
}
