package gpio

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"farhand/device"
	"farhand/wire"
)

// board is an open chip with what we have of it.
type board struct {
	s        *Service
	id       string
	instance string
	dir      string // of the chip in sysfs; empty for a simulated one
	chip     Chip
	info     ChipInfo
	names    *nameTable
	gone     atomic.Bool // the chip has vanished

	// mu guards what follows, and orders what is asked of the kernel.
	mu     sync.Mutex
	lines  []line
	closed bool
}

// line is what we have of one line.
type line struct {
	claim  *claim // nil: we don't have it
	bit    int    // of the claim
	config LineConfig
	use    *use // whose lease it is; nil: nobody's

	// What follows is of the lease.
	release wire.GPIORelease // what becomes of an output; empty: it is none
	deadman time.Duration
	input   bool // it was asked to be an input
	pwm     pwm  // nil: none runs

	// kept says that nobody has the line, or somebody who only read it, and that
	// it is requested so that it keeps its level.
	kept bool
}

// claim is one request of the kernel.
type claim struct {
	Request
	offsets []int
	name    string // in the FDStore
	stored  bool
	buffer  int  // for how many edges it was made; 0: for none
	used    bool // edges were read already
	reader  *reader
}

// use is one lease's use of a line: the lease's state.
type use struct {
	b      *board
	offset int
	lease  *device.Lease

	mu    sync.Mutex
	watch *watch // the stream that watches the line; nil: none
}

// Close ends what runs on the line, and does what its on_release says.
func (u *use) Close() error {
	u.mu.Lock()
	w := u.watch
	u.mu.Unlock()
	if w != nil {
		w.close(context.Cause(u.lease.Context()))
	}
	return u.b.end(u)
}

// watcher is the stream that watches the line, nil if there is none or it has
// ended.
func (u *use) watcher() *watch {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.watch == nil || u.watch.over() {
		return nil
	}
	return u.watch
}

func (u *use) setWatcher(w *watch) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.watch = w
}

func (s *Service) open(d device.Descriptor) (*board, error) {
	chip, err := s.o.Open(d.Node)
	if err != nil {
		return nil, failure(wire.HardwareOpenFailed, "opening "+d.ID, err)
	}
	b := &board{s: s, id: d.ID, instance: d.Instance, dir: d.SysPath, chip: chip}
	if err := b.look(d); err != nil {
		chip.Close()
		return nil, failure(wire.HardwareOpenFailed, "asking "+d.ID+" for its lines", err)
	}
	b.recover()
	return b, nil
}

// look learns the names of the lines.
func (b *board) look(d device.Descriptor) error {
	info, err := b.chip.Info()
	if err != nil {
		return err
	}
	b.info, b.lines = info, make([]line, info.Lines)
	names := make([]string, info.Lines)
	for o := range names {
		l, err := b.chip.Line(o)
		if err != nil {
			return err
		}
		names[o] = l.Name
		b.lines[o].config = LineConfig{Offset: o}
	}
	chips := []string{info.Name, info.Label, d.ID, strings.TrimPrefix(d.ID, "gpio:"), filepath.Base(d.Chip), d.Chip}
	chips = append(chips, d.Aliases...)
	b.names = newNameTable(slices.DeleteFunc(chips, func(s string) bool { return s == "" || s == "." }), info.Label, names)
	return nil
}

// lost is that the chip has vanished: the next operation opens it anew.
func (b *board) lost() { b.gone.Store(true) }

// enter locks b.mu for an operation, unless the board was closed since the
// operation looked for it: nothing of what it would go by is there then.
func (b *board) enter() error {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return wire.Errorf(wire.DeviceGone, "%s was closed meanwhile: it was unplugged, or the daemon is stopping", b.id)
	}
	return nil
}

