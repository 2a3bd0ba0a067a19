package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"farhand/e2e/boot/firmware"
)

// seconds that our units may add to a boot after basic.target, by kind.
func (d *device) ownLimit() float64 { return [...]float64{6, 12, 6, 6}[d.kind] }

// times measures the boot that just ended, whose last part took until online.
func (d *device) times(ctx context.Context, which string, online time.Duration) error {
	var values map[string]float64
	before := time.Now()
	out, err := d.sh(ctx, `cut -d' ' -f1 </proc/uptime | sed s/^/uptime=/
systemctl show -p UserspaceTimestampMonotonic
for u in basic.target farhand-provision.service farhandd.service; do echo $u=$(systemctl show -P ActiveEnterTimestampMonotonic $u); done`)
	if err != nil {
		return err
	}
	if values, err = numbers(out); err != nil {
		return err
	}
	if d.board.Paced {
		d.out.say(d.name, "%s: basic.target %.1f s, READY %.1f s by its own clock, online %.1f s", which, values["basic.target"]/1e6, values["farhandd.service"]/1e6, online.Seconds())
	} else {
		d.since(which, values, before.Add(time.Since(before)/2), online)
	}
	d.report.measure(d.kind.String()+": our units after basic.target", (values["farhandd.service"]-values["basic.target"])/1e6, "s", d.ownLimit())
	return nil
}

// since measures from when the power came. asked is when the guest's clock was
// read.
func (d *device) since(which string, values map[string]float64, asked time.Time, online time.Duration) {
	kernel := asked.Sub(d.on).Seconds() - values["uptime"]
	at := func(name string) float64 { return kernel + values[name]/1e6 }
	d.out.say(d.name, "%s: kernel %.1f s, basic.target %.1f s, READY %.1f s, online %.1f s", which, kernel, at("basic.target"), at("farhandd.service"), online.Seconds())
	k := d.kind.String() + ", " + which + ": "
	d.report.measure(k+"power on to basic.target", at("basic.target"), "s", 0)
	d.report.measure(k+"power on to READY", at("farhandd.service"), "s", 0)
	d.report.measure(k+"power on to online at the relay", online.Seconds(), "s", 0)
}

// figureSteps boot a board that nothing disturbs, four times: the first time,
// and thrice more for the medians.
func figureSteps(d *device) []step {
	d.board.Extra = append(d.board.Extra, "-device", "virtio-rng-pci")
	again := d.reboot(firmware.Start{}, "later boots")
	return []step{
		{"a card is flashed with a claim key", 2 * time.Minute, d.claimed},
		{"the first boot", d.longestBoot(), d.again(firmware.Start{}, "first boot")},
		{"the second", d.longestBoot(), again},
		{"the third", d.longestBoot(), again},
		{"the fourth", d.longestBoot(), again},
		{"a later boot takes less than the first", time.Second, d.less},
		{"memory, two minutes after READY", 5 * time.Minute, d.memory},
	}
}

// less compares the medians.
func (d *device) less(context.Context) error {
	first, later := d.report.median(d.kind.String()+", first boot: power on to READY"), d.report.median(d.kind.String()+", later boots: power on to READY")
	if later >= first {
		return fmt.Errorf("the first boot took %.1f s to READY, later ones %.1f s", first, later)
	}
	return nil
}

// numbers reads lines of the form name=1.5.
func numbers(out string) (map[string]float64, error) {
	values := make(map[string]float64)
	for line := range strings.Lines(out) {
		name, text, ok := strings.Cut(strings.TrimSpace(line), "=")
		v, err := strconv.ParseFloat(text, 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("the guest says %q", out)
		}
		values[name] = v
	}
	return values, nil
}

// idle is how long after READY the memory is measured.
const idle = 2 * time.Minute

// memory measures how much is in use once the board has settled.
func (d *device) memory(ctx context.Context) error {
	var age float64
	err := d.poll(ctx, 5*time.Second, "the board never settled", func() (bool, error) {
		out, err := d.sh(ctx, `echo up=$(cut -d' ' -f1 </proc/uptime); echo ready=$(systemctl show -P ActiveEnterTimestampMonotonic farhandd.service)`)
		if err != nil {
			return false, err
		}
		v, err := numbers(out)
		age = v["up"] - v["ready"]/1e6
		return age > idle.Seconds(), err
	})
	if err != nil {
		return err
	}
	out, err := d.sh(ctx, `awk '/^(MemTotal|MemAvailable):/ {sub(":","",$1); print $1"="$2}' /proc/meminfo
for u in farhandd farhand-exec; do echo $u=$(systemctl show -P MemoryCurrent $u); done`)
	if err != nil {
		return err
	}
	v, err := numbers(strings.ReplaceAll(out, "[not set]", "0"))
	if err != nil {
		return err
	}
	used := (v["MemTotal"] - v["MemAvailable"]) / 1024
	d.report.measure(d.kind.String()+": memory in use, two minutes after READY", used, "MiB", 110)
	d.report.measure(d.kind.String()+": of it the daemon's cgroup", v["farhandd"]/(1<<20), "MiB", 0)
	blame, err := d.sh(ctx, "systemd-analyze time") // blame asks for each unit: minutes, here
	d.out.say(d.name, "%.0f MiB are in use; %s", used, strings.ReplaceAll(blame, "\n", " "))
	return err
}

// healthy looks at what the device says of itself.
func (d *device) healthy(ctx context.Context) error {
	out, err := d.sh(ctx, "systemctl --failed --no-legend --plain --no-pager")
	if err != nil {
		return err
	}
	if out != "" {
		return fmt.Errorf("units have failed:\n%s", out)
	}
	if out, err = d.bench.farhand(ctx, "audit", "verify", d.host); err != nil {
		return errors.Join(err, errors.New(out))
	}
	return nil
}
