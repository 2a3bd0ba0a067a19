package device

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"farhand/internal/fnmatch"
	"farhand/internal/pulse"
	"farhand/internal/sorted"
	"farhand/wire"
)

const (
	// probeTimeout bounds one reading of everything. A Pi with a full hub
	// takes some milliseconds.
	probeTimeout = 10 * time.Second

	// maxRemembered is how many devices that are gone are remembered for their
	// generation; a device that invents a serial number at every plug must not
	// grow the memory for ever.
	maxRemembered = 1024
)

// Options configure a Registry.
type Options struct {
	// Families are the drivers. Of two that report the same id the earlier one
	// is believed, the other named in Problems.
	Families []Family
	// Allow and Deny are glob patterns over the canonical id. A nil Allow
	// allows all, an empty one nothing; Deny wins. What is not allowed is
	// neither listed nor found.
	Allow, Deny []string
	Log         *slog.Logger
}

// Registry knows the devices that are present.
type Registry struct {
	opts    Options
	probing chan struct{} // holds one token: one reading at a time
	kick    chan struct{} // holds one token if a new reading is asked for
	loops   *pulse.Loop   // of Follow

	mu       sync.Mutex
	present  map[string]*entry
	aliases  map[string][]string // alias -> ids, sorted
	memory   map[string]*memory
	problems []Problem
	subs     map[*Subscription]struct{}
	onGone   []func(id string)
	follows  int // how many Follow run
}

type entry struct {
	Descriptor
	family int // index into Families
}

type memory struct {
	generation int
	appeared   []time.Time // the last flapCount times
	gone       time.Time   // zero while present
}

// Problem is why a driver, or one device of it, is not among the devices.
type Problem struct {
	Type string // of the driver
	Err  error
}

// NewRegistry makes a registry that knows nothing until Refresh.
func NewRegistry(o Options) *Registry {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Registry{
		opts:    o,
		loops:   pulse.New("the loop that follows devices"),
		probing: make(chan struct{}, 1),
		kick:    make(chan struct{}, 1),
		present: make(map[string]*entry),
		aliases: make(map[string][]string),
		memory:  make(map[string]*memory),
		subs:    make(map[*Subscription]struct{}),
	}
	r.probing <- struct{}{}
	return r
}

