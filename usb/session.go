package usb

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"

	"farhand/device"
	"farhand/usb/usbfs"
	"farhand/wire"
)

// session is an open device with what was claimed of it. Its methods are called
// by whoever has the lease's turn; the watches run beside.
type session struct {
	s *Service
	d device.Descriptor
	h Handle

	conf      usbfs.Configuration // the one that is set
	all       usbfs.Device
	alternate map[int]int // current settings
	names     map[int]LookInterface

	claims map[int]bool   // interfaces that are claimed
	before map[int]string // drivers that there were before the first was detached
	rest   map[byte][]byte
	tags   map[int]byte // USBTMC: the last bTag of a message that asks for an answer, by interface

	mu      sync.Mutex
	watches map[byte]*watch
}

// open opens a device.
func open(s *Service, d device.Descriptor) (*session, error) {
	h, err := s.host.Open(d)
	if err != nil {
		return nil, openFailed(d.ID, err)
	}
	x := &session{
		s: s, d: d, h: h, claims: make(map[int]bool), rest: make(map[byte][]byte),
		tags: make(map[int]byte), watches: make(map[byte]*watch),
	}
	if err := x.refresh(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return x, nil
}

// refresh looks at the device anew.
func (x *session) refresh() error {
	look, err := x.s.host.Look(x.d)
	if err != nil {
		return openFailed(x.d.ID, err)
	}
	x.all, err = usbfs.Parse(look.Descriptors)
	if err != nil {
		x.s.log.Debug("descriptors make no sense", "device", x.d.ID, "err", err)
	}
	x.conf = usbfs.Configuration{}
	for _, c := range x.all.Configurations {
		if int(c.Value) == look.Active {
			x.conf = c
		}
	}
	x.names, x.alternate = look.Interfaces, make(map[int]int)
	for n, i := range look.Interfaces {
		x.alternate[n] = i.Alternate
	}
	return nil
}

func (x *session) hasConfiguration(value int) bool {
	return slices.ContainsFunc(x.all.Configurations, func(c usbfs.Configuration) bool { return int(c.Value) == value })
}

// interfaces are the numbers of the active configuration's.
func (x *session) interfaces() []int {
	var all []int
	for _, i := range x.conf.Interfaces {
		all = append(all, int(i.Number))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// setting is the interface in its current setting.
func (x *session) setting(number, alternate int) *usbfs.Interface {
	for i := range x.conf.Interfaces {
		if f := &x.conf.Interfaces[i]; int(f.Number) == number && int(f.Alternate) == alternate {
			return f
		}
	}
	return nil
}

// claim takes an interface unless that was done before. may says whether
// drivers may be detached.
func (x *session) claim(iface int, detach bool, may func() error) (fresh bool, err error) {
	if detach {
		if err := may(); err != nil {
			return false, err
		}
	}
	if x.claims[iface] {
		return false, nil
	}
	driver, err := x.h.Driver(iface)
	if err != nil {
		return false, failed(x.h, err, 0)
	}
	switch {
	case driver == "usbfs":
		return false, x.busy(iface, "another program", "it has to let go first")
	case driver == "":
		err = x.h.Claim(iface)
	case !detach:
		return false, x.busy(iface, driver, "detach_kernel_driver takes it away for as long as the lease lasts, if USB_DETACH is granted; a serial port, printer or input device may be better used through its own device")
	default:
		x.remember()
		err = x.h.DetachAndClaim(iface)
	}
	if errors.Is(err, syscall.EBUSY) {
		return false, x.busy(iface, "another program", "it has to let go first")
	}
	if err != nil {
		return false, failed(x.h, err, 0)
	}
	x.claims[iface] = true
	return true, nil
}

func (x *session) busy(iface int, who, hint string) error {
	return wire.Errorf(wire.HardwareBusy, "interface %d of %s is in use by %s", iface, x.d.ID, who).
		With("holder", who).With("consumer", who).With("interface", iface).With("hint", hint)
}

// remember notes the drivers there are, before the first is detached: one driver
// may have several interfaces, and lets go of them all.
func (x *session) remember() {
	if x.before != nil {
		return
	}
	x.before = make(map[int]string)
	for _, n := range x.interfaces() {
		if driver, err := x.h.Driver(n); err == nil && driver != "" && driver != "usbfs" {
			x.before[n] = driver
		}
	}
}

// unclaim gives interfaces back, and the drivers theirs if no other is claimed.
func (x *session) unclaim(ifaces []int) {
	for _, n := range ifaces {
		if !x.claims[n] {
			continue
		}
		delete(x.claims, n)
		x.unread(n)
		if err := x.h.Release(n); err != nil && !isGone(err) {
			x.s.log.Warn("releasing a USB interface failed", "device", x.d.ID, "interface", n, "err", err)
		}
	}
	if len(x.claims) == 0 {
		x.restore()
	}
}

func (x *session) unclaimAll() { x.unclaim(slices.Sorted(maps.Keys(x.claims))) }

// unread forgets what was read beyond the size of a request.
func (x *session) unread(iface int) {
	for _, f := range x.conf.Interfaces {
		if int(f.Number) == iface {
			for _, e := range f.Endpoints {
				delete(x.rest, e.Address)
			}
		}
	}
	delete(x.tags, iface)
}

// dropAll is unclaimAll without giving drivers theirs back if keep is true.
func (x *session) dropAll(keep bool) {
	before := x.before
	if keep {
		x.before = nil
	}
	x.unclaimAll()
	if keep {
		x.before = before
	}
}

// attachAll lets drivers have what is free after a configuration was set: the
// kernel does that only if it is another than before.
func (x *session) attachAll() {
	x.before = nil
	for _, n := range x.interfaces() {
		if now, err := x.h.Driver(n); err == nil && now == "" {
			_ = x.h.Attach(n) // it is a matter of whether there is a driver
		}
	}
}

// restore lets the drivers have back what was taken from them.
func (x *session) restore() {
	before := x.before
	x.before = nil
	for _, n := range slices.Sorted(maps.Keys(before)) {
		// A driver of several interfaces takes them all with the first.
		if now, err := x.h.Driver(n); err != nil || now != "" {
			continue
		}
		if err := x.h.Attach(n); err != nil && !isGone(err) && !errors.Is(err, syscall.EBUSY) {
			x.s.log.Warn("attaching a kernel driver failed", "device", x.d.ID, "interface", n, "driver", before[n], "err", err)
		}
	}
	for n, driver := range before {
		if now, err := x.h.Driver(n); err == nil && now == "" {
			x.s.log.Warn("a kernel driver that was detached didn't come back", "device", x.d.ID, "interface", n, "driver", driver)
		}
	}
}

func isGone(err error) bool {
	return errors.Is(err, syscall.ENODEV) || errors.Is(err, syscall.ESHUTDOWN)
}

// Close ends the watches, gives everything back and closes the device.
func (x *session) Close() error { return x.end(nil) }

// end is Close with a cause for the watches, unless they have one: the lease's.
func (x *session) end(cause error) error {
	x.stop(cause)
	x.unclaimAll()
	if err := x.h.Close(); err != nil {
		return fmt.Errorf("closing %s: %w", x.d.ID, err)
	}
	return nil
}

// wanted is an endpoint as a request names it.
type wanted struct {
	iface     *wire.USBNumber
	alternate *wire.USBNumber
	address   wire.USBNumber // 0: the only one there is
	in        bool
}

// found is where it is.
type found struct {
	*usbfs.Interface
	usbfs.Endpoint
}

// find finds the endpoint that is meant.
func (x *session) find(w wanted) (found, error) {
	if x.conf.Value == 0 {
		return found{}, wire.Errorf(wire.HardwareOpenFailed, "%s has no configuration set", x.d.ID).With("hint", "USB_CONFIGURE sets one")
	}
	if w.address < 0 || w.address > 0xff || w.address&0x70 != 0 {
		return found{}, invalid("endpoint", "must be 1 to 15, or 0x81 to 0x8f")
	}
	if !w.in && w.address&usbfs.DirIn != 0 {
		return found{}, invalid("endpoint", "%#02x leads to the host; nothing can be sent there", int(w.address))
	}
	var hits, others []found
	for i := range x.conf.Interfaces {
		f := &x.conf.Interfaces[i]
		if w.iface != nil && int(f.Number) != int(*w.iface) {
			continue
		}
		current := x.alternate[int(f.Number)]
		if w.alternate != nil {
			current = int(*w.alternate)
		}
		for _, e := range f.Endpoints {
			switch {
			case e.In() != w.in, e.Kind != usbfs.Bulk && e.Kind != usbfs.Interrupt, w.address != 0 && int(e.Address&0xf) != int(w.address&0xf):
			case int(f.Alternate) == current:
				hits = append(hits, found{f, e})
			default:
				others = append(others, found{f, e})
			}
		}
	}
	switch {
	case len(hits) == 1:
		return hits[0], nil
	case len(hits) > 1:
		return found{}, invalid("endpoint", "could be several").With("candidates", candidates(hits)).
			With("hint", "name the interface and the endpoint")
	case len(others) > 0:
		return found{}, invalid("alternate", "has to be set for that endpoint").With("candidates", candidates(others))
	}
	return found{}, invalid("endpoint", "is none of the device's bulk and interrupt endpoints in this direction").
		With("hint", "USB_DESCRIBE lists them")
}

func candidates(all []found) []string {
	var s []string
	for _, f := range all {
		s = append(s, fmt.Sprintf("interface %d, alternate %d, endpoint %#02x", f.Number, f.Alternate, f.Address))
	}
	return s
}

// endpoint finds the endpoint that is meant and makes its interface the
// operation's, in the setting that has it.
func (o *operation) endpoint(x *session, w wanted, detach bool) (found, error) {
	f, err := x.find(w)
	if err != nil {
		return f, err
	}
	n := int(f.Number)
	if err := o.need(x, n, detach); err != nil {
		return f, err
	}
	return f, x.set(n, int(f.Alternate))
}

// set makes a setting of a claimed interface the current one.
func (x *session) set(iface, alternate int) error {
	if x.alternate[iface] == alternate {
		return nil
	}
	if err := x.h.SetInterface(iface, alternate); err != nil {
		return failed(x.h, err, 0)
	}
	x.alternate[iface] = alternate
	x.unread(iface)
	return nil
}
