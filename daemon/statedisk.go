package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"farhand/identity"
	"farhand/internal/atomicfile"
)

// A card that failed turns read-only: the kernel does so after an error in its
// file system. While the daemon runs, nothing can be recorded then, and what
// can't be recorded isn't done. A service manager starts it anew; it then works
// with a copy of its state in memory, so that the machine can still be reached
// and helped, and says everywhere that nothing is kept.

const (
	// memoryName is the copy's directory in $RUNTIME_DIRECTORY.
	memoryName = "state"
	// maxCopied bounds a file that is copied. The audit log is left behind: its
	// sealed head says where the copy goes on.
	maxCopied = 1 << 20
	// diskLook is how often the state disk is looked at.
	diskLook = 5 * time.Second
)

// diskError ends a daemon whose state disk takes nothing any more, so that it is
// started anew.
type diskError struct{ dir string }

func (e *diskError) Error() string {
	return fmt.Sprintf("the disk of %s has become read-only: starting anew with a copy of the state in memory", e.dir)
}

// unwritable says whether err is about the disk itself and not about who asks:
// read-only, broken, or to be repaired first.
func unwritable(err error) bool {
	for _, errno := range []unix.Errno{unix.EROFS, unix.EIO, unix.EUCLEAN} {
		if errors.Is(err, errno) {
			return true
		}
	}
	return false
}

// openStateDisk sees whether the state directory can be written, and has the
// daemon use a copy in memory if its disk can't. What an earlier copy learned is
// brought back to a disk that is well again.
func (d *services) openStateDisk(o *Options) error {
	dir := o.Config.StateDir
	memory := ""
	if run := getenv(o.Environ, "RUNTIME_DIRECTORY"); run != "" {
		memory = filepath.Join(run, memoryName)
	}
	err := probe(dir)
	switch {
	case err == nil:
		return d.bringBack(memory, dir)
	case !unwritable(err):
		return err
	case memory == "":
		return fmt.Errorf("%w; check the file system and mount it for writing, or set state_dir to another disk", err)
	}
	if err := copyState(dir, memory); err != nil {
		return fmt.Errorf("copy the state into memory: %w", err)
	}
	d.degraded = fmt.Sprintf("the disk of %s is read-only (%s): state and audit log are in memory and end with the power; restart the machine, which checks the disk, and replace the card if it stays so", dir, atomicfile.Why(err))
	d.log.Error(d.degraded)
	o.Config.StateDir, d.stateDisk = memory, dir
	return nil
}

// probe writes into dir, which is made if need be.
func probe(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state directory: %w", err)
	}
	f, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		if atomicfile.Full(err) {
			return nil // a full disk is the audit log's business
		}
		return fmt.Errorf("state directory: %w", err)
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// copyState copies the small files of a state directory. A copy that is there
// already is newer than the disk and stays.
func copyState(from, to string) error {
	if _, err := os.Stat(to); err == nil {
		return nil
	}
	fresh := to + ".new"
	if err := errors.Join(os.RemoveAll(fresh), os.Mkdir(fresh, 0o700)); err != nil {
		return err
	}
	entries, err := os.ReadDir(from)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if !e.Type().IsRegular() || strings.HasPrefix(name, "audit.log") || strings.HasPrefix(name, ".") {
			continue
		}
		b, err := atomicfile.Read(filepath.Join(from, name), maxCopied)
		if err != nil {
			continue // what can't be read of a broken disk is lost
		}
		if err := os.WriteFile(filepath.Join(fresh, name), b, 0o600); err != nil {
			return err
		}
	}
	return os.Rename(fresh, to)
}

// bringBack puts what a copy in memory learned last, the login, onto the disk
// that can be written again, and forgets the copy.
func (d *services) bringBack(memory, dir string) error {
	if memory == "" {
		return nil
	}
	if _, err := os.Stat(memory); err != nil {
		return nil
	}
	lock, err := identity.LockStateDir(memory) // unless a daemon still works with it
	if err != nil {
		return err
	}
	defer lock.Close()
	const login = "tokens.json"
	b, err := atomicfile.Read(filepath.Join(memory, login), maxCopied)
	if err == nil {
		err = atomicfile.Write(filepath.Join(dir, login), b, 0o600)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("bring the login back from memory: %w", err)
	}
	return os.RemoveAll(memory)
}

// watchDisk ends the daemon with a *diskError when its state disk turns
// read-only under it and somebody is there to start it anew. Without that it
// goes on and says so: requests are refused until it can record again.
func (d *daemon) watchDisk(ctx context.Context, end context.CancelCauseFunc) {
	if d.degraded != "" {
		return
	}
	tick := time.NewTicker(diskLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		broken := readOnly(d.config.StateDir, d.log) || unwritable(d.audit.Failure())
		if d.setDiskBroken(broken) && broken {
			d.log.Error("the state disk is read-only: nothing can be recorded, so requests are refused", "dir", d.config.StateDir)
		}
		if broken && d.notify.Active && getenv(d.opts.Environ, "RUNTIME_DIRECTORY") != "" {
			end(&diskError{d.config.StateDir})
			return
		}
	}
}

// readOnly says whether the file system of dir takes no writes. The kernel tells
// it in mountinfo (proc(5)), where ext4 shows emergency_ro after an error.
func readOnly(dir string, log *slog.Logger) bool {
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_MNT_ID, &st); err != nil {
		log.Debug("state disk not looked at", "error", err)
		return unwritable(err)
	}
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return false
	}
	return mountedReadOnly(string(b), st.Mnt_id)
}

// mountedReadOnly looks for a mount by its id: "36 35 98:0 /root /at options
// optional… - type source super-options".
func mountedReadOnly(info string, id uint64) bool {
	want := fmt.Sprint(id)
	for line := range strings.Lines(info) {
		fields := strings.Fields(line)
		dash := slices.Index(fields, "-")
		if len(fields) < 6 || fields[0] != want || dash < 0 {
			continue
		}
		options := strings.Split(fields[5]+","+fields[len(fields)-1], ",")
		return slices.Contains(options, "ro") || slices.Contains(options, "emergency_ro")
	}
	return false
}
