package octoprint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"farhand/internal/atomicfile"
	"farhand/octoprint/rest"
	"farhand/wire"
)

// heaterName is what a target may be of: docs.octoprint.org, "Issue a tool
// command": tool{n}; bed; chamber.
var heaterName = regexp.MustCompile(`^(tool[0-9]{1,2}|bed|chamber)$`)

func (o *operation) temperature(a wire.PrinterTemperature) (wire.PrinterTargets, error) {
	none := wire.PrinterTargets{}
	if len(a.Targets) == 0 {
		return none, invalid("targets", "must name a heater and its target in °C, such as tool0, bed or chamber")
	}
	for name, celsius := range a.Targets {
		switch {
		case !heaterName.MatchString(name):
			return none, invalid("targets", "may name tool0 and on, bed and chamber")
		case !(celsius >= 0 && celsius <= maxCelsius):
			return none, invalid(name, "must be 0 to %d °C", maxCelsius)
		}
	}
	switch a.OnRelease {
	case "":
		a.OnRelease = wire.HeaterOff
	case wire.HeaterOff, wire.HeaterHold:
	default:
		return none, invalid("on_release", "must be off or hold")
	}
	if a.DeadmanSeconds != 0 && !(a.DeadmanSeconds >= 1 && a.DeadmanSeconds <= 3600) {
		return none, invalid("deadman_seconds", "must be 1 to 3600")
	}
	if _, err := o.p.client.Identify(o.ctx); err != nil {
		return none, err
	}
	deadman := time.Duration(a.DeadmanSeconds * float64(time.Second))
	err := o.heat(a.Targets, a.OnRelease, deadman, func() error {
		for _, name := range slices.Sorted(maps.Keys(a.Targets)) {
			if err := o.p.client.Target(o.ctx, name, a.Targets[name]); err != nil {
				return err
			}
		}
		return nil
	})
	return wire.PrinterTargets{Targets: a.Targets, OnRelease: a.OnRelease}, err
}

// heat runs what sets targets. Which heaters will have to go off is durable
// before it runs, since they may be on even if it fails or the process dies.
func (o *operation) heat(targets map[string]float64, onRelease string, deadman time.Duration, set func() error) error {
	if len(targets) == 0 {
		return set()
	}
	done, err := o.p.turn(o.ctx)
	if err != nil {
		return err
	}
	defer done()
	h := o.held()
	for name, celsius := range targets {
		if celsius > 0 && onRelease == wire.HeaterOff {
			h.hot[name] = true
		}
	}
	if err := h.keep(); err != nil {
		return err
	}
	if err := set(); err != nil {
		return err // the lease, if it isn't kept, ends now and switches them off
	}
	on := false
	for name, celsius := range targets {
		if on = on || celsius > 0; celsius == 0 || onRelease == wire.HeaterHold {
			delete(h.hot, name)
		}
	}
	o.p.settled(slices.Collect(maps.Keys(targets)))
	if on {
		o.r.Lease.Hold()
	}
	if deadman > 0 {
		o.r.Lease.Deadman(deadman)
	}
	return h.keep()
}

// keep makes durable which heaters are to go off. h.hot is touched only by who
// has the lease's turn.
func (h *held) keep() error {
	off := slices.AppendSeq(h.p.debts(), maps.Keys(h.hot))
	slices.Sort(off)
	off = slices.Compact(off)
	err := h.p.own.store.change(h.p.Name, h.p.URL.String(), func(r *record) { r.Hot = off })
	if err == nil {
		return nil
	}
	code := wire.HardwareOpenFailed
	if atomicfile.Full(err) {
		code = wire.DiskFull
	}
	return wire.Errorf(code, "which heaters are to go off at the end can't be written down: %s", atomicfile.Why(err)).
		With("hint", "the daemon's state directory must be writable, and have room")
}

// turn waits until nobody else sets targets or switches heaters off, and keeps
// others from it until done.
func (p *printer) turn(ctx context.Context) (done func(), err error) {
	select {
	case p.heating <- struct{}{}:
		return func() { <-p.heating }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// debts are the heaters that nobody has any more and that are to go off.
func (p *printer) debts() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.owed))
}

// settled says that these heaters are off, or somebody else's to switch off.
func (p *printer) settled(heaters []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range heaters {
		delete(p.owed, name)
	}
}

// owe takes over heaters whose lease has ended, and switches them off. If that
// fails they stay owed.
func (p *printer) owe(ctx context.Context, hot []string) error {
	p.mu.Lock()
	for _, name := range hot {
		p.owed[name] = true
	}
	p.mu.Unlock()
	return p.cool(ctx)
}

