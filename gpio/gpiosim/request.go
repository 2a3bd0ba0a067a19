package gpiosim

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"farhand/gpio"
	"farhand/gpio/uapi"
)

// handle is an open chip.
type handle struct {
	chip *Chip

	mu     sync.Mutex
	closed bool
}

var _ gpio.Chip = (*handle)(nil)

// Close may be repeated.
func (h *handle) Close() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return nil
}

// check is what every call begins with. It is called with h.chip.mu.
func (h *handle) check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.closed:
		return os.ErrClosed
	case h.chip.gone:
		return fmt.Errorf("%s: %w", h.chip.name, syscall.ENODEV)
	case h.chip.fault != nil:
		return fmt.Errorf("%s: %w", h.chip.name, h.chip.fault)
	}
	return nil
}

func (h *handle) Info() (gpio.ChipInfo, error) {
	c := h.chip
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := h.check(); err != nil {
		return gpio.ChipInfo{}, err
	}
	return gpio.ChipInfo{Name: c.name, Label: c.label, Lines: len(c.lines)}, nil
}

func (h *handle) Line(offset int) (gpio.LineInfo, error) {
	c := h.chip
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := h.check(); err != nil {
		return gpio.LineInfo{}, err
	}
	c.reap()
	if offset < 0 || offset >= len(c.lines) {
		return gpio.LineInfo{}, fmt.Errorf("line %d of %s: %w", offset, c.name, syscall.EINVAL)
	}
	l := &c.lines[offset]
	config := l.config
	config.Value = 0 // the kernel doesn't say it either
	return gpio.LineInfo{LineConfig: config, Name: l.name, Used: l.used, Consumer: l.consumer}, nil
}

func (h *handle) Request(lines []gpio.LineConfig, o gpio.Options) (gpio.Request, error) {
	c := h.chip
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := h.check(); err != nil {
		return nil, err
	}
	c.reap()
	if len(lines) == 0 || len(lines) > gpio.MaxLines {
		return nil, fmt.Errorf("requesting %d lines of %s: %w", len(lines), c.name, syscall.EINVAL)
	}
	if err := c.allows(lines, nil); err != nil {
		return nil, err
	}
	buffer := o.EventBuffer
	if buffer == 0 {
		buffer = 16 * len(lines)
	}
	r := &request{
		chip: c, handles: make(map[*descriptor]bool), buffer: min(buffer, uapi.MaxEventBuffer), wake: make(chan struct{}, 1),
		timers: make([]*time.Timer, len(lines)), lineSeq: make([]uint32, len(lines)), stable: make([]int, len(lines)),
	}
	for i, config := range lines {
		r.offsets = append(r.offsets, config.Offset)
		l := &c.lines[config.Offset]
		l.used, l.consumer, l.req, l.bit = true, o.Consumer, r, i
	}
	c.requests = append(c.requests, r)
	c.made++
	r.apply(lines)
	return r.open(), nil
}

// allows says whether lines can be set like that by a request, nil for a new
// one.
func (c *Chip) allows(lines []gpio.LineConfig, r *request) error {
	seen := make(map[int]bool)
	for _, config := range lines {
		if err := config.Validate(); err != nil {
			return err
		}
		o := config.Offset
		if o < 0 || o >= len(c.lines) {
			return fmt.Errorf("line %d of %s: %w", o, c.name, syscall.EINVAL)
		}
		if l := &c.lines[o]; seen[o] || r == nil && l.used {
			return fmt.Errorf("line %d of %s: %w", o, c.name, syscall.EBUSY)
		} else if config.Edges != 0 && l.noEdges {
			return fmt.Errorf("line %d of %s: %w", o, c.name, syscall.ENXIO)
		}
		seen[o] = true
	}
	return nil
}

// request is requested lines. All of it is guarded by the chip's mu.
type request struct {
	chip    *Chip
	offsets []int
	buffer  int
	handles map[*descriptor]bool // those that this process has open

	events  []gpio.Event
	seq     uint32
	lineSeq []uint32
	timers  []*time.Timer // of the debounce
	stable  []int         // the physical level that the debounce last let through

	deadline time.Time
	wake     chan struct{} // something has changed for who reads
	gone     bool
	// in stands for the descriptor towards others, who may copy it; a write to
	// out fails once nobody has a copy. Both are made when asked for.
	in, out *os.File
}

