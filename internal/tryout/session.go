package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// session pairs the daemon and shows what an operator does with it.
func (b *bench) session(ctx context.Context) error {
	code, err := b.daemon.await(ctx, `farhand approve ([A-Z]{4}-[A-Z]{4})`)
	if err != nil {
		return err
	}
	if _, err := b.daemon.await(ctx, `The code is good for`); err != nil {
		return err
	}
	b.daemon.quiet()

	say("The owner compares the code and allows what was asked for, the shell by name")
	if err := b.farhand(ctx, "approve", code[1], "--yes", "--name", "bench", "--allow", "files,shell,hardware_serial,hardware_usb,hardware_gpio,hardware_i2c,hardware_spi,hardware_printer"); err != nil {
		return err
	}
	if err := b.online(ctx); err != nil {
		return err
	}

	say("What is there")
	if err := b.farhand(ctx, "machines"); err != nil {
		return err
	}
	if err := b.farhand(ctx, "devices"); err != nil {
		return err
	}

	say("A command, and its exit status")
	if err := b.expect(ctx, "far away", "exec", "--", "sh", "-c", "echo far away; uname -sm"); err != nil {
		return err
	}

	say("A file there, listed, and back again")
	note := filepath.Join(b.dir, "note.txt")
	if err := os.WriteFile(note, []byte("from here\n"), 0o600); err != nil {
		return err
	}
	if err := b.farhand(ctx, "put", "note.txt", ":note.txt"); err != nil {
		return err
	}
	if err := b.expect(ctx, "note.txt", "ls"); err != nil {
		return err
	}
	if err := b.farhand(ctx, "get", ":note.txt", "back.txt"); err != nil {
		return err
	}
	if got, err := os.ReadFile(filepath.Join(b.dir, "back.txt")); err != nil || string(got) != "from here\n" {
		return fmt.Errorf("the file came back as %q (%v)", got, err)
	}

	if err := b.hardware(ctx); err != nil {
		return err
	}

	say("And every act is on the record")
	return b.farhand(ctx, "audit", "verify")
}

// hardware shows a device of each family. All are the bench's, by name, so that
// nothing is driven that is really wired to this machine.
func (b *bench) hardware(ctx context.Context) error {
	for _, x := range []struct {
		about, text string
		args        []string
	}{
		{"A line is driven; another that is wired to it follows (all devices here are simulated)", "GPIO17  1", []string{"gpio", "set", "gpio:pinctrl-bcm2711", "GPIO17=on"}},
		{"", "GPIO27  1", []string{"gpio", "get", "gpio:pinctrl-bcm2711", "GPIO27"}},
		{"A bus, and what the chip at 0x76 says that it is: 60 is a BME280, a sensor", "76", []string{"i2c", "scan", "i2c:1"}},
		{"", "60", []string{"i2c", "read", "i2c:1", "0x76", "0xd0", "--hex"}},
		{"A question to an instrument on a serial port", "FARHAND", []string{"serial", "transact", "serial:sim-scpi", `*IDN?\n`, "--until", `\n`}},
		{"What is on USB, and how a printer is", "usb:1209:0001-SIM-ECHO", []string{"usb", "list"}},
		{"", "Operational", []string{"print", "status", "sim-i3"}},
	} {
		if x.about != "" {
			say("%s", x.about)
		}
		if err := b.expect(ctx, x.text, x.args...); err != nil {
			return err
		}
	}
	return nil
}

// online waits until the daemon is connected.
func (b *bench) online(ctx context.Context) error {
	_, err := b.daemon.await(ctx, `^Online`)
	return err
}

// expect runs a command whose output must hold a text.
func (b *bench) expect(ctx context.Context, text string, args ...string) error {
	out, err := b.capture(ctx, args...)
	if err != nil {
		return err
	}
	if !strings.Contains(strings.ToUpper(out), strings.ToUpper(text)) {
		return fmt.Errorf("farhand %s didn't say %q", args[0], text)
	}
	return nil
}
