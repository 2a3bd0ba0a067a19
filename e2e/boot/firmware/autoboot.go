package firmware

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"
)

// maxAutoboot is the documented limit of autoboot.txt, in bytes.
const maxAutoboot = 512

// Start says how the board comes up.
type Start struct {
	// Tryboot is the one-shot flag that a system sets before it restarts. It dies
	// with the power.
	Tryboot bool
	// OldBootloader is one from before December 2022: it knows no sections in
	// autoboot.txt, so that the last boot_partition counts, and tries nothing.
	OldBootloader bool
}

// choose reads autoboot.txt of the first partition and says which one is
// booted, and whether tryboot.txt stands for config.txt there.
func choose(first fs.FS, s Start) (partition int, tryFile bool, err error) {
	text, err := fs.ReadFile(first, "autoboot.txt")
	if errors.Is(err, fs.ErrNotExist) {
		return 0, s.Tryboot, nil
	} else if err != nil {
		return 0, false, fmt.Errorf("autoboot.txt: %w", err)
	}
	if len(text) > maxAutoboot {
		return 0, false, fmt.Errorf("autoboot.txt has %d bytes, of which the firmware reads %d", len(text), maxAutoboot)
	}
	ab, applies := false, true
	for line := range bytes.Lines(text) {
		l := strings.TrimSpace(string(line))
		switch {
		case l == "" || strings.HasPrefix(l, "#"):
		case strings.HasPrefix(l, "["):
			if applies, err = autobootSection(l, s); err != nil {
				return 0, false, err
			}
		case applies:
			key, value, _ := strings.Cut(l, "=")
			n, err := strconv.Atoi(strings.TrimSpace(value))
			if err != nil {
				return 0, false, fmt.Errorf("autoboot.txt: %q is no number", l)
			}
			switch strings.TrimSpace(key) {
			case "boot_partition":
				partition = n
			case "tryboot_a_b":
				ab = n == 1
			default:
				return 0, false, fmt.Errorf("autoboot.txt: %q isn't known here", l)
			}
		}
	}
	return partition, s.Tryboot && !ab && !s.OldBootloader, nil
}

func autobootSection(l string, s Start) (bool, error) {
	switch {
	case s.OldBootloader || l == "[all]":
		return true, nil
	case l == "[none]":
		return false, nil
	case l == "[tryboot]":
		return s.Tryboot, nil
	}
	return false, fmt.Errorf("autoboot.txt: the section %s isn't known there", l)
}
