package octotest

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// The states of the printer, as OctoPrint words them (docs: job, "state").
const (
	Offline     = "Offline"
	Operational = "Operational"
	Printing    = "Printing"
	Paused      = "Paused"
)

const (
	ambient = 21.0
	// warmth is the time in which a heater covers two thirds of its way.
	warmth = 20 * time.Second
	maxLog = 300 // lines that are kept for the push sockets
)

// heater is one heater, which approaches its target.
type heater struct {
	target float64
	actual float64
}

// file is a stored file.
type file struct {
	Path    string
	Display string
	Size    int64
	Date    int64
	Content []byte // the first bytes of it, at most keep
}

const keep = 64 << 10

// Machine is the printer. The server's lock guards it.
type machine struct {
	state   string
	errText string // of the last lost connection
	down    bool   // Klipper has shut itself down

	heaters map[string]*heater
	axes    map[string]float64
	homed   map[string]bool
	homings int
	rel     bool

	files    map[string]map[string]*file // by location and path
	location string                      // of the selected file
	selected *file
	printed  time.Duration // until now
	length   time.Duration // of a whole job

	at   time.Time // up to when everything above is
	log  []string
	logN int // lines ever
}

func newMachine(now time.Time, length time.Duration) *machine {
	return &machine{
		state:   Operational,
		heaters: map[string]*heater{"tool0": {actual: ambient}, "bed": {actual: ambient}},
		axes:    map[string]float64{"x": 0, "y": 0, "z": 0},
		homed:   make(map[string]bool),
		files:   map[string]map[string]*file{"local": {}, "sdcard": {}},
		length:  length, at: now,
	}
}

// advance brings the printer to the present.
func (m *machine) advance(now time.Time) {
	d := now.Sub(m.at)
	if d <= 0 {
		return
	}
	m.at = now
	part := 1 - math.Exp(-d.Seconds()/warmth.Seconds())
	for _, h := range m.heaters {
		h.actual += (max(h.target, ambient) - h.actual) * part
	}
	if m.state == Printing {
		if m.printed += d; m.printed >= m.length {
			m.printed, m.state = m.length, Operational
			for _, h := range m.heaters { // the end of every slicer's file
				h.target = 0
			}
		}
	}
}

func (m *machine) operational() bool { return m.state != Offline && !m.down }
func (m *machine) busy() bool        { return m.state == Printing || m.state == Paused }

// start starts the selected file.
func (m *machine) start() bool {
	if !m.operational() || m.busy() || m.selected == nil {
		return false
	}
	m.state, m.printed = Printing, 0
	m.say("Send: M110 N0")
	return true
}

func (m *machine) say(line string) {
	m.log = append(m.log, line)
	m.log = m.log[max(0, len(m.log)-maxLog):]
	m.logN++
}

// run executes one line of G-code.
func (m *machine) run(line string) {
	m.say("Send: " + line)
	words := strings.Fields(strings.ToUpper(line))
	if len(words) == 0 {
		return
	}
	args := make(map[byte]float64)
	for _, w := range words[1:] {
		if v, err := strconv.ParseFloat(w[1:], 64); err == nil {
			args[w[0]] = v
		} else {
			args[w[0]] = 0
		}
	}
	switch words[0] {
	case "M104", "M109":
		m.target("tool"+strconv.Itoa(int(args['T'])), args['S'])
	case "M140", "M190":
		m.target("bed", args['S'])
	case "M112": // emergency stop
		m.shutdown()
	case "FIRMWARE_RESTART":
		if m.down {
			m.down, m.state, m.errText = false, Operational, ""
		}
	case "G28":
		for _, axis := range []string{"x", "y", "z"} {
			if _, named := args[strings.ToUpper(axis)[0]]; named || len(words) == 1 {
				m.home(axis)
			}
		}
	case "G90":
		m.rel = false
	case "G91":
		m.rel = true
	case "G0", "G1":
		for axis := range m.axes {
			if v, ok := args[strings.ToUpper(axis)[0]]; ok {
				m.move(axis, v, !m.rel)
			}
		}
	}
	m.say("Recv: ok")
}

func (m *machine) target(name string, celsius float64) bool {
	h := m.heaters[name]
	if h == nil {
		return false
	}
	h.target = celsius
	return true
}

func (m *machine) home(axis string) {
	m.axes[axis], m.homed[axis] = 0, true
	m.homings++
}

func (m *machine) move(axis string, mm float64, absolute bool) {
	if !absolute {
		mm += m.axes[axis]
	}
	m.axes[axis] = mm
}

// shutdown is what Klipper does at an emergency stop: heaters off, the link to
// the server down until a firmware restart (klipper#650).
func (m *machine) shutdown() {
	m.down, m.state = true, Offline
	m.errText = shutdownText
	for _, h := range m.heaters {
		h.target = 0
	}
}

// shutdownText is klippy's message_shutdown.
const shutdownText = "Shutdown due to M112 command. Once the underlying issue is corrected, use the \"FIRMWARE_RESTART\" command to reset the firmware. Printer is shutdown"
