package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// USB is a USB device that the guest's kernel plays itself: a gadget made
// through configfs (usb/gadget_configfs.rst of the kernel's documents) on one
// of dummy_hcd's controllers, which the same kernel sees as a host. So a test
// has both ends.
type USB struct {
	t         testing.TB
	o         gadget
	config    string // its folder in configfs
	functions []string

	Sysfs string // the host's view: "/sys/bus/usb/devices/3-1"
	Name  string // "3-1"
}

// Option is a function or a property of a gadget.
type Option func(*gadget)

type gadget struct {
	vendor, product uint16
	manufacturer    string
	name            string
	serial          string
	noStrings       bool
	controller      int
	functions       []function
}

type function struct {
	kind  string // as configfs names it: "acm"
	attrs map[string]string
	raw   map[string][]byte
}

// ID sets vendor and product, which are 1d6b:0104 otherwise.
func ID(vendor, product uint16) Option {
	return func(g *gadget) { g.vendor, g.product = vendor, product }
}

// SerialNumber sets it; "" is a string descriptor that is there and empty.
func SerialNumber(s string) Option { return func(g *gadget) { g.serial = s } }

// NoStrings leaves out all string descriptors.
func NoStrings() Option { return func(g *gadget) { g.noStrings = true } }

// Controller chooses one of dummy_hcd's four, 0 to 3: the device's place in the
// topology.
func Controller(n int) Option { return func(g *gadget) { g.controller = n } }

// ACM is a serial port: /dev/ttyACM* on the host, GadgetTTY on the device.
func ACM() Option { return add(function{kind: "acm"}) }

// HID is an interface with reports of length bytes, described by descriptor:
// /dev/hidraw* on the host, /dev/hidg* (HIDNode) on the device.
func HID(descriptor []byte, length int) Option {
	return add(function{
		kind:  "hid",
		attrs: map[string]string{"protocol": "0", "subclass": "0", "report_length": strconv.Itoa(length)},
		raw:   map[string][]byte{"report_desc": descriptor},
	})
}

// SourceSink is an interface whose bulk IN endpoint sends zeros without end and
// whose bulk OUT endpoint takes what comes.
func SourceSink() Option { return add(function{kind: "SourceSink"}) }

// Loopback is an interface whose bulk IN endpoint sends what its bulk OUT
// endpoint got.
func Loopback() Option { return add(function{kind: "Loopback"}) }

// Printer is a printer-class port with an IEEE 1284 id: /dev/usb/lp* on the
// host, /dev/g_printer0 on the device.
func Printer(id string) Option {
	return add(function{kind: "printer", attrs: map[string]string{"pnp_string": id}})
}

func add(f function) Option { return func(g *gadget) { g.functions = append(g.functions, f) } }

const gadgets = "/sys/kernel/config/usb_gadget"

// Gadget makes a device and plugs it in. It goes after the test, by when the
// test has to have closed the nodes of both ends: the kernel waits for that.
func Gadget(t testing.TB, options ...Option) *USB {
	t.Helper()
	o := gadget{
		vendor: 0x1d6b, product: 0x0104, // the Linux Foundation's composite gadget
		manufacturer: "Farhand", name: "Lab gadget", serial: "LAB0001",
	}
	for _, option := range options {
		option(&o)
	}
	u := &USB{t: t, o: o, config: filepath.Join(gadgets, unused(t, gadgets, "g"))}
	made := u.make()
	t.Cleanup(func() {
		u.Unplug()
		slices.Reverse(made)
		remove(t, made...)
	})
	u.Plug()
	return u
}

// make fills the gadget's folder and returns what is to be removed later, last
// made last.
func (u *USB) make() []string {
	u.t.Helper()
	var made []string
	dir := func(elem ...string) string {
		u.t.Helper()
		d := filepath.Join(append([]string{u.config}, elem...)...)
		mkdir(u.t, d)
		made = append(made, d)
		return d
	}
	dir()
	u.set("idVendor", fmt.Sprintf("%#04x", u.o.vendor))
	u.set("idProduct", fmt.Sprintf("%#04x", u.o.product))
	if !u.o.noStrings {
		dir("strings", "0x409") // English: usb.org's language identifiers
		u.set("strings/0x409/manufacturer", u.o.manufacturer)
		u.set("strings/0x409/product", u.o.name)
		u.set("strings/0x409/serialnumber", u.o.serial)
	}
	dir("configs", "c.1")
	for i, f := range u.o.functions {
		d := dir("functions", fmt.Sprintf("%s.%s%d", f.kind, filepath.Base(u.config), i))
		u.functions = append(u.functions, d)
		for file, value := range f.attrs {
			write(u.t, filepath.Join(d, file), value)
		}
		for file, value := range f.raw {
			write(u.t, filepath.Join(d, file), string(value))
		}
		link := filepath.Join(u.config, "configs/c.1", filepath.Base(d))
		if err := os.Symlink(d, link); err != nil {
			u.t.Fatal(err)
		}
		made = append(made, link)
	}
	return made
}

