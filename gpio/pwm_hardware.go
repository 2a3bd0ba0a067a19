package gpio

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"farhand/device/sysfs"
	"farhand/internal/pinout"
	"farhand/wire"
)

// pwmChannel is a channel of a PWM in sysfs (Documentation/ABI/testing/
// sysfs-class-pwm).
type pwmChannel struct {
	dir     string // /sys/class/pwm/pwmchipN, with links resolved
	device  string // what it belongs to: 1f00098000.pwm
	channel int
}

// noPWM says why a line has no hardware PWM, and what would give it one.
type noPWM struct{ reason, hint string }

// headerPWM is the device of the PWM whose signals the header has, by the end of
// its name: the kernel numbers PWM chips as it finds them.
var headerPWM = map[pinout.SoC]string{
	pinout.BCM2837: "20c000.pwm",   // 3f20c000.pwm
	pinout.BCM2711: "20c000.pwm",   // fe20c000.pwm
	pinout.RP1:     "00098000.pwm", // 1f00098000.pwm
}

// pwmSignal is the channel that a line can be switched to: PWM1, PWM0_1 and
// PWM0_CHAN1 are channel 1 of the header's PWM.
func pwmSignal(soc pinout.SoC, line int) (channel int, alt string, ok bool) {
	for _, f := range pinout.Functions(soc, line) {
		if rest, is := strings.CutPrefix(f.Name, "PWM"); is {
			digits := rest[strings.LastIndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })+1:]
			if n, err := strconv.Atoi(digits); err == nil {
				return n, f.Alt, true
			}
		}
	}
	return 0, "", false
}

// findPWM finds the hardware PWM of a line, if the board's overlays have
// switched the line to it.
func (b *board) findPWM(offset int) (pwmChannel, *noPWM) {
	soc, ok := pinout.ByLabel(b.info.Label)
	if !ok {
		return pwmChannel{}, &noPWM{"which of this chip's lines a PWM reaches isn't known", ""}
	}
	channel, alt, ok := pwmSignal(soc, offset)
	if !ok {
		return pwmChannel{}, &noPWM{"no PWM reaches this line", "GPIO12, GPIO13, GPIO18 and GPIO19 have one"}
	}
	hint := fmt.Sprintf("in config.txt, below [all] or the section of this board: dtoverlay=pwm,pin=%d,func=%s, or pwm-2chan for two; then reboot", offset, overlayFunc(alt))
	fsys := b.s.o.FS
	chips, err := fsys.List("class/pwm")
	if err != nil || len(chips) == 0 {
		return pwmChannel{}, &noPWM{"no PWM is set up on this board", hint}
	}
	for _, name := range chips {
		dir := sysfs.Real(filepath.Join(fsys.Dir("class/pwm"), name))
		dev := sysfs.Real(filepath.Join(dir, "device"))
		if dev == "" || !strings.HasPrefix(name, "pwmchip") || !strings.HasSuffix(filepath.Base(dev), headerPWM[soc]) {
			continue
		}
		if n, err := strconv.Atoi(sysfs.Attr(dir, "npwm")); err != nil || channel >= n {
			continue
		}
		if !b.switchedTo(dev, offset) {
			return pwmChannel{}, &noPWM{"the PWM is there, but this line isn't switched to it", hint}
		}
		return pwmChannel{dir: dir, device: filepath.Base(dev), channel: channel}, nil
	}
	return pwmChannel{}, &noPWM{"the header's PWM isn't set up on this board", hint}
}

// overlayFunc is the number that the pwm overlay wants for a function: that of
// BCM2835's function select register (4 for alt0, 2 for alt5).
func overlayFunc(alt string) string {
	switch alt {
	case "alt0":
		return "4"
	case "alt5":
		return "2"
	}
	return "4" // RP1's overlay looks the pin's own function up
}

