package usbsim

import (
	"sync"
	"syscall"
)

// faults are what is wrong with a device.
type faults struct {
	mu      sync.Mutex
	open    error
	mute    map[byte]bool
	next    map[byte][]fault // of the next transfers on an endpoint, in order
	strings map[byte]stringFault
	pieces  bool
}

// fault is what becomes of one transfer.
type fault struct {
	err   error // nil: it is cut short
	short int
}

type stringFault struct {
	raw []byte
	err error
}

func newFaults() *faults {
	return &faults{mute: make(map[byte]bool), next: make(map[byte][]fault), strings: make(map[byte]stringFault)}
}

func (b *Bench) fault(name string, change func(*faults)) {
	b.mu.Lock()
	f := b.faults[name]
	b.mu.Unlock()
	if f == nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// FailOpen makes opening fail with a kernel's code; nil ends that.
func (b *Bench) FailOpen(name string, err error) {
	b.fault(name, func(f *faults) { f.open = err })
}

// Stall halts an endpoint at its next transfer: EPIPE until the halt is cleared.
// Endpoint 0 recovers by itself.
func (b *Bench) Stall(name string, endpoint byte) { b.Fail(name, endpoint, syscall.EPIPE) }

// Fail ends the next transfer on an endpoint with a kernel's code.
func (b *Bench) Fail(name string, endpoint byte, err error) {
	b.fault(name, func(f *faults) { f.next[endpoint] = append(f.next[endpoint], fault{err: err}) })
}

// Shorten ends the next transfer on an endpoint after n bytes, as a packet that
// isn't full does.
func (b *Bench) Shorten(name string, endpoint byte, n int) {
	b.fault(name, func(f *faults) { f.next[endpoint] = append(f.next[endpoint], fault{short: n}) })
}

// Mute has an endpoint answer nothing, neither yes nor no, so that transfers run
// out of time. It holds for those that begin afterwards.
func (b *Bench) Mute(name string, endpoint byte, mute bool) {
	b.fault(name, func(f *faults) { f.mute[endpoint] = mute })
}

// String replaces a string descriptor's bytes (UTF-16LE), or makes it fail with
// a kernel's code when it is asked for.
func (b *Bench) String(name string, index byte, raw []byte, err error) {
	b.fault(name, func(f *faults) { f.strings[index] = stringFault{raw, err} })
}

// InPieces has the device take no transfer of more than 16 KiB, as host
// controllers without scatter and gather.
func (b *Bench) InPieces(name string, pieces bool) {
	b.fault(name, func(f *faults) { f.pieces = pieces })
}

// take is the fault that the next transfer on an endpoint has.
func (f *faults) take(endpoint byte) (one fault, has, mute bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if all := f.next[endpoint]; len(all) > 0 {
		f.next[endpoint] = all[1:]
		return all[0], true, false
	}
	return fault{}, false, f.mute[endpoint]
}

func (f *faults) opening() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

func (f *faults) inPieces() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pieces
}

func (f *faults) stringOf(index byte) (stringFault, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, ok := f.strings[index]
	return s, ok
}
