//go:build !linux

package uevent

import (
	"context"
	"errors"
)

// Listener can't be had on this system.
type Listener struct{}

// Listen fails: the kernel's events are Linux's own.
func Listen() (*Listener, error) { return nil, errors.ErrUnsupported }

// Next fails.
func (*Listener) Next(context.Context) (Event, error) { return Event{}, ErrClosed }

// Close does nothing.
func (*Listener) Close() error { return nil }
