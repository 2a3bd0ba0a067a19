package check

import (
	"bufio"
	"bytes"
	"context"
	"path"
	"strings"

	"farhand/image/fat"
	"farhand/image/layout"
)

// maxAutoboot is the documented limit of autoboot.txt, bytes.
const maxAutoboot = 512

// first checks the first partition: what its kind of machine needs, and that
// nothing on it is one card's.
func (c *card) first(context.Context) {
	v := c.fat(layout.Autoboot, layout.AutobootLabel)
	if v == nil {
		return
	}
	c.kind.first(c, v)
	files, err := v.ReadDir(".")
	if err != nil {
		c.fail("partition 1: %w", err)
	}
	for _, e := range files {
		if name := strings.ToLower(e.Name); name == "rpi-preseed.toml" || name == "firstrun.sh" || strings.HasPrefix(name, "pair.") {
			c.fail("partition 1 has %s, which belongs to one card", e.Name)
		}
	}
	if text, err := v.ReadFile("farhand.toml"); err == nil {
		for key := range settings(text) {
			if strings.HasSuffix(key, " claim_key") || strings.HasSuffix(key, " rescue_passphrase") {
				c.fail("farhand.toml says%s, which belongs to one card", strings.TrimPrefix(key, "all"))
			}
		}
	}
}

// autoboot checks a Pi's, both halves: what the mask ROM of a Pi 3 and the choice
// of the slot need is there, and nothing by which the firmware would take it for a
// partition to boot from (field case 66).
func (c *card) autoboot(v *fat.Volume) {
	if e, err := v.Stat("bootcode.bin"); err != nil || e.Short != "BOOTCODE.BIN" || e.Size == 0 {
		c.fail("partition 1 has no bootcode.bin, which a Pi 3 and a Zero 2 W read there")
	}
	text, err := v.ReadFile("autoboot.txt")
	if err != nil {
		c.fail("partition 1: %w", err)
	}
	if len(text) > maxAutoboot {
		c.fail("autoboot.txt has %d bytes, more than %d", len(text), maxAutoboot)
	}
	choice := settings(text)
	for key, want := range map[string]string{"all tryboot_a_b": "1", "all boot_partition": "2", "tryboot boot_partition": "3"} {
		if choice[key] != want {
			c.fail("autoboot.txt: [%s is %q, not %q", strings.Replace(key, " ", "] ", 1), choice[key], want)
		}
	}
	files, err := v.ReadDir(".")
	if err != nil {
		c.fail("partition 1: %w", err)
	}
	for _, e := range files {
		name := strings.ToLower(e.Name)
		if start, _ := path.Match("start*.elf", name); start || name == "config.txt" {
			c.fail("partition 1 has %s: the firmware would boot from it", e.Name)
		}
	}
}

// settings reads lines KEY=VALUE under headings; before the first one it is
// "all".
func settings(text []byte) map[string]string {
	out := make(map[string]string)
	section := "all"
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		l := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(l, "#") {
			continue
		}
		if inner, ok := strings.CutPrefix(l, "["); ok {
			section, _, _ = strings.Cut(inner, "]")
		} else if key, value, ok := strings.Cut(l, "="); ok {
			out[section+" "+strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return out
}

// board is what one needs on the boot partition, beyond what all do. The names
// are the mainline kernel's, which the firmware takes with upstream_kernel=1.
type board struct {
	name  string
	trees []string
	files []string
	// section is its heading in config.txt, where device_tree may name another
	// tree for a board that the kernel has none of.
	section string
}

// A firmware and its fixup are a pair. Since a Pi 5 has its firmware in the
// EEPROM, it needs none here, but refuses a partition without a device tree for
// it (field case 68).
func boards() []board {
	old, four := []string{"start.elf", "fixup.dat"}, []string{"start4.elf", "fixup4.dat"}
	return []board{
		{"Pi 3 B", []string{"bcm2837-rpi-3-b.dtb"}, old, ""},
		{"Pi 3 B+", []string{"bcm2837-rpi-3-b-plus.dtb"}, old, ""},
		{"Pi 3 A+", []string{"bcm2837-rpi-3-a-plus.dtb"}, old, ""},
		{"Zero 2 W", []string{"bcm2837-rpi-zero-2-w.dtb"}, old, ""},
		{"CM3", []string{"bcm2837-rpi-cm3-io3.dtb"}, old, ""},
		{"Pi 4", []string{"bcm2711-rpi-4-b.dtb"}, four, ""},
		{"Pi 400", []string{"bcm2711-rpi-400.dtb"}, four, ""},
		{"CM4", []string{"bcm2711-rpi-cm4-io.dtb"}, four, ""},
		{"Pi 5", []string{"bcm2712-rpi-5-b.dtb", "bcm2712-d-rpi-5-b.dtb"}, nil, ""},
		{"CM5", []string{"bcm2712-rpi-cm5-cm5io.dtb"}, nil, "cm5"},
	}
}

// boot checks slot A's boot partition; B is the same.
func (c *card) boot(context.Context) {
	if v := c.fat(layout.BootA, layout.BootLabel); v != nil {
		c.kind.boot(c, v)
	}
}

func (c *card) piBoot(v *fat.Volume) {
	for _, name := range []string{"config.txt", "tryboot.txt", "cmdline.txt", "kernel8.img", "initrd.img"} {
		c.file(v, name, "every board")
	}
	text, err := v.ReadFile("config.txt")
	if err != nil {
		return // said above
	}
	config := settings(text)
	if trial, err := v.ReadFile("tryboot.txt"); err == nil && !bytes.Equal(trial, text) { // field case 60
		c.fail("tryboot.txt isn't config.txt")
	}
	for key, want := range map[string]string{"arm_64bit": "1", "kernel": "kernel8.img", "upstream_kernel": "1"} {
		if config["all "+key] != want {
			c.fail("config.txt: %s is %q, not %q", key, config["all "+key], want)
		}
	}
	for _, b := range boards() {
		for _, name := range b.files {
			c.file(v, name, b.name)
		}
		trees := b.trees
		if other := config[b.section+" device_tree"]; b.section != "" && other != "" {
			trees = []string{other}
		}
		for _, name := range trees {
			c.file(v, name, b.name)
		}
	}
	c.includes(v, text)
}

// includes checks that the files that config.txt includes are there.
func (c *card) includes(v *fat.Volume, text []byte) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) == 2 && words[0] == "include" {
			c.file(v, words[1], "config.txt")
		}
	}
}

func (c *card) file(v *fat.Volume, name, who string) {
	if e, err := v.Stat(name); err != nil || e.Dir || e.Size == 0 && name != "farhand-hw.txt" {
		c.fail("partition %d has no %s, which %s needs", layout.BootA, name, who)
	}
}
