package gpio

import (
	"errors"
	"slices"
	"time"

	"farhand/wire"
)

// get reads lines, as they are.
func (x *operation) get() (any, error) {
	b := x.b
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.mu.Unlock()
	for _, o := range x.lines {
		if p := b.lines[o].pwm; p != nil && p.independent() {
			return nil, wire.Errorf(wire.InvalidArgument, "%s is driven by a PWM, its level can't be read", b.call(o)).With("line", o)
		}
	}
	if b.scattered(x.lines) {
		b.loosen(x.lines)
	}
	if err := b.claimAll(x.lines); err != nil {
		return nil, err
	}
	levels, atomic, err := b.levels(x.lines)
	if err != nil {
		return nil, err
	}
	return x.values(levels, atomic), nil
}

func (x *operation) values(levels []int, atomic bool) wire.GPIOValues {
	v := wire.GPIOValues{Lines: make([]wire.GPIOValue, len(levels)), Atomic: atomic}
	for i, o := range x.lines {
		v.Lines[i] = wire.GPIOValue{Line: o, Name: x.b.names.lines[o].kernel, Value: levels[i]}
	}
	if len(levels) == 1 {
		v.Value = &levels[0]
	}
	return v
}

// set drives lines.
func (x *operation) set() (any, error) {
	a, err := decodeSet(x.r.Args)
	if err != nil {
		return nil, err
	}
	levels, err := levels(a)
	if err != nil {
		return nil, err
	}
	dead, err := deadman(a.GPIOEnd)
	if err != nil {
		return nil, err
	}
	b := x.b
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.mu.Unlock()
	atomic, err := x.drive(levels, a.OnRelease)
	if err != nil {
		return nil, err
	}
	x.hold(dead)
	return x.values(levels, atomic), nil
}

// drive sets lines, and makes those outputs that aren't yet. It is called with
// b.mu.
func (x *operation) drive(levels []int, asked wire.GPIORelease) (atomic bool, err error) {
	b := x.b
	var outputs, become []LineConfig
	for i, o := range x.lines {
		l := &b.lines[o]
		if err := b.unwatched(o); err != nil {
			return false, err
		}
		if l.input {
			return false, wire.Errorf(wire.InvalidArgument, "%s was configured as an input", b.call(o)).With("line", o).
				With("hint", `GPIO_CONFIGURE with direction "out" first`)
		}
		if err := b.endPWM(o); err != nil {
			return false, err
		}
		c := l.config
		c.Direction, c.Edges, c.Debounce = Out, 0, 0
		if l.config.Direction != Out {
			c.Value = levels[i]
			become = append(become, c)
		}
		outputs = append(outputs, c)
	}
	if err := b.promise(outputs, asked); err != nil {
		return false, err
	}
	if len(become) > 0 {
		b.loosen(x.lines)
		done, err := b.outputs(become)
		if err != nil {
			b.regret(become)
			return false, err
		}
		if done && len(become) == len(outputs) {
			return true, b.keepAll(x.lines)
		}
	}
	if atomic, err = b.drive(x.lines, levels); err != nil {
		return false, err
	}
	return atomic, b.keepAll(x.lines)
}

// outputs makes lines outputs. A single one gets its level at once (done).
// Several are first driven to the level that they have, since the kernel claims
// one after the other; so they can all change in one call afterwards. It is
// called with b.mu.
func (b *board) outputs(become []LineConfig) (done bool, err error) {
	if len(become) == 1 {
		return true, b.settle(become)
	}
	lines := make([]int, len(become))
	for i, c := range become {
		lines[i] = c.Offset
	}
	if err := b.claimAll(lines); err != nil {
		return false, err
	}
	now, _, err := b.levels(lines)
	if err != nil {
		return false, err
	}
	for i := range become {
		become[i].Value = now[i]
		if become[i].ActiveLow != b.lines[lines[i]].config.ActiveLow {
			become[i].Value ^= 1
		}
	}
	return false, b.change(become)
}

