package usbsim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"unicode/utf16"

	"farhand/usb"
)

// maxQueued is what a device keeps of one endpoint's data: 128 KiB, as the
// kernel's loopback function does with its 32 buffers of 4 KiB.
const maxQueued = 128 << 10

// Port is a device that is plugged in.
type Port struct {
	model  Model
	faults *faults
	gadget Gadget

	mu      sync.Mutex
	pulled  bool
	active  int             // configuration
	setting map[byte]byte   // interface -> alternate
	driver  map[byte]string // interface -> bound
	owner   map[byte]*handle
	in      map[byte]*pipe // endpoints to the host
	out     map[byte][]*transfer
	halted  map[byte]bool
}

// pipe is an endpoint to the host.
type pipe struct {
	messages [][]byte // what waits to be read; each ends as a transfer
	queued   int      // their bytes
	waiting  []*transfer
}

// configurationValue is that of the one configuration that devices have here.
const configurationValue = 1

func newPort(m Model, f *faults) *Port {
	p := &Port{
		model: m, faults: f, gadget: m.New(),
		owner: make(map[byte]*handle), driver: make(map[byte]string),
	}
	p.configure()
	p.bind()
	return p
}

// configure sets the device up anew. Called with mu.
func (p *Port) configure() {
	p.active = configurationValue
	p.setting = make(map[byte]byte)
	p.in, p.out, p.halted = make(map[byte]*pipe), make(map[byte][]*transfer), make(map[byte]bool)
	for _, i := range p.model.Interfaces {
		p.setting[i.Number] = 0
		for _, e := range i.Endpoints {
			if e.Address&0x80 != 0 {
				p.in[e.Address] = &pipe{}
			}
		}
	}
}

// bind has drivers take what they want. Called with mu.
func (p *Port) bind() {
	for n := range p.setting {
		if p.driver[n] == "" && p.owner[n] == nil {
			p.driver[n] = p.wants(n)
		}
	}
}

// wants is the driver that binds an interface. Called with mu.
func (p *Port) wants(n byte) string {
	for _, i := range p.model.Interfaces {
		if i.Number == n {
			return i.Driver
		}
	}
	return ""
}

// function is the interfaces that a driver has together with n, in order.
func (p *Port) function(n byte) []byte {
	var run []byte
	for _, i := range p.model.Interfaces {
		switch {
		case i.Alternate != 0:
		case i.Driver == "" || i.Driver != p.wants(n):
			if slices.Contains(run, n) {
				return run
			}
			run = nil
		default:
			run = append(run, i.Number)
		}
	}
	return run
}

func (p *Port) summary() (drivers []string, class string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.driver {
		if d != "" {
			drivers = append(drivers, d)
		}
	}
	slices.Sort(drivers)
	class = fmt.Sprintf("%02x", p.model.deviceDescriptor()[4])
	if class == "00" && len(p.setting) == 1 {
		class = fmt.Sprintf("%02x", p.model.Interfaces[0].Class)
	}
	return slices.Compact(drivers), class
}

// Queue gives the host something to read from an endpoint: one transfer.
func (p *Port) Queue(endpoint byte, message []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.Send(endpoint, message)
}

// Send is Queue for gadgets.
func (p *Port) Send(endpoint byte, message []byte) {
	q := p.in[endpoint]
	if q == nil {
		return
	}
	q.messages = append(q.messages, slices.Clone(message))
	q.queued += len(message)
	p.serveIn(endpoint)
}

// Queued is how many bytes wait to be read from an endpoint; for gadgets.
func (p *Port) Queued(endpoint byte) int {
	if q := p.in[endpoint]; q != nil {
		return q.queued
	}
	return 0
}

// Drop throws away what waits to be read from an endpoint; for gadgets.
func (p *Port) Drop(endpoint byte) int {
	q := p.in[endpoint]
	if q == nil {
		return 0
	}
	n := q.queued
	q.messages, q.queued = nil, 0
	return n
}

// pull is the unplugging.
func (p *Port) pull() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pulled = true
	for _, q := range p.in {
		for _, t := range slices.Clone(q.waiting) {
			t.end(t.n, syscall.ESHUTDOWN)
		}
	}
	for _, all := range p.out {
		for _, t := range slices.Clone(all) {
			t.end(t.n, syscall.ESHUTDOWN)
		}
	}
}

func (p *Port) packet(endpoint byte) int {
	if _, e := p.model.find(endpoint); e != nil {
		return e.MaxPacket
	}
	return 64
}