// close gives back everything without a word to the lines.
func (b *board) close() {
	b.gone.Store(true)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	for o := range b.lines {
		l := &b.lines[o]
		if l.pwm != nil {
			l.pwm.halt()
			l.pwm = nil
		}
	}
	for o := range b.lines {
		l := &b.lines[o]
		if l.claim != nil {
			l.claim.reader.stop()
			_ = l.claim.Close() // there is nothing to lose
			l.claim, l.config = nil, LineConfig{Offset: o}
		}
	}
	_ = b.chip.Close() // nor here
}

// begin makes a line a lease's.
func (b *board) begin(u *use) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines[u.offset].use = u
}

// request claims lines that we don't have, in one request. It is called with
// b.mu.
func (b *board) request(configs []LineConfig, buffer int) (*claim, error) {
	r, err := b.chip.Request(configs, Options{Consumer: Consumer, EventBuffer: buffer})
	if err != nil {
		if errors.Is(err, syscall.EBUSY) {
			return nil, b.busy(configs)
		}
		return nil, failure(wire.HardwareOpenFailed, "claiming "+b.describe(configs), err)
	}
	c := &claim{Request: r, name: newStoreName(), buffer: buffer}
	for i, config := range configs {
		l := &b.lines[config.Offset]
		l.claim, l.bit, l.config = c, i, config
		c.offsets = append(c.offsets, config.Offset)
	}
	return c, nil
}

func (b *board) describe(configs []LineConfig) string {
	if len(configs) == 1 {
		return b.call(configs[0].Offset)
	}
	return "lines " + b.numbers(configs)
}

func (b *board) numbers(configs []LineConfig) string {
	all := make([]string, len(configs))
	for i, c := range configs {
		all[i] = b.names.lines[c.Offset].key
	}
	return strings.Join(all, ", ")
}

// call is what to call a line towards a person.
func (b *board) call(offset int) string {
	l := &b.names.lines[offset]
	if l.kernel == "" {
		return "line " + l.key
	}
	return "line " + l.key + " (" + device.Clean(l.kernel) + ")"
}

// busy names who has the line that can't be had.
func (b *board) busy(configs []LineConfig) error {
	for _, c := range configs {
		i, err := b.chip.Line(c.Offset)
		if err != nil || !i.Used || b.lines[c.Offset].claim != nil {
			continue
		}
		consumer := device.Clean(i.Consumer)
		if consumer == "" {
			consumer = "the kernel or another program"
		}
		return wire.Errorf(wire.HardwareBusy, "%s is in use by %s, outside this daemon", b.call(c.Offset), consumer).
			With("line", c.Offset).With("holder", consumer).With("consumer", consumer).With("os_error", "EBUSY").
			With("hint", "it is never taken away: stop what uses it, or use another line")
	}
	return wire.Errorf(wire.HardwareBusy, "%s: one of them is in use", b.describe(configs)).With("os_error", "EBUSY").With("holder", "the kernel or another program")
}

// change sets lines that we have anew, and leaves the others of their requests
// as they are. It is called with b.mu.
func (b *board) change(configs []LineConfig) error {
	wanted := make(map[*claim]map[int]LineConfig)
	var order []*claim
	for _, c := range configs {
		cl := b.lines[c.Offset].claim
		if wanted[cl] == nil {
			wanted[cl] = make(map[int]LineConfig)
			order = append(order, cl)
		}
		wanted[cl][c.Offset] = c
	}
	for _, cl := range order {
		all := make([]LineConfig, len(cl.offsets))
		for i, o := range cl.offsets {
			c, ok := wanted[cl][o]
			if !ok {
				c = b.lines[o].config
			}
			all[i] = c
		}
		if err := cl.Configure(all); err != nil {
			return failure(wire.HardwareTransferFailed, "configuring "+b.describe(all), err)
		}
		for i, o := range cl.offsets {
			b.lines[o].config = all[i]
		}
	}
	return nil
}

// drop lets go of a line; its request goes with the last of its lines. It is
// called with b.mu.
func (b *board) drop(offset int) {
	l := &b.lines[offset]
	l.kept = false
	cl := l.claim
	if cl == nil {
		return
	}
	for _, o := range cl.offsets {
		if b.lines[o].use != nil || b.lines[o].kept {
			return
		}
	}
	b.unclaim(cl)
}

