package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"farhand/e2e/boot/firmware"
)

// pi3Steps are what only the emulated Raspberry Pi can show: its own devices.
func pi3Steps(d *device) []step {
	d.board.Extra = append(d.board.Extra,
		"-device", "tmp105,id=tmp,bus=i2c-bus.1,address=0x48",
		"-device", "at24c-eeprom,bus=i2c-bus.1,address=0x50,rom-size=256",
	)
	d.board.Sockets = []string{adapterSocket}
	p, a := &pairing{device: d}, &adapter{device: d}
	return append(p.pair(false),
		step{"a command", time.Minute, d.commands},
		step{"54 lines of the Pi's own chip", 3 * time.Minute, d.header},
		step{"a thermometer and an EEPROM on I2C", 2 * time.Minute, d.buses},
		step{"an FTDI adapter is plugged in and echoes", 3 * time.Minute, a.echo},
		step{"the power is cut", 2 * time.Minute, d.cutAndLook},
		step{"it comes online again", d.longestBoot(), d.again(firmware.Start{}, "after a cut")},
		step{"what was put there before the cut is there", time.Minute, d.puts},
		step{"nothing has failed", 2 * time.Minute, d.healthy},
	)
}

const chip = "gpio:pinctrl-bcm2835"

// header drives lines of the chip and reads them back.
func (d *device) header(ctx context.Context) error {
	out, err := d.farhand(ctx, 2, "gpio", "info", chip)
	if err != nil {
		return err
	}
	for _, line := range []string{"GPIO2", "GPIO17", "GPIO27"} {
		if !strings.Contains(out, line) {
			return fmt.Errorf("the chip has no line %s:\n%s", line, out)
		}
	}
	if out, err := d.farhand(ctx, 2, "gpio", "info", chip, "53"); err != nil {
		return unlike(err, "line 53 of 54: %q", out)
	}
	if _, err := d.farhand(ctx, 2, "gpio", "info", chip, "54"); err == nil {
		return errors.New("the chip has a 55th line")
	}
	for _, line := range []string{"GPIO17", "GPIO5", "GPIO27"} {
		for _, level := range []string{"1", "0", "1"} {
			if _, err := d.farhand(ctx, 2, "gpio", "set", chip, line+"="+level); err != nil {
				return err
			}
			if out, err := d.farhand(ctx, 2, "gpio", "get", chip, line, "--brief"); err != nil || strings.TrimSpace(out) != level {
				return unlike(err, "%s, set to %s, reads %q", line, level, out)
			}
		}
	}
	return nil
}

// buses reads the thermometer (TMP105: register 0, 1/256 degree in two bytes)
// and writes and reads the EEPROM (AT24C02: an address byte, then data).
func (d *device) buses(ctx context.Context) error {
	if err := d.expect(ctx, "48", 2, "i2c", "scan", "i2c:1"); err != nil {
		return err
	}
	for celsius, want := range map[int]string{25: "1900", 37: "2500"} {
		if err := d.m.Do(ctx, "qom-set", map[string]any{"path": "/machine/peripheral/tmp", "property": "temperature", "value": celsius * 1000}, nil); err != nil {
			return err
		}
		out, err := d.farhand(ctx, 2, "i2c", "read", "i2c:1", "0x48", "0x00", "-n", "2", "--hex")
		if err != nil || strings.TrimSpace(out) != want {
			return unlike(err, "at %d degrees the thermometer says %q, not %s", celsius, out, want)
		}
	}
	if _, err := d.farhand(ctx, 2, "i2c", "write", "i2c:1", "0x50", "10", "5a", "a5"); err != nil {
		return err
	}
	out, err := d.farhand(ctx, 2, "i2c", "read", "i2c:1", "0x50", "0x10", "-n", "2", "--hex")
	if err != nil || strings.TrimSpace(out) != "5aa5" {
		return unlike(err, "the EEPROM says %q", out)
	}
	return nil
}