// switchedTo says whether the pin control state of a PWM's device names a line.
func (b *board) switchedTo(dev string, line int) bool {
	handles, err := binaryAttr(filepath.Join(dev, "of_node", "pinctrl-0"))
	if err != nil {
		return false
	}
	for _, node := range b.pinNodes() {
		handle, err := binaryAttr(filepath.Join(node, "phandle"))
		if err == nil && len(handle) == 4 && hasHandle(handles, handle) && slices.Contains(pinsOf(node), line) {
			return true
		}
	}
	return false
}

// hasHandle says whether a list of phandles, four bytes each, has one.
func hasHandle(list, handle []byte) bool {
	for ; len(list) >= 4; list = list[4:] {
		if bytes.Equal(list[:4], handle) {
			return true
		}
	}
	return false
}

// pinNodes are the device tree nodes below that of the chip.
func (b *board) pinNodes() []string {
	for dir := b.dir; dir != "" && dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		node := sysfs.Real(filepath.Join(dir, "of_node"))
		if node == "" {
			continue
		}
		entries, err := os.ReadDir(node)
		if err != nil {
			return nil
		}
		var nodes []string
		for _, e := range entries {
			if e.IsDir() {
				nodes = append(nodes, filepath.Join(node, e.Name()))
			}
		}
		return nodes
	}
	return nil
}

// pinsOf are the pins that a pin control node is about: brcm,pins has numbers
// (BCM2835 and BCM2711), pins has names ("gpio18", RP1).
func pinsOf(node string) []int {
	var pins []int
	if raw, err := binaryAttr(filepath.Join(node, "brcm,pins")); err == nil {
		for ; len(raw) >= 4; raw = raw[4:] {
			pins = append(pins, int(binary.BigEndian.Uint32(raw)))
		}
	}
	if raw, err := binaryAttr(filepath.Join(node, "pins")); err == nil {
		for name := range strings.SplitSeq(string(raw), "\x00") {
			if n, ok := strings.CutPrefix(name, "gpio"); ok {
				if n, ok := decimal(n); ok {
					pins = append(pins, n)
				}
			}
		}
	}
	return pins
}

// binaryAttr reads a property of the device tree, whose bytes all count.
func binaryAttr(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 4096))
}

// failure says what a channel has refused: HARDWARE_OPEN_FAILED, since that it
// isn't there doesn't mean that the chip of the lines has gone.
func (c pwmChannel) failure(err error) error {
	var e *wire.Error
	if err == nil || errors.As(err, &e) {
		return err
	}
	return wire.Errorf(wire.HardwareOpenFailed, "channel %d of %s: %v", c.channel, c.device, errnoText(err)).With("os_error", errnoName(err)).
		With("hint", "the daemon's user must be allowed to write to the PWM in /sys/class/pwm (group gpio)")
}

// hardPWM is a channel that runs.
type hardPWM struct {
	ch  pwmChannel
	low bool // inversed
	w   wave // as the kernel set it
}

// exportTime bounds waiting for udev to give an exported channel to our group.
const exportTime = time.Second

// startHardware takes a channel and starts it.
func startHardware(ctx context.Context, ch pwmChannel, w wave, low bool) (*hardPWM, error) {
	p := &hardPWM{ch: ch, low: low}
	if err := p.export(ctx); err != nil {
		return nil, err
	}
	polarity := "normal"
	if low {
		polarity = "inversed"
	}
	if sysfs.Attr(p.path(), "polarity") != polarity {
		if err := errors.Join(p.write("enable", "0"), p.write("polarity", polarity)); err != nil {
			return nil, err
		}
	}
	if err := p.set(w); err != nil {
		return nil, err
	}
	return p, p.write("enable", "1")
}

func (p *hardPWM) path() string { return filepath.Join(p.ch.dir, "pwm"+strconv.Itoa(p.ch.channel)) }

