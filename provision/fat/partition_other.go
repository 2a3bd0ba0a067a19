//go:build !linux

package fat

import (
	"context"
	"fmt"
	"os"
	"runtime"
)

// View is for Linux alone.
func (p *Partition) View(context.Context, func(*os.Root) error) error { return p.unsupported() }

// Commit is for Linux alone.
func (p *Partition) Commit(context.Context, func(*os.Root) error) error { return p.unsupported() }

func (p *Partition) unsupported() error {
	return fmt.Errorf("mount %s: not on %s", p.Device, runtime.GOOS)
}