// settle sets lines, those that we have anew, the others in one request. It is
// called with b.mu.
func (b *board) settle(configs []LineConfig) error {
	var have, fresh []LineConfig
	for _, c := range configs {
		if b.lines[c.Offset].claim != nil {
			have = append(have, c)
		} else {
			fresh = append(fresh, c)
		}
	}
	if len(fresh) > 0 {
		if _, err := b.request(fresh, 0); err != nil {
			return err
		}
	}
	return b.change(have)
}

// regret takes back what was promised for lines that didn't become outputs. It
// is called with b.mu.
func (b *board) regret(configs []LineConfig) {
	for _, c := range configs {
		if l := &b.lines[c.Offset]; l.config.Direction != Out {
			l.release = ""
			if err := b.s.o.Ledger.Remove(b.id, c.Offset); err != nil {
				b.s.o.Log.Warn("an output that there isn't stays in the ledger", "device", b.id, "line", c.Offset, "err", err)
			}
		}
	}
}

// keepAll is keep for the requests of these lines, if it has to be done. It is
// called with b.mu.
func (b *board) keepAll(lines []int) error {
	if b.s.o.Store == nil {
		return nil
	}
	for _, g := range b.groups(lines) {
		if err := b.keep(g.claim); err != nil {
			return err
		}
	}
	return nil
}

// hold keeps the leases, with a dead-man if one is asked for.
func (x *operation) hold(dead *time.Duration) {
	for i, lease := range x.r.Parts {
		lease.Hold()
		if dead != nil {
			lease.Deadman(*dead)
			x.b.lines[x.lines[i]].deadman = *dead
		}
	}
}

// configure sets lines.
func (x *operation) configure() (any, error) {
	a, err := decodeArgs[wire.GPIOConfigure](x.r.Args)
	if err != nil {
		return nil, err
	}
	s, err := settings(a)
	if err != nil {
		return nil, err
	}
	b := x.b
	if err := b.enter(); err != nil {
		return nil, err
	}
	defer b.mu.Unlock()
	configs := make([]LineConfig, len(x.lines))
	var outputs []LineConfig
	for i, o := range x.lines {
		if configs[i], err = s.apply(b, o); err != nil {
			return nil, err
		}
		if configs[i].Direction == Out {
			outputs = append(outputs, configs[i])
		}
	}
	if err := x.fit(configs, outputs, s); err != nil {
		return nil, err
	}
	x.hold(s.deadman)
	return x.configured()
}

// fit sets lines to what was worked out for them. It is called with b.mu.
func (x *operation) fit(configs, outputs []LineConfig, s setting) error {
	b := x.b
	for _, o := range x.lines {
		if err := errors.Join(b.unwatched(o), b.endPWM(o)); err != nil {
			return err
		}
	}
	b.loosen(x.lines)
	if err := b.promise(outputs, s.OnRelease); err != nil {
		return err
	}
	if err := b.fill(configs, s.value == nil); err != nil {
		b.regret(outputs)
		return err
	}
	if err := b.settle(configs); err != nil {
		b.regret(outputs)
		return err
	}
	var inputs []int
	for i, o := range x.lines {
		l := &b.lines[o]
		if l.input = configs[i].Direction == In; l.input {
			l.release, l.kept = "", false
			inputs = append(inputs, o)
		}
	}
	if err := b.s.o.Ledger.Remove(b.id, inputs...); err != nil {
		return err
	}
	return b.keepAll(x.lines)
}

