package card

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Files copies what is on a FAT partition into dir, which it makes, and shows
// it.
func (c *Card) Files(ctx context.Context, number int, dir string) (fs.FS, error) {
	p, err := c.Partition(number)
	if err != nil {
		return nil, err
	}
	return files(ctx, fmt.Sprintf("%s@@%d", c.Path, p.Offset), dir)
}

// files lists a file system in mtools' notation, FILE@@OFFSET.
func files(ctx context.Context, image, dir string) (fs.FS, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	// In an empty file system the pattern finds nothing, and mcopy fails.
	if out, err := mtools(ctx, "mdir", "-b", "-i", image, "::"); err != nil {
		return nil, err
	} else if out == "" {
		return os.DirFS(dir), nil
	}
	if _, err := mtools(ctx, "mcopy", "-s", "-n", "-Q", "-i", image, "::*", dir); err != nil {
		return nil, err
	}
	return os.DirFS(dir), nil
}

// Put writes a file into the root of a FAT partition.
func (c *Card) Put(ctx context.Context, number int, name string, data []byte) error {
	p, err := c.Partition(number)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "farhand-card-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	from := filepath.Join(dir, name)
	if err := os.WriteFile(from, data, 0o600); err != nil {
		return err
	}
	_, err = mtools(ctx, "mcopy", "-o", "-i", fmt.Sprintf("%s@@%d", c.Path, p.Offset), from, "::"+name)
	return err
}

func mtools(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "MTOOLS_SKIP_CHECK=1", "LC_ALL=C.UTF-8")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s (of Debian's mtools): %w: %s", args[0], err, strings.TrimSpace(errs.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