// Refresh asks every driver again. A driver that fails takes no other down: its
// devices stay, unavailable, and Problems says why. The only error is ctx's.
func (r *Registry) Refresh(ctx context.Context) error {
	select {
	case <-r.probing:
		defer func() { r.probing <- struct{}{} }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	probeCtx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	found := make([]probed, len(r.opts.Families))
	for i, f := range r.opts.Families {
		found[i].devices, found[i].err = probe(probeCtx, f.Driver)
	}
	if ctx.Err() != nil { // half a view would make devices vanish
		return context.Cause(ctx)
	}
	r.apply(found)
	return nil
}

type probed struct {
	devices []Descriptor
	err     error
}

func probe(ctx context.Context, d Driver) (all []Descriptor, err error) {
	defer func() {
		if p := recover(); p != nil {
			all, err = nil, fmt.Errorf("the driver panicked: %v", p)
		}
	}()
	return d.Probe(ctx)
}

// apply makes what was found what is present, and tells who wants to know.
func (r *Registry) apply(found []probed) {
	r.mu.Lock()
	now := time.Now()
	next, problems := r.merge(found)
	changes, gone := r.diff(next, now)
	news := fmt.Sprint(problems) != fmt.Sprint(r.problems)
	r.present, r.problems = next, problems
	r.aliases = aliasesOf(next)
	r.forget()
	for s := range r.subs {
		s.add(changes)
	}
	hooks := slices.Clone(r.onGone)
	r.mu.Unlock()

	for _, p := range problems {
		if !news { // said before
			break
		}
		r.opts.Log.Warn("devices could not be listed", "type", p.Type, "err", p.Err)
	}
	for _, id := range gone {
		r.opts.Log.Info("device gone", "device", id)
		for _, hook := range hooks {
			hook(id)
		}
	}
	for _, c := range changes {
		if !c.Gone {
			r.opts.Log.Info("device present", "device", c.Device.ID, "generation", c.Device.Generation, "available", c.Device.Available)
		}
	}
}

func (r *Registry) merge(found []probed) (map[string]*entry, []Problem) {
	next := make(map[string]*entry)
	var problems []Problem
	for i, f := range found {
		family := r.opts.Families[i]
		typ := family.Driver.Type()
		devices := f.devices
		if f.err != nil {
			problems = append(problems, Problem{typ, f.err})
			if len(devices) == 0 {
				devices = r.stale(i, f.err)
			}
		}
		for _, d := range devices {
			if !strings.HasPrefix(d.ID, typ+":") || d.Type != typ {
				problems = append(problems, Problem{typ, fmt.Errorf("the driver names a device of another type: %q", d.ID)})
				continue
			}
			if !r.allowed(d.ID) {
				continue
			}
			if other := next[d.ID]; other != nil {
				problems = append(problems, Problem{typ, fmt.Errorf("%s is there twice: %s and %s", d.ID, other.where(), (&entry{Descriptor: d}).where())})
				continue
			}
			if family.Service == nil {
				d.Available, d.Reason = false, NoDriverYet
			}
			next[d.ID] = &entry{Descriptor: tidy(d), family: i}
		}
	}
	return next, problems
}

// stale is what is left of a family whose driver failed: what it had.
func (r *Registry) stale(family int, err error) []Descriptor {
	var devices []Descriptor
	for _, e := range r.present {
		if e.family == family {
			d := e.Descriptor
			d.Available, d.Reason = false, Clean("it can't be looked for: "+err.Error())
			devices = append(devices, d)
		}
	}
	return devices
}

func (e *entry) where() string {
	switch {
	case e.SysPath != "":
		return e.SysPath
	case e.Node != "":
		return e.Node
	}
	return "an unnamed place"
}

func (r *Registry) allowed(id string) bool {
	matches := func(pattern string) bool { return fnmatch.Match(pattern, id) }
	if r.opts.Allow != nil && !slices.ContainsFunc(r.opts.Allow, matches) {
		return false
	}
	return !slices.ContainsFunc(r.opts.Deny, matches)
}

// tidy cleans every string that came from the device, and sorts the aliases.
func tidy(d Descriptor) Descriptor {
	for _, s := range []*string{&d.Desc, &d.Manufacturer, &d.Product, &d.SerialNumber, &d.Driver, &d.Reason} {
		*s = Clean(*s)
	}
	aliases := slices.Clone(d.Aliases)
	slices.Sort(aliases)
	aliases = slices.Compact(aliases)
	d.Aliases = slices.DeleteFunc(aliases, func(a string) bool { return a == "" || a == d.ID || a != Clean(a) })
	return d
}

// diff fills the generations of next and says what changed.
func (r *Registry) diff(next map[string]*entry, now time.Time) (changes []Change, gone []string) {
	for _, id := range slices.Sorted(maps.Keys(r.present)) {
		old, cur := r.present[id], next[id]
		if cur != nil && cur.Instance == old.Instance && cur.family == old.family {
			continue
		}
		gone = append(gone, id)
		changes = append(changes, Change{Device: old.HardwareDevice, Gone: true})
		r.memory[id].gone = now
	}
	for _, id := range slices.Sorted(maps.Keys(next)) {
		cur := next[id]
		m := r.memory[id]
		if m == nil {
			m = &memory{gone: now}
			r.memory[id] = m
		}
		old := r.present[id]
		if !m.gone.IsZero() {
			m.gone = time.Time{}
			m.generation++
			m.appears(now)
			old = nil
		}
		cur.Generation = m.generation
		if m.flaps(now) > 0 && cur.Reason == "" {
			cur.Reason = flapping()
		}
		if old == nil || old.Available != cur.Available || old.Reason != cur.Reason {
			changes = append(changes, Change{Device: cur.HardwareDevice})
		}
	}
	return changes, gone
}

// forget keeps the memory of what is gone bounded; the longest gone goes first.
func (r *Registry) forget() {
	excess := len(r.memory) - len(r.present) - maxRemembered
	if excess <= 0 {
		return
	}
	var ids []string
	for id, m := range r.memory {
		if !m.gone.IsZero() {
			ids = append(ids, id)
		}
	}
	sorted.By(ids, func(a, b string) int { return r.memory[a].gone.Compare(r.memory[b].gone) })
	for _, id := range ids[:min(excess, len(ids))] {
		delete(r.memory, id)
	}
}

func aliasesOf(present map[string]*entry) map[string][]string {
	aliases := make(map[string][]string)
	for _, id := range slices.Sorted(maps.Keys(present)) {
		for _, a := range present[id].Aliases {
			aliases[a] = append(aliases[a], id)
		}
	}
	return aliases
}

// List is every device that is present, by id. The caller owns the answer.
func (r *Registry) List() []wire.HardwareDevice {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]wire.HardwareDevice, 0, len(r.present))
	for _, id := range slices.Sorted(maps.Keys(r.present)) {
		d := r.present[id].HardwareDevice
		d.Aliases = slices.Clone(d.Aliases)
		all = append(all, d)
	}
	return all
}

// Problems is what went wrong at the last Refresh.
func (r *Registry) Problems() []Problem {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.problems)
}

// Resolve finds a device by its id or by an alias that fits it alone. The error
// is HARDWARE_NOT_FOUND, or HARDWARE_AMBIGUOUS with details.candidates.
func (r *Registry) Resolve(name string) (Descriptor, error) {
	d, _, err := r.resolve(name)
	return d, err
}

func (r *Registry) resolve(name string) (Descriptor, Service, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.present[name]
	if e == nil {
		switch ids := r.aliases[name]; len(ids) {
		case 0:
			name := Clean(name)
			return Descriptor{}, nil, wire.Errorf(wire.HardwareNotFound, "there is no device %q", name).With("device", name)
		case 1:
			e = r.present[ids[0]]
		default:
			name := Clean(name)
			return Descriptor{}, nil, wire.Errorf(wire.HardwareAmbiguous, "%q is more than one device: %s", name, strings.Join(ids, ", ")).
				With("device", name).With("candidates", slices.Clone(ids))
		}
	}
	return e.Descriptor, r.opts.Families[e.family].Service, nil
}

// find is resolve, with a new reading if nothing was found and nobody follows
// the kernel's events.
func (r *Registry) find(ctx context.Context, name string) (Descriptor, Service, error) {
	d, s, err := r.resolve(name)
	if errors.Is(err, wire.HardwareNotFound) && !r.following() || err == nil && !d.Available && s != nil {
		if err := r.Refresh(ctx); err != nil {
			return Descriptor{}, nil, err
		}
		return r.resolve(name)
	}
	return d, s, err
}

// still says whether a device that was found is there, and was all the time since.
func (r *Registry) still(d Descriptor) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.present[d.ID]
	return e != nil && e.Generation == d.Generation
}

func (r *Registry) following() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.follows > 0
}

// OnGone has hook called for every device that vanished or was replugged. It
// must not block.
func (r *Registry) OnGone(hook func(id string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onGone = append(r.onGone, hook)
}
