//go:build !unix

package identity

import (
	"fmt"
	"io"
	"runtime"

	"farhand/wire"
)

// LockStateDir needs flock.
func LockStateDir(string) (io.Closer, error) {
	return nil, fmt.Errorf("lock a state directory on %s: %w", runtime.GOOS, wire.FeatureNotSupported)
}
