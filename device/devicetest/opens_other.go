//go:build !linux

package devicetest

import "testing"

func testProbeOpensNothing(t *testing.T, _ *rig) { t.Skip("opens are watched on Linux only") }
