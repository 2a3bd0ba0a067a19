//go:build !linux

package shell

import (
	"context"
	"log/slog"

	"farhand/wire"
)

// LocalConfig says how programs are kept together.
type LocalConfig struct {
	Cgroup string
	Log    *slog.Logger
}

// Local needs Linux.
type Local struct{}

// NewLocal makes a Runner that refuses everything.
func NewLocal(LocalConfig) (*Local, error) { return &Local{}, nil }

// Start implements Runner.
func (*Local) Start(context.Context, Spec) (Process, error) {
	return nil, wire.Errorf(wire.FeatureNotSupported, "commands run on Linux only").With("op", string(wire.TExecuteCommand))
}

// Close implements Runner.
func (*Local) Close() error { return nil }
