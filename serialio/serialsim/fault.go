package serialsim

import (
	"fmt"
	"io"
	"sync"
)

// Fault is what is wrong with an instrument or its line. The zero value is
// nothing.
type Fault struct {
	Mute   bool // it hears, and its answers are lost
	Garble bool // the highest bit of each byte that it sends is flipped, as by a wrong bit rate
	Stall  bool // it reads no more: what is written to it is held up
}

// Break sets what is wrong with an instrument that is plugged in, until the
// next Break or Unplug.
func (b *Bench) Break(name string, f Fault) error {
	p, err := b.port(name)
	if err != nil {
		return err
	}
	p.line.set(f)
	return nil
}

// Send has an instrument that is plugged in send something unasked: what a
// board prints while it boots, or noise. It waits while nobody takes it.
func (b *Bench) Send(name string, data []byte) error {
	p, err := b.port(name)
	if err != nil {
		return err
	}
	_, err = p.line.Write(data)
	return err
}

// Share does to a port what a second process that uses it does: reads answer
// nothing instead of waiting.
func (b *Bench) Share(name string) error {
	p, err := b.port(name)
	if err != nil {
		return err
	}
	return share(p.terminal)
}

func (b *Bench) port(name string) (*port, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.plugged[name]
	if p == nil {
		return nil, fmt.Errorf("no simulated instrument %q is plugged in", name)
	}
	return p, nil
}

// line is an instrument's end, with what is wrong with it.
type line struct {
	end io.ReadWriter

	mu    sync.Mutex
	fault Fault
	ok    chan struct{} // closed when it isn't stalled any more; nil if it isn't
	gone  bool
}

func (l *line) set(f Fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = f
	switch {
	case f.Stall && l.ok == nil && !l.gone:
		l.ok = make(chan struct{})
	case !f.Stall && l.ok != nil:
		close(l.ok)
		l.ok = nil
	}
}

// unplug lets go of who is stalled.
func (l *line) unplug() {
	l.mu.Lock()
	l.gone = true
	l.mu.Unlock()
	l.set(Fault{})
}

func (l *line) now() (Fault, chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fault, l.ok
}

func (l *line) Read(b []byte) (int, error) {
	if _, ok := l.now(); ok != nil {
		<-ok
	}
	return l.end.Read(b)
}

func (l *line) Write(b []byte) (int, error) {
	switch f, _ := l.now(); {
	case f.Mute:
		return len(b), nil
	case f.Garble:
		bad := make([]byte, len(b))
		for i, c := range b {
			bad[i] = c ^ 0x80
		}
		return l.end.Write(bad)
	}
	return l.end.Write(b)
}
