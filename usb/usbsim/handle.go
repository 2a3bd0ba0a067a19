package usbsim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"

	"farhand/usb"
	"farhand/usb/usbfs"
)

// handle is an open device.
type handle struct {
	p      *Port
	under  []*transfer // guarded by p.mu
	closed bool        // guarded by p.mu
}

// transfer is one that is under way. Its fields are guarded by the port's mu;
// n and err are anybody's once done is closed.
type transfer struct {
	h        *handle
	endpoint byte
	data     []byte
	zero     bool // ends with an empty packet if the last one is full
	mute     bool
	ended    bool
	n        int
	err      error
	done     chan struct{}
}

func (p *Port) open() (*handle, error) {
	if err := p.faults.opening(); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulled {
		return nil, syscall.ENODEV
	}
	return &handle{p: p}, nil
}

// end is called with mu.
func (t *transfer) end(n int, err error) {
	if t.ended {
		return
	}
	t.ended, t.n, t.err = true, n, err
	same := func(other *transfer) bool { return other == t }
	t.h.under = slices.DeleteFunc(t.h.under, same)
	p := t.h.p
	if q := p.in[t.endpoint]; q != nil {
		q.waiting = slices.DeleteFunc(q.waiting, same)
	}
	p.out[t.endpoint] = slices.DeleteFunc(p.out[t.endpoint], same)
	close(t.done)
}

func (t *transfer) Cancel() {
	t.h.p.mu.Lock()
	defer t.h.p.mu.Unlock()
	t.end(t.n, syscall.ENOENT)
}

func (t *transfer) Wait(ctx context.Context) (int, error) {
	select {
	case <-t.done:
		return t.n, t.err
	case <-ctx.Done():
	}
	t.Cancel()
	<-t.done
	if errors.Is(t.err, syscall.ENOENT) {
		return t.n, context.Cause(ctx)
	}
	return t.n, t.err
}

func (h *handle) LongTransfers() bool { return !h.p.faults.inPieces() }

func (h *handle) Gone() bool {
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	return h.p.pulled
}

