// Package gpiosim is GPIO chips in memory: they behave like the kernel's
// character device, their lines can be wired together, the world outside can
// drive them, and they fail when told to.
package gpiosim

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"farhand/gpio"
)

// Bench is several chips, by the names of their nodes. All its methods may be
// called concurrently.
type Bench struct {
	mu    sync.Mutex
	chips map[string]*Chip
}

// NewBench makes a bench of chips.
func NewBench(chips ...*Chip) *Bench {
	b := &Bench{chips: make(map[string]*Chip)}
	for _, c := range chips {
		b.chips[c.name] = c
	}
	return b
}

// Chip is the chip of this name, or nil.
func (b *Bench) Chip(name string) *Chip {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.chips[name]
}

// Open opens the chip whose node this is, in whatever directory.
func (b *Bench) Open(node string) (gpio.Chip, error) {
	c := b.Chip(filepath.Base(node))
	if c == nil {
		return nil, fmt.Errorf("opening %s: %w", node, syscall.ENOENT)
	}
	return c.Open()
}

// Adopt finds the request whose descriptor the file is. It takes the file.
func (b *Bench) Adopt(f *os.File) (gpio.Request, error) {
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("taking over a line request: %w", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.chips {
		if d := c.find(f, info); d != nil {
			return d, nil
		}
	}
	f.Close()
	return nil, fmt.Errorf("taking over a line request: %w", syscall.ENOTTY)
}

// Kill is the end of the process that had the requests: they are closed but
// for those that somebody else has a descriptor of.
func (b *Bench) Kill() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.chips {
		c.kill()
	}
}

// Standard is the bench of --sim: a Raspberry Pi 4's header, with GPIO17 wired
// to GPIO27 and GPIO23 to GPIO24, and its firmware's eight lines.
func Standard() *Bench {
	names := make([]string, 58)
	for i := range names {
		names[i] = "GPIO" + strconv.Itoa(i)
	}
	header := New("gpiochip0", "pinctrl-bcm2711", names)
	header.Wire(17, 27)
	header.Wire(23, 24)
	header.Take(42, "ACT")
	firmware := New("gpiochip1", "raspberrypi-exp-gpio",
		[]string{"BT_ON", "WL_ON", "PWR_LED_OFF", "GLOBAL_RESET", "VDD_SD_IO_SEL", "CAM_GPIO", "SD_PWR_ON", "SD_OC_N"})
	firmware.Take(2, "PWR")
	return NewBench(header, firmware)
}

// Chip is one chip. All its methods may be called concurrently.
type Chip struct {
	name, label string

	mu       sync.Mutex
	lines    []line
	requests []*request // open ones
	made     int        // how many requests there were
	gone     bool
	fault    error
}

// line is a line as it is, from the world's side.
type line struct {
	name     string
	wired    []int
	outside  *int // what the world drives it to; nil: nothing
	pull     int  // what it floats to without a pull of ours
	consumer string
	used     bool
	noEdges  bool

	req     *request
	bit     int
	config  gpio.LineConfig
	level   int // physical
	history []int
}

// maxHistory bounds what is remembered of a line's levels.
const maxHistory = 1 << 12

// New makes a chip. A line whose name is empty has none.
func New(name, label string, names []string) *Chip {
	c := &Chip{name: name, label: label, lines: make([]line, len(names))}
	for i, n := range names {
		c.lines[i] = line{name: n, config: gpio.LineConfig{Offset: i, Direction: gpio.In}, history: []int{0}}
	}
	return c
}

// Wire joins two lines by a wire.
func (c *Chip) Wire(a, b int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines[a].wired = append(c.lines[a].wired, b)
	c.lines[b].wired = append(c.lines[b].wired, a)
	c.settle(a)
}

// Drive has the world drive a line to a level; an output of ours is stronger.
func (c *Chip) Drive(offset, level int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines[offset].outside = &level
	c.settle(offset)
}

// Slip changes the level of a line without an edge being noticed, as hardware
// does under simultaneous interrupts.
func (c *Chip) Slip(offset, level int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.lines[offset]
	edges := l.config.Edges
	l.config.Edges = 0
	l.outside = &level
	c.settle(offset)
	l.config.Edges = edges
}

// Level is a line's physical level.
func (c *Chip) Level(offset int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lines[offset].level
}

// History is the physical levels that a line has had, in order.
func (c *Chip) History(offset int) []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.lines[offset].history)
}

// Requests is how many requests of lines there have been.
func (c *Chip) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.made
}

