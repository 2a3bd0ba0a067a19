package gpio

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"

	"farhand/internal/sorted"
	"farhand/wire"
)

// Recover does what an earlier process has left undone: it takes over the
// requests of lines that hold their level, as far as the FDStore had them, and
// does what on_release says with every other output of the ledger. The daemon
// calls it before it says that it is ready. A chip that isn't there is done with
// when it is back.
func (s *Service) Recover(ctx context.Context) error {
	s.mu.Lock()
	adopted := maps.Clone(s.o.Restored)
	s.mu.Unlock()
	maps.DeleteFunc(adopted, func(name string, _ *os.File) bool { return !ours(name) })
	entries := s.o.Ledger.Entries("")
	if len(entries) == 0 && len(adopted) == 0 {
		return nil
	}
	chips, err := s.o.Probe.Probe(ctx)
	if err != nil {
		err = fmt.Errorf("looking for GPIO chips with outputs of an earlier run: %w", err)
	}
	pending := make(map[string]bool)
	for _, e := range entries {
		pending[e.Device] = true
	}
	for _, d := range chips {
		if !pending[d.ID] {
			continue
		}
		delete(pending, d.ID)
		if _, oerr := s.board(d); oerr != nil { // opening it does the rest
			err = errors.Join(err, oerr)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(pending)) {
		s.o.Log.Warn("a chip with outputs of an earlier run isn't there; they are seen to when it is back", "device", id)
	}
	return errors.Join(err, s.forgetRestored())
}

// forgetRestored lets go of the descriptors that nobody has taken.
func (s *Service) forgetRestored() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for name, f := range s.o.Restored {
		if !ours(name) {
			continue
		}
		delete(s.o.Restored, name)
		err = errors.Join(err, f.Close())
		if s.o.Store != nil {
			err = errors.Join(err, s.o.Store.Remove(name))
		}
	}
	return err
}

// recover does what the ledger says about the lines of a chip that was just
// opened. It is called with s.mu, before anybody else has the board.
func (b *board) recover() {
	entries := b.s.o.Ledger.Entries(b.id)
	for name, group := range byRequest(entries) {
		b.adopt(name, group)
	}
	for _, e := range entries {
		if err := b.settleEntry(e); err != nil {
			b.s.o.Log.Warn("an output of an earlier run can't be left as it was promised",
				"device", b.id, "line", e.Line, "on_release", e.OnRelease, "err", err)
		}
	}
}

// byRequest groups entries by the request that they belong to.
func byRequest(entries []Entry) map[string][]Entry {
	groups := make(map[string][]Entry)
	for _, e := range entries {
		if e.FD != "" {
			groups[e.FD] = append(groups[e.FD], e)
		}
	}
	return groups
}

// adopt takes over a request that the FDStore has kept.
func (b *board) adopt(name string, entries []Entry) {
	f := b.s.o.Restored[name]
	if f == nil {
		return
	}
	delete(b.s.o.Restored, name)
	log := b.s.o.Log.With("device", b.id)
	r, err := b.s.o.Adopt(f)
	c := &claim{Request: r, name: name, stored: b.s.o.Store != nil}
	if err != nil {
		log.Warn("a kept request of lines is of no use", "err", err)
		b.unstore(c)
		return
	}
	if !b.fits(c, entries) {
		log.Warn("a kept request of lines isn't what the ledger says")
		b.unstore(c)
		_ = r.Close() // nothing is known about it
		return
	}
	bits, err := r.Get(1<<len(c.offsets) - 1)
	if err != nil {
		log.Warn("a kept request of lines can't be read", "err", err)
	}
	for bit, e := range entries {
		l := &b.lines[e.Line]
		l.claim, l.bit, l.kept = c, bit, true
		if l.config = e.config(); e.OnRelease == wire.GPIOInput {
			l.config = e.first()
		}
		l.config.Value = int(bits >> bit & 1)
	}
}

// fits puts the lines of a request in order, and says whether they are all there
// and ours.
func (b *board) fits(c *claim, entries []Entry) bool {
	sorted.By(entries, func(a, z Entry) int { return a.Bit - z.Bit })
	for bit, e := range entries {
		if e.Bit != bit || e.Line >= len(b.lines) || b.lines[e.Line].claim != nil {
			return false
		}
		i, err := b.chip.Line(e.Line)
		if err != nil || !i.Used || i.Consumer != Consumer || i.Direction != Out && e.OnRelease != wire.GPIOInput {
			return false
		}
		c.offsets = append(c.offsets, e.Line)
	}
	return true
}

func (e Entry) config() LineConfig {
	c := LineConfig{Offset: e.Line, Direction: Out, ActiveLow: e.ActiveLow}
	if i := slices.Index(drives, e.Drive); i > 0 {
		c.Drive = Drive(i)
	}
	if i := slices.Index(pulls, e.Pull); i > 0 {
		c.Pull = Pull(i)
	}
	return c
}

// settleEntry does what on_release says with one output.
func (b *board) settleEntry(e Entry) error {
	if e.Line >= len(b.lines) {
		return errors.Join(errors.New("the chip has no such line any more"), b.s.o.Ledger.Remove(b.id, e.Line))
	}
	l := &b.lines[e.Line]
	if e.PWM != "" {
		return errors.Join(b.settlePWM(e), b.s.o.Ledger.Remove(b.id, e.Line))
	}
	if e.OnRelease == wire.GPIOHold {
		if l.claim != nil {
			return nil // it was taken over
		}
		b.s.o.Log.Info("an output that should hold its level was not kept while the daemon was away", "device", b.id, "line", e.Line)
		return b.s.o.Ledger.Remove(b.id, e.Line)
	}
	if l.claim == nil {
		if _, err := b.request([]LineConfig{e.first()}, 0); err != nil {
			return errors.Join(err, b.s.o.Ledger.Remove(b.id, e.Line)) // somebody else has it now
		}
	}
	return b.leave(e.Line, e.OnRelease)
}

// first is how an output is claimed whose on_release is pending.
func (e Entry) first() LineConfig {
	c := e.config()
	switch e.OnRelease {
	case wire.GPIOInput:
		return LineConfig{Offset: e.Line, Direction: In, Pull: c.Pull}
	case wire.GPIOHigh:
		c.Value = 1
	}
	return c
}

// settlePWM ends a hardware PWM, unless it was to go on.
func (b *board) settlePWM(e Entry) error {
	if e.OnRelease == wire.GPIOHold {
		return nil
	}
	ch, err := findChannel(b.s.o.FS, e.PWM, e.Channel)
	if err != nil {
		return err
	}
	p := &hardPWM{ch: ch, low: e.ActiveLow}
	if _, err := os.Stat(p.path()); err != nil {
		return nil // it isn't exported, so it doesn't run
	}
	return p.halt()
}
