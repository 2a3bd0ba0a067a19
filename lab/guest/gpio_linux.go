package guest

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
)

// Bank is the GPIO chip that a test wants.
type Bank struct {
	Label string         // what the chip is found by: "pinctrl-bcm2711"
	Lines int            // 1 or more
	Names map[int]string // by offset
	Hogs  map[int]Hog    // lines that something in the kernel holds
}

// Hog is a line that is taken.
type Hog struct {
	Consumer  string
	Direction string // "input", "output-high" or "output-low"
}

// Level is what pulls at a line from outside.
type Level string

// What gpio-sim's file pull accepts.
const (
	Up   Level = "pull-up"
	Down Level = "pull-down"
)

// Chip is a GPIO chip of the kernel's gpio-sim (its
// admin-guide/gpio/gpio-sim.rst).
type Chip struct {
	t      testing.TB
	config string // its folder in configfs
	bank   Bank

	Name string // "gpiochip0"; another after Unplug and Plug, perhaps
	Path string // "/dev/gpiochip0"
	sys  string // the folder with sim_gpio0 and so on
}

const gpioSim = "/sys/kernel/config/gpio-sim"

// GPIOSim makes a chip and removes it after the test, by when the test has to
// have closed it.
func GPIOSim(t testing.TB, b Bank) *Chip {
	t.Helper()
	c := &Chip{t: t, config: filepath.Join(gpioSim, unused(t, gpioSim, "sim")), bank: b}
	bank := filepath.Join(c.config, "bank0")
	mkdir(t, c.config)
	made := []string{c.config}
	mkdir(t, bank)
	made = append(made, bank)
	write(t, filepath.Join(bank, "num_lines"), strconv.Itoa(b.Lines))
	if b.Label != "" {
		write(t, filepath.Join(bank, "label"), b.Label)
	}
	line := func(offset int) string {
		dir := filepath.Join(bank, fmt.Sprintf("line%d", offset))
		if !exists(dir) {
			mkdir(t, dir)
			made = append(made, dir)
		}
		return dir
	}
	for offset, name := range b.Names {
		write(t, filepath.Join(line(offset), "name"), name)
	}
	for offset, hog := range b.Hogs {
		dir := filepath.Join(line(offset), "hog")
		mkdir(t, dir)
		made = append(made, dir)
		write(t, filepath.Join(dir, "name"), hog.Consumer)
		write(t, filepath.Join(dir, "direction"), hog.Direction)
	}
	t.Cleanup(func() {
		c.Unplug()
		for i := len(made) - 1; i >= 0; i-- {
			remove(t, made[i])
		}
	})
	c.Plug()
	return c
}

// unused is a name that dir has no entry of.
func unused(t testing.TB, dir, prefix string) string {
	t.Helper()
	for n := range 1000 {
		if name := prefix + strconv.Itoa(n); !exists(filepath.Join(dir, name)) {
			return name
		}
	}
	t.Fatalf("%s is full", dir)
	return ""
}

// Plug makes the chip appear, if it isn't there.
func (c *Chip) Plug() {
	c.t.Helper()
	live := filepath.Join(c.config, "live")
	if read(c.t, live) == "1" {
		return
	}
	write(c.t, live, "1")
	c.Name = read(c.t, filepath.Join(c.config, "bank0", "chip_name"))
	c.Path = filepath.Join("/dev", c.Name)
	c.sys = filepath.Join("/sys/devices/platform", read(c.t, filepath.Join(c.config, "dev_name")), c.Name)
	WaitNode(c.t, c.Path)
}

// Unplug makes it vanish, whoever uses it.
func (c *Chip) Unplug() {
	c.t.Helper()
	live := filepath.Join(c.config, "live")
	if read(c.t, live) == "0" {
		return
	}
	write(c.t, live, "0")
	WaitFor(c.t, c.Path+" to vanish", func() bool { return !exists(c.Path) })
}

// Pull pulls at a line from outside, as a button or another board would: an
// input reads that level, and edges happen.
func (c *Chip) Pull(line int, l Level) {
	c.t.Helper()
	write(c.t, filepath.Join(c.line(line), "pull"), string(l))
}

// Value is the level that a meter at the line would show: true is high.
func (c *Chip) Value(line int) bool {
	c.t.Helper()
	return read(c.t, filepath.Join(c.line(line), "value")) == "1"
}

// PullFile is what Pull writes, for tests that do so too often to open it each
// time.
func (c *Chip) PullFile(line int) string { return filepath.Join(c.line(line), "pull") }

func (c *Chip) line(offset int) string {
	return filepath.Join(c.sys, "sim_gpio"+strconv.Itoa(offset))
}
