package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"farhand/image/layout"
)

const dataDir = "/data"

// dataOptions of ext4 (Linux, Documentation/admin-guide/ext4.rst). The blocks
// that mke2fs reserves are for root and the daemon's group (900), so that
// commands that fill the disk leave the daemon room for its state.
const dataOptions = "errors=remount-ro,commit=5,resgid=900"

// openData mounts the data partition, which it makes on the first start. It
// answers what is wrong with it; then the directory is in memory.
func openData(card string) error {
	device := partition(card, layout.Data)
	err := prepare(device)
	if err == nil {
		err = unix.Mount(device, dataDir, "ext4", unix.MS_NOATIME|unix.MS_NOSUID|unix.MS_NODEV, dataOptions)
	}
	if err == nil {
		if err := fill(device); err != nil {
			say("the data file system doesn't grow: %v", err)
		}
		return writable()
	}
	say("%v: what is stored now is lost at the next start", err)
	if tmpErr := unix.Mount("tmpfs", dataDir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=0755,size=30%"); tmpErr != nil {
		err = errors.Join(err, tmpErr)
	}
	return err
}

// writable says whether the mounted file system takes anything: one with errors
// is mounted read-only.
func writable() error {
	probe := filepath.Join(dataDir, ".probe")
	err := os.WriteFile(probe, nil, 0o600)
	if err == nil {
		err = os.Remove(probe)
	}
	if err != nil {
		return fmt.Errorf("the data partition takes nothing: %w", err)
	}
	return nil
}

// prepare makes the file system where there was never one, or where one was
// begun, and repairs it otherwise. It never makes one over anything else. One that
// came with the image becomes this machine's own.
func prepare(device string) error {
	fresh, err := isFresh(device)
	if err != nil {
		return err
	}
	if !fresh {
		if err := repair(device); err != nil {
			return err
		}
		return adopt(device)
	}
	start := time.Now()
	// What was begun is known by its mark, and once it has a superblock by its
	// label; the mark is gone before the label is, since it must not outlive it.
	if err := mark(device, []byte(layout.Begun)); err != nil {
		return fmt.Errorf("beginning the data file system: %w", err)
	}
	if err := makeData(device); err != nil {
		return fmt.Errorf("making the data file system: %w", err)
	}
	if begun, err := isBegun(device); err != nil {
		return err
	} else if begun { // else it is something of the file system's
		if err := mark(device, make([]byte, len(layout.Begun))); err != nil {
			return fmt.Errorf("finishing the data file system: %w", err)
		}
	}
	if err := name(device); err != nil {
		return err
	}
	say("made the data file system in %.1f s", time.Since(start).Seconds())
	return nil
}

// adopt gives a file system that came with the image a UUID of its own. The label
// comes last: it says that the rest was done. e2fsck has just gone through it, so
// tune2fs asks for no other check.
func adopt(device string) error {
	b, err := beginning(device)
	if err != nil || labelled(b) != layout.GivenDataLabel {
		return err
	}
	if err := run("/usr/sbin/tune2fs", "-U", "random", device); err != nil {
		return fmt.Errorf("making the data file system this machine's: %w", err)
	}
	return name(device)
}

// makeData makes the file system. Nothing is discarded: on some cards that takes
// minutes, in which nothing is to be seen; fstrim.timer does it later.
func makeData(device string) error {
	return run("/usr/sbin/mke2fs", "-q", "-F", "-t", "ext4", "-L", layout.NewDataLabel, "-m", "1", "-E", "lazy_itable_init=1,lazy_journal_init=1,nodiscard", device)
}

// name says that the file system is complete.
func name(device string) error {
	if err := run("/usr/sbin/tune2fs", "-L", layout.DataLabel, device); err != nil {
		return fmt.Errorf("naming the data file system: %w", err)
	}
	return sync(device)
}

// mark writes at the place of layout.Begun, durably.
func mark(device string, text []byte) error {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := deviceSize(f)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(text, int64(size)-layout.BegunBack); err != nil {
		return err
	}
	return f.Sync()
}