// export makes the channel's directory, unless somebody has.
func (p *hardPWM) export(ctx context.Context) error {
	if _, err := os.Stat(p.path()); errors.Is(err, fs.ErrNotExist) {
		err := writeAttr(filepath.Join(p.ch.dir, "export"), strconv.Itoa(p.ch.channel))
		if errors.Is(err, syscall.EBUSY) {
			return wire.Errorf(wire.HardwareBusy, "channel %d of %s is in use by a driver of the kernel", p.ch.channel, p.ch.device).With("holder", "the kernel")
		}
		if err != nil {
			return fmt.Errorf("exporting channel %d of %s: %w", p.ch.channel, p.ch.device, err)
		}
	}
	deadline := time.Now().Add(exportTime)
	for {
		f, err := os.OpenFile(filepath.Join(p.path(), "duty_cycle"), os.O_WRONLY, 0)
		if err == nil {
			return f.Close()
		}
		if !errors.Is(err, fs.ErrPermission) && !errors.Is(err, fs.ErrNotExist) || time.Now().After(deadline) {
			return fmt.Errorf("taking channel %d of %s: %w", p.ch.channel, p.ch.device, err)
		}
		t := time.NewTimer(10 * time.Millisecond)
		select {
		case <-ctx.Done():
			t.Stop()
			return context.Cause(ctx)
		case <-t.C:
		}
	}
}

func (p *hardPWM) write(name, value string) error {
	if err := writeAttr(filepath.Join(p.path(), name), value); err != nil {
		return fmt.Errorf("setting %s of channel %d of %s: %w", name, p.ch.channel, p.ch.device, err)
	}
	return nil
}

// writeAttr writes an attribute that is there; it makes no file.
func writeAttr(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (p *hardPWM) read(name string) time.Duration {
	n, err := strconv.ParseInt(sysfs.Attr(p.path(), name), 10, 64)
	if err != nil {
		return 0
	}
	return time.Duration(n)
}

// set changes the wave: the kernel refuses a period shorter than the time at 1.
func (p *hardPWM) set(w wave) error {
	steps := [][2]string{{"period", nanos(w.period)}, {"duty_cycle", nanos(w.high)}}
	if p.read("duty_cycle") > w.period {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, s := range steps {
		if err := p.write(s[0], s[1]); err != nil {
			if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ERANGE) {
				return wire.Errorf(wire.InvalidArgument, "the PWM can't do a period of %s ns", nanos(w.period)).With("field", "frequency_hz")
			}
			return p.ch.failure(err)
		}
	}
	p.w = wave{p.read("period"), p.read("duty_cycle")}
	if p.w.period == 0 {
		p.w = w
	}
	return nil
}

func nanos(d time.Duration) string { return strconv.FormatInt(int64(d), 10) }

// halt ends it at 0. One that is inversed goes on with no time at 1, since a
// PWM that is off is at the low level.
func (p *hardPWM) halt() error {
	err := p.write("duty_cycle", "0")
	if err == nil && !p.low {
		err = p.write("enable", "0")
		if err == nil {
			err = writeAttr(filepath.Join(p.ch.dir, "unexport"), strconv.Itoa(p.ch.channel))
		}
	}
	return p.ch.failure(err)
}

func (p *hardPWM) independent() bool { return true }
func (p *hardPWM) wave() wave        { return p.w }

func (p *hardPWM) tell(s *wire.GPIOPWMState) {
	p.w.tell(s)
	s.Kind, s.Chip, s.Channel = "hardware", p.ch.device, &p.ch.channel
}

// findChannel finds a channel by what the ledger has of it.
func findChannel(fsys sysfs.FS, device string, channel int) (pwmChannel, error) {
	chips, err := fsys.List("class/pwm")
	if err != nil {
		return pwmChannel{}, err
	}
	for _, name := range chips {
		dir := sysfs.Real(filepath.Join(fsys.Dir("class/pwm"), name))
		if sysfs.LinkName(dir, "device") == device || filepath.Base(sysfs.Real(filepath.Join(dir, "device"))) == device {
			return pwmChannel{dir: dir, device: device, channel: channel}, nil
		}
	}
	return pwmChannel{}, fmt.Errorf("PWM %s: %w", device, fs.ErrNotExist)
}