// fill gives outputs-to-be whose level wasn't said the one that the line has.
// It is called with b.mu.
func (b *board) fill(configs []LineConfig, unsaid bool) error {
	var lines []int
	for _, c := range configs {
		if unsaid && c.Direction == Out && b.lines[c.Offset].config.Direction != Out && !b.actuator(c.Offset) {
			lines = append(lines, c.Offset)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	// All of them, so that they come into one request.
	all := make([]int, len(configs))
	for i, c := range configs {
		all[i] = c.Offset
	}
	if err := b.claimAll(all); err != nil {
		return err
	}
	now, _, err := b.levels(lines)
	if err != nil {
		return err
	}
	for i, o := range lines {
		n := slices.Index(all, o)
		configs[n].Value = now[i]
		if configs[n].ActiveLow != b.lines[o].config.ActiveLow {
			configs[n].Value ^= 1
		}
	}
	return nil
}

func (x *operation) configured() (any, error) {
	b := x.b
	levels, atomic, err := b.levels(x.lines)
	if err != nil {
		return nil, err
	}
	answer := wire.GPIOConfigured{Atomic: atomic}
	for i, v := range x.values(levels, atomic).Lines {
		l := &b.lines[x.lines[i]]
		answer.Lines = append(answer.Lines, wire.GPIOLineState{
			GPIOValue: v, Direction: directions[l.config.Direction], Pull: pulls[l.config.Pull], Drive: driveWord(l.config),
			ActiveLow: l.config.ActiveLow, DebounceUS: l.config.Debounce.Microseconds(), OnRelease: l.release, DeadmanSeconds: l.deadman.Seconds(),
		})
	}
	return answer, nil
}

func driveWord(c LineConfig) string {
	if c.Direction != Out {
		return ""
	}
	return drives[c.Drive]
}

// setting is what GPIO_CONFIGURE and GPIO_WATCH change; nil leaves it.
type setting struct {
	direction Direction // AsIs leaves it
	value     *int
	pull      *Pull
	drive     *Drive
	activeLow *bool
	debounce  *time.Duration
	deadman   *time.Duration
	wire.GPIOEnd
}

func settings(a wire.GPIOConfigure) (setting, error) {
	s := setting{activeLow: a.ActiveLow, GPIOEnd: a.GPIOEnd}
	if a.Lines.Levels != nil {
		return s, invalid("lines", "take no levels here").With("hint", "initial_value is for all of them")
	}
	switch a.Direction {
	case "":
	case "in", "input":
		s.direction = In
	case "out", "output":
		s.direction = Out
	default:
		return s, invalid("direction", "must be in or out")
	}
	if a.Edge != "" && a.Edge != "none" {
		return s, invalid("edge", "can't be configured").With("hint", "GPIO_WATCH delivers edges")
	}
	if a.InitialValue != nil {
		v := int(*a.InitialValue)
		s.value = &v
	}
	var err error
	if s.pull, err = pull(a.Pull, a.Bias); err != nil {
		return s, err
	}
	if s.drive, err = drive(a.Drive); err != nil {
		return s, err
	}
	if s.debounce, err = debounce(a.DebounceSeconds, a.DebounceUS); err != nil {
		return s, err
	}
	s.deadman, err = deadman(a.GPIOEnd)
	return s, err
}

// apply works out how a line is to be set. It is called with b.mu.
func (s setting) apply(b *board, offset int) (LineConfig, error) {
	l := &b.lines[offset]
	c := LineConfig{Offset: offset, Direction: In}
	if l.release != "" || l.input { // set in this lease before
		c = l.config
	} else if l.kept {
		c.Value, c.ActiveLow = l.config.Value, l.config.ActiveLow
	}
	c.Edges = 0
	before := c.Direction
	if s.direction != AsIs {
		c.Direction = s.direction
	}
	if c.Direction != before { // what only the other direction has
		c.Drive, c.Debounce = PushPull, 0
	}
	set(&c.Pull, s.pull)
	set(&c.Drive, s.drive)
	set(&c.ActiveLow, s.activeLow)
	set(&c.Debounce, s.debounce)
	set(&c.Value, s.value)
	switch {
	case c.Direction != Out && s.value != nil:
		return c, invalid("initial_value", "is for outputs").With("line", offset).With("hint", `direction must be "out"`)
	case c.Direction != Out && s.OnRelease != "":
		return c, invalid("on_release", "is for outputs").With("line", offset).With("hint", `direction must be "out"`)
	case s.value == nil && c.Direction == Out && l.config.Direction != Out && b.actuator(offset):
		c.Value = 0
	}
	return c, c.Validate()
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}