// isBegun says whether the mark is there.
func isBegun(device string) (bool, error) {
	f, err := os.Open(device)
	if err != nil {
		return false, err
	}
	defer f.Close()
	size, err := deviceSize(f)
	if err != nil {
		return false, err
	}
	b := make([]byte, len(layout.Begun))
	if _, err := f.ReadAt(b, int64(size)-layout.BegunBack); err != nil {
		return false, fmt.Errorf("reading %s: %w", device, err)
	}
	return string(b) == layout.Begun, nil
}

// Places in an ext4 file system (fs/ext4/ext4.h): the superblock lies at byte
// 1024, its magic number 56 bytes in, its label of 16 bytes at 120.
const (
	superblock = 1024
	magicAt    = superblock + 56
	labelAt    = superblock + 120
	lookAt     = 64 << 10
)

// isFresh says whether a device holds nothing yet: zeros, as the image has
// them, or a file system that was begun.
func isFresh(device string) (bool, error) {
	b, err := beginning(device)
	switch label := labelled(b); {
	case err != nil:
		return false, err
	case label != "":
		return label == layout.NewDataLabel, nil
	case len(bytes.Trim(b, "\x00")) == 0:
		return true, nil
	}
	return isBegun(device)
}

// beginning is as much of a device as tells what is on it.
func beginning(device string) ([]byte, error) {
	f, err := os.Open(device)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, lookAt)
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, fmt.Errorf("reading %s: %w", device, err)
	}
	return b, nil
}

// labelled is the label of the ext4 file system that begins with b; empty if
// there is none.
func labelled(b []byte) string {
	if len(b) < lookAt || b[magicAt] != 0x53 || b[magicAt+1] != 0xef {
		return ""
	}
	label, _, _ := bytes.Cut(b[labelAt:labelAt+16], []byte{0})
	return string(label)
}

// repair lets e2fsck do what it does without asking, and if that isn't enough,
// everything that it would ask for: the alternative is to have nothing.
func repair(device string) error {
	const corrected, restart, failed = 1, 2, 4 // bits of its exit code (e2fsck(8))
	code := runCode("/usr/sbin/e2fsck", "-p", device)
	if code >= failed {
		say("the data file system is damaged, e2fsck -p answers %d", code)
		code = runCode("/usr/sbin/e2fsck", "-f", "-y", device)
	}
	if code&^(corrected|restart) != 0 {
		return fmt.Errorf("the data file system can't be repaired: e2fsck answers %d", code)
	}
	// A copy of the superblock may be from before it had its name, by which the
	// next start would take it for one to make anew.
	if fresh, err := isFresh(device); err != nil || !fresh {
		return err
	}
	return name(device)
}

// fill lets a file system that is smaller than its partition grow: a card that
// was copied to a larger one.
func fill(device string) error {
	f, err := os.Open(device)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := deviceSize(f)
	if err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dataDir, &st); err != nil {
		return err
	}
	blocks := size / uint64(st.Bsize)
	dir, err := os.Open(dataDir)
	if err != nil {
		return err
	}
	defer dir.Close()
	// EXT4_IOC_RESIZE_FS, _IOW('f', 16, __u64) (include/uapi/linux/ext4.h). That
	// it is that large already is no error.
	const resize = 0x40086610
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, dir.Fd(), resize, uintptr(unsafe.Pointer(&blocks))); errno != 0 {
		return errno
	}
	return nil
}

// patience bounds a tool: a check of a large card takes minutes.
const patience = 15 * time.Minute

func run(name string, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, tail(out))
	}
	return nil
}

func runCode(name string, args ...string) int {
	err := run(name, args...)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exit.ExitCode()
	}
	say("%v", err)
	return 8 // what e2fsck answers when it couldn't work
}

func tail(b []byte) string {
	s := strings.TrimSpace(string(b))
	return s[max(0, len(s)-300):]
}

