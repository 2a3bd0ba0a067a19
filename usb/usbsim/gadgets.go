package usbsim

import (
	"encoding/binary"
	"slices"
	"strings"
	"syscall"
)

// The names of the standard devices, which are their serial numbers, too.
const (
	EchoName  = "SIM-ECHO"
	ScopeName = "SIM-SCOPE"
)

// Endpoints of the echo.
const (
	EchoOut   = 0x01 // bulk, interface 0: what is sent here
	EchoIn    = 0x81 // comes back here
	ReportIn  = 0x82 // interrupt, interface 1: HID input reports
	ReportOut = 0x02 // HID output reports
	SerialOut = 0x04 // bulk, interface 3: the echo of a serial port
	SerialIn  = 0x84
	SourceIn  = 0x85 // bulk, interface 0, alternate setting 1
	SinkOut   = 0x05
)

// Standard is what --sim has: a device with an echo, HID reports and a serial
// port, and an oscilloscope that speaks SCPI over USBTMC. Their numbers are for
// tests (pid.codes, 1209:0001 and 0002).
func Standard() []Model {
	return []Model{
		{
			Name: EchoName, VID: 0x1209, PID: 0x0001, Manufacturer: "Farhand", Product: "Simulated echo",
			Interfaces: []Interface{
				{Number: 0, Class: 0xff, Endpoints: []Endpoint{{Address: EchoOut, MaxPacket: 512}, {Address: EchoIn, MaxPacket: 512}}},
				{Number: 0, Alternate: 1, Class: 0xff, Endpoints: []Endpoint{{Address: SinkOut, MaxPacket: 512}, {Address: SourceIn, MaxPacket: 512}}},
				{Number: 1, Class: 3, Driver: "usbhid", HIDReport: 32, Endpoints: []Endpoint{
					{Address: ReportIn, Interrupt: true, MaxPacket: 64}, {Address: ReportOut, Interrupt: true, MaxPacket: 64}}},
				{Number: 2, Class: 2, SubClass: 2, Protocol: 1, Driver: "cdc_acm", Endpoints: []Endpoint{{Address: 0x83, Interrupt: true, MaxPacket: 16}}},
				{Number: 3, Class: 0x0a, Driver: "cdc_acm", Endpoints: []Endpoint{{Address: SerialOut, MaxPacket: 512}, {Address: SerialIn, MaxPacket: 512}}},
			},
			New: func() Gadget { return &Echo{Reports: make(map[uint16][]byte)} },
		},
		{
			Name: ScopeName, VID: 0x1209, PID: 0x0002, Manufacturer: "Farhand", Product: "Simulated oscilloscope",
			Interfaces: []Interface{{Number: 0, Class: 0xfe, SubClass: 3, Protocol: 1,
				Endpoints: []Endpoint{{Address: 0x01, MaxPacket: 512}, {Address: 0x81, MaxPacket: 512}}}},
			New: func() Gadget { return new(Scope) },
		},
	}
}

// Echo sends back what it gets.
type Echo struct {
	Reports map[uint16][]byte // HID reports that were set, by type and number
}

// Out sends a packet back. Of a full queue it takes no more.
func (*Echo) Out(p *Port, endpoint byte, data []byte) bool {
	in := map[byte]byte{EchoOut: EchoIn, ReportOut: ReportIn, SerialOut: SerialIn}[endpoint]
	if in == 0 {
		return true // the sink
	}
	if p.Queued(in)+len(data) > maxQueued {
		return false
	}
	p.Send(in, data)
	return true
}

// Ask makes zeros for the source.
func (*Echo) Ask(p *Port, endpoint byte) {
	if endpoint == SourceIn {
		p.Send(endpoint, make([]byte, 4096))
	}
}

// Vendor requests of the echo, and HID's (HID 1.11, 7.2).
const (
	vendorOut    = 0x40
	vendorIn     = 0xc0
	vendorReport = 1 // remembers what it gets, and gives it back

	classIn   = 0xa1
	classOut  = 0x21
	getReport = 1
	setReport = 9
)

// Control remembers what it gets by vendor request 1 and gives it back; a HID
// report that was set is got again, and an output report comes as an input
// report.
func (g *Echo) Control(p *Port, s Setup, data []byte) ([]byte, error) {
	const note = 0xffff
	switch {
	case s.RequestType == vendorOut && s.Request == vendorReport:
		g.Reports[note] = slices.Clone(data)
		return []byte{}, nil
	case s.RequestType == vendorIn && s.Request == vendorReport:
		return append([]byte{}, g.Reports[note]...), nil
	case s.RequestType == classOut && s.Request == setReport && s.Index == 1:
		g.Reports[s.Value] = slices.Clone(data)
		if s.Value>>8 == 2 {
			p.Send(ReportIn, data)
		}
		return []byte{}, nil
	case s.RequestType == classIn && s.Request == getReport && s.Index == 1:
		if r, ok := g.Reports[s.Value]; ok {
			return r, nil
		}
		return make([]byte, min(s.Length, 8)), nil
	}
	return nil, syscall.EPIPE
}

