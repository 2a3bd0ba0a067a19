package check

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"

	"farhand/image/layout"
)

// system checks that the root holds nothing that is one machine's (field case
// 80), and no program that would take serial ports away from the daemon.
func (c *card) system(ctx context.Context) {
	head := make([]byte, 96)
	if _, err := c.part(layout.SystemA).ReadAt(head, 0); err != nil {
		c.fail("partition %d: %w", layout.SystemA, err)
		return
	}
	// SquashFS 4.0's superblock: magic at 0, flags at 24; 0x2 and 0x8 say that
	// data and fragments are not compressed.
	flags := binary.LittleEndian.Uint16(head[24:])
	if string(head[:4]) != "hsqs" || flags&0x2 == 0 || flags&0x8 == 0 {
		c.fail("partition %d is no uncompressed SquashFS, so what is in it can't be checked", layout.SystemA)
		return
	}
	cmd := exec.CommandContext(ctx, "unsquashfs", "-o", strconv.FormatInt(c.parts[layout.SystemA].Start*512, 10), "-lln", c.path)
	var complaint bytes.Buffer
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	if err != nil {
		c.fail("partition %d: unsquashfs: %w: %s", layout.SystemA, err, strings.TrimSpace(complaint.String()))
		return
	}
	n := 0
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); n++ {
		if f, ok := listed(lines.Text()); ok {
			if err := errors.Join(f.personal(), f.meddles()); err != nil {
				c.fail("%w", err)
			}
		}
	}
	if n == 0 {
		c.fail("partition %d is empty", layout.SystemA)
	}
}

// file is a line of unsquashfs -lln.
type file struct {
	kind byte
	size int64
	name string
}

var line = regexp.MustCompile(`^([-dlcbps])\S{9}\s+\d+/\d+\s+(\S+)\s+\d{4}-\d\d-\d\d \d\d:\d\d squashfs-root/(.*)$`)

func listed(l string) (file, bool) {
	m := line.FindStringSubmatch(l)
	if m == nil {
		return file{}, false
	}
	size, _ := strconv.ParseInt(m[2], 10, 64) // a device has its numbers there
	name, _, _ := strings.Cut(m[3], " -> ")
	return file{m[1][0], size, name}, true
}

// personal says why a file may not be in an image.
func (f file) personal() error {
	if f.kind != '-' {
		return nil
	}
	dir, base := path.Split(f.name)
	key, _ := path.Match("ssh_host_*", base)
	switch {
	case dir == "etc/ssh/" && key:
		return fmt.Errorf("/%s: an SSH host key in the image", f.name)
	case (f.name == "etc/machine-id" || f.name == "var/lib/dbus/machine-id") && f.size > 0:
		return fmt.Errorf("/%s: a machine-id in the image", f.name)
	case base == "random-seed" || f.name == "var/lib/urandom/random-seed":
		return fmt.Errorf("/%s: a random seed in the image", f.name)
	case strings.HasPrefix(f.name, "data/"):
		return fmt.Errorf("/%s: what is on the data partition isn't in the image", f.name)
	}
	return nil
}

// meddles says whether a file is a program that takes serial ports as its own as
// soon as they are plugged in (field cases 2 and 10).
func (f file) meddles() error {
	switch _, base := path.Split(f.name); base {
	case "brltty", "ModemManager":
		if strings.HasPrefix(f.name, "usr/bin/") || strings.HasPrefix(f.name, "usr/sbin/") {
			return fmt.Errorf("/%s: it takes serial ports away from the daemon", f.name)
		}
	}
	return nil
}
