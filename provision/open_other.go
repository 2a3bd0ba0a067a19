//go:build !linux

package provision

import (
	"context"
	"fmt"
	"runtime"
)

func (s *System) run(ctx context.Context, name string, args ...string) error {
	if s.Run != nil {
		return s.Run(ctx, name, args...)
	}
	return fmt.Errorf("%s: not on %s", name, runtime.GOOS)
}
