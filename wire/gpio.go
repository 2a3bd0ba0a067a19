package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The operations of GPIO chips. Each takes the lines that it names, not the
// chip: others may use the other lines meanwhile.
//
// A line is named by its number on the chip (17 or "17"), its name ("GPIO17",
// whatever the kernel calls it), its BCM number ("GPIO17", "BCM17") or its pin on
// the Raspberry Pi's header ("pin 11", "J8:11"), or with its chip in front
// ("gpiochip0:17", "pinctrl-bcm2711:GPIO17"), which must be the device's own.
// "line" has one, "lines" several: at most 64 in one operation.
const (
	OpGPIOGet       = "GPIO_GET"       // reads levels; changes nothing, not even the direction
	OpGPIOSet       = "GPIO_SET"       // drives lines; makes them outputs if need be; keeps the lease
	OpGPIOConfigure = "GPIO_CONFIGURE" // sets direction, pull, drive, debounce, what to do at the end
	OpGPIOWatch     = "GPIO_WATCH"     // opens a stream of GPIORecord
	OpGPIOPWM       = "GPIO_PWM"       // a square wave, by hardware where the line has it
	OpGPIOInfo      = "GPIO_INFO"      // what there is, and who has it; takes no line
)

// MaxGPIOLines is how many lines an operation may name. It is what one request
// of the kernel can have (GPIO_V2_LINES_MAX of linux/gpio.h).
const MaxGPIOLines = 64

// GPIOLine is the name of a line. It reads a number as well.
type GPIOLine string

// UnmarshalJSON reads a string or a whole number.
func (l *GPIOLine) UnmarshalJSON(b []byte) error {
	b = bytes.TrimSpace(b)
	if bytes.Equal(b, []byte("null")) {
		return nil
	}
	if len(b) > 0 && b[0] != '"' {
		n, err := strconv.ParseUint(string(b), 10, 32)
		if err != nil {
			return errors.New("a line must be a number or a name")
		}
		*l = GPIOLine(strconv.FormatUint(n, 10))
		return nil
	}
	var s string
	if json.Unmarshal(b, &s) != nil {
		return errors.New("a line must be a number or a name")
	}
	*l = GPIOLine(s)
	return nil
}

// GPIOLevel is 0 or 1, after active_low. It reads true and false, "high" and
// "low", "on" and "off" as well.
type GPIOLevel int

// UnmarshalJSON reads one of them.
func (v *GPIOLevel) UnmarshalJSON(b []byte) error {
	switch strings.ToLower(strings.Trim(string(bytes.TrimSpace(b)), `"`)) {
	case "0", "0.0", "false", "low", "off":
		*v = 0
	case "1", "1.0", "true", "high", "on":
		*v = 1
	default:
		return errors.New("a level must be 0 or 1")
	}
	return nil
}

// GPIOLines is a list of lines. It reads a single one as well, an object that
// gives each line a level, in the object's order, and a list of {line, value} as
// results have it.
type GPIOLines struct {
	Names  []GPIOLine
	Levels []GPIOLevel // as many as Names, or nil
}

// UnmarshalJSON reads an array, an object, a number or a string.
func (l *GPIOLines) UnmarshalJSON(b []byte) error {
	*l = GPIOLines{}
	b = bytes.TrimSpace(b)
	switch {
	case len(b) == 0 || bytes.Equal(b, []byte("null")):
		return nil
	case b[0] == '[' && bytes.HasPrefix(bytes.TrimSpace(b[1:]), []byte("{")):
		var list []struct {
			Line  GPIOLine   `json:"line"`
			Value *GPIOLevel `json:"value"`
		}
		if err := json.Unmarshal(b, &list); err != nil {
			return err
		}
		for i, e := range list {
			if e.Line == "" || (e.Value == nil) != (list[0].Value == nil) {
				return fmt.Errorf("entry %d: a line, and a value in all or none, must be there", i)
			}
			l.Names = append(l.Names, e.Line)
			if e.Value != nil {
				l.Levels = append(l.Levels, *e.Value)
			}
		}
		return nil
	case b[0] == '[':
		return json.Unmarshal(b, &l.Names)
	case b[0] == '{':
		return Fields(b, func(key string, raw []byte) error {
			var v GPIOLevel
			if err := v.UnmarshalJSON(raw); err != nil {
				return fmt.Errorf("line %s: %w", Clean(key, 32), err)
			}
			l.Names, l.Levels = append(l.Names, GPIOLine(key)), append(l.Levels, v)
			return nil
		})
	}
	l.Names = make([]GPIOLine, 1)
	return l.Names[0].UnmarshalJSON(b)
}