// descriptor is one descriptor of a request.
type descriptor struct {
	*request
	closed bool
}

var _ gpio.Keeper = (*descriptor)(nil)

// open makes a descriptor. It is called with the chip's mu.
func (r *request) open() *descriptor {
	d := &descriptor{request: r}
	r.handles[d] = true
	return d
}

// close is Close, with the chip's mu.
func (r *descriptor) close() {
	r.closed = true
	delete(r.handles, r)
	r.notify()
}

func (r *request) notify() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// check is called with the chip's mu.
func (r *descriptor) check() error {
	switch {
	case r.closed:
		return os.ErrClosed
	case r.gone:
		return fmt.Errorf("lines %d of %s: %w", r.offsets, r.chip.name, syscall.ENODEV)
	case r.chip.fault != nil:
		return fmt.Errorf("lines %d of %s: %w", r.offsets, r.chip.name, r.chip.fault)
	}
	return nil
}

// apply sets the lines. It is called with the chip's mu.
func (r *request) apply(lines []gpio.LineConfig) {
	for i, config := range lines {
		l := &r.chip.lines[config.Offset]
		if config.Direction == gpio.AsIs {
			was := l.config
			config.Direction, config.Pull, config.Value = was.Direction, was.Pull, was.Value
		}
		before := l.config.Edges
		l.config = config
		l.config.Edges = before // no edge by the setting itself
		r.chip.settle(config.Offset)
		l.config.Edges = config.Edges
		r.stable[i] = l.level
	}
}

func (r *descriptor) Get(mask uint64) (uint64, error) {
	r.chip.mu.Lock()
	defer r.chip.mu.Unlock()
	if err := r.check(); err != nil {
		return 0, err
	}
	if mask&(1<<len(r.offsets)-1) == 0 { // of 64 lines it is all ones
		return 0, fmt.Errorf("reading lines %d: %w", r.offsets, syscall.EINVAL)
	}
	var bits uint64
	for i, o := range r.offsets {
		if l := &r.chip.lines[o]; mask>>i&1 != 0 {
			level := l.level
			if l.config.Debounce > 0 {
				level = r.stable[i]
			}
			bits |= uint64(level^inverted(l.config)) << i
		}
	}
	return bits, nil
}

func inverted(c gpio.LineConfig) int {
	if c.ActiveLow {
		return 1
	}
	return 0
}

func (r *descriptor) Set(mask, bits uint64) error {
	r.chip.mu.Lock()
	defer r.chip.mu.Unlock()
	if err := r.check(); err != nil {
		return err
	}
	for i, o := range r.offsets {
		if mask>>i&1 != 0 && r.chip.lines[o].config.Direction != gpio.Out {
			return fmt.Errorf("setting line %d: %w", o, syscall.EPERM)
		}
	}
	for i, o := range r.offsets {
		if mask>>i&1 != 0 {
			r.chip.lines[o].config.Value = int(bits >> i & 1)
		}
	}
	for i, o := range r.offsets {
		if mask>>i&1 != 0 {
			r.chip.settle(o)
		}
	}
	return nil
}

func (r *descriptor) Configure(lines []gpio.LineConfig) error {
	r.chip.mu.Lock()
	defer r.chip.mu.Unlock()
	if err := r.check(); err != nil {
		return err
	}
	if len(lines) != len(r.offsets) {
		return fmt.Errorf("configuring lines %d: %w", r.offsets, syscall.EINVAL)
	}
	for i, l := range lines {
		if l.Offset != r.offsets[i] {
			return fmt.Errorf("configuring lines %d: %w", r.offsets, syscall.EINVAL)
		}
	}
	if err := r.chip.allows(lines, r.request); err != nil {
		return err
	}
	r.apply(lines)
	return nil
}

