//go:build !linux

package devicetest

import (
	"testing"

	"farhand/internal/testenv"
)

func testProbeOpensNothing(t *testing.T, _ *rig) {
	testenv.Need(t, "inotify", false, "opens are watched on Linux only")
}