func sync(device string) error {
	f, err := os.OpenFile(device, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// settle gives the root what it can't keep itself: the machine's id, randomness,
// a clock that isn't too far back, and what is known of this start.
func settle(s slot, trouble error, epoch string) error {
	var errs []error
	system := filepath.Join(dataDir, "system")
	for _, dir := range []string{system, filepath.Join(system, "timesync"), filepath.Join(system, "ssh"), filepath.Join(dataDir, "log")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, machineID(filepath.Join(system, "machine-id")), randomSeed(filepath.Join(system, "random-seed")))
	stands := setClock(epoch, filepath.Join(system, "clock"), filepath.Join(system, "timesync", "clock"))
	errs = append(errs, os.MkdirAll("/run/farhand", 0o755),
		os.WriteFile("/run/farhand/slot", fmt.Appendf(nil, "slot=%s\nboot=%d\nsystem=%d\nsource=%s\nclock=%s\n", s.Name, s.Boot, s.System, s.Source, stands), 0o644))
	if trouble != nil {
		errs = append(errs, os.WriteFile("/run/farhand/data-error", []byte(trouble.Error()+"\n"), 0o644))
	}
	return errors.Join(errs...)
}

// machineID binds the stored id over the root's empty file (machine-id(5)).
func machineID(at string) error {
	if id, err := os.ReadFile(at); err != nil || len(strings.TrimSpace(string(id))) != 32 {
		raw := make([]byte, 16)
		if _, err := unix.Getrandom(raw, 0); err != nil {
			return err
		}
		if err := store(at, []byte(hex.EncodeToString(raw)+"\n"), 0o444); err != nil {
			return fmt.Errorf("the machine's id: %w", err)
		}
	}
	if err := unix.Mount(at, "/etc/machine-id", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("the machine's id: %w", err)
	}
	return nil
}

// seedSize is that of the kernel's pool.
const seedSize = 512

// randomSeed gives the kernel what was kept from the last start, once: it is
// replaced before it counts, so that no two starts have the same.
func randomSeed(at string) error {
	old, readErr := os.ReadFile(at)
	if readErr == nil && len(old) == seedSize {
		if err := os.WriteFile("/dev/urandom", old, 0); err != nil { // mixed in, not counted
			return fmt.Errorf("the random seed: %w", err)
		}
	}
	fresh := make([]byte, seedSize)
	if _, err := unix.Getrandom(fresh, unix.GRND_INSECURE); err != nil {
		return fmt.Errorf("the random seed: %w", err)
	}
	if err := store(at, fresh, 0o600); err != nil {
		return fmt.Errorf("the random seed: %w", err)
	}
	if readErr != nil || len(old) != seedSize {
		return nil
	}
	return credit(old)
}

// credit counts a seed as randomness. Its bytes are in the pool already; what
// counts here is that they were never used before.
func credit(seed []byte) error {
	f, err := os.OpenFile("/dev/urandom", os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	// struct rand_pool_info and RNDADDENTROPY, _IOW('R', 0x03, int[2])
	// (include/uapi/linux/random.h).
	const addEntropy = 0x40085203
	info := make([]byte, 8+len(seed))
	*(*int32)(unsafe.Pointer(&info[0])) = int32(8 * len(seed))
	*(*int32)(unsafe.Pointer(&info[4])) = int32(len(seed))
	copy(info[8:], seed)
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), addEntropy, uintptr(unsafe.Pointer(&info[0]))); errno != 0 {
		return fmt.Errorf("counting the random seed: %w", errno)
	}
	return nil
}

// setClock moves a clock that is behind to the latest time that is known to
// have been. It says what the clock stands on: floor or saved, or rtc if it was
// ahead of both: then something with a battery has set it.
func setClock(epoch string, kept ...string) string {
	latest, stands := floor(epoch, kept...)
	if !latest.IsZero() && !time.Now().Before(latest) {
		return "rtc"
	}
	tv := unix.NsecToTimeval(latest.UnixNano())
	if err := unix.Settimeofday(&tv); err != nil {
		say("the clock: %v", err)
	}
	return stands
}

// floor is the latest time that is known to have been: when the image was built,
// in seconds, or when the clock was last kept, as the time of a file, and which
// of them.
func floor(epoch string, kept ...string) (latest time.Time, stands string) {
	stands = "floor"
	if s, err := strconv.ParseInt(strings.TrimSpace(epoch), 10, 64); err == nil {
		latest = time.Unix(s, 0)
	}
	for _, name := range kept {
		if info, err := os.Stat(name); err == nil && info.ModTime().After(latest) {
			latest, stands = info.ModTime(), "saved"
		}
	}
	return latest, stands
}

// store writes a file so that it is there whole or not at all.
func store(at string, b []byte, mode os.FileMode) error {
	temp := at + ".new"
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(temp, at); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(at))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
