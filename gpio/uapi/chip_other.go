//go:build !linux

package uapi

import "errors"

// ChipInfo fails: the character device is Linux's own.
func ChipInfo(string) (Chip, error) { return Chip{}, errors.ErrUnsupported }
