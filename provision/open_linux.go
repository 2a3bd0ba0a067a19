package provision

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"farhand/provision/fat"
)

// Open is this machine. Partitions that it doesn't find are nil and logged.
func Open(log *slog.Logger) *System {
	s := &System{Log: log, SetHostname: func(name string) error { return unix.Sethostname([]byte(name)) }, Clock: kernelClock{}}
	boot, err := strconv.Atoi(s.slot()["boot"])
	if err != nil {
		boot = 0
		log.Error("the initramfs didn't say which slot runs; the header's buses stay as they are")
	}
	if device, err := s.partition(cardPartition); err != nil {
		log.Error("the card's first partition isn't found", "error", err)
	} else {
		s.Card = &fat.Partition{Device: device}
	}
	if boot != 0 {
		if device, err := s.partition(boot); err != nil {
			log.Error("the running slot's boot partition isn't found", "error", err)
		} else {
			s.Slot = &fat.Partition{Device: device}
		}
	}
	return s
}

// cardPartition is the number of the partition that people put files on.
const cardPartition = 1

// partition is the device of a partition of the disk that the system runs from.
func (s *System) partition(number int) (string, error) {
	var errs []error
	for _, mount := range []string{"/", "/data"} { // the latter if the root is an overlay or the like
		device, err := s.sibling(mount, number)
		if err == nil {
			return device, nil
		}
		errs = append(errs, err)
	}
	return "", errors.Join(errs...)
}

// sibling finds the partition of that number on the disk that is mounted at a
// place, by way of its device number (proc_pid_mountinfo(5)) and sysfs.
func (s *System) sibling(mount string, number int) (string, error) {
	b, err := readLimited(s.path("/proc/self/mountinfo"), 1<<20)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[4] != mount {
			continue
		}
		link, err := filepath.EvalSymlinks(s.path("/sys/dev/block", fields[2]))
		if err != nil {
			continue // not on a block device
		}
		return partitionOf(filepath.Dir(link), number)
	}
	return "", fmt.Errorf("%s is on no block device", mount)
}

// partitionOf is the device of a disk's partition, given the disk's directory in
// sysfs.
func partitionOf(disk string, number int) (string, error) {
	entries, err := os.ReadDir(disk)
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		b, err := readLimited(filepath.Join(disk, e.Name(), "partition"), 64)
		if err == nil && trim(b) == strconv.Itoa(number) {
			return "/dev/" + e.Name(), nil
		}
	}
	return "", fmt.Errorf("%s has no partition %d", filepath.Base(disk), number)
}

// runLimit bounds a program of the image; making a host key takes the longest.
const runLimit = 60 * time.Second

func (s *System) run(ctx context.Context, name string, args ...string) error {
	if s.Run != nil {
		return s.Run(ctx, name, args...)
	}
	ctx, cancel := context.WithTimeout(ctx, runLimit)
	defer cancel()
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, trim(out[:min(len(out), 500)]))
	}
	return nil
}

func (s *System) freeSpace(path string) (int64, error) {
	if s.Free != nil {
		return s.Free(path)
	}
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, err
	}
	return int64(st.Bavail) * st.Bsize, nil
}

type kernelClock struct{}

func (kernelClock) Now() time.Time { return time.Now() }

func (kernelClock) Uptime() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil { // every Linux has it
		return 0
	}
	return time.Duration(ts.Nano())
}

func (kernelClock) Synchronised() bool {
	var t unix.Timex
	_, err := unix.Adjtimex(&t)
	return err == nil && t.Status&unix.STA_UNSYNC == 0
}

func (kernelClock) Set(t time.Time) error {
	ts, err := unix.TimeToTimespec(t)
	if err != nil {
		return err
	}
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}
