package soak_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/device"
	"farhand/lab/guest"
	"farhand/serialio"
	"farhand/stream"
	"farhand/usb"
	"farhand/wire"
)

// The ids of the gadget: it has a serial number, so they are the same each time.
const (
	usbID    = "usb:1d6b:0104-SOAK"
	serialID = "serial:usb-1d6b:0104-SOAK"
)

// bench is the daemon's hardware without its sockets.
type bench struct {
	t        *testing.T
	registry *device.Registry
	leases   *device.Leases
	hub      *stream.Hub
	dispatch *device.Dispatcher

	// gate is read-locked by every operation, so that settle can wait until
	// there is none.
	gate sync.RWMutex
}

func newBench(t *testing.T) *bench {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	b := &bench{t: t}
	b.registry = device.NewRegistry(device.Options{Log: log, Families: []device.Family{
		{Driver: serialio.Driver{}, Service: serialio.Service{}},
		{Driver: usb.Driver{}, Service: usb.NewService(usb.System{}, log)},
	}})
	b.leases = device.NewLeases(device.LeaseOptions{Log: log})
	// What an ended stream leaves for those who come later is kept short.
	b.hub = stream.NewHub(stream.HubOptions{Retain: time.Second, Log: log})
	b.dispatch = device.NewDispatcher(b.registry, b.leases, b.hub)
	ctx, cancel := context.WithCancel(context.Background())
	var following sync.WaitGroup
	following.Go(func() {
		if err := b.registry.Follow(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("following devices ended: %v", err)
		}
	})
	t.Cleanup(func() {
		cancel()
		following.Wait()
		if err := errors.Join(b.leases.Close(), b.hub.Close()); err != nil {
			t.Error(err)
		}
	})
	return b
}

// tell has the registry look at once; else its own following has to notice.
func (b *bench) tell(told bool) {
	b.t.Helper()
	if !told {
		return
	}
	if err := b.registry.Refresh(b.t.Context()); err != nil {
		b.t.Fatal(err)
	}
}

// waitGeneration waits until both of the device's ids are there, in their n-th
// generation.
func (b *bench) waitGeneration(n int, told bool) {
	b.t.Helper()
	b.tell(told)
	for _, id := range []string{usbID, serialID} {
		guest.WaitFor(b.t, fmt.Sprintf("%s, generation %d", id, n), func() bool {
			d, err := b.registry.Resolve(id)
			if err == nil && d.Generation != n {
				b.t.Fatalf("%s has generation %d after %d times plugged in", id, d.Generation, n)
			}
			return err == nil && d.Available
		})
	}
}

// waitWork waits until both ends of the device were used since it was plugged
// in, by whichever sessions.
func (b *bench) waitWork(cycle int, sessions []*session) {
	b.t.Helper()
	for _, id := range []string{serialID, usbID} {
		done := func() int64 {
			var n int64
			for _, s := range sessions {
				if s.device == id {
					n += s.done.Load()
				}
			}
			return n
		}
		before := done()
		guest.WaitFor(b.t, fmt.Sprintf("somebody to use %s in cycle %d", id, cycle), func() bool { return done() > before || b.t.Failed() })
	}
}

// waitGone waits until both ids and all leases on them are gone.
func (b *bench) waitGone(told bool) {
	b.t.Helper()
	b.tell(told)
	for _, id := range []string{usbID, serialID} {
		guest.WaitFor(b.t, id+" to be gone", func() bool {
			_, err := b.registry.Resolve(id)
			return errors.Is(err, wire.HardwareNotFound)
		})
	}
	guest.WaitFor(b.t, "the leases to end", func() bool { return len(b.leases.List()) == 0 })
}

// state is what the process has.
type state struct {
	goroutines, descriptors int
	heap, resident          int // bytes; heap is what is in use after a collection
}

func (s state) String() string {
	return fmt.Sprintf("%d goroutines, %d descriptors, heap %d KiB, resident %d KiB", s.goroutines, s.descriptors, s.heap>>10, s.resident>>10)
}

// settle looks at the process while no operation runs. The device is out.
func (b *bench) settle() state {
	b.t.Helper()
	b.gate.Lock()
	defer b.gate.Unlock()
	// What ended takes a moment to be gone, and its streams a second.
	guest.WaitFor(b.t, fmt.Sprintf("ended streams to be forgotten: %+v", b.hub.List()), func() bool { return len(b.hub.List()) == 0 })
	last := look(b.t)
	calm := 0
	guest.WaitFor(b.t, "the process to be still", func() bool {
		now := look(b.t)
		if now.goroutines == last.goroutines && now.descriptors == last.descriptors {
			calm++
		} else {
			calm = 0
		}
		last = now
		return calm >= 20
	})
	return last
}

func look(t *testing.T) state {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var size, resident int
	if _, err := fmt.Sscan(string(statm), &size, &resident); err != nil {
		t.Fatal(err)
	}
	return state{runtime.NumGoroutine(), len(fds), int(m.HeapAlloc), resident * os.Getpagesize()}
}

func ended(i stream.Info) bool { return i.Ended != "" }

// far is the device's end of the serial port, which answers with what it gets.
type far struct {
	node string
	// pulling keeps it from writing while the device is pulled out: the gadget's
	// driver reads what it has just let go of then (u_serial of Linux 7.3.4,
	// gs_write), and the guest dies. It is no fault of the host's end.
	pulling sync.Mutex
}

// echo starts the device's end. The port hangs up whenever the device is pulled
// out, and is opened anew.
func echo(t *testing.T, node string) *far {
	t.Helper()
	e := &far{node: node}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if err := e.once(ctx); err != nil && !errors.Is(err, unix.EIO) {
				t.Errorf("the device's end: %v", err)
				return
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return e
}

func (e *far) once(ctx context.Context) error {
	f, err := os.OpenFile(e.node, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	if err := raw(f); err != nil {
		return err
	}
	b := make([]byte, 512)
	for {
		n, err := f.Read(b)
		if err != nil || n == 0 {
			return nil // it hung up, or is closed
		}
		if e.write(f, b[:n]) != nil {
			return nil
		}
	}
}

func (e *far) write(f *os.File, b []byte) error {
	e.pulling.Lock()
	defer e.pulling.Unlock()
	if err := f.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		return err
	}
	_, err := f.Write(b)
	return err
}

// unplug pulls the device out while the far end is not writing.
func (e *far) unplug(device *guest.USB) {
	e.pulling.Lock()
	defer e.pulling.Unlock()
	device.Unplug()
}

// raw makes a terminal carry bytes as they are.
func raw(f *os.File) error {
	rc, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = rc.Control(func(fd uintptr) {
		mode, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		if err != nil {
			failed = err
			return
		}
		mode.Iflag, mode.Oflag, mode.Lflag = 0, 0, 0
		failed = unix.IoctlSetTermios(int(fd), unix.TCSETS, mode)
	})
	return errors.Join(err, failed)
}