// find finds an endpoint and the setting that has it.
func (m Model) find(endpoint byte) (*Interface, *Endpoint) {
	for i := range m.Interfaces {
		f := &m.Interfaces[i]
		for j := range f.Endpoints {
			if f.Endpoints[j].Address == endpoint {
				return f, &f.Endpoints[j]
			}
		}
	}
	return nil, nil
}

// serveIn gives what waits to those who wait for it. Called with mu.
func (p *Port) serveIn(endpoint byte) {
	q := p.in[endpoint]
	packet := p.packet(endpoint)
	for len(q.waiting) > 0 && len(q.messages) > 0 {
		t := q.waiting[0]
		if t.mute {
			return
		}
		m := q.messages[0]
		n := copy(t.data[t.n:], m)
		whole := n == len(m)
		if !whole && n%packet != 0 { // the rest of the packet has nowhere to go
			q.drop(len(m))
			t.end(t.n+n, syscall.EOVERFLOW)
			continue
		}
		q.drop(n)
		t.n += n
		switch {
		case len(m) == 0 || whole && len(m)%packet != 0: // a packet that isn't full
			t.end(t.n, nil)
		case t.n == len(t.data):
			t.end(t.n, nil)
		default:
			continue // full packets: more may follow
		}
	}
}

// drop takes n bytes off the first message, and the message with its last.
func (q *pipe) drop(n int) {
	q.messages[0] = q.messages[0][n:]
	q.queued -= n
	if len(q.messages[0]) == 0 {
		q.messages = q.messages[1:]
	}
}

// serveOut gives the gadget what waits to be taken. Called with mu.
func (p *Port) serveOut(endpoint byte) {
	packet := p.packet(endpoint)
	for len(p.out[endpoint]) > 0 {
		t := p.out[endpoint][0]
		if t.mute {
			return
		}
		for !t.ended {
			part := t.data[t.n:min(len(t.data), t.n+8*packet)]
			if !p.gadget.Out(p, endpoint, part) {
				return
			}
			if t.n += len(part); t.n < len(t.data) {
				continue
			}
			if t.zero && t.n > 0 && t.n%packet == 0 && !p.gadget.Out(p, endpoint, nil) {
				return
			}
			t.end(t.n, nil)
		}
	}
}

// serveAll is for when a gadget may have room again. Called with mu.
func (p *Port) serveAll() {
	for e := range p.out {
		p.serveOut(e)
	}
	g, ok := p.gadget.(Source)
	if !ok {
		return
	}
	for e, q := range p.in {
		for len(q.waiting) > 0 && len(q.messages) == 0 && !q.waiting[0].mute {
			first := q.waiting[0]
			had := first.n
			if g.Ask(p, e); !first.ended && first.n == had {
				break // it has nothing
			}
		}
	}
}

func (p *Port) look() usb.Look {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := usb.Look{
		Descriptors: p.model.descriptors(), Active: p.active, SpeedMbps: 480,
		Interfaces: make(map[int]usb.LookInterface),
	}
	for i, s := range []*string{&l.Manufacturer, &l.Product, &l.Serial} {
		if raw, err := p.stringBytes(byte(i + 1)); err == nil {
			*s = text(raw)
		}
	}
	for n, alternate := range p.setting {
		driver := p.driver[n]
		if p.owner[n] != nil {
			driver = "usbfs"
		}
		l.Interfaces[int(n)] = usb.LookInterface{Driver: driver, Alternate: int(alternate)}
	}
	return l
}

// stringBytes is a string descriptor without its head.
func (p *Port) stringBytes(index byte) ([]byte, error) {
	if f, ok := p.faults.stringOf(index); ok {
		return f.raw, f.err
	}
	var s string
	switch index {
	case 0:
		return []byte{0x09, 0x04}, nil // English
	case 1:
		s = p.model.Manufacturer
	case 2:
		s = p.model.Product
	case 3:
		s = p.model.Name
	default:
		return nil, syscall.EPIPE
	}
	var raw []byte
	for _, u := range utf16.Encode([]rune(s)) {
		raw = binary.LittleEndian.AppendUint16(raw, u)
	}
	return raw, nil
}

// text is UTF-16LE up to the first NUL, as the kernel reads it.
func text(raw []byte) string {
	var units []uint16
	for i := 0; i+1 < len(raw); i += 2 {
		u := binary.LittleEndian.Uint16(raw[i:])
		if u == 0 {
			break
		}
		units = append(units, u)
	}
	return string(utf16.Decode(units))
}
