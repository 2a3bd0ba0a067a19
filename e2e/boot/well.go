package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"farhand/audit"
	"farhand/daemon"
	"farhand/image/layout"
)

// extract copies a partition into a file.
type extract func(ctx context.Context, partition int, path string) error

// well says whether a card that lost its power is well, without booting it: the
// boot partition's and the data's file systems are whole, and what is kept there
// can be read. It returns how far the data had come.
func (d *device) well(ctx context.Context, get extract) (string, error) {
	dir, err := os.MkdirTemp(d.dir, "well-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir)
	if err := d.bootWell(ctx, get, dir); err != nil {
		return "", fmt.Errorf("partition %d: %w", layout.Autoboot, err)
	}
	stage, err := dataWell(ctx, get, dir)
	if err != nil {
		return stage, fmt.Errorf("partition %d: %w", layout.Data, err)
	}
	if err := promised(filepath.Join(dir, "state/work"), d.put); err != nil {
		return stage, err
	}
	return stage, nil
}

// promised compares files in a folder with what farhand put was told is there.
func promised(folder string, put map[string][sha256.Size]byte) error {
	for name, want := range put {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return fmt.Errorf("the power took a file whose writer had been told that it is there: %w", err)
		}
		if sha256.Sum256(got) != want {
			return fmt.Errorf("the power changed %s, whose writer had been told that it is there: it has %d bytes", name, len(got))
		}
	}
	return nil
}

// bootWell checks the FAT. What fsck may mend by itself, as every system does at
// a boot, is no damage; files of the image that changed are.
func (d *device) bootWell(ctx context.Context, get extract, dir string) error {
	file := filepath.Join(dir, "boot")
	if err := get(ctx, layout.Autoboot, file); err != nil {
		return err
	}
	// 1: errors were mended. 2 and more is for errors that stay.
	if _, err := tool(ctx, 1, "fsck.vfat", "-a", file); err != nil {
		return err
	}
	if _, err := tool(ctx, 0, "fsck.vfat", "-n", file); err != nil {
		return fmt.Errorf("mended, it is still damaged: %w", err)
	}
	now := filepath.Join(dir, "files")
	if err := os.Mkdir(now, 0o700); err != nil {
		return err
	}
	if _, err := tool(ctx, 0, "mcopy", "-s", "-n", "-Q", "-i", file, "::*", now); err != nil {
		return err
	}
	for name := range d.pristine {
		got, err := os.ReadFile(filepath.Join(now, name))
		if err != nil {
			return err
		}
		if want := d.pristine[name]; !bytes.Equal(got, want) {
			return fmt.Errorf("%s has changed: %d bytes, %d before", name, len(got), len(want))
		}
	}
	if picture, err := os.ReadFile(filepath.Join(now, "PAIR.PNG")); err == nil {
		if _, err := decode(picture); err != nil {
			return fmt.Errorf("PAIR.PNG is half: %w", err)
		}
	}
	return nil
}

// dataWell checks the data partition's file system and what is kept in it.
func dataWell(ctx context.Context, get extract, dir string) (string, error) {
	file := filepath.Join(dir, "data")
	if err := get(ctx, layout.Data, file); err != nil {
		return "", err
	}
	used, mark, err := begun(file)
	if err != nil || !used {
		return "nothing yet", err
	}
	out, err := tool(ctx, 0, "dumpe2fs", "-h", file)
	if err != nil && mark {
		return "being made", nil
	}
	if err != nil {
		return "", fmt.Errorf("the first 64 KiB are no zeros and nothing says that it was begun, so it would not be made, but it is none: %w", err)
	}
	if strings.Contains(out, layout.NewDataLabel) {
		return "being made", nil
	}
	if !strings.Contains(out, layout.DataLabel) {
		return "", fmt.Errorf("it has another label: %s", out)
	}
	// What a boot does: the journal is played back, and what that leaves for fsck to
	// do without asking is done (1: something was), such as summing up what is free.
	// After that it must be whole.
	if _, err := tool(ctx, 1, "e2fsck", "-fp", file); err != nil {
		return "", err
	}
	if _, err := tool(ctx, 0, "e2fsck", "-fn", file); err != nil {
		return "", fmt.Errorf("mended, it is still damaged: %w", err)
	}
	state := filepath.Join(dir, "state")
	if err := os.Mkdir(state, 0o700); err != nil {
		return "", err
	}
	if _, err := tool(ctx, 0, "debugfs", "-R", "rdump / "+state, file); err != nil {
		return "", err
	}
	return stateWell(ctx, state)
}

// begun says whether a partition's beginning is used, and whether the mark of a
// file system that is being made is there.
func begun(file string) (used, mark bool, err error) {
	f, err := os.Open(file)
	if err != nil {
		return false, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return false, false, err
	}
	head, text := make([]byte, 64<<10), make([]byte, len(layout.Begun))
	if _, err := io.ReadFull(f, head); err != nil {
		return false, false, err
	}
	if _, err := f.ReadAt(text, info.Size()-layout.BegunBack); err != nil {
		return false, false, err
	}
	return !bytes.Equal(head, make([]byte, len(head))), string(text) == layout.Begun, nil
}

// stateWell reads what the appliance and the daemon keep.
func stateWell(ctx context.Context, root string) (string, error) {
	stage := "made"
	for _, name := range []string{"farhand/provision.json", "farhand/state"} {
		if _, err := os.Stat(filepath.Join(root, name)); err == nil {
			stage = name
		}
	}
	// Every file of JSON is whole or isn't there: all are replaced in one step.
	err := filepath.WalkDir(filepath.Join(root, "farhand"), func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !e.Type().IsRegular() || filepath.Ext(path) != ".json" {
			return err
		}
		b, err := os.ReadFile(path)
		if err == nil && !json.Valid(b) {
			err = fmt.Errorf("%s is no JSON: %q", path, b)
		}
		return err
	})
	if err != nil {
		return stage, err
	}
	for _, name := range []string{"system/machine-id"} {
		b, err := os.ReadFile(filepath.Join(root, name))
		if err == nil && len(bytes.TrimSpace(b)) != 32 {
			return stage, fmt.Errorf("%s is %q", name, b)
		}
	}
	return stage, auditWell(ctx, filepath.Join(root, "farhand/state"))
}

// auditWell goes on with the audit log, if there is one, as the daemon's next
// start does, and checks its chain: a record that was being written may be torn,
// but none may be missing that was known to be on the card.
func auditWell(ctx context.Context, state string) error {
	info, err := os.Stat(daemon.AuditPath(state))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	if info.Size() == 0 { // begun just now: the seal comes next
		return nil
	}
	key, err := daemon.AuditKey(state)
	if err != nil {
		return fmt.Errorf("the audit log's key: %w", err)
	}
	log, err := audit.Open(audit.Options{Path: daemon.AuditPath(state), Key: key})
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	report, err := audit.Verify(ctx, daemon.AuditPath(state), key)
	if err != nil {
		return fmt.Errorf("the audit log: %w", err)
	}
	if len(report.Problems) > 0 {
		return fmt.Errorf("the audit log: %q", report.Problems)
	}
	return nil
}

// tool runs a program, which may end with at most that status, and returns what
// it said.
func tool(ctx context.Context, most int, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "MTOOLS_SKIP_CHECK=1", "LC_ALL=C.UTF-8")
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if e, ok := errors.AsType[*exec.ExitError](err); ok && e.Exited() && e.ExitCode() <= most {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", name, err, text)
	}
	return text, err
}
