package serialsim

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
)

const (
	maxLine   = 1024 // bytes of a command line, as small instruments have it
	maxErrors = 16   // entries of the error queue (SCPI 1999 21.8: at least 2)
)

// Supply is a bench power supply that speaks a part of SCPI 1999: *IDN?, *RST,
// *CLS, *OPC?, *TST?, VOLTage and CURRent with their queries, OUTPut,
// MEASure:VOLTage? and MEASure:CURRent?, SYSTem:ERRor?, and DATA? N, which
// sends N bytes as a definite block. Lines end with LF or CR LF, commands on
// one line are separated by semicolons.
//
// A 100 Ω load hangs at its output.
type Supply struct {
	volt, curr float64 // as set, in V and A
	on         bool
	errors     []string
}

// NewSupply makes a supply as it is after power-on.
func NewSupply() *Supply {
	s := &Supply{}
	s.reset()
	return s
}

// Identity is the answer to *IDN?.
const Identity = "FARHAND,SIM-PSU,000042,1.0"

const (
	maxVolt, maxCurr = 30.0, 3.0
	loadOhm          = 100.0
)

func (s *Supply) reset() { s.volt, s.curr, s.on = 0, 1, false }

// Serve answers until the port is gone.
func (s *Supply) Serve(line io.ReadWriter) {
	var pending []byte
	overrun := false
	buf := make([]byte, 256)
	for {
		n, err := line.Read(buf)
		if err != nil {
			return
		}
		for _, c := range buf[:n] {
			switch {
			case c == '\n':
				if overrun {
					s.fail(-363, "Input buffer overrun")
				} else if answer := s.Answer(string(pending)); answer != "" {
					if _, err := io.WriteString(line, answer+"\n"); err != nil {
						return
					}
				}
				pending, overrun = pending[:0], false
			case len(pending) == maxLine:
				overrun = true
			default:
				pending = append(pending, c)
			}
		}
	}
}

// Answer runs one line and is what the instrument sends for it, without the
// newline: empty if there is nothing to say.
func (s *Supply) Answer(line string) string {
	var answers []string
	for command := range strings.SplitSeq(strings.TrimRight(line, "\r"), ";") {
		command = strings.TrimSpace(command)
		if command == "" {
			continue
		}
		header, arg, _ := strings.Cut(command, " ")
		if a := s.run(strings.ToUpper(strings.TrimPrefix(header, ":")), strings.TrimSpace(arg)); a != "" {
			answers = append(answers, a)
		}
	}
	return strings.Join(answers, ";")
}

func (s *Supply) run(header, arg string) string {
	switch short(header) {
	case "*IDN?":
		return Identity
	case "*RST":
		s.reset()
	case "*CLS":
		s.errors = nil
	case "*OPC?":
		return "1"
	case "*TST?":
		return "0"
	case "VOLT":
		s.set(&s.volt, arg, maxVolt)
	case "VOLT?":
		return number(s.volt)
	case "CURR":
		s.set(&s.curr, arg, maxCurr)
	case "CURR?":
		return number(s.curr)
	case "OUTP":
		s.output(arg)
	case "OUTP?":
		if s.on {
			return "1"
		}
		return "0"
	case "MEAS:VOLT?":
		v, _ := s.measure()
		return number(v)
	case "MEAS:CURR?":
		_, i := s.measure()
		return number(i)
	case "SYST:ERR?":
		return s.nextError()
	case "DATA?":
		return s.block(arg)
	default:
		s.fail(-113, "Undefined header")
	}
	return ""
}

// short brings a header to its short form, node by node.
func short(header string) string {
	base, query := strings.CutSuffix(header, "?")
	nodes := strings.Split(base, ":")
	for i, n := range nodes {
		switch n {
		case "VOLTAGE":
			nodes[i] = "VOLT"
		case "CURRENT":
			nodes[i] = "CURR"
		case "OUTPUT":
			nodes[i] = "OUTP"
		case "MEASURE":
			nodes[i] = "MEAS"
		case "SYSTEM":
			nodes[i] = "SYST"
		case "ERROR":
			nodes[i] = "ERR"
		}
	}
	// Default nodes may be left out or written.
	for _, d := range []string{"DC", "NEXT", "STAT", "STATE", "LEV", "LEVEL"} {
		if len(nodes) > 1 && nodes[len(nodes)-1] == d {
			nodes = nodes[:len(nodes)-1]
		}
	}
	if len(nodes) > 1 && (nodes[0] == "SOUR" || nodes[0] == "SOURCE") {
		nodes = nodes[1:]
	}
	base = strings.Join(nodes, ":")
	if query {
		base += "?"
	}
	return base
}

func (s *Supply) set(v *float64, arg string, limit float64) {
	x, err := strconv.ParseFloat(arg, 64)
	switch {
	case arg == "":
		s.fail(-109, "Missing parameter")
	case err != nil || math.IsNaN(x):
		s.fail(-104, "Data type error")
	case x < 0 || x > limit:
		s.fail(-222, "Data out of range")
	default:
		*v = x
	}
}

func (s *Supply) output(arg string) {
	switch strings.ToUpper(arg) {
	case "ON", "1":
		s.on = true
	case "OFF", "0":
		s.on = false
	default:
		s.fail(-104, "Data type error")
	}
}

// measure is what the load sees: constant voltage, or constant current where
// the voltage would drive more than is set.
func (s *Supply) measure() (volt, curr float64) {
	if !s.on {
		return 0, 0
	}
	i := min(s.volt/loadOhm, s.curr)
	return i * loadOhm, i
}

// number is NR3, as instruments print it.
func number(v float64) string { return fmt.Sprintf("%+.6E", v) }

func (s *Supply) fail(code int, text string) {
	if len(s.errors) == maxErrors {
		s.errors[maxErrors-1] = `-350,"Queue overflow"`
		return
	}
	s.errors = append(s.errors, fmt.Sprintf(`%d,"%s"`, code, text))
}

func (s *Supply) nextError() string {
	if len(s.errors) == 0 {
		return `0,"No error"`
	}
	e := s.errors[0]
	s.errors = s.errors[1:]
	return e
}

// block is N bytes as #<digits><N><bytes>: the letters over and over.
func (s *Supply) block(arg string) string {
	const most = 1 << 20
	n, err := strconv.Atoi(arg)
	if err != nil || n < 0 || n > most {
		s.fail(-222, "Data out of range")
		return ""
	}
	size := strconv.Itoa(n)
	const letters = "abcdefghijklmnopqrstuvwxyz"
	return "#" + strconv.Itoa(len(size)) + size + strings.Repeat(letters, n/len(letters)+1)[:n]
}
