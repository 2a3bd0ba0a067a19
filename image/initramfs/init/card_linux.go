package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"farhand/image/initramfs/table"
	"farhand/image/layout"
)

// slot is one of the two systems of a card.
type slot struct {
	Name   string // a or b
	System int    // its partition
	Boot   int    // the partition that the firmware started from
	Source string // who said so: bootloader, cmdline or default
	Mode   uint32 // what the firmware started from (boot-mode); 0: unknown
}

// readSlot asks what the firmware says of itself in /chosen/bootloader of the
// device tree, numbers of 32 bits, the highest byte first. Where the firmware
// says nothing, farhand.slot= of the command line does, and else it is slot A.
func readSlot(tree string) slot {
	a := slot{Name: "a", System: layout.SystemA, Boot: layout.BootA, Source: "default"}
	b := slot{Name: "b", System: layout.SystemB, Boot: layout.BootB}
	chosen := a
	number := func(name string) (uint32, bool) {
		v, err := os.ReadFile(filepath.Join(tree, "chosen/bootloader", name))
		if err != nil || len(v) != 4 {
			return 0, false
		}
		return binary.BigEndian.Uint32(v), true
	}
	line, _ := os.ReadFile("/proc/cmdline")
	for word := range strings.FieldsSeq(string(line)) {
		switch word {
		case "farhand.slot=a":
			chosen.Source = "cmdline"
		case "farhand.slot=b":
			chosen = b
			chosen.Source = "cmdline"
		}
	}
	if p, ok := number("partition"); ok {
		switch p {
		case layout.BootA:
			chosen = a
			chosen.Source = "bootloader"
		case layout.BootB:
			chosen = b
			chosen.Source = "bootloader"
		}
	}
	chosen.Mode, _ = number("boot-mode")
	return chosen
}

// Boot modes of the firmware, BOOT_ORDER in Raspberry Pi's documentation of the
// bootloader's configuration.
const (
	modeSD   = 1
	modeUSB  = 4
	modeNVMe = 6
)

// cardWithin is how long a card may take to appear: a USB disk has to spin up.
const cardWithin = 60 * time.Second

// findCard waits for a disk with the image's signature. If there are several it
// is the one of the kind that the firmware started from.
func findCard(s slot) (string, error) {
	start := time.Now()
	told := false
	for {
		disks := cards("/sys/class/block")
		if len(disks) > 0 {
			slices.SortFunc(disks, func(a, b string) int {
				return strings.Compare(order(a, s.Mode)+a, order(b, s.Mode)+b)
			})
			return filepath.Join("/dev", disks[0]), nil
		}
		waited := time.Since(start)
		if waited > cardWithin {
			return "", fmt.Errorf("no disk with this image appeared within %v", cardWithin)
		}
		if waited > 10*time.Second && !told {
			told = true
			say("waiting for the card")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// order sorts disks: 0 for what the firmware started from, else by kind.
func order(name string, mode uint32) string {
	kinds := []struct {
		prefix string
		mode   uint32
	}{{"mmcblk", modeSD}, {"nvme", modeNVMe}, {"sd", modeUSB}, {"vd", 0}}
	for i, k := range kinds {
		if strings.HasPrefix(name, k.prefix) {
			if mode != 0 && k.mode == mode {
				return "0"
			}
			return strconv.Itoa(1 + i)
		}
	}
	return "9"
}

// cards are the disks that carry the signature and have all their partitions.
func cards(class string) []string {
	entries, err := os.ReadDir(class)
	if err != nil {
		return nil
	}
	var found []string
	for _, e := range entries {
		name := e.Name()
		if exists(filepath.Join(class, name, "partition")) || strings.HasPrefix(name, "loop") || strings.HasPrefix(name, "ram") || strings.Contains(name, "boot") {
			continue
		}
		f, err := os.Open(filepath.Join("/dev", name))
		if err != nil {
			continue
		}
		t, err := table.Read(f)
		f.Close()
		device := filepath.Join("/dev", name)
		if err == nil && t.Signature == layout.Signature && exists(partition(device, layout.SystemA)) && exists(partition(device, layout.Data)) {
			found = append(found, name)
		}
	}
	return found
}

// partition is the node of a disk's partition: names that end in a digit have a
// p before the number.
func partition(disk string, number int) string {
	if c := disk[len(disk)-1]; c >= '0' && c <= '9' {
		return fmt.Sprintf("%sp%d", disk, number)
	}
	return fmt.Sprintf("%s%d", disk, number)
}

// grow lets the data partition end where the card does.
func grow(card string) error {
	f, err := os.OpenFile(card, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	var bytes uint64
	if bytes, err = deviceSize(f); err != nil {
		return err
	}
	changed, err := table.Grow(f, int64(bytes/table.Sector), f.Sync)
	if err != nil || !changed {
		return err
	}
	// The kernel reads the table again. udev isn't there to open the disk
	// meanwhile, but the kernel itself may still be at it.
	for try := 0; ; try++ {
		err = unix.IoctlSetInt(int(f.Fd()), unix.BLKRRPART, 0)
		if !errors.Is(err, unix.EBUSY) || try == 50 {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("reading the table again: %w", err)
	}
	say("the data partition grew to the card's end")
	return nil
}

func deviceSize(f *os.File) (uint64, error) {
	// The end of a block device is its size.
	n, err := f.Seek(0, 2)
	return uint64(n), err
}
