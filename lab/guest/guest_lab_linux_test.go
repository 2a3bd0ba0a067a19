package guest_test

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/internal/testenv"
	"farhand/lab/guest"
)

// TestLabKernel says that what families build on is there.
func TestLabKernel(t *testing.T) {
	testenv.Lab(t)
	for _, path := range []string{
		"/sys/kernel/config/gpio-sim",
		"/sys/kernel/config/usb_gadget",
		"/sys/class/udc/dummy_udc.0",
		"/sys/class/udc/dummy_udc.3",
		"/sys/bus/usb/drivers/ftdi_sio",
		"/sys/bus/usb/drivers/cdc_acm",
		"/sys/bus/usb/drivers/usblp",
		"/dev/virtio-ports/farhand.requests",
	} {
		if _, err := os.Stat(path); err != nil {
			t.Error(err)
		}
	}
}

func gone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}

func TestLabGPIOSim(t *testing.T) {
	testenv.Lab(t)
	var path string
	t.Run("while it is there", func(t *testing.T) {
		c := guest.GPIOSim(t, guest.Bank{
			Label: "pinctrl-bcm2711", Lines: 58,
			Names: map[int]string{17: "GPIO17", 4: "GPIO4"},
			Hogs:  map[int]guest.Hog{8: {Consumer: "spi0 CS0", Direction: "output-high"}},
		})
		path = c.Path
		c.Pull(17, guest.Up)
		if !c.Value(17) {
			t.Error("line 17 is low, pulled up")
		}
		c.Pull(17, guest.Down)
		if c.Value(17) {
			t.Error("line 17 is high, pulled down")
		}
		if !c.Value(8) {
			t.Error("the hog's line is low")
		}
		c.Unplug()
		gone(t, path)
		c.Plug()
		if _, err := os.Stat(c.Path); err != nil {
			t.Error(err)
		}
		other := guest.GPIOSim(t, guest.Bank{Lines: 1})
		if other.Path == c.Path {
			t.Errorf("two chips are both %s", c.Path)
		}
	})
	gone(t, path)
}

