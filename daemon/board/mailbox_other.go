//go:build !linux

package board

import "errors"

func mailboxPower(string) (Power, error) { return 0, errors.ErrUnsupported }
