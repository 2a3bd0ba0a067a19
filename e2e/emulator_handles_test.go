package e2e

import (
	"slices"
	"strings"
	"testing"

	"farhand/serialio/serialsim"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// A platform that speaks of hardware in handles and in nothing else, over the
// simulated bench: a SCPI instrument, two lines that are wired together, a USB
// device that sends back what it gets.
func TestEmulatorHandles(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.Extensions = wire.Capabilities{wire.HardwareSerial, wire.HardwareUSB, wire.HardwareGPIO, wire.Grants}
	b := c.loggedIn()
	p := b.on(c)
	s, _ := p.open("handles")
	other, _ := p.open("other")
	device := func(id string) wire.HardwareDevice {
		t.Helper()
		i := slices.IndexFunc(s.Hello.HardwareDevices, func(d wire.HardwareDevice) bool { return d.ID == id })
		if i < 0 {
			t.Fatalf("HELLO has no %s", id)
		}
		return s.Hello.HardwareDevices[i]
	}
	scpi, chip := device(psu), device("gpio:pinctrl-bcm2711")
	if !strings.HasPrefix(scpi.Port, "/dev/pts/") || chip.Chip != "/dev/gpiochip0" {
		t.Fatalf("HELLO has %+v and %+v", scpi, chip)
	}
	handle := func(e wire.Envelope, want wire.Type) string {
		t.Helper()
		keys := []string{"handle"}
		if want == wire.TAck {
			keys = append(keys, "ok")
		}
		return emObject(t, e, want, keys...)["handle"].(string)
	}
	ack := func(e wire.Envelope) {
		t.Helper()
		if v := emObject(t, e, wire.TAck, "ok"); v["ok"] != true {
			t.Errorf("ACK %s", e.Payload)
		}
	}

	// Serial.
	openPort := func(s *shimtest.Socket) wire.Envelope {
		return s.Call(wire.TSerialOpen, map[string]any{"port": scpi.Port, "baudrate": 9600, "bytesize": 8, "parity": "none", "stopbits": 1, "timeout_seconds": 5.0, "rtscts": false, "dsrdtr": false, "xonxoff": false})
	}
	port := handle(openPort(s), wire.TSerialOpenResponse)
	ask := func() {
		t.Helper()
		v := emObject(t, s.Call(wire.TSerialWrite, map[string]any{"handle": port, "data": "KklETj8K", "drain": true}), wire.TAck, "ok", "bytes_written")
		if v["bytes_written"] != 6.0 {
			t.Errorf("SERIAL_WRITE gives %v", v)
		}
		got := answer[wire.SerialReadResponse](t, s.Call(wire.TSerialRead, map[string]any{"handle": port, "size": 256, "timeout_seconds": nil, "until": "Cg=="}), wire.TSerialReadResponse)
		if string(got.Data) != serialsim.Identity+"\n" || got.TimedOut || got.InWaiting != 0 {
			t.Errorf("SERIAL_READ gives %+v", got)
		}
	}
	ask()
	got := emObject(t, s.Call(wire.TSerialRead, map[string]any{"handle": port, "size": 1, "timeout_seconds": 0.01}), wire.TSerialReadResponse, "data", "timed_out", "in_waiting")
	if got["data"] != "" || got["timed_out"] != true {
		t.Errorf("SERIAL_READ of nothing gives %v", got)
	}
	emRefused(t, openPort(s), wire.HardwareBusy, map[string]any{"holder": "this session", "device": psu})
	emRefused(t, openPort(other), wire.HardwareBusy, map[string]any{"device": psu})
	emRefused(t, other.Call(wire.TSerialRead, map[string]any{"handle": port, "size": 1}), wire.SerialStale, map[string]any{"handle": port})
	emRefused(t, s.Call(wire.TSerialOpen, map[string]any{"port": "/dev/ttyNONE"}), wire.HardwareNotFound, nil)
	emRefused(t, s.Call(wire.TSerialOpen, map[string]any{"port": echo, "parity": "perhaps"}), wire.InvalidArgument, nil)
	ack(s.Call(wire.TSerialClose, map[string]any{"handle": port}))
	emRefused(t, s.Call(wire.TSerialClose, map[string]any{"handle": port}), wire.SerialStale, map[string]any{"handle": port, "op": "SERIAL_CLOSE"})
	theirs := handle(openPort(other), wire.TSerialOpenResponse)
	ack(other.Call(wire.TSerialClose, map[string]any{"handle": theirs}))

	// GPIO: what one line is driven to, the other shows.
	line := func(number int, direction string, more ...any) string {
		t.Helper()
		payload := map[string]any{"chip": chip.Chip, "line": number, "direction": direction, "pull": "none", "active_low": false}
		for i := 0; i < len(more); i += 2 {
			payload[more[i].(string)] = more[i+1]
		}
		return handle(s.Call(wire.TGPIOConfigure, payload), wire.TAck)
	}
	out, in := line(17, "out", "initial_value", 1), line(27, "in", "initial_value", 1)
	level := func(handle string, want float64) {
		t.Helper()
		if v := emObject(t, s.Call(wire.TGPIORead, map[string]any{"handle": handle}), wire.TGPIOReadResponse, "value"); v["value"] != want {
			t.Errorf("GPIO_READ gives %v, want %v", v["value"], want)
		}
	}
	level(in, 1)
	for _, v := range []float64{0, 1, 0} {
		ack(s.Call(wire.TGPIOWrite, map[string]any{"handle": out, "value": v}))
		level(in, v)
		level(out, v)
	}
	emRefused(t, s.Call(wire.TGPIOWrite, map[string]any{"handle": in, "value": 1}), wire.InvalidArgument, nil)
	emRefused(t, s.Call(wire.TGPIOConfigure, map[string]any{"chip": chip.Chip, "line": 17, "direction": "in"}), wire.HardwareBusy, map[string]any{"part": "17"})
	emRefused(t, other.Call(wire.TGPIOConfigure, map[string]any{"chip": chip.Chip, "line": 17, "direction": "in"}), wire.HardwareBusy, nil)
	emRefused(t, s.Call(wire.TGPIOConfigure, map[string]any{"chip": chip.Chip, "line": 400}), wire.HardwareNotFound, nil)
	ack(s.Call(wire.TGPIOClose, map[string]any{"handle": in}))
	emRefused(t, s.Call(wire.TGPIORead, map[string]any{"handle": in}), wire.GPIOStale, nil)
	in = line(27, "in", "active_low", true)
	level(in, 1)

	// USB.
	openUSB := func(s *shimtest.Socket, iface int, detach bool) wire.Envelope {
		return s.Call(wire.TUSBOpen, map[string]any{"vid": "1209", "pid": "0001", "serial_number": nil, "interface": iface, "detach_kernel_driver": detach})
	}
	emRefused(t, openUSB(s, 1, false), wire.HardwareBusy, map[string]any{"consumer": "usbhid", "interface": 1})
	emRefused(t, openUSB(s, 9, false), wire.InvalidArgument, nil)
	emRefused(t, s.Call(wire.TUSBOpen, map[string]any{"vid": "dead", "pid": "beef"}), wire.HardwareNotFound, nil)
	usb := handle(openUSB(s, 0, false), wire.TUSBOpenResponse)
	transfer := func(payload map[string]any) map[string]any {
		t.Helper()
		payload["handle"] = usb
		return emObject(t, s.Call(wire.TUSBTransfer, payload), wire.TUSBTransferResponse, "data", "bytes_transferred", "timed_out")
	}
	if v := transfer(map[string]any{"endpoint": 1, "direction": "out", "data": "AAEC"}); v["bytes_transferred"] != 3.0 || v["data"] != "" || v["timed_out"] != false {
		t.Errorf("USB_TRANSFER out gives %v", v)
	}
	if v := transfer(map[string]any{"endpoint": 0x81, "direction": "in", "size": 64, "timeout_seconds": 5.0}); v["bytes_transferred"] != 3.0 || v["data"] != "AAEC" {
		t.Errorf("USB_TRANSFER in gives %v", v)
	}
	if v := transfer(map[string]any{"endpoint": 0x81, "direction": "in", "size": 64, "timeout_seconds": 0.01}); v["bytes_transferred"] != 0.0 || v["timed_out"] != true {
		t.Errorf("USB_TRANSFER of nothing gives %v", v)
	}
	emRefused(t, openUSB(other, 0, false), wire.HardwareBusy, nil)
	ack(s.Call(wire.TUSBClose, map[string]any{"handle": usb}))
	emRefused(t, s.Call(wire.TUSBTransfer, map[string]any{"handle": usb, "endpoint": 1, "direction": "in"}), wire.USBStale, nil)
	// An interface of a driver, which has it back afterwards.
	usb = handle(openUSB(s, 1, true), wire.TUSBOpenResponse)
	transfer(map[string]any{"endpoint": 2, "direction": "out", "data": "AAEC"})
	ack(s.Call(wire.TUSBClose, map[string]any{"handle": usb}))
	emRefused(t, openUSB(s, 1, false), wire.HardwareBusy, map[string]any{"consumer": "usbhid"})

	// What the owner no longer allows, and what HARDWARE_OP gives back.
	port = handle(openPort(s), wire.TSerialOpenResponse)
	update := func(approval map[string]any) {
		t.Helper()
		ack(s.Call(wire.TGrantsUpdate, map[string]any{"grants": map[string]any{"owner": "o", "holder": "h", "approval": approval}}))
	}
	update(map[string]any{"devices": []map[string]any{{"pattern": "serial:*"}}})
	emRefused(t, s.Call(wire.TGPIOWrite, map[string]any{"handle": out, "value": 1}), wire.GPIOStale, map[string]any{"reason": "grant_revoked", "device": chip.ID})
	emRefused(t, openUSB(s, 0, false), wire.HardwareNotGranted, map[string]any{"ceiling": "approval"})
	ask() // this one stays
	update(map[string]any{"devices": []map[string]any{{"pattern": "serial:*", "ops": []string{"SERIAL_CONTROL", "SERIAL_READ"}}}})
	emRefused(t, s.Call(wire.TSerialWrite, map[string]any{"handle": port, "data": "AA=="}), wire.HardwareNotGranted, map[string]any{"ceiling": "approval", "op": "SERIAL_WRITE"})
	update(map[string]any{"capabilities": []string{"hardware_gpio"}})
	emRefused(t, s.Call(wire.TSerialRead, map[string]any{"handle": port, "size": 1}), wire.CapabilityNotGranted, map[string]any{"ceiling": "approval"})
	update(nil)
	emRefused(t, s.Call(wire.TSerialRead, map[string]any{"handle": port, "size": 1}), wire.SerialStale, map[string]any{"reason": "grant_revoked"})
	port = handle(openPort(s), wire.TSerialOpenResponse)
	answer[wire.HardwareResult](t, s.Call(wire.THardwareOp, map[string]any{"device": psu, "op": "RELEASE"}), wire.THardwareResult)
	emRefused(t, s.Call(wire.TSerialRead, map[string]any{"handle": port, "size": 1}), wire.SerialStale, map[string]any{"reason": "released"})

	// A new socket: nothing is open, and the devices are free.
	port, out = handle(openPort(s), wire.TSerialOpenResponse), line(17, "out", "initial_value", 1)
	s.Drop()
	s = b.hurry(c)
	for typ, id := range map[wire.Type]string{wire.TSerialClose: port, wire.TGPIOClose: out} {
		code := wire.SerialStale
		if typ == wire.TGPIOClose {
			code = wire.GPIOStale
		}
		emRefused(t, s.Call(typ, map[string]any{"handle": id}), code, nil)
	}
	theirs = handle(openPort(other), wire.TSerialOpenResponse)
	ack(other.Call(wire.TSerialClose, map[string]any{"handle": theirs}))
	in = line(27, "in")
	level(in, 1) // the lamp stays on

	emRefused(t, p.control.Call(wire.TSerialOpen, map[string]any{"port": scpi.Port}), wire.FeatureNotSupported, map[string]any{"op": "SERIAL_OPEN"})
	log := string(b.read(b.stateDir() + "/audit.log"))
	if strings.Contains(log, "KklETj8K") || strings.Contains(log, "IDN") {
		t.Error("what was sent is on record")
	}
	onRecord := map[string]bool{}
	for _, r := range b.chained() {
		if r.Result.OK && r.Details["phase"] == nil {
			onRecord[strings.Join([]string{r.Op, str(r.Details["op"]), str(r.Details["device"])}, " ")] = true
		}
		if r.Op == "SERIAL_WRITE" && r.Result.OK && r.Details["phase"] == nil && r.Details["bytes_out"] != 6.0 {
			t.Errorf("on record is %+v", r)
		}
	}
	for _, want := range []string{
		"SERIAL_OPEN SERIAL_CONTROL " + psu, "SERIAL_WRITE SERIAL_WRITE " + psu, "SERIAL_READ SERIAL_READ " + psu, "SERIAL_CLOSE RELEASE " + psu,
		"GPIO_CONFIGURE GPIO_CONFIGURE " + chip.ID, "GPIO_WRITE GPIO_SET " + chip.ID, "GPIO_READ GPIO_GET " + chip.ID, "GPIO_CLOSE RELEASE " + chip.ID,
		"USB_OPEN USB_DESCRIBE usb:1209:0001-SIM-ECHO", "USB_TRANSFER USB_SEND usb:1209:0001-SIM-ECHO",
		"USB_TRANSFER USB_RECEIVE usb:1209:0001-SIM-ECHO", "USB_CLOSE RELEASE usb:1209:0001-SIM-ECHO",
	} {
		if !onRecord[want] {
			t.Errorf("%q isn't on record", want)
		}
	}
}

func str(v any) string {
	s, _ := v.(string)
	return s
}

// A platform that grants nothing of it refuses its own messages before a device
// hears of them, and is never sent what it doesn't know.
func TestEmulatorNoHandles(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.loggedIn()
	s, _ := b.on(c).open("plain")
	for request, need := range map[wire.Type]wire.Capability{
		wire.TSerialOpen: wire.HardwareSerial, wire.TSerialWrite: wire.HardwareSerial, wire.TSerialRead: wire.HardwareSerial, wire.TSerialClose: wire.HardwareSerial,
		wire.TUSBOpen: wire.HardwareUSB, wire.TUSBTransfer: wire.HardwareUSB, wire.TUSBClose: wire.HardwareUSB,
		wire.TGPIOConfigure: wire.HardwareGPIO, wire.TGPIOWrite: wire.HardwareGPIO, wire.TGPIORead: wire.HardwareGPIO, wire.TGPIOClose: wire.HardwareGPIO,
	} {
		emRefused(t, s.Call(request, map[string]any{"port": psu, "chip": "/dev/gpiochip0", "handle": "x"}), wire.CapabilityNotGranted, map[string]any{"required_capability": need})
	}
}
