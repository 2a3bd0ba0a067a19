package disk

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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
	if err := x.run(cmd); err != nil {
		return err
	}
	// It keeps when each file of the tree was read, which it has just been, and
	// changed, which nobody can set.
	var changes strings.Builder
	err := filepath.WalkDir(x.Tree, func(name string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(x.Tree, name)
		if err != nil {
			return err
		}
		if strings.ContainsAny(rel, "\"\n") {
			return fmt.Errorf("a file can't be called %q", rel)
		}
		for _, field := range []string{"atime", "ctime", "mtime"} {
			fmt.Fprintf(&changes, "set_inode_field \"/%s\" %s @%d\n", rel, field, x.Epoch.Unix())
		}
		return nil
	})
	if err != nil {
		return err
	}
	cmd = exec.CommandContext(ctx, "debugfs", "-w", "-f", "-", path)
	cmd.Stdin = strings.NewReader(changes.String())
	return x.run(cmd)
}

// run runs a program of e2fsprogs with the time standing still.
func (x Ext4) run(cmd *exec.Cmd) error {
	at := fmt.Sprint(x.Epoch.Unix())
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+at, "E2FSPROGS_FAKE_TIME="+at)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", filepath.Base(cmd.Path), err, strings.TrimSpace(string(out)))
	}
	return nil
}
