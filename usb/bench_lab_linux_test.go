package usb_test

import (
	"context"
	"encoding/json"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"farhand/device"
	"farhand/internal/testenv"
	"farhand/lab/guest"
	"farhand/usb"
	"farhand/wire"
)

// bareURB is struct usbdevfs_urb of linux/usbdevice_fs.h.
type bareURB struct {
	kind, endpoint              uint8
	status                      int32
	flags                       uint32
	buffer                      unsafe.Pointer
	length, actual              int32
	startFrame, packets, errors int32
	signal                      uint32
	userContext                 uintptr
}

// bare is a loop over URBs as short as it can be written: the limit that the
// service is measured against.
type bare struct {
	t  *testing.T
	fd int
}

func (b bare) ioctl(number uintptr, arg unsafe.Pointer) {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(b.fd), number, uintptr(arg)); errno != 0 {
		b.t.Fatalf("ioctl %#x: %v", number, errno)
	}
}

const (
	submitURB    = 2<<30 | 56<<16 | 'U'<<8 | 10
	reapURB      = 1<<30 | 8<<16 | 'U'<<8 | 12
	claimIface   = 2<<30 | 4<<16 | 'U'<<8 | 15
	releaseIface = 2<<30 | 4<<16 | 'U'<<8 | 16
)

// transfer submits one URB and waits in the kernel for its end.
func (b bare) transfer(endpoint byte, data []byte) {
	u := &bareURB{kind: 3, endpoint: endpoint, buffer: unsafe.Pointer(&data[0]), length: int32(len(data))}
	var pin runtime.Pinner
	pin.Pin(u)
	pin.Pin(u.buffer)
	defer pin.Unpin()
	b.ioctl(submitURB, unsafe.Pointer(u))
	var ended uintptr
	b.ioctl(reapURB, unsafe.Pointer(&ended))
	if u.status != 0 || int(u.actual) != len(data) {
		b.t.Fatalf("endpoint %#x: %d of %d bytes, %v", endpoint, u.actual, len(data), syscall.Errno(-u.status))
	}
}

// TestLabThroughput measures the bar usb_bulk: a loopback of 124 KiB through a
// Handle, as the operations use it, against bare URBs; in rounds that alternate,
// of which the median ratio counts. What the operations add, which is mostly
// JSON and base64, is a figure beside it: under emulation it costs twenty times
// what it does elsewhere, while the simulated bus is as fast as ever.
func TestLabThroughput(t *testing.T) {
	testenv.Lab(t)
	u := guest.Gadget(t, guest.SerialNumber("LAB0002"), guest.Loopback())
	reg := device.NewRegistry(device.Options{Families: []device.Family{{Driver: usb.Driver{}, Service: usb.NewService(usb.System{}, nil)}}})
	if err := reg.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	leases := device.NewLeases(device.LeaseOptions{})
	defer leases.Close()
	disp := device.NewDispatcher(reg, leases, nil)
	const id = "usb:1d6b:0104-LAB0002"
	do := func(op string, args []byte, hold bool) any {
		res, _, err := disp.Do(t.Context(), device.Caller{Session: "a"}, wire.HardwareOp{Device: id, Op: op, Args: args, Hold: hold})
		if err != nil {
			t.Fatal(err)
		}
		return res.Result
	}
	d := do(wire.OpUSBDescribe, nil, false).(wire.USBDescription)
	var in, out byte
	for _, e := range d.Configurations[0].Interfaces[0].Endpoints {
		if e.Direction == "in" {
			in = byte(e.Address)
		} else {
			out = byte(e.Address)
		}
	}
	const size, times = 124 << 10, 4 // the gadget keeps 128 KiB
	data := make([]byte, size)
	send, err := json.Marshal(wire.USBSend{Endpoint: wire.USBNumber(out), Data: data})
	if err != nil {
		t.Fatal(err)
	}
	receive, err := json.Marshal(wire.USBReceive{Endpoint: wire.USBNumber(in), Size: size})
	if err != nil {
		t.Fatal(err)
	}
	ours := func() time.Duration {
		do(wire.OpUSBSend, send, true) // opens and claims
		do(wire.OpUSBReceive, receive, false)
		began := time.Now()
		for range times {
			do(wire.OpUSBSend, send, false)
			if r := do(wire.OpUSBReceive, receive, false).(wire.USBTransferred); r.BytesTransferred != size {
				t.Fatalf("received %d bytes, timed out: %v", r.BytesTransferred, r.TimedOut)
			}
		}
		took := time.Since(began)
		do(wire.OpRelease, nil, false)
		return took
	}
	kernels := func() time.Duration {
		fd, err := unix.Open(u.Node(), unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		b := bare{t, fd}
		var iface uint32
		b.ioctl(claimIface, unsafe.Pointer(&iface))
		defer b.ioctl(releaseIface, unsafe.Pointer(&iface))
		began := time.Now()
		for range times {
			b.transfer(out, data)
			b.transfer(in, data)
		}
		return time.Since(began)
	}
	// The layer below the operations, on a handle.
	handles := func() time.Duration {
		desc, err := reg.Resolve(id)
		if err != nil {
			t.Fatal(err)
		}
		h, err := usb.System{}.Open(desc)
		if err != nil {
			t.Fatal(err)
		}
		defer h.Close()
		if err := h.Claim(0); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range times {
			for _, e := range []byte{out, in} {
				x, err := h.Submit(2, e, data, false)
				if err != nil {
					t.Fatal(err)
				}
				if n, err := x.Wait(context.Background()); n != size || err != nil {
					t.Fatal(n, err)
				}
			}
		}
		return time.Since(began)
	}
	var handle, operation []float64
	for range 15 {
		limit := kernels().Seconds()
		handle = append(handle, limit/handles().Seconds())
		operation = append(operation, limit/ours().Seconds())
	}
	bar(t, "usb_bulk", median(handle), 0.8)
	t.Logf("figure: USB_SEND and USB_RECEIVE reach %.0f %% of bare URBs here", 100*median(operation))
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

func bar(t *testing.T, name string, value, limit float64) {
	verdict := "ok"
	if value < limit {
		verdict = "short"
	}
	t.Logf("figure: bar %s %.2f %.1f %s", name, value, limit, verdict)
}