// MarshalJSON writes an object if there are levels, otherwise an array.
func (l GPIOLines) MarshalJSON() ([]byte, error) {
	if l.Levels == nil {
		return json.Marshal(l.Names)
	}
	if len(l.Levels) != len(l.Names) {
		return nil, errors.New("each line needs a level")
	}
	out := []byte{'{'}
	for i, name := range l.Names {
		if i > 0 {
			out = append(out, ',')
		}
		key, err := json.Marshal(string(name))
		if err != nil {
			return nil, err
		}
		out = append(append(out, key...), ':')
		out = strconv.AppendInt(out, int64(l.Levels[i]), 10)
	}
	return append(out, '}'), nil
}

// GPIOSelect names the lines of an operation: line, lines or both.
type GPIOSelect struct {
	Line  GPIOLine  `json:"line,omitempty"`
	Lines GPIOLines `json:"lines,omitzero"`
}

// IsZero says whether there are none, for omitzero.
func (l GPIOLines) IsZero() bool { return l.Names == nil }

// What becomes of a line when the lease on it ends.
const (
	GPIOHold  GPIORelease = "hold"  // it keeps its level: default of outputs
	GPIOInput GPIORelease = "input" // it becomes an input
	GPIOLow   GPIORelease = "0"     // it is driven to 0, after active_low: default of PWM and of hardware.actuators
	GPIOHigh  GPIORelease = "1"     // it is driven to 1, after active_low
)

// GPIORelease is one of hold, input, 0 and 1; empty stands for the default.
type GPIORelease string

// UnmarshalJSON reads "hold", "input" or a level.
func (r *GPIORelease) UnmarshalJSON(b []byte) error {
	switch s := strings.ToLower(strings.Trim(string(bytes.TrimSpace(b)), `"`)); s {
	case "null", "":
		*r = ""
	case string(GPIOHold), string(GPIOInput):
		*r = GPIORelease(s)
	default:
		var v GPIOLevel
		if v.UnmarshalJSON(b) != nil {
			return errors.New(`on_release must be "hold", "input", 0 or 1`)
		}
		*r = GPIORelease(strconv.Itoa(int(v)))
	}
	return nil
}

// MarshalJSON writes levels as numbers.
func (r GPIORelease) MarshalJSON() ([]byte, error) {
	if r == GPIOLow || r == GPIOHigh {
		return []byte(r), nil
	}
	return json.Marshal(string(r))
}

// GPIOEnd says what becomes of an output, and when. Absent: as it was set
// before in this lease, at first hold.
type GPIOEnd struct {
	OnRelease GPIORelease `json:"on_release,omitempty"`
	// DeadmanSeconds, 0.1 to 86400, ends the lease when no frame of the session
	// came for so long; it takes the place of the 10 s grace after a lost link.
	// 0 takes it away.
	DeadmanSeconds *float64 `json:"deadman_seconds,omitempty"`
}

// GPIOGet is the args of GPIO_GET.
type GPIOGet struct{ GPIOSelect }

// GPIOSet is the args of GPIO_SET: {"line":17,"value":1},
// {"lines":{"17":1,"GPIO18":0}}, {"lines":[17,18],"value":1} or
// {"lines":[17,18],"values":[1,0]}. All lines that belong to one request of the
// kernel change at once.
type GPIOSet struct {
	GPIOSelect
	Value  *GPIOLevel  `json:"value,omitempty"`  // of each line that has none of its own
	Values []GPIOLevel `json:"values,omitempty"` // of each line in turn
	GPIOEnd
}

// GPIOConfigure is the args of GPIO_CONFIGURE. An absent field keeps what this
// lease has set before, at first the default.
type GPIOConfigure struct {
	GPIOSelect
	Direction string `json:"direction,omitempty"` // in (default), out
	// InitialValue is an output's first level. Default: the level that the line
	// has; of an actuator 0.
	InitialValue *GPIOLevel `json:"initial_value,omitempty"`
	// Pull is up, down, none (no pull resistor), or as_is (default: what the
	// line has). bias is another name for it, and disabled for none.
	Pull      string `json:"pull,omitempty"`
	Bias      string `json:"bias,omitempty"`
	Drive     string `json:"drive,omitempty"` // outputs: push_pull (default), open_drain, open_source
	ActiveLow *bool  `json:"active_low,omitempty"`
	// Debounce of an input, 0 to 60 s: a level counts once it was stable for so
	// long. Either of the two.
	DebounceSeconds *float64 `json:"debounce_seconds,omitempty"`
	DebounceUS      *int64   `json:"debounce_us,omitempty"` // microseconds
	// Edge is refused: GPIO_WATCH delivers edges.
	Edge string `json:"edge,omitempty"`
	GPIOEnd
}

