package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "init of a Farhand image: it runs as the first process of a machine only")
		os.Exit(1)
	}
	say("%v", boot()) // which returns only when it has failed
	say("starting again in 10 s")
	time.Sleep(10 * time.Second)
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
}

// say writes a line that the kernel's log and the console show.
func say(format string, args ...any) {
	line := fmt.Sprintf("farhand: "+format, args...)
	if f, err := os.OpenFile("/dev/kmsg", os.O_WRONLY, 0); err == nil {
		// 4 is warning, which reaches a quiet console (printk in the kernel's
		// admin guide).
		fmt.Fprintf(f, "<4>%s\n", line)
		f.Close()
		return
	}
	fmt.Println(line)
}

const newRoot = "/newroot"

// boot becomes the root's init, or says why it can't.
func boot() error {
	if err := mountKernel(); err != nil {
		return err
	}
	loadModules("/lib/modules/list")
	slot := readSlot("/proc/device-tree")
	card, err := findCard(slot)
	if err != nil {
		return err
	}
	say("card %s, slot %s (%s)", card, slot.Name, slot.Source)
	if err := grow(card); err != nil {
		say("the data partition doesn't grow: %v", err)
	}
	if err := mountRoot(partition(card, slot.System)); err != nil {
		return err
	}
	epoch, _ := os.ReadFile("/epoch")
	if err := enter(); err != nil {
		return err
	}
	trouble := openData(card)
	if err := settle(slot, trouble, string(epoch)); err != nil {
		say("%v", err)
	}
	return fmt.Errorf("starting the root's init: %w", unix.Exec("/sbin/init", []string{"/sbin/init"}, os.Environ()))
}

type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func mountKernel() error {
	for _, m := range []mount{
		{"devtmpfs", "/dev", "devtmpfs", unix.MS_NOSUID, "mode=0755"},
		{"proc", "/proc", "proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", "sysfs", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"tmpfs", "/run", "tmpfs", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755,size=20%"},
	} {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil && !errors.Is(err, unix.EBUSY) {
			return fmt.Errorf("mounting %s: %w", m.target, err)
		}
	}
	return nil
}

// loadModules loads what the list names, in its order. What a board has no use
// for fails, which is no fault.
func loadModules(list string) {
	b, err := os.ReadFile(list)
	if err != nil {
		say("modules: %v", err)
		return
	}
	for name := range strings.FieldsSeq(string(b)) {
		f, err := os.Open(filepath.Join(filepath.Dir(list), name))
		if err == nil {
			err = unix.FinitModule(int(f.Fd()), "", 0)
			f.Close()
		}
		if err != nil && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENODEV) {
			say("module %s: %v", name, err)
		}
	}
}

// mountRoot mounts the slot's system, whichever file system it is.
func mountRoot(device string) error {
	if err := os.MkdirAll(newRoot, 0o755); err != nil {
		return err
	}
	var last error
	for _, kind := range []string{"squashfs", "erofs", "ext4"} {
		err := unix.Mount(device, newRoot, kind, unix.MS_RDONLY, "")
		if err == nil {
			return nil
		}
		if last == nil || !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENODEV) {
			last = fmt.Errorf("%s: %w", kind, err)
		}
	}
	return fmt.Errorf("mounting the root from %s: %w", device, last)
}

// enter makes the mounted root the root, with the kernel's file systems in it.
// The archive's files go, since they are in memory; this program stays until it
// is replaced.
func enter() error {
	for _, dir := range []string{"/dev", "/proc", "/sys", "/run"} {
		if err := unix.Mount(dir, newRoot+dir, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("moving %s: %w", dir, err)
		}
	}
	for _, name := range []string{"/lib", "/init"} {
		_ = os.RemoveAll(name)
	}
	if err := os.Chdir(newRoot); err != nil {
		return err
	}
	if err := unix.Mount(".", "/", "", unix.MS_MOVE, ""); err != nil {
		return fmt.Errorf("moving the root: %w", err)
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("entering the root: %w", err)
	}
	return os.Chdir("/")
}

func exists(name string) bool {
	_, err := os.Stat(name)
	return !errors.Is(err, fs.ErrNotExist)
}
