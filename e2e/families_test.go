package e2e

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"farhand/usb/usbsim"
	"farhand/wire"
)

// Devices of the bench beside its lines.
const (
	usbEcho   = "usb:1209:0001-SIM-ECHO"
	usbScope  = "usb:1209:0002-SIM-SCOPE"
	printer   = "printer:sim-i3"
	labeller  = "printer:usb-04f9:2042-000M6Z401370"
	printable = "G28\nM104 S200\nG1 X10 Y10\nM104 S0\n"
)

// Each family once through the relay, by the command and by the SDK.
func TestFamilies(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	u := b.user("")

	t.Run("I2C", func(t *testing.T) {
		u := u.on(t)
		found := map[string]string{}
		for _, a := range parse[wire.I2CScanned](t, b.owner.must("i2c", "scan", "i2c:1", "--json")).Addresses {
			found[a.Address.String()] = a.Status + " " + a.Driver
		}
		if fmt.Sprint(found) != "map[0x0b:present  0x50:present  0x68:kernel rtc-ds1307 0x76:present ]" {
			t.Errorf("the scan finds %v", found)
		}
		if got := b.owner.must("i2c", "read", "i2c:1", "0x76", "0xd0", "--hex"); strings.TrimSpace(got) != "60" {
			t.Errorf("the sensor is a %q", got)
		}
		// A measurement as the data sheet has it: humidity, then both others, once.
		u.do("i2c:1", wire.OpI2CTransfer, `{"address":"0x76","write":[242,1,244,37]}`)
		x := parse[wire.I2CTransferred](t, string(u.do("i2c:1", wire.OpI2CTransfer, `{"address":118,"write":[247],"read":8}`)))
		if len(x.Data) != 8 || bytes.Equal(x.Data[:6], []byte{0x80, 0, 0, 0x80, 0, 0}) {
			t.Errorf("it measures % x", x.Data)
		}
		u.do("i2c:1", wire.OpI2CTransfer, `{"address":"0x50","write":"AAAqKw=="}`)
		if x := parse[wire.I2CTransferred](t, string(u.do("i2c:1", wire.OpI2CTransfer, `{"address":"0x50","write":[0,0],"read":2}`))); !bytes.Equal(x.Data, []byte{0x2a, 0x2b}) {
			t.Errorf("the EEPROM has % x", x.Data)
		}
		v := parse[wire.I2CSMBusResult](t, string(u.do("i2c:1", wire.OpI2CSMBus, `{"address":"0x0b","protocol":"read_word_data","command":8}`)))
		if v.Value == nil || *v.Value != 2982 {
			t.Errorf("the gauge says %+v", v)
		}
		u.refused(wire.HardwareBusy, "i2c:1", wire.OpI2CTransfer, `{"address":"0x68","read":1}`)
		u.refused(wire.HardwareTransferFailed, "i2c:1", wire.OpI2CTransfer, `{"address":"0x20","read":1}`)
	})

	t.Run("SPI", func(t *testing.T) {
		if got := b.owner.must("spi", "transfer", "spi:0.0", "9f", "-n", "3", "--hex"); strings.ReplaceAll(strings.TrimSpace(got), " ", "") != "ef4014" {
			t.Errorf("the flash is a %q", got)
		}
	})

	t.Run("USB", func(t *testing.T) {
		u := u.on(t)
		u.do(usbEcho, wire.OpUSBSend, `{"interface":0,"endpoint":"0x01","data":"aGVsbG8="}`)
		x := parse[wire.USBTransferred](t, string(u.do(usbEcho, wire.OpUSBReceive, `{"interface":0,"endpoint":"0x81","size":64}`)))
		if string(x.Data) != "hello" {
			t.Errorf("the echo is %q", x.Data)
		}
		d := parse[wire.USBDescription](t, b.owner.must("usb", "describe", usbEcho, "--strings", "--json"))
		if d.VID != "1209" || d.SerialNumber.Value != usbsim.EchoName || len(d.Configurations) != 1 {
			t.Errorf("%+v", d)
		}
		w := watch[wire.USBPacket](u, usbEcho, wire.OpUSBWatch, `{"interface":0,"endpoint":"0x81"}`)
		for i := range 5 {
			u.do(usbEcho, wire.OpUSBSend, fmt.Sprintf(`{"interface":0,"endpoint":1,"data":"AAA%c"}`, 'A'+i))
			if p := w.must(); len(p.Data) != 3 || p.Data[2] != byte(i) {
				t.Errorf("packet %d is %+v", i, p)
			}
		}
		// A reset ends what there was of it.
		u.do(usbEcho, wire.OpUSBReset, `{}`)
		for _, ok := w.next(); ok; _, ok = w.next() {
		}
		if w.end == nil || w.end.Reason == "closed" {
			t.Errorf("after a reset the stream ended with %+v", w.end)
		}
		u.refused(wire.HardwareBusy, usbEcho, wire.OpUSBReceive, `{"interface":3,"endpoint":"0x84"}`) // cdc_acm has it
		u.do(usbEcho, wire.OpRelease, `{}`)
		u.do(usbScope, wire.OpUSBDescribe, `{}`)
	})

	t.Run("printer", func(t *testing.T) {
		u := u.on(t)
		s := parse[wire.PrinterStatus](t, b.owner.must("print", "status", printer, "--json"))
		if s.State != wire.PrinterReady || s.Server.Kind != "octoprint" {
			t.Errorf("%+v", s)
		}
		b.write(filepath.Join(b.root(), "part.gcode"), printable+strings.Repeat("; filler of a job that takes a while\n", 20000))
		up := watch[wire.PrinterProgress](u, printer, wire.OpPrinterUpload, `{"path":"part.gcode","name":"größe.gcode","select":true}`)
		var last wire.PrinterProgress
		for p, ok := up.next(); ok; p, ok = up.next() {
			if p.Sent < last.Sent && p.Retry == "" || p.Size == 0 {
				t.Errorf("%+v after %+v", p, last)
			}
			last = p
		}
		if r := last.Result; r == nil || !r.Selected || r.SentName != "größe.gcode" || last.Sent != last.Size {
			t.Fatalf("the upload ended with %+v (%+v)", last, last.Error)
		}
		events := watch[wire.PrinterEvent](u, printer, wire.OpPrinterWatch, `{"interval_seconds":0.5}`)
		state := func(want string) {
			t.Helper()
			for {
				e := events.must()
				if e.Status != nil && e.Status.State == want {
					return
				}
			}
		}
		state(wire.PrinterReady)
		b.owner.must("print", "start", printer)
		state(wire.PrinterPrinting)
		b.owner.must("print", "pause", printer)
		state(wire.PrinterPaused)
		b.owner.must("print", "resume", printer)
		state(wire.PrinterPrinting)
		u.do(printer, wire.OpPrinterJob, `{"action":"cancel"}`)
		state(wire.PrinterReady)
		b.owner.must("print", "temp", printer, "tool0=50")
		s = parse[wire.PrinterStatus](t, string(u.do(printer, wire.OpPrinterStatus, `{}`)))
		if h := s.Temperatures["tool0"]; h.Target == nil || *h.Target != 50 {
			t.Errorf("%+v", s.Temperatures)
		}
		other := b.user(b.newToken("agent")).on(t)
		other.refused(wire.HardwareBusy, printer, wire.OpPrinterTemperature, `{"bed":60}`)
		u.do(printer, wire.OpRelease, `{}`) // which cools it
		events.ended("released")
		s = parse[wire.PrinterStatus](t, string(other.do(printer, wire.OpPrinterStatus, `{}`)))
		if h := s.Temperatures["tool0"]; h.Target == nil || *h.Target != 0 {
			t.Errorf("after the release the heater is at %+v", h)
		}
		other.do(printer, wire.OpPrinterCommand, `{"gcode":"G28\nM117 hello"}`)
		other.do(printer, wire.OpPrinterMove, `{"home":"all"}`)
		list := parse[wire.PrinterFileList](t, b.owner.must("print", "files", printer, "-R", "--json"))
		found := false
		for _, f := range list.Files {
			found = found || f.Path == last.Result.Path && f.Size != nil && *f.Size == last.Size
		}
		if !found {
			t.Errorf("%+v isn't among %+v", last.Result, list.Files)
		}
		// Outside the root of the session nothing is read.
		for _, path := range []string{"/etc/passwd", "../state/audit.key", b.stateDir() + "/audit.key", "none.gcode"} {
			r, err := other.try(printer, wire.OpPrinterUpload, fmt.Sprintf(`{"path":%q}`, path))
			if err == nil {
				t.Errorf("%s is read: %s", path, r)
			}
		}
	})

	t.Run("label printer", func(t *testing.T) {
		u := u.on(t)
		s := parse[wire.PrinterStatus](t, string(u.do(labeller, wire.OpPrinterStatus, `{}`)))
		if s.Port == nil || s.Port.DeviceID["MDL"] != "QL-700" || !s.Port.Online {
			t.Errorf("%+v", s)
		}
		if x := parse[wire.PrinterCommanded](t, string(u.do(labeller, wire.OpPrinterCommand, `{"data":"G0A="}`))); x.BytesWritten != 2 {
			t.Errorf("%+v", x)
		}
		u.refused(wire.FeatureNotSupported, labeller, wire.OpPrinterFiles, `{}`)
	})
	log := string(b.read(filepath.Join(b.stateDir(), "audit.log")))
	for _, secret := range []string{"hello", "aGVsbG8", "G28", "AAAqKw", "G0A="} {
		if strings.Contains(log, secret) {
			t.Errorf("the record has %q, which is data", secret)
		}
	}
	b.wholeAudit()
}
