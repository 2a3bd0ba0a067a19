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
	Limits GroupLimits
	Log    *slog.Logger
}

// GroupLimits bound one command.
type GroupLimits struct {
	Memory    int64
	Processes int
}

// Local needs Linux.
type Local struct{}

// NewLocal makes a Runner that refuses everything.
func NewLocal(LocalConfig) (*Local, error) { return &Local{}, nil }

// Start implements Runner.
func (*Local) Start(context.Context, Spec) (Process, error) {
	return nil, wire.Errorf(wire.FeatureNotSupported, "commands run on Linux only").With("op", string(wire.TExecuteCommand))
}

// DefaultLimits are none.
func DefaultLimits() GroupLimits { return GroupLimits{} }

// Exact implements nothing here.
func (*Local) Exact() bool { return false }

// Close implements Runner.
func (*Local) Close() error { return nil }
