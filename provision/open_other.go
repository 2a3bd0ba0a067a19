//go:build !linux

package provision

import (
	"context"
	"errors"
	"fmt"
	"runtime"
)

func (s *System) run(ctx context.Context, name string, args ...string) error {
	if s.Run != nil {
		return s.Run(ctx, name, args...)
	}
	return fmt.Errorf("%s: not on %s", name, runtime.GOOS)
}

func (s *System) freeSpace(path string) (int64, error) {
	if s.Free != nil {
		return s.Free(path)
	}
	return 0, errors.ErrUnsupported
}