// Scope is an instrument on USBTMC (USBTMC 1.0) that can be wedged: asked for an
// answer that it doesn't have, it answers nothing more until that is aborted.
type Scope struct {
	command []byte
	answer  []byte
	waits   bool // for an answer that isn't there
	tag     byte
	Aborted int // how often it was told to
	Cleared int
}

// ScopeIdentity is its answer to *IDN?.
const ScopeIdentity = "Farhand,Simulated oscilloscope,SIM-SCOPE,1.0\n"

const (
	scopeIn        = 0x81
	msgOut         = 1 // DEV_DEP_MSG_OUT
	msgRequestIn   = 2 // REQUEST_DEV_DEP_MSG_IN
	statusSuccess  = 1
	statusFailed   = 0x80
	endOfMessage   = 1
	tmcHeader      = 12
	maxTMCCommand  = 4096
	abortIn        = 3
	checkAbortIn   = 4
	initiateClear  = 5
	checkClear     = 6
	getCapability  = 7
	abortOut       = 1
	checkAbortOut  = 2
	endpointIn     = 0xa2
	capabilityLen  = 0x18
	interfaceIndex = 0
)

// Out takes a bulk message.
func (g *Scope) Out(p *Port, _ byte, data []byte) bool {
	if g.waits || len(data) < tmcHeader || data[1] != ^data[2] {
		return true // wedged, or nonsense: taken and forgotten
	}
	size := int(binary.LittleEndian.Uint32(data[4:]))
	switch data[0] {
	case msgOut:
		if body := data[tmcHeader:]; size <= len(body) && len(g.command)+size <= maxTMCCommand {
			g.command = append(g.command, body[:size]...)
			if data[8]&endOfMessage != 0 {
				g.run()
			}
		}
	case msgRequestIn:
		g.tag = data[1]
		if len(g.answer) == 0 {
			g.waits = true
			return true
		}
		n := min(size, len(g.answer))
		head := make([]byte, tmcHeader, tmcHeader+n+3)
		head[0], head[1], head[2] = msgRequestIn, g.tag, ^g.tag
		binary.LittleEndian.PutUint32(head[4:], uint32(n))
		if n == len(g.answer) {
			head[8] = endOfMessage
		}
		message := append(head, g.answer[:n]...)
		for len(message)%4 != 0 {
			message = append(message, 0)
		}
		g.answer = g.answer[n:]
		p.Send(scopeIn, message)
	}
	return true
}

// run carries a command out, if it ends as it must.
func (g *Scope) run() {
	command := string(g.command)
	g.command = nil
	if !strings.HasSuffix(command, "\n") {
		return // the terminator is missing: it waits for one
	}
	switch strings.TrimSpace(command) {
	case "*IDN?":
		g.answer = []byte(ScopeIdentity)
	case "CURV?":
		g.answer = []byte(strings.Repeat("0123456789", 200) + "\n")
	}
}

// Control answers the class's requests.
func (g *Scope) Control(p *Port, s Setup, _ []byte) ([]byte, error) {
	switch {
	case s.RequestType == endpointIn && s.Request == abortIn:
		g.Aborted++
		if !g.waits && p.Queued(scopeIn) == 0 {
			return []byte{statusFailed, g.tag}, nil
		}
		g.waits = false
		p.Send(scopeIn, []byte{}) // the end of what there is
		return []byte{statusSuccess, g.tag}, nil
	case s.RequestType == endpointIn && s.Request == checkAbortIn:
		return []byte{statusSuccess, 0, 0, 0, 0, 0, 0, 0}, nil
	case s.RequestType == endpointIn && s.Request == abortOut:
		g.command = nil
		return []byte{statusSuccess, byte(s.Value)}, nil
	case s.RequestType == endpointIn && s.Request == checkAbortOut:
		return make([]byte, 8), nil
	case s.RequestType == classIn && s.Request == initiateClear && s.Index == interfaceIndex:
		g.Cleared++
		g.command, g.answer, g.waits = nil, nil, false
		p.Drop(scopeIn)
		return []byte{statusSuccess}, nil
	case s.RequestType == classIn && s.Request == checkClear:
		return []byte{statusSuccess, 0}, nil
	case s.RequestType == classIn && s.Request == getCapability:
		b := make([]byte, capabilityLen)
		b[0], b[2] = statusSuccess, 1
		return b, nil
	}
	return nil, syscall.EPIPE
}