// do runs fn with the port locked, unless the device is gone or closed.
func (h *handle) do(what string, fn func(p *Port) error) error {
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	var err error
	switch {
	case h.closed:
		err = os.ErrClosed
	case h.p.pulled:
		err = syscall.ENODEV
	default:
		err = fn(h.p)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (h *handle) Driver(iface int) (driver string, err error) {
	err = h.do("asking for a driver", func(p *Port) error {
		if _, ok := p.setting[byte(iface)]; !ok {
			return syscall.EINVAL
		}
		driver = p.driver[byte(iface)]
		if p.owner[byte(iface)] != nil {
			driver = "usbfs"
		}
		return nil
	})
	return driver, err
}

func (h *handle) claim(iface int, detach bool) error {
	return h.do(fmt.Sprintf("claiming interface %d", iface), func(p *Port) error {
		n := byte(iface)
		_, ok := p.setting[n]
		switch owner := p.owner[n]; {
		case !ok:
			return syscall.EINVAL
		case owner == h:
			return nil
		case owner != nil, p.driver[n] != "" && !detach:
			return syscall.EBUSY
		}
		if p.driver[n] != "" {
			for _, other := range p.function(n) {
				p.driver[other] = ""
			}
		}
		p.owner[n] = h
		return nil
	})
}

func (h *handle) Claim(iface int) error          { return h.claim(iface, false) }
func (h *handle) DetachAndClaim(iface int) error { return h.claim(iface, true) }

func (h *handle) Release(iface int) error {
	return h.do(fmt.Sprintf("releasing interface %d", iface), func(p *Port) error {
		if p.owner[byte(iface)] != h {
			return syscall.EINVAL
		}
		h.release(byte(iface))
		return nil
	})
}

// release is called with mu.
func (h *handle) release(n byte) {
	delete(h.p.owner, n)
	for _, t := range slices.Clone(h.under) {
		if h.p.interfaceOf(t.endpoint) == int(n) {
			t.end(t.n, syscall.ENOENT)
		}
	}
}

func (p *Port) interfaceOf(endpoint byte) int {
	if f, _ := p.model.find(endpoint); f != nil {
		return int(f.Number)
	}
	return -1
}

func (h *handle) Attach(iface int) error {
	return h.do(fmt.Sprintf("attaching a driver to interface %d", iface), func(p *Port) error {
		n := byte(iface)
		if p.driver[n] != "" || p.owner[n] != nil {
			return syscall.EBUSY
		}
		all := p.function(n)
		if len(all) == 0 || all[0] != n {
			return nil // the driver binds them with the first
		}
		for _, other := range all {
			if p.owner[other] != nil {
				return nil
			}
		}
		for _, other := range all {
			p.driver[other] = p.wants(n)
		}
		return nil
	})
}

func (h *handle) SetInterface(iface, alternate int) error {
	return h.do(fmt.Sprintf("setting interface %d to %d", iface, alternate), func(p *Port) error {
		for _, i := range p.model.Interfaces {
			if int(i.Number) == iface && int(i.Alternate) == alternate && p.owner[i.Number] == h {
				p.setting[i.Number] = i.Alternate
				return nil
			}
		}
		return syscall.EINVAL
	})
}

func (h *handle) SetConfiguration(value int) error {
	return h.do(fmt.Sprintf("setting configuration %d", value), func(p *Port) error {
		if value != configurationValue {
			return syscall.EINVAL
		}
		for n := range p.setting {
			if p.owner[n] != nil || p.driver[n] != "" {
				return syscall.EBUSY
			}
		}
		p.configure() // the one that was set: drivers aren't asked again
		return nil
	})
}

func (h *handle) ClearHalt(endpoint byte) error {
	return h.do(fmt.Sprintf("clearing the halt of endpoint %#02x", endpoint), func(p *Port) error {
		if p.interfaceOf(endpoint) < 0 {
			return syscall.ENOENT
		}
		delete(p.halted, endpoint)
		return nil
	})
}

func (h *handle) Reset() error {
	return h.do("resetting", func(p *Port) error {
		for _, t := range slices.Clone(h.under) {
			t.end(t.n, syscall.ENOENT)
		}
		for n := range p.owner {
			delete(p.owner, n)
		}
		p.gadget = p.model.New()
		p.configure()
		p.bind()
		return nil
	})
}

func (h *handle) Submit(kind usbfs.Kind, endpoint byte, data []byte, zero bool) (usb.Transfer, error) {
	t := &transfer{h: h, endpoint: endpoint, data: data, zero: zero, done: make(chan struct{})}
	err := h.do(fmt.Sprintf("beginning a transfer on endpoint %#02x", endpoint), func(p *Port) error {
		if kind == usbfs.Control {
			return h.control(t)
		}
		f, _ := p.model.find(endpoint)
		switch {
		case f == nil, p.setting[f.Number] != f.Alternate:
			return syscall.ENOENT
		case p.owner[f.Number] != h:
			return syscall.EBUSY
		case len(data) > 16<<10 && !h.LongTransfers():
			return syscall.ENOMEM
		}
		h.begin(t)
		return nil
	})
	if err != nil {
		return nil, err
	}
	return t, nil
}

// begin is called with mu.
func (h *handle) begin(t *transfer) {
	p := h.p
	h.under = append(h.under, t)
	if p.halted[t.endpoint] {
		t.end(0, syscall.EPIPE)
		return
	}
	one, has, mute := p.faults.take(t.endpoint)
	t.mute = mute
	switch {
	case has && one.err != nil:
		p.halted[t.endpoint] = errors.Is(one.err, syscall.EPIPE)
		t.end(0, one.err)
		return
	case has:
		t.data = t.data[:min(len(t.data), one.short)]
	}
	if t.endpoint&usbfs.DirIn != 0 {
		q := p.in[t.endpoint]
		q.waiting = append(q.waiting, t)
		p.serveIn(t.endpoint)
		p.serveAll() // what was read made room
		return
	}
	p.out[t.endpoint] = append(p.out[t.endpoint], t)
	p.serveOut(t.endpoint)
}

// Standard requests (USB 2.0, table 9-4).
const (
	getStatus        = 0
	getDescriptor    = 6
	getConfiguration = 8
)

// control is a transfer on endpoint 0. Called with mu.
func (h *handle) control(t *transfer) error {
	if len(t.data) < 8 {
		return syscall.EINVAL
	}
	b := t.data
	s := Setup{b[0], b[1], binary.LittleEndian.Uint16(b[2:]), binary.LittleEndian.Uint16(b[4:]), int(binary.LittleEndian.Uint16(b[6:]))}
	h.under = append(h.under, t)
	one, has, mute := h.p.faults.take(0)
	switch {
	case has && one.err != nil:
		t.end(0, one.err)
		return nil
	case mute:
		return nil // until it is cancelled
	}
	answer, err := h.answer(s, b[8:])
	switch {
	case s.RequestType&usbfs.DirIn == 0 && err == nil:
		t.end(len(b)-8, nil)
	case err != nil && !errors.Is(err, syscall.EPIPE):
		t.end(0, err)
	case isStall(answer, err):
		t.end(0, syscall.EPIPE)
	default:
		n := copy(b[8:], answer)
		if has {
			n = min(n, one.short)
		}
		t.end(n, nil)
	}
	h.p.serveAll()
	return nil
}

func (h *handle) answer(s Setup, data []byte) ([]byte, error) {
	p := h.p
	if s.RequestType&0x60 != 0 {
		return p.gadget.Control(p, s, data)
	}
	switch s.Request {
	case getStatus:
		return []byte{0, 0}, nil
	case getConfiguration:
		return []byte{byte(p.active)}, nil
	case getDescriptor:
		return p.descriptor(byte(s.Value>>8), byte(s.Value))
	}
	return nil, syscall.EPIPE
}

func (p *Port) descriptor(kind, index byte) ([]byte, error) {
	switch kind {
	case 1:
		return p.model.deviceDescriptor(), nil
	case 2:
		return p.model.configuration(), nil
	case usbfs.TypeString:
		raw, err := p.stringBytes(index)
		if err != nil {
			return nil, err
		}
		return append([]byte{byte(2 + len(raw)), usbfs.TypeString}, raw...), nil
	}
	return nil, syscall.EPIPE
}

func (h *handle) Close() error {
	p := h.p
	p.mu.Lock()
	defer p.mu.Unlock()
	h.closed = true
	for _, t := range slices.Clone(h.under) {
		t.end(t.n, syscall.ENOENT)
	}
	for n, owner := range p.owner {
		if owner == h {
			delete(p.owner, n)
		}
	}
	return nil
}
