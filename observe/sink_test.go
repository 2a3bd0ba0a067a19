package observe

import (
	"context"
	"testing"

	"farhand/wire"
)

// sink is a stream.Outlet that keeps what it gets.
type sink struct {
	ctx    context.Context
	frames chan wire.StreamData
}

func newSink(t *testing.T) *sink {
	return &sink{ctx: t.Context(), frames: make(chan wire.StreamData, 4096)}
}

func (s *sink) Request() string          { return "r" }
func (s *sink) Context() context.Context { return s.ctx }
func (s *sink) Send(_ context.Context, _ string, d wire.StreamData) error {
	s.frames <- d
	return nil
}
