//go:build !linux

package terminal

import (
	"os"

	"farhand/wire"
)

func openEnds(bool, size) (ends, programEnds, error) { return ends{}, programEnds{}, unsupported() }

func setSize(*os.File, size) error { return unsupported() }

func control(*os.File, func(fd int) error) error { return unsupported() }

func writeNow(*os.File, []byte) (int, error) { return 0, nil }

func newJournalFile() (*os.File, error) { return nil, unsupported() }

func mapFile(*os.File, int) ([]byte, error) { return nil, unsupported() }

func unmap([]byte) {}

func unsupported() error {
	return wire.Errorf(wire.FeatureNotSupported, "terminals are there on Linux only").With("op", string(wire.TTerminalOpen))
}
