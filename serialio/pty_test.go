package serialio_test

import (
	"os"
	"testing"

	"farhand/device"
	"farhand/device/devicetest"
	"farhand/device/simsysfs"
	"farhand/serialio"
	"farhand/serialio/serialtest"
	"farhand/serialio/termios"
	"farhand/wire"
)

// bench is the real driver on a sysfs with one USB bridge, whose node leads to
// a pseudo-terminal.
type bench struct {
	tree   *simsysfs.Tree
	usb    simsysfs.USB
	master *os.File
}

const benchID = "serial:usb-0403:6001-FT3X8K2Q"

func newBench(t testing.TB) *bench {
	b := &bench{tree: simsysfs.New(t.TempDir())}
	b.usb = simsysfs.USB{Path: "1-1.2", Num: 4, VID: "0403", PID: "6001", Class: "00", Serial: "FT3X8K2Q", Product: "FT232R USB UART",
		Interfaces: []simsysfs.Interface{{Class: "ff", Driver: "ftdi_sio", TTYs: []string{"ttyUSB0"}}}}
	b.plug(t)
	t.Cleanup(func() { b.master.Close() })
	return b
}

func (b *bench) plug(t testing.TB) {
	master, terminal, err := termios.OpenPTY()
	if err != nil {
		t.Fatal(err)
	}
	b.master = master
	b.tree.NodeLink("ttyUSB0", terminal)
	b.tree.AddUSB(b.usb)
	b.usb.Num++
	if err := b.tree.Err(); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) unplug(t testing.TB) {
	b.master.Close()
	b.tree.Remove(b.tree.FS.Dir(b.usb.Dir()))
	b.tree.Remove(b.tree.FS.Node("ttyUSB0"))
	if err := b.tree.Err(); err != nil {
		t.Fatal(err)
	}
}

func (b *bench) family() device.Family {
	return device.Family{Driver: serialio.Driver{FS: b.tree.FS}, Service: serialio.Service{}}
}

func TestPortOnPTY(t *testing.T) {
	serialtest.Run(t, func(t testing.TB) serialtest.Line {
		b := newBench(t)
		return serialtest.Line{
			Family: b.family(), ID: benchID, Node: b.tree.FS.Node("ttyUSB0"), Far: b.master,
			Unplug: func() { b.unplug(t) }, Replug: func() { b.plug(t) },
		}
	})
}

func TestDriver(t *testing.T) {
	devicetest.Run(t, func(t testing.TB) devicetest.Bench {
		b := newBench(t)
		return devicetest.Bench{
			Family: b.family(), ID: benchID,
			Op:     wire.HardwareOp{Op: wire.OpSerialWrite, Args: []byte(`{"data":"eA=="}`)},
			Unplug: func() { b.unplug(t) }, Replug: func() { b.plug(t) },
		}
	})
}
