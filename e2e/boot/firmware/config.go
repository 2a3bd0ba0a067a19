package firmware

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// config is what config.txt says to a board.
type config struct {
	values   map[string]string
	overlays []string // names, in their order
}

// maxIncludes bounds how deep files name others.
const maxIncludes = 4

// harmless are settings that change nothing which the emulation does.
var harmless = []string{
	"arm_64bit", "enable_uart", "upstream_kernel", "disable_overscan", "disable_splash", "hdmi_force_hotplug",
	"gpu_mem", "uart_2ndstage", "avoid_warnings", "boot_delay", "dtdebug", "camera_auto_detect", "display_auto_detect",
	"force_turbo", "arm_boost", "max_framebuffers", "disable_fw_kms_setup", "kernel_watchdog_timeout", "kernel_watchdog_partition",
	"dtparam", "otg_mode", "hdmi_group", "hdmi_mode", "hdmi_drive", "disable_poe_fan", "enable_gic", "core_freq", "core_freq_min",
	"max_usb_current", "usb_max_current_enable", "total_mem", "initial_turbo", "pciex4_reset",
}

// known are those that it follows.
var known = []string{"kernel", "initramfs", "device_tree", "cmdline", "os_prefix", "overlay_prefix", "auto_initramfs"}

type reader struct {
	files     fs.FS
	board     Board
	partition int
	tryboot   bool
	into      *config
}

func (r reader) file(name string, depth int) error {
	text, err := fs.ReadFile(r.files, name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	applies := true // an included file begins as if under [all]
	number := 0
	for line := range bytes.Lines(text) {
		number++
		l := strings.TrimSpace(string(line))
		if l == "" || strings.HasPrefix(l, "#") {
			continue
		}
		if strings.HasPrefix(l, "[") {
			if applies, err = r.section(l); err != nil {
				return fmt.Errorf("%s:%d: %w", name, number, err)
			}
			continue
		}
		if !applies {
			continue
		}
		if err := r.setting(l, depth); err != nil {
			return fmt.Errorf("%s:%d: %w", name, number, err)
		}
	}
	return nil
}

// models are the sections by which lines are for some boards alone.
var models = []string{"pi0", "pi0w", "pi02", "pi1", "pi2", "pi3", "pi3+", "pi4", "pi400", "cm4", "cm4s", "pi5", "pi500", "cm5", "cm5l"}

// section says whether what follows applies. Sections of different kinds would
// narrow each other in the firmware; ours never need that, so they are refused.
func (r reader) section(l string) (bool, error) {
	name := strings.TrimSuffix(strings.TrimPrefix(l, "["), "]")
	switch {
	case name == "all":
		return true, nil
	case name == "none":
		return false, nil
	case name == "tryboot":
		return r.tryboot, nil
	case slices.Contains(models, name):
		return slices.Contains(r.board.Filters, name), nil
	}
	if n, ok := strings.CutPrefix(name, "boot_partition="); ok {
		k, err := strconv.Atoi(n)
		return err == nil && k == r.partition, err
	}
	return false, fmt.Errorf("the section [%s] isn't known here", name)
}

func (r reader) setting(l string, depth int) error {
	// These two take their argument after a space.
	if name, ok := strings.CutPrefix(l, "include "); ok {
		if depth == maxIncludes {
			return fmt.Errorf("more than %d files include each other", maxIncludes)
		}
		err := r.file(strings.TrimSpace(name), depth+1)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // the firmware goes on without it
		}
		return err
	}
	if args, ok := strings.CutPrefix(l, "initramfs "); ok {
		l = "initramfs=" + strings.TrimSpace(args)
	}
	key, value, ok := strings.Cut(l, "=")
	if !ok {
		return fmt.Errorf("%q is no setting", l)
	}
	switch key = strings.TrimSpace(key); {
	case key == "dtoverlay":
		if value != "" { // empty: the end of an overlay's parameters
			r.into.overlays = append(r.into.overlays, strings.TrimSpace(value))
		}
	case slices.Contains(known, key):
		r.into.values[key] = strings.TrimSpace(value)
	case !slices.Contains(harmless, key):
		return fmt.Errorf("the setting %s isn't known here", key)
	}
	return nil
}

// prefixed is where a file that the configuration names lies.
func (c config) prefixed(name string) string { return path.Clean(c.values["os_prefix"] + name) }

// overlayFile is where an overlay lies. Parameters of overlays (name,key=value)
// are the real firmware's business: ours have none.
func (c config) overlayFile(name string) (string, error) {
	if strings.Contains(name, ",") {
		return "", fmt.Errorf("dtoverlay=%s has parameters, which aren't applied here", name)
	}
	prefix, ok := c.values["overlay_prefix"]
	if !ok {
		prefix = "overlays/"
	}
	return c.prefixed(prefix + name + ".dtbo"), nil
}
