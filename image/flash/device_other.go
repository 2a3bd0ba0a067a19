//go:build !linux

package flash

import (
	"fmt"
	"os"
	"strings"
)

func looksLikeDevice(path string) bool {
	return strings.HasPrefix(path, "/dev/") || strings.HasPrefix(path, `\\.\`)
}

// inspectDevice refuses: which disks are the system's own is only known on
// Linux.
func inspectDevice(path string) (Target, error) {
	return Target{}, fmt.Errorf("%s: farhand writes to cards on Linux only; write to a file here, and that onto the card with Raspberry Pi Imager (custom image, no customisation)", path)
}

func openDevice(t Target) (*os.File, error) {
	_, err := inspectDevice(t.Path)
	return nil, err
}

func forget(*os.File) {}

func reread(*os.File) {}
