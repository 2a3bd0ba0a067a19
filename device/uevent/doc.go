// Package uevent follows the kernel's device events on a NETLINK_KOBJECT_UEVENT
// socket (Linux 2.6.10 and later; no privilege needed). It is a thin face: what
// an event means is for others to say.
package uevent

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// MaxMessage is the size of a read. The kernel's own buffer for an event has
// 2048 bytes of variables (UEVENT_BUFFER_SIZE) after a header with a path.
const MaxMessage = 16 << 10

var (
	// ErrLost says that the kernel dropped events because too many were
	// waiting (ENOBUFS). The listener goes on.
	ErrLost = errors.New("kernel device events were lost")
	// ErrClosed says that the listener was closed.
	ErrClosed = errors.New("the listener for kernel device events is closed")
)

// Event is one change that the kernel reports.
type Event struct {
	Action    string // add, remove, change, bind, unbind, move, …
	DevPath   string // below /sys, beginning with /devices as a rule
	Subsystem string
	DevName   string // below /dev; empty if there is no node
}

// Parse reads a message: ACTION@DEVPATH, then KEY=VALUE, each ended by a NUL.
// The variables win over the header, which has no room for anything else.
func Parse(msg []byte) (Event, error) {
	fields := bytes.Split(msg, []byte{0})
	action, path, ok := strings.Cut(string(fields[0]), "@")
	if !ok || action == "" || path == "" {
		return Event{}, fmt.Errorf("not a kernel device event: %.40q", fields[0])
	}
	e := Event{Action: action, DevPath: path}
	for _, f := range fields[1:] {
		key, value, ok := strings.Cut(string(f), "=")
		if !ok {
			continue
		}
		switch key {
		case "ACTION":
			e.Action = value
		case "DEVPATH":
			e.DevPath = value
		case "SUBSYSTEM":
			e.Subsystem = value
		case "DEVNAME":
			e.DevName = value
		}
	}
	return e, nil
}
