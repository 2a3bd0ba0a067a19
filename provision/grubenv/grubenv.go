// Package grubenv is the file on the first partition of an image for UEFI by
// which GRUB knows the slot to start: GRUB's environment block (GRUB manual 2.12,
// "The GRUB environment block").
package grubenv

import (
	"bytes"
	"strings"
)

// File is its name on the first partition.
const File = "farhand.env"

// Size is that of every such file, bytes. GRUB writes it in place and never makes
// it longer.
const Size = 1024

const head = "# GRUB Environment Block\n"

// Choice is what it says.
type Choice struct {
	Slot string // a or b: the one that counts
	// Trial is a slot for one start alone, or empty: GRUB forgets it before it
	// starts that.
	Trial string
}

// Marshal writes the file. What matters of it lies in its first 512 bytes, so
// that a disk has the old or the new if the power goes.
func (c Choice) Marshal() []byte {
	b := append(make([]byte, 0, Size), head+"slot="+c.Slot+"\ntrial="+c.Trial+"\n"...)
	return append(b, bytes.Repeat([]byte("#"), Size-len(b))...)
}

// Parse reads the file and says whether it is one that GRUB goes by.
func Parse(b []byte) (c Choice, ok bool) {
	rest, found := strings.CutPrefix(string(b), head)
	if !found || len(b) != Size {
		return c, false
	}
	for line := range strings.Lines(rest) {
		switch key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "="); key {
		case "slot":
			c.Slot = value
		case "trial":
			c.Trial = value
		}
	}
	return c, (c.Slot == "a" || c.Slot == "b") && (c.Trial == "" || c.Trial == "a" || c.Trial == "b")
}
