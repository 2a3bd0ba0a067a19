//go:build !linux

package link

import "net"

func newDialer() *net.Dialer { return &net.Dialer{} }
