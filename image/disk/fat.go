package disk

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// FAT describes a FAT file system.
type FAT struct {
	Bits   int // 16 or 32
	Label  string
	Volume uint32 // the volume's id
	Size   int64  // bytes
	Tree   string // the folder with its content
	Epoch  time.Time
}

// MakeFAT writes a FAT file system into a file, by dosfstools and mtools. Files
// get into it in the order of their names.
func MakeFAT(ctx context.Context, f FAT, path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	env := append(os.Environ(), "SOURCE_DATE_EPOCH="+strconv.FormatInt(f.Epoch.Unix(), 10), "TZ=UTC", "LC_ALL=C.UTF-8", "MTOOLS_SKIP_CHECK=1")
	run := func(name string, args ...string) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Env = env
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(string(out)))
		}
		return nil
	}
	if err := run("mkfs.vfat", "--invariant", "-F", strconv.Itoa(f.Bits), "-n", f.Label, "-i", fmt.Sprintf("%08x", f.Volume), "-C", path, strconv.FormatInt(f.Size/1024, 10)); err != nil {
		return err
	}
	return filepath.WalkDir(f.Tree, func(name string, d fs.DirEntry, err error) error { // in lexical order
		if err != nil || name == f.Tree {
			return err
		}
		rel, err := filepath.Rel(f.Tree, name)
		if err != nil {
			return err
		}
		if err := os.Chtimes(name, f.Epoch, f.Epoch); err != nil {
			return err
		}
		if d.IsDir() {
			return run("mmd", "-i", path, "::/"+rel)
		}
		return run("mcopy", "-i", path, "-m", "-Q", name, "::/"+rel)
	})
}
