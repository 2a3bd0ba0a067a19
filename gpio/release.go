package gpio

import (
	"crypto/rand"
	"errors"
	"strings"

	"farhand/wire"
)

// StorePrefix begins the names of the descriptors in the FDStore.
const StorePrefix = "farhand-gpio-"

func newStoreName() string { return StorePrefix + rand.Text() }

// policy is what becomes of an output when its lease ends: what was asked for,
// what this lease has set before, or the default. It is called with b.mu.
func (b *board) policy(offset int, asked wire.GPIORelease) wire.GPIORelease {
	switch {
	case asked != "":
		return asked
	case b.lines[offset].release != "":
		return b.lines[offset].release
	case b.actuator(offset):
		return wire.GPIOLow
	}
	return wire.GPIOHold
}

// actuator says whether hardware.actuators names a line.
func (b *board) actuator(offset int) bool {
	l := &b.names.lines[offset]
	for _, p := range b.s.actuators {
		if p.Match(b.id + "#" + l.key) {
			return true
		}
		for _, name := range l.all {
			if p.Match(b.id + "#" + name) {
				return true
			}
		}
	}
	return false
}

// promise writes down what becomes of outputs, before they are driven for the
// first time in a lease. It is called with b.mu.
func (b *board) promise(outputs []LineConfig, asked wire.GPIORelease) error {
	entries := make([]Entry, 0, len(outputs))
	same := true
	for _, c := range outputs {
		l := &b.lines[c.Offset]
		p := b.policy(c.Offset, asked)
		if l.release == p && l.config.Direction == Out && l.config.ActiveLow == c.ActiveLow {
			continue // it stands there already
		}
		same = false
		entries = append(entries, b.entry(c, p))
	}
	if same {
		return nil
	}
	if err := b.s.o.Ledger.Put(entries...); err != nil {
		return err
	}
	for _, c := range outputs {
		b.lines[c.Offset].release = b.policy(c.Offset, asked)
	}
	return nil
}

func (b *board) entry(c LineConfig, p wire.GPIORelease) Entry {
	e := Entry{Device: b.id, Line: c.Offset, OnRelease: p, ActiveLow: c.ActiveLow, Drive: drives[c.Drive], Pull: pulls[c.Pull]}
	if cl := b.lines[c.Offset].claim; cl != nil {
		e.FD, e.Bit = cl.name, b.lines[c.Offset].bit
	}
	return e
}

// end is the end of a lease on a line.
func (b *board) end(u *use) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &b.lines[u.offset]
	if l.use != u {
		return nil
	}
	p := l.release
	l.use, l.release, l.deadman, l.input = nil, "", 0, false
	var err error
	if l.pwm != nil {
		if !(p == wire.GPIOHold && l.pwm.independent()) {
			err = l.pwm.halt()
		}
		l.pwm = nil
	}
	if b.gone.Load() { // what is to be done is done when it is back
		b.drop(u.offset)
		return nil
	}
	if failed := b.leave(u.offset, p); failed != nil {
		if errors.Is(failed, wire.DeviceGone) {
			b.lost()
			b.drop(u.offset)
			return nil
		}
		err = errors.Join(err, failed)
	}
	return err
}

// leave does what the policy says with a line that nobody has any more. It is
// called with b.mu.
func (b *board) leave(offset int, p wire.GPIORelease) error {
	l := &b.lines[offset]
	switch {
	case l.claim == nil || p == "" && !l.kept:
		return b.forget(offset)
	case p == "": // it was only read; it stays as it was
		return nil
	case p == wire.GPIOInput:
		if err := b.change([]LineConfig{{Offset: offset, Direction: In, Pull: l.config.Pull}}); err != nil {
			return err
		}
		return b.forget(offset)
	case p == wire.GPIOLow, p == wire.GPIOHigh:
		level := 0
		if p == wire.GPIOHigh {
			level = 1
		}
		if _, err := b.drive([]int{offset}, []int{level}); err != nil {
			return err
		}
	}
	l.kept = true
	return b.keep(l.claim)
}

// forget drops a line of which nothing is to be remembered. It is called with
// b.mu.
func (b *board) forget(offset int) error {
	lines := []int{offset}
	cl := b.lines[offset].claim
	b.drop(offset)
	switch {
	case b.lines[offset].claim != nil && cl.stored: // others of its request are kept
		return b.keep(cl)
	case b.lines[offset].claim == nil && cl != nil:
		lines = cl.offsets
	}
	return b.s.o.Ledger.Remove(b.id, lines...)
}

// keep puts a request into the FDStore if all its outputs hold their level, and
// takes it out otherwise. The ledger has its name first. It is called with b.mu.
func (b *board) keep(cl *claim) error {
	var entries []Entry
	hold := false
	for _, o := range cl.offsets {
		l := &b.lines[o]
		switch {
		case l.config.Direction != Out: // only so that the next process knows the whole request
			entries = append(entries, b.entry(l.config, wire.GPIOInput))
		case l.kept && l.release == "", l.release == wire.GPIOHold:
			hold = true
			entries = append(entries, b.entry(l.config, wire.GPIOHold))
		default: // one that mustn't outlive us
			b.unstore(cl)
			return nil
		}
	}
	if !hold {
		b.unstore(cl)
		return nil
	}
	if err := b.s.o.Ledger.Put(entries...); err != nil {
		return err
	}
	return b.store(cl)
}

// store gives the FDStore a request, once.
func (b *board) store(cl *claim) error {
	k, ok := cl.Request.(Keeper)
	if b.s.o.Store == nil || cl.stored || !ok {
		return nil
	}
	err := k.Descriptor(func(fd uintptr) error { return b.s.o.Store.Put(cl.name, fd) })
	if err != nil {
		return failure(wire.HardwareTransferFailed, "keeping lines beyond a restart", err)
	}
	cl.stored = true
	return nil
}

func (b *board) unstore(cl *claim) {
	if !cl.stored {
		return
	}
	if err := b.s.o.Store.Remove(cl.name); err != nil {
		b.s.o.Log.Warn("a request of lines stays in the descriptor store", "device", b.id, "lines", cl.offsets, "err", err)
	}
	cl.stored = false
}

// ours says whether a descriptor in the store is of this package.
func ours(name string) bool { return strings.HasPrefix(name, StorePrefix) }
