//go:build !linux

package screen

import (
	"errors"
	"fmt"
	"os"
)

func framebuffer(f *os.File) (format, error) {
	return format{}, fmt.Errorf("%s: framebuffer: %w", f.Name(), errors.ErrUnsupported)
}

func windowSize(*os.File) (cols, rows int, ok bool) { return 0, 0, false }

func openDevice(path string) (*os.File, error) { return os.OpenFile(path, os.O_RDWR, 0) }