func TestLabI2CStub(t *testing.T) {
	testenv.Lab(t)
	var path string
	t.Run("while it is there", func(t *testing.T) {
		b := guest.I2CStub(t, 0x20, 0x76)
		b.Claim(0x20)
		path = b.Path
		f, err := os.OpenFile(b.Path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		const slave = 0x0703 // I2C_SLAVE of linux/i2c-dev.h
		if err := unix.IoctlSetInt(int(f.Fd()), slave, 0x76); err != nil {
			t.Errorf("a free address: %v", err)
		}
		if err := unix.IoctlSetInt(int(f.Fd()), slave, 0x20); err != unix.EBUSY {
			t.Errorf("an address that a driver owns answers %v", err)
		}
	})
	gone(t, path)
}

func TestLabSPI(t *testing.T) {
	testenv.Lab(t)
	var path string
	t.Run("while it is there", func(t *testing.T) {
		d := guest.SPI(t)
		path = d.Path
		f, err := os.OpenFile(d.Path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b := make([]byte, 4)
		if _, err := f.Read(b); err != nil {
			t.Error(err)
		}
		t.Logf("%+v reads %x", d, b)
	})
	gone(t, path)
}

// open opens a node and sees to it that it is closed before what it is of goes.
func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// raw makes a terminal carry bytes as they are.
func raw(t *testing.T, f *os.File) {
	t.Helper()
	rc, err := f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = rc.Control(func(fd uintptr) {
		mode, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		mode.Iflag, mode.Oflag, mode.Lflag = 0, 0, 0
		mode.Cflag |= unix.CLOCAL | unix.CREAD
		if err := unix.IoctlSetTermios(int(fd), unix.TCSETS, mode); err != nil {
			t.Fatal(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

// carries writes on one end and reads on the other.
func carries(t *testing.T, from, to *os.File, data string) {
	t.Helper()
	if _, err := from.WriteString(data); err != nil {
		t.Fatalf("writing to %s: %v", from.Name(), err)
	}
	if err := to.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, len(data))
	if _, err := io.ReadFull(to, b); err != nil || string(b) != data {
		t.Fatalf("%s carried %q to %s: %q %v", from.Name(), data, to.Name(), b, err)
	}
}

func sysfs(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		return "none"
	}
	return strings.TrimSuffix(string(b), "\n")
}

func TestLabACM(t *testing.T) {
	testenv.Lab(t)
	g := guest.Gadget(t, guest.ACM(), guest.SerialNumber("SN42"), guest.ID(0x2341, 0x0043))
	for file, want := range map[string]string{"serial": "SN42", "idVendor": "2341", "product": "Lab gadget"} {
		if got := sysfs(t, g.Sysfs+"/"+file); got != want {
			t.Errorf("its %s is %q, want %q", file, got, want)
		}
	}
	host, device := open(t, g.HostNode("tty")), open(t, g.GadgetTTY(0))
	raw(t, host)
	raw(t, device)
	carries(t, host, device, "question")
	carries(t, device, host, "answer")
	host.Close()
	node := g.HostNode("tty")
	for range 3 {
		g.Unplug()
		gone(t, node)
		g.Plug()
		if again := g.HostNode("tty"); again != node {
			t.Errorf("it was %s and is %s", node, again)
		}
	}
}

func TestLabStringsOfGadgets(t *testing.T) {
	testenv.Lab(t)
	none := guest.Gadget(t, guest.ACM(), guest.NoStrings())
	empty := guest.Gadget(t, guest.ACM(), guest.SerialNumber(""), guest.Controller(1))
	if got := sysfs(t, none.Sysfs+"/serial"); got != "none" {
		t.Errorf("without strings, its serial number is %q", got)
	}
	if got := sysfs(t, empty.Sysfs+"/serial"); got != "" && got != "none" {
		t.Errorf("an empty serial number is %q", got)
	}
	if none.Name == empty.Name || none.HostNode("tty") == empty.HostNode("tty") {
		t.Errorf("two gadgets are one: %s %s", none.Name, empty.Name)
	}
}

// reportDescriptor is of a vendor's device that takes and gives eight bytes
// (the HID specification 1.11, 6.2.2).
var reportDescriptor = []byte{
	0x06, 0x00, 0xff, // Usage Page (vendor)
	0x09, 0x01, // Usage (1)
	0xa1, 0x01, // Collection (Application)
	0x15, 0x00, 0x26, 0xff, 0x00, // Logical 0 to 255
	0x75, 0x08, 0x95, 0x08, // 8 fields of 8 bits
	0x09, 0x01, 0x81, 0x02, // Input
	0x09, 0x01, 0x91, 0x02, // Output
	0xc0,
}

func TestLabHID(t *testing.T) {
	testenv.Lab(t)
	g := guest.Gadget(t, guest.HID(reportDescriptor, 8))
	host, device := open(t, g.HostNode("hidraw")), open(t, g.HIDNode(0))
	if _, err := device.Write([]byte("reports!")); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if err := host.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Read(b); err != nil || string(b) != "reports!" {
		t.Errorf("the host reads %q %v", b, err)
	}
}

func TestLabBulk(t *testing.T) {
	testenv.Lab(t)
	g := guest.Gadget(t, guest.SourceSink(), guest.Loopback())
	descriptors, err := os.ReadFile(g.Node())
	if err != nil {
		t.Fatal(err)
	}
	// An endpoint's descriptor: length 7, type 5, address, attributes: 2 is bulk
	// (USB 2.0, table 9-13).
	bulk := 0
	for i := 0; i+3 < len(descriptors); i++ {
		if bytes.Equal(descriptors[i:i+2], []byte{7, 5}) && descriptors[i+3] == 2 {
			bulk++
		}
	}
	if bulk < 4 {
		t.Errorf("it has %d bulk endpoints in %x", bulk, descriptors)
	}
}

func TestLabPrinter(t *testing.T) {
	testenv.Lab(t)
	g := guest.Gadget(t, guest.Printer("MFG:Farhand;MDL:Lab;CLS:PRINTER;"))
	host, device := open(t, g.HostNode("usbmisc")), open(t, g.PrinterNode())
	carries(t, host, device, "G28\n")
}

func TestLabFTDI(t *testing.T) {
	testenv.Lab(t)
	a := guest.FTDI(t, "FT0001")
	if got := sysfs(t, a.Sysfs+"/serial"); got != "FT0001" {
		t.Errorf("its serial number is %q", got)
	}
	tty := open(t, a.TTY())
	raw(t, tty)
	carries(t, tty, a.Far, "question")
	carries(t, a.Far, tty, "answer")
	a.Unplug()
	if err := tty.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if n, err := tty.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("unplugged, it reads %d bytes and %v", n, err)
	}
	tty.Close()
	a.Plug()
	tty = open(t, a.TTY())
	raw(t, tty)
	carries(t, a.Far, tty, "again")
}
