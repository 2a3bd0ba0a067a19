package disk

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Ext4 describes an ext4 file system.
type Ext4 struct {
	Label string
	UUID  string
	Size  int64  // bytes
	Tree  string // the folder with its content, whose files become root's
	Epoch time.Time
}

// MakeExt4 writes an ext4 file system into a file, by e2fsprogs. Blocks are of 4
// KiB and inodes as far apart as on a large one: it grows.
func MakeExt4(ctx context.Context, x Ext4, path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	cmd := exec.CommandContext(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-L", x.Label, "-U", x.UUID, "-m", "1", "-b", "4096", "-i", "16384",
		// The checksums hang on a seed of their own, so that another UUID is a matter of
		// one block.
		"-O", "metadata_csum_seed", "-E", "root_owner=0:0,hash_seed="+x.UUID, "-d", x.Tree, path, fmt.Sprintf("%dk", x.Size>>10))
	at := fmt.Sprint(x.Epoch.Unix())
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+at, "E2FSPROGS_FAKE_TIME="+at)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mke2fs: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
