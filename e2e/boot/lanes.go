package main

import (
	"context"
	crand "crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"farhand/e2e/boot/card"
	"farhand/e2e/boot/firmware"
	"farhand/e2e/boot/guest"
	"farhand/image/layout"
)

// allLanes are the lanes in the order in which they begin: the longest first.
func allLanes() []*lane {
	return []*lane{
		{name: "code", kind: guest.Virt, steps: codeSteps, longest: 25 * time.Minute},
		{name: "first", kind: guest.Virt, steps: firstSteps, longest: 25 * time.Minute, full: true},
		{name: "cuts", kind: guest.Virt, steps: cutSteps, longest: 25 * time.Minute, full: true},
		{name: "pi3", kind: guest.Pi3B, steps: pi3Steps, longest: 20 * time.Minute, full: true},
		{name: "wifi", kind: guest.Virt, steps: wifiSteps, longest: 20 * time.Minute, full: true},
		{name: "figures", kind: guest.Virt, steps: figureSteps, longest: 15 * time.Minute, full: true, alone: true},
		{name: "generic", target: "generic", kind: guest.Generic, steps: uefiSteps, longest: 25 * time.Minute},
		{name: "amd64", target: "amd64", kind: guest.PC, steps: uefiSteps, longest: 25 * time.Minute},
	}
}

// codeSteps are an owner's first day with a board, who pairs it by its code; and
// what happens to boards.
func codeSteps(d *device) []step {
	d.board.Extra = append(d.board.Extra,
		"-device", "virtio-rng-pci",
		"-device", "qemu-xhci,id=usb",
		"-device", "virtio-gpu-pci",
	)
	d.board.Sockets = []string{adapterSocket}
	p, a := &pairing{device: d}, &adapter{device: d}
	steps := append([]step{{"every board's firmware finds what it needs, in both slots", time.Minute, d.everyBoard}}, p.pair(!d.quick)...)
	steps = append(steps,
		step{"a command, as a user who may do nothing else", time.Minute, d.commands},
		step{"files there and back", time.Minute, d.files},
		step{"lines of gpio-sim", 2 * time.Minute, d.lines},
		step{"an FTDI adapter is plugged in and echoes", 2 * time.Minute, a.echo},
		step{"unplugged while it is read, and plugged in again", 2 * time.Minute, a.unplugged},
		step{"the daemon is killed", 90 * time.Second, d.killed},
		step{"the daemon hangs: systemd's watchdog", 3 * time.Minute, d.hung},
		step{"nothing else has failed", time.Minute, d.healthy},
	)
	if d.quick {
		return append(steps,
			step{"the power is cut", time.Minute, d.cutAndLook},
			step{"it comes online again", d.longestBoot(), d.again(firmware.Start{}, "after a cut")},
			step{"what was put there before the cut is there", time.Minute, d.puts},
			step{"boot and system partitions are as they were", time.Minute, d.untouched},
		)
	}
	return append(steps,
		step{"a local model is installed, updated and removed", 5 * time.Minute, d.ollama},
		step{"it restarts: the second boot", d.longestBoot(), d.reboot(firmware.Start{}, "second boot")},
		step{"a trial: it restarts from slot B", d.longestBoot(), d.trial},
		step{"the trial was no choice: it restarts from slot A", d.longestBoot(), d.guarded},
		step{"process 1 freezes: the hardware's watchdog", d.longestBoot(), d.frozen},
		step{"nothing else has failed after all that", time.Minute, d.healthy},
		step{"boot and system partitions are as they were", time.Minute, d.untouched},
	)
}

