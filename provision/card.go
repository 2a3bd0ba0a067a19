package provision

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strings"

	"farhand/provision/fat"
	"farhand/provision/grubenv"
	"farhand/provision/preseed"
)

// card is what stands on the first partition.
type card struct {
	files   preseed.Files
	given   []string // names of the files that hold settings
	renamed []preseed.Item
	foreign []string // files for other systems, which may hold secrets
	harmful []string // what the firmware or the kernel must not find there
	choice  []byte   // what the choice's file says
}

// choice is the file of the first partition that says which slot is started. A
// copy is kept on the data partition: a card without it starts the first slot, or
// on a Pi the first partition that looks bootable (field case 66).
type choice struct {
	file  string
	good  func([]byte) bool // whether the boot loader can go by it
	first []byte            // on a new card
}

func (c choice) copy() string { return systemData + "/" + c.file }

// choice is the Pi's firmware's, or GRUB's, which tells on the kernel's command
// line what it chose.
func (s *System) choice() choice {
	if s.slot()["source"] == "cmdline" {
		good := func(b []byte) bool { _, ok := grubenv.Parse(b); return ok }
		return choice{grubenv.File, good, grubenv.Choice{Slot: "a"}.Marshal()}
	}
	const all = 512 // bytes that the firmware reads
	good := func(b []byte) bool { return len(b) <= all && goodChoice.Match(b) }
	return choice{"autoboot.txt", good, []byte("[all]\ntryboot_a_b=1\nboot_partition=2\n[tryboot]\nboot_partition=3\n")}
}

// maxChoice is more than a choice's file has, bytes.
const maxChoice = 1024

// cmdlineFile holds kernel arguments; on the first partition it is Imager 1's.
const cmdlineFile = "cmdline.txt"

// others are what other systems read from their boot partition.
func others() []string {
	return []string{"user-data", "network-config", "meta-data", "custom.toml", "wpa_supplicant.conf", "userconf.txt", "userconf", "ssh", "ssh.txt"}
}

// firmware is what would make the first partition bootable, so that a damaged
// autoboot.txt boots the wrong one (field case 66).
var firmware = regexp.MustCompile(`(?i)^(config\.txt|start.*\.elf|fixup.*\.dat|kernel.*\.img)$`)

// maxDirectory bounds how many names of the partition are looked at.
const maxDirectory = 1000

// look reads the card.
func (s *System) look(ctx context.Context) (card, error) {
	var c card
	if s.Card == nil {
		return c, errors.New("there is no such partition")
	}
	err := s.Card.View(ctx, func(root *os.Root) error {
		names, err := list(root)
		if err != nil {
			return err
		}
		for _, name := range names {
			switch lower := strings.ToLower(name); {
			case lower == preseed.PreseedFile || lower == preseed.FarhandFile || lower == preseed.FirstrunFile || lower == cmdlineFile || meant(lower) != "":
				c.given = append(c.given, name)
			case firmware.MatchString(name):
				c.harmful = append(c.harmful, name)
			case slices.Contains(others(), lower):
				c.foreign = append(c.foreign, name)
			}
		}
		for _, name := range c.given {
			b, err := fat.Read(root, name, preseed.MaxFile)
			if err != nil {
				// Too long to be one, or unreadable: the parser says so.
				b = make([]byte, preseed.MaxFile+1)
			}
			switch lower := strings.ToLower(name); lower {
			case preseed.PreseedFile:
				c.files.Preseed = b
			case preseed.FarhandFile:
				c.files.Farhand = b
			case preseed.FirstrunFile:
				c.files.Firstrun = b
			case cmdlineFile:
				c.files.Cmdline = b
			default: // names are sorted: the one that it is meant to be comes first
				c.takeFor(name, meant(lower), b)
			}
		}
		c.choice, err = fat.Read(root, s.choice().file, maxChoice)
		if err != nil {
			c.choice = nil // as good as not there
		}
		return nil
	})
	return c, err
}

// meant is the file that one was meant to be whose editor put .txt behind its name,
// which a Windows that hides such ends doesn't show; empty for any other.
func meant(lower string) string {
	name, txt := strings.CutSuffix(lower, ".txt")
	if txt && (name == preseed.PreseedFile || name == preseed.FarhandFile) {
		return name
	}
	return ""
}

// takeFor reads a file as the one that it was meant to be, unless that is there and
// says something, too. The one that an image comes with says nothing.
func (c *card) takeFor(name, meant string, b []byte) {
	into := &c.files.Farhand
	if meant == preseed.PreseedFile {
		into = &c.files.Preseed
	}
	if *into != nil && !silent(*into) {
		c.renamed = append(c.renamed, preseed.Item{Item: name, Outcome: preseed.Ignored, Why: meant + " is there, too, and is read"})
		return
	}
	*into = b
	c.renamed = append(c.renamed, preseed.Item{Item: name, Outcome: preseed.Changed, Why: "read as " + meant + ", without .txt"})
}

// silent says that a file has nothing but comments.
func silent(b []byte) bool {
	for line := range bytes.Lines(b) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' {
			return false
		}
	}
	return true
}

func list(root *os.Root) ([]string, error) {
	d, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	entries, err := d.ReadDir(maxDirectory)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.Type().IsRegular() || e.Type() == fs.ModeSymlink {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// runsScript says whether a kernel argument runs something at the next start.
func runsScript(cmdline []byte) bool { return bytes.Contains(cmdline, []byte("systemd.run")) }

// goodChoice says whether the firmware can read a partition out of autoboot.txt.
var goodChoice = regexp.MustCompile(`(?m)^\s*boot_partition=[1-4]\s*$`)

// repair is the content that the choice's file should have been left with; nil if
// it is fine. What is fine is kept on the data partition for the day it isn't.
func (s *System) repair(c card, durable bool) []byte {
	how := s.choice()
	kept, err := readLimited(s.path(how.copy()), maxChoice)
	if how.good(c.choice) {
		if durable && (err != nil || !bytes.Equal(kept, c.choice)) {
			if err := s.install(how.copy(), c.choice, 0o644, 0, 0); err != nil {
				s.Log.Warn("no copy of "+how.file+" could be kept", "error", err)
			}
		}
		return nil
	}
	if err == nil && how.good(kept) {
		return kept
	}
	return how.first
}

// clean removes files from the card, those with secrets overwritten first, and
// repairs the choice of the slot. All of it can be done again.
func (s *System) clean(ctx context.Context, shred, remove []string, choice []byte) error {
	if len(shred)+len(remove) == 0 && choice == nil {
		return nil
	}
	if s.Card == nil {
		return errors.New("there is no such partition")
	}
	return s.Card.Commit(ctx, func(root *os.Root) error {
		var errs []error
		if choice != nil {
			file := s.choice().file
			s.at(file)
			errs = append(errs, fat.Replace(root, file, choice))
		}
		for _, name := range remove {
			s.at("remove " + name)
			errs = append(errs, fat.Remove(root, name))
		}
		for _, name := range shred {
			s.at("shred " + name)
			errs = append(errs, fat.Shred(root, name))
		}
		return errors.Join(errs...)
	})
}