// unclaim gives a request back. It is called with b.mu.
func (b *board) unclaim(cl *claim) {
	cl.reader.stop()
	if err := cl.Close(); err != nil {
		b.s.o.Log.Warn("giving lines back failed", "device", b.id, "lines", cl.offsets, "err", err)
	}
	b.unstore(cl)
	for _, o := range cl.offsets {
		b.lines[o].claim = nil
		b.lines[o].config = LineConfig{Offset: o}
	}
}

// groups are the requests of lines with a mask for each, in order. It is called
// with b.mu.
func (b *board) groups(lines []int) []group {
	var all []group
next:
	for i, o := range lines {
		l := &b.lines[o]
		for g := range all {
			if all[g].claim == l.claim {
				all[g].mask |= 1 << l.bit
				all[g].members = append(all[g].members, i)
				continue next
			}
		}
		all = append(all, group{claim: l.claim, mask: 1 << l.bit, members: []int{i}})
	}
	return all
}

// group is the lines of one request that an operation is about.
type group struct {
	claim   *claim
	mask    uint64
	members []int // which of the operation's lines
}

// loose says whether a request only reads: it can be given back without anybody
// noticing. It is called with b.mu.
func (b *board) loose(cl *claim) bool {
	for _, o := range cl.offsets {
		if b.lines[o].config.Direction != AsIs {
			return false
		}
	}
	return cl.reader == nil
}

// loosen gives back the requests of lines that only read. It is called with
// b.mu.
func (b *board) loosen(lines []int) {
	for _, o := range lines {
		if cl := b.lines[o].claim; cl != nil && b.loose(cl) {
			b.unclaim(cl)
		}
	}
}

// scattered says whether lines don't lie in one request. It is called with b.mu.
func (b *board) scattered(lines []int) bool {
	for _, o := range lines[1:] {
		if b.lines[o].claim != b.lines[lines[0]].claim {
			return true
		}
	}
	return false
}

// claimAll claims those of the lines that we don't have, as they are. It is
// called with b.mu.
func (b *board) claimAll(lines []int) error {
	var fresh []LineConfig
	for _, o := range lines {
		if b.lines[o].claim == nil {
			fresh = append(fresh, LineConfig{Offset: o})
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	_, err := b.request(fresh, 0)
	return err
}

// levels reads lines that we have. It is called with b.mu.
func (b *board) levels(lines []int) (levels []int, atomic bool, err error) {
	levels = make([]int, len(lines))
	groups := b.groups(lines)
	for _, g := range groups {
		bits, err := g.claim.Get(g.mask)
		if err != nil {
			return nil, false, failure(wire.HardwareTransferFailed, "reading "+b.call(lines[g.members[0]]), err)
		}
		for _, i := range g.members {
			levels[i] = int(bits >> b.lines[lines[i]].bit & 1)
		}
	}
	return levels, len(groups) == 1, nil
}

// drive sets outputs that we have. It is called with b.mu.
func (b *board) drive(lines, levels []int) (atomic bool, err error) {
	groups := b.groups(lines)
	for n, g := range groups {
		var bits uint64
		for _, i := range g.members {
			bits |= uint64(levels[i]) << b.lines[lines[i]].bit
		}
		if err := g.claim.Set(g.mask, bits); err != nil {
			err := failure(wire.HardwareTransferFailed, "setting "+b.call(lines[g.members[0]]), err)
			if n > 0 {
				var done []int
				for _, g := range groups[:n] {
					for _, i := range g.members {
						done = append(done, lines[i])
					}
				}
				err = wire.AsError(err).With("lines_set", done)
			}
			return false, err
		}
		for _, i := range g.members {
			b.lines[lines[i]].config.Value = levels[i]
		}
	}
	return len(groups) == 1, nil
}
