package fat

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// View implements Volume.
func (p *Partition) View(ctx context.Context, look func(*os.Root) error) error {
	return p.mounted(ctx, true, look)
}

// Commit implements Volume.
func (p *Partition) Commit(ctx context.Context, change func(*os.Root) error) error {
	return p.mounted(ctx, false, change)
}

func (p *Partition) mounted(ctx context.Context, readOnly bool, do func(*os.Root) error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	mount, err := p.mount(readOnly)
	if err != nil {
		return fmt.Errorf("mount %s: %w", p.Device, err)
	}
	err = in(ctx, fmt.Sprintf("/proc/self/fd/%d", mount), func(root *os.Root) error {
		err := do(root)
		if !readOnly {
			err = errors.Join(err, syncAll(root))
		}
		return err
	})
	return errors.Join(err, unix.Close(mount)) // the last descriptor: unmounts
}

// syncAll writes everything of the file system.
func syncAll(root *os.Root) error {
	d, err := root.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("sync: %w", err)
	}
	return nil
}

// mount is fsopen(2), fsconfig(2) and fsmount(2), of Linux 5.2. A superblock is
// either writable or not: one that somebody else has mounted the other way is
// busy.
func (p *Partition) mount(readOnly bool) (int, error) {
	kind := p.Type
	if kind == "" {
		kind = "vfat"
	}
	fs, err := unix.Fsopen(kind, unix.FSOPEN_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", kind, err)
	}
	defer unix.Close(fs)
	err = unix.FsconfigSetString(fs, "source", p.Device)
	if err == nil && kind == "vfat" {
		err = unix.FsconfigSetString(fs, "umask", "0077")
	}
	attributes := unix.MOUNT_ATTR_NODEV | unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC
	if readOnly {
		attributes |= unix.MOUNT_ATTR_RDONLY
		if err == nil {
			err = unix.FsconfigSetFlag(fs, "ro")
		}
	}
	if err == nil {
		err = unix.FsconfigCreate(fs)
	}
	if err != nil {
		return 0, errors.Join(err, told(fs))
	}
	return unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, attributes)
}

// told is what the kernel has to say about the configuration: one message a
// read, with its severity in front.
func told(fs int) error {
	var all []string
	b := make([]byte, 1024)
	for range 8 {
		n, err := unix.Read(fs, b)
		if err != nil || n <= 0 {
			break
		}
		all = append(all, strings.TrimSpace(string(b[:n])))
	}
	if all == nil {
		return nil
	}
	return errors.New(strings.Join(all, "; "))
}
