package identity

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"

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
	if name = wire.Clean(name, wire.MaxDisplayName); name != "" {
		return name
	}
	if host, err := os.Hostname(); err == nil {
		if host = wire.Clean(host, wire.MaxDisplayName); host != "" {
			return host
		}
	}
	return "farhand"
}
