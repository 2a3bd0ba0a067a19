//go:build !linux

package portal

import "syscall"

func freeBind(string, string, syscall.RawConn) error { return nil }