// everyBoard makes the firmware's choice for each model that the image is for,
// from either slot, and applies the overlays that it asks for.
func (d *device) everyBoard(ctx context.Context) error {
	info, err := os.Stat(d.raw)
	if err != nil {
		return err
	}
	c, err := card.Open(d.raw, info.Size())
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp(d.dir, "fat-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	read := make(map[int]fs.FS)
	for _, n := range []int{layout.Autoboot, layout.BootA, layout.BootB} {
		if read[n], err = c.Files(ctx, n, filepath.Join(dir, strconv.Itoa(n))); err != nil {
			return err
		}
	}
	disk := func(n int) (fs.FS, error) {
		if read[n] == nil {
			return nil, errors.New("no FAT")
		}
		return read[n], nil
	}
	for _, board := range firmware.Boards() {
		for start, want := range map[firmware.Start]int{{}: layout.BootA, {Tryboot: true}: layout.BootB, {OldBootloader: true}: layout.BootB} {
			boot, err := firmware.Run(disk, board, start)
			if err != nil {
				return err
			}
			if boot.Partition != want || len(boot.Initrd) == 0 {
				return fmt.Errorf("board %s (%+v) boots partition %d with an initramfs of %d bytes", board.Name, start, boot.Partition, len(boot.Initrd))
			}
			if _, err := firmware.DeviceTree(ctx, boot.DTB, boot.Overlays, firmware.Facts{Partition: want}); err != nil {
				return fmt.Errorf("board %s: %w", board.Name, err)
			}
		}
	}
	return nil
}

// untouched turns the board off and compares what no board may ever write with
// the image.
func (d *device) untouched(ctx context.Context) error {
	d.m.Cut()
	if err := d.eject(card.Everything); err != nil {
		return err
	}
	for _, n := range []int{layout.BootA, layout.BootB, layout.SystemA, layout.SystemB} {
		p, err := d.card.Partition(n)
		if err != nil {
			return err
		}
		same, err := equal(ctx, d.raw, d.card.Path, p.Offset, p.Size)
		if err != nil {
			return err
		}
		if !same {
			return fmt.Errorf("partition %d has changed", n)
		}
	}
	return nil
}

// again turns a board that is off on, and waits until it is online.
func (d *device) again(start firmware.Start, which string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := d.offline(ctx); err != nil {
			return err
		}
		if err := d.power(start); err != nil {
			return err
		}
		return d.measured(ctx, which)
	}
}

// offline waits until the relay has noticed that the board is off.
func (d *device) offline(ctx context.Context) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		m, err := d.bench.machine(ctx, d.host)
		if err == nil && (m == nil || !m.Online) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("the relay has a board online that is off: %w", context.Cause(ctx)), err)
		}
	}
}

// measured waits until the board is online and measures how it came there.
func (d *device) measured(ctx context.Context, which string) error {
	took, err := d.online(ctx)
	if err != nil {
		return err
	}
	return d.times(ctx, which, took)
}

// reboot has the guest restart.
func (d *device) reboot(start firmware.Start, which string) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := d.ask(ctx, "systemctl reboot"); err != nil {
			return err
		}
		if _, err := d.restarted(ctx, start); err != nil {
			return err
		}
		return d.measured(ctx, which)
	}
}

// ask has a command done as root that takes the connection with it.
func (d *device) ask(ctx context.Context, command string) error {
	_, err := d.root(ctx, "systemd-run --quiet --collect --on-active=1s --timer-property=AccuracySec=100ms "+command)
	return err
}

// trial restarts the board with the flag by which the other slot is tried once.
func (d *device) trial(ctx context.Context) error {
	if err := d.slot(ctx, "a"); err != nil {
		return err
	}
	if err := d.reboot(firmware.Start{Tryboot: true}, "from slot B")(ctx); err != nil {
		return err
	}
	if d.m.Boot.Partition != layout.BootB {
		return fmt.Errorf("the firmware has taken partition %d", d.m.Boot.Partition)
	}
	return d.slot(ctx, "b")
}

// guarded restarts the board, which has a hardware watchdog from now on. Not
// before: an emulated board stands still when this machine has other work, and a
// watchdog would be right to reset it.
func (d *device) guarded(ctx context.Context) error {
	d.board.Extra = append(d.board.Extra, "-device", "i6300esb", "-action", "watchdog=reset")
	return d.reboot(firmware.Start{}, "after a trial")(ctx)
}

