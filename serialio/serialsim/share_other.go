//go:build !linux

package serialsim

import (
	"errors"
	"os"
)

func share(*os.File) error { return errors.ErrUnsupported }
