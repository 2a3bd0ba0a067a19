package cli_test

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"farhand/client/clienttest"
	"farhand/stream"
	"farhand/wire"
)

// bench is what is wired to the scripted machine: something of every family, as
// far as the command needs it. Streams begin with what there is to see and then
// go on for ever, unless end says why they don't.
type bench struct {
	relay *clienttest.Relay

	mu     sync.Mutex
	levels map[string]int
	end    string                // of every stream
	open   []*stream.Stream      // all that were opened
	fail   map[string]wire.Error // by op
}

// The devices of the bench.
var benchDevices = []wire.HardwareDevice{
	{Type: "gpio", ID: "gpio:pinctrl-bcm2711", Desc: "GPIO chip pinctrl-bcm2711", Chip: "/dev/gpiochip0", Lines: 58, Available: true, Generation: 1, Aliases: []string{"gpio:bcm", "gpio:gpiochip0"}},
	{Type: "gpio", ID: "gpio:raspberrypi-exp-gpio", Chip: "/dev/gpiochip1", Lines: 8, Available: true, Generation: 1},
	{Type: "i2c", ID: "i2c:1", Port: "/dev/i2c-1", Available: true, Generation: 1},
	{Type: "i2c", ID: "i2c:20", Port: "/dev/i2c-20", Available: true, Generation: 1},
	{Type: "spi", ID: "spi:0.0", Port: "/dev/spidev0.0", Available: true, Generation: 1},
	{Type: "usb", ID: "usb:1209:0001-42", Desc: "Loopback", VID: "1209", PID: "0001", Available: true, Generation: 1},
	{Type: "printer", ID: "printer:prusa", Desc: "OctoPrint 1.11.4", Available: true, Generation: 1},
}

func newBench(r *clienttest.Relay) *bench {
	b := &bench{relay: r, levels: map[string]int{"GPIO27": 1}, fail: make(map[string]wire.Error)}
	r.Device.Change(func() {
		keep := slices.DeleteFunc(r.Device.Devices, func(d wire.HardwareDevice) bool { return d.Type == "gpio" })
		r.Device.Devices = append(keep, benchDevices...)
	})
	r.Change(func() { r.Handle = b.handle })
	return b
}