// slot asks the guest which one it runs from, and looks whether that is so.
func (d *device) slot(ctx context.Context, want string) error {
	out, err := d.sh(ctx, "cat /run/farhand/slot; findmnt -no SOURCE,OPTIONS /; cat /proc/device-tree/chosen/bootloader/partition | od -An -tu1")
	if err != nil {
		return err
	}
	root := strconv.Itoa(map[string]int{"a": layout.SystemA, "b": layout.SystemB}[want])
	said := "bootloader"
	if _, own := d.kind.UEFI(); own { // GRUB says it
		said = "cmdline"
	}
	source := ""
	for line := range strings.Lines(out) {
		if f := strings.Fields(line); len(f) == 2 && strings.HasPrefix(f[0], "/dev/") {
			source = line
		}
	}
	device, _, _ := strings.Cut(source, " ")
	if !strings.Contains(out, "slot="+want+"\n") || !strings.Contains(out, "source="+said+"\n") || !strings.HasSuffix(device, root) || !strings.Contains(source, "ro,") {
		return fmt.Errorf("it should run from slot %s, but says\n%s", want, out)
	}
	return nil
}

// frozen crashes process 1, which stops what it does but not the kernel; nothing
// resets the hardware's watchdog any more.
func (d *device) frozen(ctx context.Context) error {
	out, err := d.sh(ctx, "systemctl show -P RuntimeWatchdogUSec; cat /sys/class/watchdog/watchdog0/identity /sys/class/watchdog/watchdog0/timeout /sys/class/watchdog/watchdog0/state")
	if err != nil {
		return err
	}
	d.out.say(d.name, "the hardware's watchdog: %s", strings.ReplaceAll(out, "\n", ", "))
	if !strings.Contains(out, "\n15\nactive") {
		return fmt.Errorf("the hardware's watchdog isn't active with 15 s:\n%s", out)
	}
	start := time.Now()
	// SIGSEGV is the one that systemd freezes at; SIGSTOP never reaches process 1.
	if err := d.ask(ctx, "kill -SEGV 1"); err != nil {
		return err
	}
	end, err := d.restarted(ctx, firmware.Start{})
	if err != nil {
		return err
	}
	if !end.Watchdog {
		return fmt.Errorf("the board restarted by itself (%s), not by its watchdog", end.Reason)
	}
	d.report.measure(d.kind.String()+": a frozen system is reset after", time.Since(start).Seconds()-1, "s", 0)
	return d.measured(ctx, "after the watchdog")
}

// cutAndLook takes the power away in use, when a file has just been put there, and
// looks at the card.
func (d *device) cutAndLook(ctx context.Context) error {
	if err := d.putOne(ctx); err != nil {
		return err
	}
	if err := d.cut(); err != nil {
		return err
	}
	stage, err := d.well(ctx, d.card.Extract)
	d.out.say(d.name, "the card is at the stage: %s", stage)
	return err
}

// firstSteps take the power of boards that pair by a claim key while they boot for
// the first time: at many moments of a boot that was whole, on its card alone, and
// of a fresh card over and over.
func firstSteps(d *device) []step {
	d.board.Extra = append(d.board.Extra, "-device", "virtio-rng-pci")
	steps := []step{
		{"a card is flashed with a claim key", 2 * time.Minute, d.claimed},
		{"it comes online, with nobody looking", d.longestBoot(), d.whole},
		{fmt.Sprintf("%d moments of that boot, by fsck alone", d.points), 10 * time.Minute, d.manyPoints},
		{"another card is flashed", 2 * time.Minute, d.claimed},
	}
	for i, n := 0, d.cuts/2; i < n; i++ {
		steps = append(steps, step{fmt.Sprintf("cut %d", i+1), d.longestBoot(), d.cutWhile(d.booting(float64(i+1) / float64(n)))})
	}
	return append(steps,
		step{"it comes online, with nobody looking", d.longestBoot(), d.again(firmware.Start{}, "after cuts")},
		step{"whole: nothing has failed", time.Minute, d.healthy},
	)
}

// cutSteps take the power of a board in use, right after a file was put there.
func cutSteps(d *device) []step {
	d.board.Extra = append(d.board.Extra, "-device", "virtio-rng-pci")
	steps := []step{{"a card is flashed with a claim key", 2 * time.Minute, d.claimed}}
	for i := d.cuts / 2; i < d.cuts; i++ {
		steps = append(steps, step{fmt.Sprintf("cut %d", i+1), d.longestBoot(), d.cutWhile(d.working)})
	}
	return append(steps,
		step{"after the last cut it comes online", d.longestBoot(), d.again(firmware.Start{}, "after cuts")},
		step{"what was put there before the cuts is there", time.Minute, d.puts},
		step{"whole: nothing has failed, the audit's chain neither", time.Minute, d.healthy},
	)
}