func (u *USB) set(file, value string) {
	u.t.Helper()
	write(u.t, filepath.Join(u.config, file), value)
}

// Plugged says whether it is in.
func (u *USB) Plugged() bool {
	u.t.Helper()
	return read(u.t, filepath.Join(u.config, "UDC")) != ""
}

// Plug plugs it in, if it is out, and waits until the host has configured it.
func (u *USB) Plug() {
	u.t.Helper()
	if u.Plugged() {
		return
	}
	u.set("UDC", fmt.Sprintf("dummy_udc.%d", u.o.controller))
	// dummy_hcd has one port: the device is the root hub's first.
	first := waitGlob(u.t, "the host to configure the gadget", filepath.Join(u.hub(), "*-1", "*-1:*"))
	u.Name = filepath.Base(filepath.Dir(first))
	u.Sysfs = filepath.Join("/sys/bus/usb/devices", u.Name)
}

// Unplug pulls it out, whoever uses it, and waits until the host has noticed.
func (u *USB) Unplug() {
	u.t.Helper()
	if !u.Plugged() {
		return
	}
	u.set("UDC", "\n")
	// The folder itself goes a moment after the link to it.
	WaitFor(u.t, u.Sysfs+" to vanish", func() bool {
		found, err := filepath.Glob(filepath.Join(u.hub(), "*-1"))
		return err == nil && len(found) == 0 && !exists(u.Sysfs)
	})
}

func (u *USB) hub() string {
	return fmt.Sprintf("/sys/devices/platform/dummy_hcd.%d/usb*", u.o.controller)
}

// HostNode is the host's node of a class for the device, "tty", "hidraw" or
// "usbmisc" (printers): "/dev/ttyACM0". It waits for it.
func (u *USB) HostNode(class string) string {
	u.t.Helper()
	return nodeOf(u.t, waitGlob(u.t, "a "+class+" of "+u.Name, filepath.Join(u.hub(), "*-1", "*-1:*", pathOf(class))))
}

// pathOf is where an interface's folder has the class's devices.
func pathOf(class string) string {
	if class == "hidraw" {
		return "*/hidraw/*" // below the HID device
	}
	return class + "/*"
}

// nodeOf is the node of a device in sysfs, as its uevent names it. It waits for
// both.
func nodeOf(t testing.TB, sysfs string) string {
	t.Helper()
	var node string
	WaitFor(t, "the node of "+sysfs, func() bool {
		b, err := os.ReadFile(filepath.Join(sysfs, "uevent"))
		if err != nil {
			return false
		}
		for line := range strings.Lines(string(b)) {
			if name, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); ok {
				node = filepath.Join("/dev", name)
			}
		}
		return node != "" && exists(node)
	})
	return node
}

// GadgetTTY is the device's end of its n-th ACM function, from 0:
// "/dev/ttyGS0". It stays while the device is out. Writing to it in the moment of
// Unplug is a race in the kernel's gadget driver that can end the guest: a test
// that does so often has to keep the two apart.
func (u *USB) GadgetTTY(n int) string {
	u.t.Helper()
	return "/dev/ttyGS" + read(u.t, filepath.Join(u.nth("acm", n), "port_num"))
}

// HIDNode is the device's end of its n-th HID function: "/dev/hidg0".
func (u *USB) HIDNode(n int) string {
	u.t.Helper()
	return nodeOf(u.t, filepath.Join("/sys/dev/char", read(u.t, filepath.Join(u.nth("hid", n), "dev"))))
}

// PrinterNode is the device's end of a printer: "/dev/g_printer0".
func (u *USB) PrinterNode() string {
	u.t.Helper()
	return nodeOf(u.t, waitGlob(u.t, "the printer's end", "/sys/class/usb_printer_gadget/*"))
}

func (u *USB) nth(kind string, n int) string {
	u.t.Helper()
	for i, f := range u.o.functions {
		if f.kind != kind {
			continue
		}
		if n == 0 {
			return u.functions[i]
		}
		n--
	}
	u.t.Fatalf("the gadget has too few functions %s", kind)
	return ""
}

// Node is the device's usbfs node: "/dev/bus/usb/003/002". It is another after
// each Plug.
func (u *USB) Node() string {
	u.t.Helper()
	bus, device := number(u.t, read(u.t, filepath.Join(u.Sysfs, "busnum"))), number(u.t, read(u.t, filepath.Join(u.Sysfs, "devnum")))
	node := fmt.Sprintf("/dev/bus/usb/%03d/%03d", bus, device)
	WaitNode(u.t, node)
	return node
}

func number(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
