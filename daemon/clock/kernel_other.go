//go:build !linux

package clock

import "errors"

func disciplined() (bool, error) { return false, errors.ErrUnsupported }
