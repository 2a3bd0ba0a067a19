package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"farhand/image/target"
)

// tools are the programs of this machine that the test runs, and the packages
// that have them.
func tools() [][2]string {
	return [][2]string{
		{"mcopy", "mtools"}, {"fdtput", "device-tree-compiler"}, {"qemu-img", "qemu-utils"}, {"e2fsck", "e2fsprogs"},
		{"debugfs", "e2fsprogs"}, {"dumpe2fs", "e2fsprogs"}, {"fsck.vfat", "dosfstools"}, {"xz", "xz-utils"},
	}
}

// needed has root's machine install what is missing; another user is told.
func needed(ctx context.Context, log io.Writer) error {
	var missing []string
	for _, p := range tools() {
		if _, err := exec.LookPath(p[0]); err != nil && !slices.Contains(missing, p[1]) {
			missing = append(missing, p[1])
		}
	}
	if len(missing) == 0 {
		return nil
	}
	install := append([]string{"install", "-y", "-q", "--no-install-recommends"}, missing...)
	if os.Geteuid() != 0 {
		return fmt.Errorf("programs are missing: apt-get %s", strings.Join(install, " "))
	}
	fmt.Fprintf(log, "installing %s\n", strings.Join(missing, ", "))
	for _, args := range [][]string{{"update", "-q"}, install} {
		cmd := exec.CommandContext(ctx, "apt-get", args...)
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %s: %w: %s", args[0], err, out)
		}
	}
	return nil
}

// unpack finds the image and has it as a plain, sparse file.
func (r *run) unpack(ctx context.Context) error {
	if r.image == "" {
		var err error
		if r.image, err = newest("bin/image", r.target); err != nil {
			return err
		}
	}
	var err error
	if r.image, err = filepath.Abs(r.image); err != nil {
		return err
	}
	if !strings.HasSuffix(r.image, ".xz") {
		r.raw = r.image
		return nil
	}
	r.raw = filepath.Join(r.dir, "image")
	to, err := os.Create(r.raw)
	if err != nil {
		return err
	}
	defer to.Close()
	r.out.say("", "unpacking %s", r.image)
	// As a decoder with a limit of 1 GiB would, which is what flashing tools have.
	cmd := exec.CommandContext(ctx, "xz", "-dc", "--memlimit-decompress=1GiB", r.image)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	from, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	err = sparse(to, from)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return fmt.Errorf("unpacking %s: %w: %s", r.image, err, strings.TrimSpace(errs.String()))
	}
	return to.Close()
}

// newest is the image for a target that was written last.
func newest(dir, of string) (string, error) {
	t, err := target.Find(of)
	if err != nil {
		return "", err
	}
	all, err := filepath.Glob(filepath.Join(dir, "farhand-*-"+t.Suffix+".img*"))
	if err != nil {
		return "", err
	}
	var best string
	var age int64
	for _, f := range all {
		if !strings.HasSuffix(f, ".img") && !strings.HasSuffix(f, ".img.xz") {
			continue
		}
		info, err := os.Stat(f)
		if err != nil {
			return "", err
		}
		if t := info.ModTime().UnixNano(); best == "" || t > age {
			best, age = f, t
		}
	}
	if best == "" {
		return "", fmt.Errorf("there is no image in %s: make image", dir)
	}
	return best, nil
}

// sparse copies, and leaves holes where there are only zeros.
func sparse(to *os.File, from io.Reader) error {
	in := bufio.NewReaderSize(from, 1<<20)
	buf, zeros := make([]byte, 1<<16), make([]byte, 1<<16)
	var size int64
	for {
		n, err := io.ReadFull(in, buf)
		if !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := to.WriteAt(buf[:n], size); err != nil {
				return err
			}
		}
		size += int64(n)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return to.Truncate(size)
		case err != nil:
			return err
		}
	}
}

// equal compares a part of two files.
func equal(ctx context.Context, a, b string, offset, size int64) (bool, error) {
	var parts [2]io.Reader
	for i, name := range []string{a, b} {
		f, err := os.Open(name)
		if err != nil {
			return false, err
		}
		defer f.Close()
		parts[i] = io.NewSectionReader(f, offset, size)
	}
	x, y := make([]byte, 1<<20), make([]byte, 1<<20)
	for ctx.Err() == nil {
		n, err := io.ReadFull(parts[0], x)
		m, err2 := io.ReadFull(parts[1], y)
		if n != m || !bytes.Equal(x[:n], y[:m]) {
			return false, nil
		}
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return true, nil
		case err != nil:
			return false, err
		case err2 != nil:
			return false, err2
		}
	}
	return false, context.Cause(ctx)
}