// cutWhile turns the board on, if it is off, lets do run until a moment of
// chance, takes the power away and looks at the card.
func (d *device) cutWhile(do func(context.Context) (time.Duration, error)) func(context.Context) error {
	return func(ctx context.Context) error {
		after, err := do(ctx)
		if err != nil {
			return err
		}
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if !d.m.Running() {
			return fmt.Errorf("the board went off by itself (%s); its console ended with\n%s", d.m.Fate(), d.m.Console.Tail())
		}
		at := time.Since(d.on)
		if err := d.cut(); err != nil {
			return err
		}
		stage, err := d.well(ctx, d.card.Extract)
		d.out.say(d.name, "cut %.1f s after power on; the card is at the stage: %s", at.Seconds(), stage)
		return err
	}
}

// whole is a first boot that nothing cuts.
func (d *device) whole(ctx context.Context) error {
	if err := d.again(firmware.Start{}, "first boot")(ctx); err != nil {
		return err
	}
	d.booted = time.Since(d.on)
	return nil
}

// booting turns the board on; the cut comes at any time of a part of what the
// whole first boot took.
func (d *device) booting(part float64) func(context.Context) (time.Duration, error) {
	return func(context.Context) (time.Duration, error) {
		if err := d.power(firmware.Start{}); err != nil {
			return 0, err
		}
		return time.Duration(d.chance.Float64() * part * float64(d.booted)), nil
	}
}

// working has the board online with somebody writing to it, and puts files there
// until a moment of chance: the power goes when the last has been acknowledged.
func (d *device) working(ctx context.Context) (time.Duration, error) {
	if d.m == nil {
		if err := d.again(firmware.Start{}, "after cuts")(ctx); err != nil {
			return 0, err
		}
	}
	if _, err := d.sh(ctx, `nohup sh -c 'i=0; while :; do i=$((i+1)); head -c 20000 /dev/urandom >f$((i%50)).new; mv f$((i%50)).new f$((i%50)); done' >/dev/null 2>&1 & echo started`); err != nil {
		return 0, err
	}
	for until := time.Now().Add(time.Duration(d.chance.Int64N(int64(12 * time.Second)))); ; {
		if err := d.putOne(ctx); err != nil || time.Now().After(until) {
			return 0, err
		}
	}
}

// putOne puts a file onto the device, a new one or over an earlier one.
func (d *device) putOne(ctx context.Context) error {
	data := make([]byte, 1+d.chance.IntN(300_000))
	_, _ = crand.Read(data) // never fails
	here, name := filepath.Join(d.dir, "here"), fmt.Sprintf("put%d", d.chance.IntN(8))
	if err := os.WriteFile(here, data, 0o600); err != nil {
		return err
	}
	if _, err := d.bench.farhand(ctx, "put", here, d.host+":"+name); err != nil {
		return err
	}
	d.put[name] = sha256.Sum256(data)
	return nil
}

// puts asks the device for what was put there.
func (d *device) puts(ctx context.Context) error {
	var sums strings.Builder
	for name, sum := range d.put {
		fmt.Fprintf(&sums, "%x  %s\n", sum, name)
	}
	d.out.say(d.name, "%d files were put there", len(d.put))
	_, err := d.sh(ctx, "sha256sum --check --strict --quiet <<'END'\n"+sums.String()+"END")
	return err
}

// manyPoints looks at what the card would have been at moments of the boot that
// just ended.
func (d *device) manyPoints(ctx context.Context) error {
	d.m.Cut()
	events, err := d.m.Card.Events()
	if err != nil {
		return err
	}
	stages := make(map[string]int)
	for range d.points {
		n := 1 + d.chance.IntN(events)
		had := fixed(d.kind, n, d.chance.Uint64())
		stage, err := d.well(ctx, func(ctx context.Context, partition int, path string) error {
			return d.m.Card.Extract(ctx, partition, had, path)
		})
		if err != nil {
			return fmt.Errorf("cut after %d of %d writes and flushes: %w", n, events, err)
		}
		stages[stage]++
	}
	d.out.say(d.name, "of %d writes and flushes, %d cut points were looked at: %v", events, d.points, stages)
	d.host += "-2" // of another card
	return d.eject(card.Everything)
}
