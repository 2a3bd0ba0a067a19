package disk

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// MakeSquashFS writes a read-only file system of a tree into a file. It isn't
// compressed: the image is, as a whole and better, and a device reads it without
// work.
func MakeSquashFS(ctx context.Context, tree string, epoch time.Time, path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	at := strconv.FormatInt(epoch.Unix(), 10)
	cmd := exec.CommandContext(ctx, "mksquashfs", tree, path, "-noI", "-noD", "-noF", "-noX", "-no-xattrs", "-reproducible",
		"-mkfs-time", at, "-all-time", at, "-no-progress", "-quiet", "-no-exports")
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "SOURCE_DATE_EPOCH=") { // it refuses both
			cmd.Env = append(cmd.Env, v)
		}
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mksquashfs: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