// change is an edge of a line with edges. It is called with the chip's mu.
func (r *request) change(bit, level int) {
	config := r.chip.lines[r.offsets[bit]].config
	if config.Debounce == 0 {
		r.emit(bit, level)
		return
	}
	if t := r.timers[bit]; t != nil {
		t.Stop()
	}
	r.timers[bit] = time.AfterFunc(config.Debounce, func() {
		r.chip.mu.Lock()
		defer r.chip.mu.Unlock()
		l := &r.chip.lines[r.offsets[bit]]
		if r.gone || l.req != r || l.level == r.stable[bit] {
			return
		}
		r.emit(bit, l.level)
	})
}

func (r *request) emit(bit, level int) {
	config := r.chip.lines[r.offsets[bit]].config
	r.stable[bit] = level
	rising := level^inverted(config) == 1
	if rising && config.Edges&gpio.Rising == 0 || !rising && config.Edges&gpio.Falling == 0 {
		return
	}
	r.seq++
	r.lineSeq[bit]++
	if len(r.events) >= r.buffer { // the kernel's version 2 forgets the oldest
		r.events = append(r.events[:0], r.events[1:]...)
	}
	r.events = append(r.events, gpio.Event{
		Offset: r.offsets[bit], Rising: rising, TimestampNS: uapi.Monotonic(), Seq: r.seq, LineSeq: r.lineSeq[bit],
	})
	r.notify()
}

func (r *descriptor) Read(to []gpio.Event) (int, error) {
	for {
		n, wait, err := r.take(to)
		if n > 0 || err != nil {
			return n, err
		}
		if wait == 0 {
			<-r.wake
			continue
		}
		t := time.NewTimer(wait)
		select {
		case <-r.wake:
		case <-t.C:
		}
		t.Stop()
	}
}

// take answers what there is, or how long to wait for it; 0 is for ever.
func (r *descriptor) take(to []gpio.Event) (int, time.Duration, error) {
	r.chip.mu.Lock()
	defer r.chip.mu.Unlock()
	if err := r.check(); err != nil {
		r.notify() // for who else reads
		return 0, 0, err
	}
	if n := copy(to, r.events); n > 0 {
		r.events = append(r.events[:0], r.events[n:]...)
		return n, 0, nil
	}
	if r.deadline.IsZero() {
		return 0, 0, nil
	}
	wait := time.Until(r.deadline)
	if wait <= 0 {
		return 0, 0, os.ErrDeadlineExceeded
	}
	return 0, wait, nil
}

func (r *descriptor) SetReadDeadline(t time.Time) error {
	r.chip.mu.Lock()
	defer r.chip.mu.Unlock()
	if r.closed {
		return os.ErrClosed
	}
	r.deadline = t
	r.notify()
	return nil
}

func (r *descriptor) Close() error {
	r.chip.mu.Lock()
	defer r.chip.mu.Unlock()
	if r.closed {
		return nil
	}
	r.close()
	r.chip.reap()
	return nil
}

// Descriptor hands out one end of a pipe, by which the bench knows the request
// again.
func (r *descriptor) Descriptor(use func(fd uintptr) error) error {
	r.chip.mu.Lock()
	if err := r.check(); err != nil {
		r.chip.mu.Unlock()
		return err
	}
	if r.in == nil {
		in, out, err := os.Pipe()
		if err != nil {
			r.chip.mu.Unlock()
			return fmt.Errorf("making a descriptor: %w", err)
		}
		r.in, r.out = in, out
	}
	f := r.in
	r.chip.mu.Unlock()
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := conn.Control(func(fd uintptr) { err = use(fd) }); cerr != nil {
		return os.ErrClosed
	}
	return err
}

// is says whether a file is the request's descriptor. It is called with the
// chip's mu.
func (r *request) is(info os.FileInfo) bool {
	if r.out == nil {
		return false
	}
	own, err := r.out.Stat()
	return err == nil && os.SameFile(own, info)
}

// alive says whether anybody still has a descriptor. It is called with the
// chip's mu.
func (r *request) alive() bool {
	if len(r.handles) > 0 {
		return true
	}
	if r.out == nil {
		return false
	}
	r.in.Close() // ours; again and again is no matter
	_, err := r.out.Write([]byte{0})
	return !errors.Is(err, syscall.EPIPE)
}