// cool switches the heaters off that are owed, unless a job runs or waits: then
// they are the job's. It is no error that a printer is offline whose server says
// so: its heaters can't be reached, and firmware that shut down has them off.
func (p *printer) cool(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, coolTimeout)
	defer cancel()
	done, err := p.turn(ctx)
	if err != nil {
		return err
	}
	defer done()
	hot := p.debts()
	if len(hot) == 0 {
		return nil
	}
	status, err := p.client.Status(ctx)
	if err != nil {
		return err
	}
	job := ""
	if status.Job != nil {
		job = status.Job.State
	}
	switch {
	case rest.Active(status.State), rest.Active(job):
		p.log.Info("heaters left on for the job that runs", "heaters", hot)
	case status.State != wire.PrinterReady:
		p.log.Info("heaters not switched off: the printer takes no commands", "heaters", hot, "state", status.State)
	default:
		var failed error
		for _, name := range hot { // one that fails keeps none of the others hot
			if err := p.client.Target(ctx, name, 0); err != nil && !errors.Is(err, wire.HardwareNotFound) {
				failed = errors.Join(failed, fmt.Errorf("switching %s off: %w", name, err))
			}
		}
		if failed != nil {
			return failed
		}
		p.log.Info("heaters switched off", "heaters", hot)
	}
	p.settled(hot)
	return p.own.store.change(p.Name, p.URL.String(), func(r *record) {
		r.Hot = slices.DeleteFunc(r.Hot, func(h string) bool { return slices.Contains(hot, h) })
	})
}

const (
	coolEvery = 15 * time.Second // between two attempts
	coolTries = 20
)

// coolLater tries again while heaters are owed: whoever sets one anew takes it
// over. After some minutes without success it is left to the next start.
func (p *printer) coolLater() {
	p.mu.Lock()
	defer p.mu.Unlock()
	begun := p.tries > 0
	p.tries = coolTries
	if !begun {
		p.own.work.Go(p.coolAgain)
	}
}

func (p *printer) coolAgain() {
	t := time.NewTicker(coolEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-p.own.ctx.Done():
			return
		}
		_ = p.cool(p.own.ctx) // what it didn't do is still owed
		p.mu.Lock()
		if p.tries--; len(p.owed) == 0 {
			p.tries = 0
		}
		over := p.tries == 0
		p.mu.Unlock()
		if !over {
			continue
		}
		if left := p.debts(); len(left) > 0 {
			p.log.Error("heaters could not be switched off", "heaters", left)
		}
		return
	}
}

// targetsOf finds the heaters that lines of G-code set, with the last target of
// each: M104 and M109 (a tool), M140 and M190 (the bed), M141 and M191 (the
// chamber) as reprap.org/wiki/G-code has them, and Klipper's
// SET_HEATER_TEMPERATURE.
func targetsOf(lines []string) map[string]float64 {
	targets := make(map[string]float64)
	for _, line := range lines {
		line, _, _ = strings.Cut(strings.ToUpper(line), ";")
		name, celsius, ok := "", 0.0, false
		if words := strings.Fields(line); len(words) > 0 && words[0] == "SET_HEATER_TEMPERATURE" {
			name, celsius, ok = klipperTarget(words[1:])
		} else {
			line, _, _ = strings.Cut(line, "*") // the checksum
			name, celsius, ok = targetOf(gcodeWord.FindAllStringSubmatch(line, -1))
		}
		if ok {
			targets[name] = celsius
		}
	}
	return targets
}

// gcodeWord is one word of G-code; firmwares need no spaces between them.
var gcodeWord = regexp.MustCompile(`([A-Z]) *([-+]?[0-9]*\.?[0-9]+)`)

// targetOf reads the words of a line: letter and number.
func targetOf(words [][]string) (name string, celsius float64, ok bool) {
	if len(words) > 0 && words[0][1] == "N" { // a line number
		words = words[1:]
	}
	if len(words) == 0 {
		return "", 0, false
	}
	switch words[0][1] + words[0][2] {
	case "M104", "M109":
		name = "tool0"
	case "M140", "M190":
		name = "bed"
	case "M141", "M191":
		name = "chamber"
	default:
		return "", 0, false
	}
	for _, w := range words[1:] {
		v, err := strconv.ParseFloat(w[2], 64)
		if err != nil {
			continue
		}
		switch w[1] {
		case "S", "R":
			celsius, ok = v, true
		case "T":
			if name == "tool0" && v >= 0 && v < 100 {
				name = "tool" + strconv.Itoa(int(v))
			}
		}
	}
	return name, celsius, ok
}

func klipperTarget(words []string) (name string, celsius float64, ok bool) {
	for _, w := range words {
		key, value, _ := strings.Cut(w, "=")
		switch key {
		case "HEATER":
			name = strings.ToLower(value)
		case "TARGET":
			if v, err := strconv.ParseFloat(value, 64); err == nil {
				celsius = v
			}
		}
	}
	if n, isTool := strings.CutPrefix(name, "extruder"); isTool {
		if n == "" {
			n = "0"
		}
		name = "tool" + n
	}
	name = strings.Replace(name, "heater_bed", "bed", 1)
	return name, celsius, heaterName.MatchString(name)
}