func (b *bench) handle(env wire.Envelope) (wire.Type, any, error) {
	if env.Type != wire.THardwareOp {
		return "", nil, clienttest.ErrPass
	}
	var op wire.HardwareOp
	if err := wire.Decode(env.Payload, &op); err != nil {
		return "", nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := b.fail[op.Op]; ok {
		return "", nil, &e
	}
	result, err := b.do(op)
	if err != nil {
		return "", nil, err
	}
	return wire.THardwareResult, wire.HardwareResult{Device: op.Device, Generation: 1, Result: result}, nil
}

func args[T any](op wire.HardwareOp) T {
	var v T
	if err := json.Unmarshal(op.Args, &v); err != nil && len(op.Args) > 0 {
		panic(op.Op + ": " + err.Error()) // the command sent what it mustn't
	}
	return v
}

func (b *bench) do(op wire.HardwareOp) (any, error) {
	switch family, _, _ := strings.Cut(op.Op, "_"); {
	case op.Op == wire.OpRelease:
		return wire.Released{Released: true}, nil
	case family == "GPIO":
		return b.gpio(op)
	case family == "I2C", family == "SPI":
		return b.bus(op)
	case family == "USB":
		return b.usb(op)
	case family == "PRINTER":
		return b.printer(op)
	case op.Op == wire.OpSerialWatch:
		return wire.SerialWatching{Opened: b.stream(nil, []byte("hello\r\n\x1b[2Jworld\n")), Start: 100, Offset: 117, Oldest: 100,
			Port: &wire.SerialOpened{Reset: "possible", Note: "opening raised DTR", Warnings: []string{"ModemManager is running"}}}, nil
	case op.Op == wire.OpSerialExpect:
		return b.expect(args[wire.SerialExpect](op)), nil
	}
	return nil, clienttest.ErrPass
}

// stream opens a stream with records or bytes in it.
func (b *bench) stream(records []any, data []byte) wire.Opened {
	st, err := b.relay.Streams.Open(stream.Options{Records: data == nil})
	if err != nil {
		panic(err)
	}
	for _, r := range records {
		_ = st.Record(r)
	}
	if data != nil {
		_, _ = st.Write(data)
	}
	if b.end != "" {
		st.End(b.end, nil)
	}
	b.open = append(b.open, st)
	return wire.Opened{Stream: st.ID()}
}

func number(name wire.GPIOLine) int {
	if pin, ok := strings.CutPrefix(string(name), "pin 1"); ok {
		return map[string]int{"1": 17, "3": 27}[pin]
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(string(name), "GPIO"))
	return n
}

func lineOf(n int) string { return "GPIO" + strconv.Itoa(n) }

func (b *bench) values(s wire.GPIOSelect) wire.GPIOValues {
	v := wire.GPIOValues{Lines: []wire.GPIOValue{}, Atomic: true}
	all := s.Lines.Names
	if s.Line != "" {
		all = append(all, s.Line)
	}
	for _, name := range all {
		n := number(name)
		v.Lines = append(v.Lines, wire.GPIOValue{Line: n, Name: lineOf(n), Value: b.levels[lineOf(n)]})
	}
	if len(v.Lines) == 1 {
		v.Value = &v.Lines[0].Value
	}
	return v
}

func (b *bench) gpio(op wire.HardwareOp) (any, error) {
	switch op.Op {
	case wire.OpGPIOGet:
		return b.values(args[wire.GPIOGet](op).GPIOSelect), nil
	case wire.OpGPIOSet:
		q := args[wire.GPIOSet](op)
		for i, name := range q.Lines.Names {
			if name == "GPIO2" {
				return nil, wire.Errorf(wire.HardwareBusy, "line 2 is in use").With("consumer", "i2c1").With("holder", "i2c1").
					With("hint", "it is never taken away: stop what uses it, or use another line")
			}
			b.levels[lineOf(number(name))] = int(q.Lines.Levels[i])
		}
		return b.values(q.GPIOSelect), nil
	case wire.OpGPIOConfigure:
		return wire.GPIOConfigured{Lines: []wire.GPIOLineState{}}, nil
	case wire.OpGPIOPWM:
		q := args[wire.GPIOPWM](op)
		s := wire.GPIOPWMState{Line: number(q.Line), Name: string(q.Line)}
		if !q.Stop {
			s.Running, s.Kind, s.FrequencyHz, s.PeriodNS, s.Duty, s.DutyNS = true, "software", 1000, 1e6, 0.25, 250000
			s.Jitter, s.OnRelease = &wire.GPIOJitter{Edges: 200, P50US: 12.5, P99US: 80, MaxUS: 210}, wire.GPIOLow
			s.Reason, s.Hint = "the pin is not switched to PWM0", "dtoverlay=pwm in config.txt"
		}
		return s, nil
	case wire.OpGPIOInfo:
		chip := wire.GPIOChip{Chip: "gpiochip0", Label: "pinctrl-bcm2711", Board: "Raspberry Pi 4 Model B", Header: true, Count: 58}
		if strings.Contains(op.Device, "exp") {
			chip = wire.GPIOChip{Chip: "gpiochip1", Label: "raspberrypi-exp-gpio", Count: 8}
		}
		pins := map[int]int{2: 3, 3: 5, 4: 7, 17: 11, 27: 13}
		for _, n := range []int{2, 3, 4, 17, 27} {
			l := wire.GPIOLineInfo{Line: n, Name: lineOf(n), Pin: pins[n], Direction: "in", Available: true, Function: "gpio"}
			switch n {
			case 2, 3:
				l.Function, l.Consumer, l.Available, l.Pull = "alt0", "i2c1", false, "up"
			case 17:
				l.Direction, l.Holder, l.Available = "out", "bob", false
			}
			chip.Lines = append(chip.Lines, l)
		}
		return chip, nil
	case wire.OpGPIOWatch:
		at := clienttest.Epoch().Add(1500 * time.Microsecond)
		one, zero := wire.GPIOLevel(1), wire.GPIOLevel(0)
		return wire.GPIOWatching{Lines: []wire.GPIOValue{{Line: 17, Name: "GPIO17"}}, Opened: b.stream([]any{
			wire.GPIORecord{Kind: wire.GPIOEdge, Line: 17, Name: "GPIO17", Edge: "rising", Level: &one, TimestampNS: 5, Time: &at, Seq: 1, LineSeq: 1},
			wire.GPIORecord{Kind: wire.GPIOLost, Line: 17, Name: "GPIO17", Lost: 3},
			wire.GPIORecord{Kind: wire.GPIOState, Line: 17, Name: "GPIO17", Level: &zero},
		}, nil)}, nil
	}
	return nil, clienttest.ErrPass
}

func (b *bench) bus(op wire.HardwareOp) (any, error) {
	fill := func(n int) []byte {
		out := make([]byte, n)
		for i := range out {
			out[i] = byte(0x58 + i)
		}
		return out
	}
	switch op.Op {
	case wire.OpI2CScan:
		q := args[wire.I2CScan](op)
		s := wire.I2CScanned{First: 0x08, Last: 0x77, Method: q.Method, Addresses: []wire.I2CFound{
			{Address: 0x50, Status: wire.I2CPresent}, {Address: 0x68, Status: wire.I2CKernel, Driver: "rtc-ds1307"}, {Address: 0x76, Status: wire.I2CPresent},
		}}
		if q.First != nil {
			s.First, s.Last, s.Addresses = *q.First, *q.Last, nil
		}
		return s, nil
	case wire.OpI2CTransfer:
		q := args[wire.I2CTransfer](op)
		if q.Address == 0x33 {
			return nil, wire.Errorf(wire.HardwareTransferFailed, "nothing answers at 0x33").With("reason", "nack").With("hint", "check the wiring")
		}
		n := q.Read
		for _, s := range q.Segments {
			n += s.Read
		}
		return wire.I2CTransferred{Address: q.Address, Data: fill(n), BytesWritten: len(q.Write)}, nil
	case wire.OpI2CSMBus:
		q := args[wire.I2CSMBus](op)
		if strings.Contains(q.Protocol, "block") {
			return wire.I2CSMBusResult{Address: q.Address, Protocol: q.Protocol, Data: []byte("block")}, nil
		}
		v := 0x19a0
		return wire.I2CSMBusResult{Address: q.Address, Protocol: q.Protocol, Value: &v}, nil
	default:
		q := args[wire.SPITransfer](op)
		n := q.Read
		if q.FullDuplex {
			n = len(q.Write)
		}
		for _, s := range q.Segments {
			n += s.Read
		}
		out := wire.SPITransferred{Data: fill(n), BytesWritten: len(q.Write), SpeedHz: 500000}
		if q.Split {
			out.Pieces = 2
		}
		return out, nil
	}
}

func (b *bench) usb(op wire.HardwareOp) (any, error) {
	switch op.Op {
	case wire.OpUSBDescribe:
		return wire.USBDescription{
			USBVersion: "2.00", DeviceVersion: "1.00", VID: "1209", PID: "0001", Class: "00", SubClass: "00", Protocol: "00", MaxPacket0: 64, SpeedMbps: 480,
			Manufacturer: wire.USBString{State: wire.USBStringPresent, Index: 1, Value: "Farhand"},
			Product:      wire.USBString{State: wire.USBStringPresent, Index: 2, Value: "Loopback"},
			SerialNumber: wire.USBString{State: wire.USBStringAbsent}, ActiveConfiguration: 1,
			Configurations: []wire.USBConfiguration{{Value: 1, MaxPowerMA: 100, Interfaces: []wire.USBInterface{
				{Number: 0, Class: "ff", SubClass: "00", Protocol: "00", ClassName: "vendor", Endpoints: []wire.USBEndpoint{
					{Address: 0x81, Hex: "0x81", Direction: "in", Type: "bulk", MaxPacket: 512}, {Address: 2, Hex: "0x02", Direction: "out", Type: "bulk", MaxPacket: 512},
				}},
				{Number: 1, Class: "03", SubClass: "00", Protocol: "00", ClassName: "HID", Driver: "usbhid", HID: &wire.USBHIDInfo{Version: "1.11", ReportDescriptor: 33}},
			}}},
		}, nil
	case wire.OpUSBSend:
		q := args[wire.USBSend](op)
		return wire.USBTransferred{Data: []byte{}, BytesTransferred: len(q.Data)}, nil
	case wire.OpUSBReceive:
		q := args[wire.USBReceive](op)
		if q.Endpoint == 0x85 {
			return wire.USBTransferred{Data: []byte{}, TimedOut: true, Hint: "instruments send after a line feed",
				Recovery: &wire.USBRecovery{Steps: []string{"abort bulk-in", "clear"}, OK: true}}, nil
		}
		return wire.USBTransferred{Data: []byte("pong\x00"), BytesTransferred: 5, InWaiting: 3}, nil
	case wire.OpUSBControl, wire.OpUSBHID:
		return wire.USBTransferred{Data: []byte{0x12, 0x01}, BytesTransferred: 2}, nil
	case wire.OpUSBReset:
		return wire.USBResetDone{Reset: true}, nil
	case wire.OpUSBWatch:
		at := float64(clienttest.Epoch().UnixMilli())/1000 + 0.25
		return wire.USBWatching{Endpoint: 0x81, Opened: b.stream([]any{
			wire.USBPacket{Endpoint: 0x81, Data: []byte{1, 2, 0xff}, Time: at}, wire.USBPacket{Endpoint: 0x81, Data: []byte("key"), Time: at + 1},
		}, nil)}, nil
	}
	return nil, clienttest.ErrPass
}

func ptr[T any](v T) *T { return &v }

func printing() wire.PrinterStatus {
	job := wire.PrinterJobState{State: wire.PrinterPrinting, File: "bracket.gcode", Completion: ptr(42.5), Seconds: ptr(600.0), SecondsLeft: ptr(900.0)}
	return wire.PrinterStatus{State: wire.PrinterPrinting, Text: "Printing", Job: &job, Temperatures: map[string]wire.PrinterHeat{
		"bed": {Actual: ptr(59.9), Target: ptr(60.0)}, "tool0": {Actual: ptr(209.5), Target: ptr(210.0)}, "chamber": {Actual: ptr(31.0), Target: ptr(0.0)},
	}, Server: &wire.PrinterServer{Kind: "octoprint", Version: "1.11.4", API: "1", Text: "OctoPrint 1.11.4"}}
}

func (b *bench) printer(op wire.HardwareOp) (any, error) {
	at := float64(clienttest.Epoch().Unix())
	switch op.Op {
	case wire.OpPrinterStatus:
		return printing(), nil
	case wire.OpPrinterFiles:
		if q := args[wire.PrinterFiles](op); q.Action != "list" {
			done := wire.PrinterFileDone{Location: "local", Path: q.Path}
			if q.Print {
				done.Job = printing().Job
			}
			return done, nil
		}
		return wire.PrinterFileList{FreeBytes: ptr(int64(1 << 30)), Files: []wire.PrinterFile{
			{Location: "local", Path: "old", Type: "folder"},
			{Location: "local", Path: "bracket.gcode", Type: "machinecode", Size: ptr(int64(4096)), Date: clienttest.Epoch().Unix(), EstimatedSeconds: ptr(1500.0)},
			{Location: "local", Path: "_.gcode", Display: "ящик.gcode", Type: "machinecode"},
		}}, nil
	case wire.OpPrinterUpload:
		q := args[wire.PrinterUpload](op)
		records := []any{wire.PrinterProgress{Sent: 0, Size: 10}, wire.PrinterProgress{Sent: 10, Size: 10}}
		if q.Name == "bad.gcode" {
			records = append(records, wire.PrinterProgress{Size: 10, Error: wire.Errorf(wire.HardwareBusy, "the file is being printed").With("hint", "cancel the job")})
		} else {
			records = append(records, wire.PrinterProgress{Sent: 10, Size: 10, Result: &wire.PrinterUploaded{Location: "local", Path: "bracket_1.gcode", SentName: q.Name, Renamed: true, Selected: q.Print, Printing: q.Print}})
		}
		return wire.PrinterUploading{Opened: b.stream(records, nil), Size: 10}, nil
	case wire.OpPrinterJob:
		q := args[wire.PrinterJob](op)
		return wire.PrinterJobDone{Job: wire.PrinterJobState{State: wire.PrinterPaused, File: "bracket.gcode"}, Confirmed: q.Action == "pause"}, nil
	case wire.OpPrinterTemperature:
		return wire.PrinterTargets{Targets: args[wire.PrinterTemperature](op).Targets, OnRelease: wire.HeaterOff}, nil
	case wire.OpPrinterCommand:
		return wire.PrinterCommanded{Lines: len(args[wire.PrinterCommand](op).GCode)}, nil
	case wire.OpPrinterMove:
		return wire.PrinterMoved{Accepted: true}, nil
	case wire.OpPrinterWatch:
		s, idle := printing(), wire.PrinterStatus{State: wire.PrinterReady}
		return wire.PrinterWatching{Push: true, Opened: b.stream([]any{
			wire.PrinterEvent{Type: wire.PrinterEventState, Time: at, Status: &s, Log: []string{"Send: M105"}},
			wire.PrinterEvent{Type: wire.PrinterEventEvent, Time: at + 1, Name: "PrintDone"},
			wire.PrinterEvent{Type: wire.PrinterEventState, Time: at + 2, Status: &idle},
		}, nil)}, nil
	case wire.OpPrinterJoin:
		decision := wire.JoinGranted
		if args[wire.PrinterJoin](op).User == "nobody" {
			decision = wire.JoinDenied
		}
		return wire.PrinterJoining{Dialog: "http://prusa.local/plugin/appkeys/auth/1", Hint: "allow it within ten minutes", Opened: b.stream([]any{
			wire.PrinterJoinEvent{Decision: wire.JoinWaiting}, wire.PrinterJoinEvent{Decision: decision},
		}, nil)}, nil
	}
	return nil, clienttest.ErrPass
}

func (b *bench) expect(q wire.SerialExpect) wire.SerialExpected {
	out := wire.SerialExpected{Complete: true, StopReason: "done", Steps: []wire.SerialStepResult{}}
	for _, s := range q.Steps {
		r := wire.SerialStepResult{StopReason: "sent", BytesWritten: len(s.Send), Data: []byte{}}
		if len(s.Expect) > 0 {
			p := s.Expect[0]
			r.StopReason, r.Data, r.Seconds, r.Match = "match", append([]byte("> "), p.Data...), 0.25, &wire.SerialMatch{}
			if string(p.Data) == "never" {
				r.StopReason, r.Match, out.Complete, out.StopReason = "timeout", nil, false, "timeout"
			}
		}
		if out.Steps = append(out.Steps, r); !out.Complete {
			break
		}
	}
	return out
}