// GPIOValue is the level of one line.
type GPIOValue struct {
	Line  int    `json:"line"` // number on the chip
	Name  string `json:"name,omitempty"`
	Value int    `json:"value"` // 0 or 1, after active_low
}

// GPIOValues is the result of GPIO_GET and GPIO_SET.
type GPIOValues struct {
	Value *int        `json:"value,omitempty"` // if it was about one line
	Lines []GPIOValue `json:"lines"`           // in the order in which they were named
	// Atomic says that all were read or set by one call of the kernel. It is
	// false where lines that were claimed one by one lie in separate requests.
	Atomic bool `json:"atomic"`
}

// GPIOConfigured is the result of GPIO_CONFIGURE: the lines as they are now.
type GPIOConfigured struct {
	Lines  []GPIOLineState `json:"lines"`
	Atomic bool            `json:"atomic"` // all belong to one request of the kernel
}

// GPIOLineState is how a line is set.
type GPIOLineState struct {
	GPIOValue
	Direction      string      `json:"direction"` // in, out
	Pull           string      `json:"pull,omitempty"`
	Drive          string      `json:"drive,omitempty"`
	ActiveLow      bool        `json:"active_low"`
	DebounceUS     int64       `json:"debounce_us,omitempty"`
	OnRelease      GPIORelease `json:"on_release,omitempty"` // outputs
	DeadmanSeconds float64     `json:"deadman_seconds,omitempty"`
}

// GPIOWatch is the args of GPIO_WATCH. A line that isn't an input yet is made
// one; an output of this session is refused.
type GPIOWatch struct {
	GPIOSelect
	Edge string `json:"edge,omitempty"` // rising, falling, both (default)

	Pull            string   `json:"pull,omitempty"` // as in GPIOConfigure
	Bias            string   `json:"bias,omitempty"`
	ActiveLow       *bool    `json:"active_low,omitempty"`
	DebounceSeconds *float64 `json:"debounce_seconds,omitempty"`
	DebounceUS      *int64   `json:"debounce_us,omitempty"`

	// PollSeconds, 0.01 to 3600, reads the levels this often beside the edges,
	// and reports one that no edge has told (kind "level" with repaired). It
	// also lets lines be watched whose controller has no interrupts. 0: never.
	PollSeconds float64 `json:"poll_seconds,omitempty"`
	Credit      int     `json:"credit,omitempty"` // bytes, see STREAM_CREDIT
}

// GPIOWatching is the result of GPIO_WATCH: a stream of GPIORecord.
type GPIOWatching struct {
	Opened
	Lines []GPIOValue `json:"lines"` // with the levels at the beginning
	// Polled are the lines whose edges are found by polling alone, because their
	// controller offers no interrupt.
	Polled []int `json:"polled,omitempty"`
}

// The kinds of GPIORecord.
const (
	GPIOEdge  = "edge"  // a level changed
	GPIOLost  = "lost"  // edges of the line were lost before this
	GPIOState = "level" // how the line is, read after a loss or by polling
	GPIOError = "error" // nothing more comes; the stream ends
)

// GPIORecord is one record of GPIO_WATCH's stream.
type GPIORecord struct {
	Kind  string     `json:"kind"`
	Line  int        `json:"line"`
	Name  string     `json:"name,omitempty"`
	Edge  string     `json:"edge,omitempty"`  // rising, falling: after active_low
	Level *GPIOLevel `json:"level,omitempty"` // after the edge
	// TimestampNS is the kernel's CLOCK_MONOTONIC at the edge, in nanoseconds;
	// of a level, when it was read.
	TimestampNS uint64     `json:"timestamp_ns,omitempty"`
	Time        *time.Time `json:"time,omitempty"` // the same by the wall clock
	// Seq counts the edges of all lines of the watch's kernel request from 1,
	// LineSeq those of the line. They go up by one unless edges were lost.
	Seq     uint32 `json:"seq,omitempty"`
	LineSeq uint32 `json:"line_seq,omitempty"`
	// Lost is how many edges of the line were lost before the next record, by
	// the kernel's numbers; 1 stands for at least one where the line changed the
	// same way twice. A level of each line of the watch follows.
	Lost int64 `json:"lost,omitempty"`
	// Repaired says that polling found a level that no edge had told.
	Repaired bool   `json:"repaired,omitempty"`
	Error    *Error `json:"error,omitempty"`
}