// OpenRequests is how many requests are open.
func (c *Chip) OpenRequests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reap()
	return len(c.requests)
}

// Take is another program, or the kernel, that takes a line.
func (c *Chip) Take(offset int, consumer string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines[offset].used, c.lines[offset].consumer = true, consumer
}

// NoEdges takes a line's interrupt away: a request for its edges is ENXIO.
func (c *Chip) NoEdges(offset int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lines[offset].noEdges = true
}

// Fail lets every call fail with an error such as syscall.EIO; nil ends that.
func (c *Chip) Fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fault = err
	for _, r := range c.requests {
		r.notify()
	}
}

// Vanish unplugs the chip: its requests are dead, also after Return.
func (c *Chip) Vanish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = true
	for _, r := range slices.Clone(c.requests) {
		r.gone = true
		c.release(r)
		r.notify()
	}
}

// Return plugs the chip in again.
func (c *Chip) Return() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gone = false
}

// Open opens the chip.
func (c *Chip) Open() (gpio.Chip, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone {
		return nil, fmt.Errorf("opening %s: %w", c.name, syscall.ENOENT)
	}
	return &handle{chip: c}, nil
}

// settle finds out the level of a line and of those that it is wired to. It is
// called with c.mu.
func (c *Chip) settle(offset int) {
	c.update(offset)
	for _, w := range c.lines[offset].wired {
		c.update(w)
	}
}

func (c *Chip) update(offset int) {
	l := &c.lines[offset]
	level := c.physical(offset)
	if level == l.level {
		return
	}
	l.level = level
	if len(l.history) < maxHistory {
		l.history = append(l.history, level)
	}
	if l.req != nil && l.config.Direction == gpio.In && l.config.Edges != 0 {
		l.req.change(l.bit, level)
	}
}

// drives says whether a line drives its wire itself, and to what.
func (l *line) drives() (level int, yes bool) {
	if l.req == nil || l.config.Direction != gpio.Out {
		return 0, false
	}
	level = l.config.Value
	if l.config.ActiveLow {
		level ^= 1
	}
	switch {
	case l.config.Drive == gpio.OpenDrain && level == 1, l.config.Drive == gpio.OpenSource && level == 0:
		return 0, false
	}
	return level, true
}

func (c *Chip) physical(offset int) int {
	l := &c.lines[offset]
	if level, yes := l.drives(); yes {
		return level
	}
	if l.outside != nil {
		return *l.outside
	}
	for _, w := range l.wired {
		if level, yes := c.lines[w].drives(); yes {
			return level
		}
		if o := c.lines[w].outside; o != nil {
			return *o
		}
	}
	switch l.config.Pull {
	case gpio.PullUp:
		return 1
	case gpio.PullDown:
		return 0
	}
	return l.pull
}

// find makes another descriptor of the request that this file is, and takes it.
func (c *Chip) find(f *os.File, info os.FileInfo) *descriptor {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		if r.is(info) {
			r.in.Close()
			r.in = f
			return r.open()
		}
	}
	return nil
}

func (c *Chip) kill() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		for d := range r.handles {
			d.close() // or a thread of it would go on driving the lines
		}
	}
	c.reap()
}

// reap gives back the lines of requests that nobody has a descriptor of any
// more. It is called with c.mu.
func (c *Chip) reap() {
	for _, r := range slices.Clone(c.requests) {
		if !r.alive() {
			c.release(r)
		}
	}
}

// release gives the lines of a request back: they float, as those of the
// kernel's gpio-sim do. It is called with c.mu.
func (c *Chip) release(r *request) {
	c.requests = slices.DeleteFunc(c.requests, func(x *request) bool { return x == r })
	for i, o := range r.offsets {
		l := &c.lines[o]
		if r.timers[i] != nil {
			r.timers[i].Stop()
		}
		l.req = nil
		l.config = gpio.LineConfig{Offset: o, Direction: gpio.In}
		l.used, l.consumer = false, ""
		c.settle(o)
	}
	if r.out != nil {
		_ = r.in.Close() // a pipe of our own, empty or not
		_ = r.out.Close()
		r.in, r.out = nil, nil
	}
}

// Burst changes the level of a line n times before anybody can look: more than
// the buffer holds is lost to whoever reads its edges.
func (c *Chip) Burst(offset, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for range n {
		level := c.lines[offset].level ^ 1
		c.lines[offset].outside = &level
		c.settle(offset)
	}
}
