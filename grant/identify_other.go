//go:build !linux

package grant

import (
	"fmt"
	"runtime"

	"farhand/wire"
)

func identify(string) (identity, error) {
	return identity{}, fmt.Errorf("identify a directory on %s: %w", runtime.GOOS, wire.FeatureNotSupported)
}

func accessible(string) bool { return false }