// GPIOPWM is the args of GPIO_PWM. Frequency or period, and duty or its time,
// must be given, unless the line has a PWM already: then what is absent stays.
type GPIOPWM struct {
	Line        GPIOLine `json:"line"`
	FrequencyHz *float64 `json:"frequency_hz,omitempty"` // software: 0.1 to 2000; hardware: 0.1 to 50 MHz, as far as it goes
	PeriodNS    *int64   `json:"period_ns,omitempty"`
	Duty        *float64 `json:"duty,omitempty"` // 0 to 1
	DutyNS      *int64   `json:"duty_ns,omitempty"`
	ActiveLow   *bool    `json:"active_low,omitempty"` // the duty is the time at the low level
	Mode        string   `json:"mode,omitempty"`       // auto (default), hardware, software
	Stop        bool     `json:"stop,omitempty"`       // ends it and drives the line to 0
	GPIOEnd              // OnRelease defaults to 0
}

// GPIOPWMState is the result of GPIO_PWM.
type GPIOPWMState struct {
	Line        int     `json:"line"`
	Name        string  `json:"name,omitempty"`
	Running     bool    `json:"running"`
	Kind        string  `json:"kind,omitempty"`    // hardware, software
	Chip        string  `json:"chip,omitempty"`    // hardware: the device of the PWM, 1f00098000.pwm
	Channel     *int    `json:"channel,omitempty"` // hardware
	FrequencyHz float64 `json:"frequency_hz,omitempty"`
	PeriodNS    int64   `json:"period_ns,omitempty"`
	Duty        float64 `json:"duty"`
	DutyNS      int64   `json:"duty_ns"`
	// Jitter is how late the edges of a software PWM were, measured after its
	// start, or since the last answer.
	Jitter    *GPIOJitter `json:"jitter,omitempty"`
	Reason    string      `json:"reason,omitempty"` // why it isn't hardware
	Hint      string      `json:"hint,omitempty"`   // what would make it so
	OnRelease GPIORelease `json:"on_release,omitempty"`
}

// GPIOJitter is how late the edges of a software PWM were, in microseconds.
type GPIOJitter struct {
	Edges  int     `json:"edges"` // that were measured
	P50US  float64 `json:"p50_us"`
	P99US  float64 `json:"p99_us"`
	MaxUS  float64 `json:"max_us"`
	Missed int     `json:"missed,omitempty"` // whole periods that were left out
}

// GPIOInfo is the args of GPIO_INFO. No lines means all.
type GPIOInfo struct {
	GPIOSelect
	// Probe also finds out of each free input whether it can detect edges, by
	// claiming it for a moment.
	Probe bool `json:"probe,omitempty"`
}

// GPIOChip is the result of GPIO_INFO.
type GPIOChip struct {
	Chip   string         `json:"chip"`  // gpiochip0
	Label  string         `json:"label"` // pinctrl-bcm2711
	Board  string         `json:"board,omitempty"`
	Header bool           `json:"header,omitempty"` // a Raspberry Pi's 40-pin header hangs on it
	Count  int            `json:"count"`            // how many lines the chip has
	Lines  []GPIOLineInfo `json:"lines"`
}

// GPIOLineInfo is what is known about a line.
type GPIOLineInfo struct {
	Line      int    `json:"line"`
	Name      string `json:"name,omitempty"`
	Pin       int    `json:"pin,omitempty"` // on the header
	Direction string `json:"direction"`     // in, out
	Available bool   `json:"available"`     // free, or the caller's
	// Consumer is what the kernel says about who uses the line; Holder the
	// session of this daemon that does.
	Consumer   string      `json:"consumer,omitempty"`
	Holder     string      `json:"holder,omitempty"`
	Held       bool        `json:"held,omitempty"`     // kept at its level for whoever comes next
	Function   string      `json:"function,omitempty"` // what the pin is switched to; "gpio", "alt0", …
	Functions  []string    `json:"functions,omitempty"`
	ActiveLow  bool        `json:"active_low,omitempty"`
	Pull       string      `json:"pull,omitempty"`
	Drive      string      `json:"drive,omitempty"`
	Edge       string      `json:"edge,omitempty"`
	DebounceUS int64       `json:"debounce_us,omitempty"`
	OnRelease  GPIORelease `json:"on_release,omitempty"`
	PWM        string      `json:"pwm,omitempty"`   // hardware or software, if one runs
	Edges      *bool       `json:"edges,omitempty"` // with probe: whether edges can be detected
}
