package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"farhand/client"
	"farhand/wire"
)

const lineHelp = "GPIO17 (its BCM number), \"pin 11\" (on the Raspberry Pi's header), 17 (on the chip) or the kernel's name"

func gpioTools() []tool {
	return []tool{
		define("gpio_info", "Describe GPIO lines",
			"Says what lines a GPIO chip has, how each is set and who uses it. A line is named as "+lineHelp+".",
			reads, wire.HardwareGPIO, gpioInfo),
		define("gpio_read", "Read GPIO lines",
			"Reads the levels of lines and changes nothing, not even their direction.",
			reads, wire.HardwareGPIO, gpioRead),
		define("gpio_write", "Set GPIO lines",
			"Drives lines to a level, making them outputs if need be. They stay this connection's until release_device. on_release says what becomes of them then.",
			destroys, wire.HardwareGPIO, gpioWrite).idempotent(),
		define("gpio_configure", "Configure GPIO lines",
			"Sets how lines are: direction, pull resistor, drive, active low, debounce. They stay this connection's until release_device.",
			destroys, wire.HardwareGPIO, gpioConfigure).idempotent(),
		define("gpio_pwm", "PWM on a GPIO line",
			"Makes a square wave on a line (LED brightness, servo, fan), changes it, or stops it. It stops when it is released.",
			destroys, wire.HardwareGPIO, gpioPWM).idempotent(),
		define("gpio_watch", "Wait for GPIO edges",
			"Waits until lines change, and returns the edges with their times. It ends after max_events edges or timeout_seconds.",
			changes, wire.HardwareGPIO, gpioWatch),
	}
}

// onChip is a GPIO chip of a machine.
type onChip struct {
	onMachine
	Device string `json:"device,omitempty" jsonschema:"id of the GPIO chip (list_devices); default: the one with the Raspberry Pi's header, or the only one"`
}

// onLines are lines of a chip.
type onLines struct {
	onChip
	Lines []string `json:"lines" jsonschema:"lines: GPIO17 (BCM number), \"pin 11\" (on the header), 17 (on the chip) or the kernel's name" length:"1..64"`
}

func lineNames(names []string) []wire.GPIOLine {
	var out []wire.GPIOLine // nil for none, which stands for all
	for _, n := range names {
		out = append(out, wire.GPIOLine(n))
	}
	return out
}

func selected(names []string) wire.GPIOSelect {
	return wire.GPIOSelect{Lines: wire.GPIOLines{Names: lineNames(names)}}
}

type gpioInfoAsked struct {
	onChip
	Lines []string `json:"lines,omitempty" jsonschema:"only these lines; default: all that have a name" length:"1..64"`
}

type gpioChip struct {
	Device string         `json:"device"`
	Chip   string         `json:"chip"`
	Board  string         `json:"board,omitempty"`
	Count  int            `json:"count" jsonschema:"how many lines the chip has"`
	Lines  []gpioLineInfo `json:"lines"`
}

type gpioLineInfo struct {
	Line      int    `json:"line" jsonschema:"its number on the chip"`
	Name      string `json:"name,omitempty"`
	Pin       int    `json:"pin,omitempty" jsonschema:"its pin on the 40-pin header"`
	Direction string `json:"direction" jsonschema:"in or out"`
	Available bool   `json:"available" jsonschema:"free, or this connection's"`
	UsedBy    string `json:"used_by,omitempty"`
	Function  string `json:"function,omitempty" jsonschema:"what the pin is switched to"`
	Pull      string `json:"pull,omitempty"`
	PWM       string `json:"pwm,omitempty" jsonschema:"hardware or software, if one runs"`
}

func gpioInfo(ctx context.Context, c *call, in gpioInfoAsked) (gpioChip, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "gpio", in.Device)
	if err != nil {
		return gpioChip{}, "", err
	}
	ask := wire.GPIOInfo{}
	if len(in.Lines) > 0 {
		ask.GPIOSelect = selected(in.Lines)
	}
	chip, err := at.GPIOInfo(ctx, at.device, ask, false)
	if err != nil {
		return gpioChip{}, "", err
	}
	out := gpioChip{Device: at.device, Chip: chip.Label, Board: chip.Board, Count: chip.Count, Lines: []gpioLineInfo{}}
	var text strings.Builder
	for _, l := range chip.Lines {
		if len(in.Lines) == 0 && l.Name == "" && l.Pin == 0 {
			continue
		}
		info := gpioLineInfo{
			Line: l.Line, Name: l.Name, Pin: l.Pin, Direction: l.Direction, Available: l.Available, UsedBy: l.Consumer,
			Function: l.Function, Pull: l.Pull, PWM: l.PWM,
		}
		out.Lines = append(out.Lines, info)
		fmt.Fprintf(&text, "line %d", l.Line)
		if l.Name != "" {
			fmt.Fprintf(&text, " %s", l.Name)
		}
		if l.Pin > 0 {
			fmt.Fprintf(&text, " (pin %d)", l.Pin)
		}
		fmt.Fprintf(&text, ": %s", l.Direction)
		if l.Consumer != "" {
			fmt.Fprintf(&text, ", used by %s", l.Consumer)
		}
		text.WriteByte('\n')
	}
	return out, text.String(), nil
}

type gpioValues struct {
	Device string      `json:"device"`
	Lines  []gpioValue `json:"lines" jsonschema:"in the order in which they were named"`
}

type gpioValue struct {
	Line  int    `json:"line" jsonschema:"its number on the chip"`
	Name  string `json:"name,omitempty"`
	Value int    `json:"value" jsonschema:"0 or 1, after active_low"`
}

func levels(device string, lines []wire.GPIOValue) (gpioValues, string) {
	out := gpioValues{Device: device, Lines: []gpioValue{}}
	var text []string
	for _, l := range lines {
		out.Lines = append(out.Lines, gpioValue(l))
		text = append(text, fmt.Sprintf("%s=%d", lineName(l.Name, l.Line), l.Value))
	}
	return out, strings.Join(text, " ")
}

func lineName(name string, line int) string {
	if name != "" {
		return name
	}
	return "line " + strconv.Itoa(line)
}

func gpioRead(ctx context.Context, c *call, in onLines) (gpioValues, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "gpio", in.Device)
	if err != nil {
		return gpioValues{}, "", err
	}
	got, err := at.GPIOGet(ctx, at.device, wire.GPIOGet{GPIOSelect: selected(in.Lines)}, false)
	if err != nil {
		return gpioValues{}, "", err
	}
	out, text := levels(at.device, got.Lines)
	return out, text, nil
}

// onRelease says what becomes of outputs.
type onRelease struct {
	OnRelease      string  `json:"on_release,omitempty" jsonschema:"what becomes of the output when it is released: hold its level (default), become an input, or be driven low or high" enum:"hold,input,low,high"`
	DeadmanSeconds float64 `json:"deadman_seconds,omitempty" jsonschema:"release it when nothing was heard from this connection for so many seconds" range:"0.1..86400"`
}

func (r onRelease) end() wire.GPIOEnd {
	as := map[string]wire.GPIORelease{"hold": wire.GPIOHold, "input": wire.GPIOInput, "low": wire.GPIOLow, "high": wire.GPIOHigh}
	return wire.GPIOEnd{OnRelease: as[r.OnRelease], DeadmanSeconds: seconds(r.DeadmanSeconds)}
}

type gpioWriteAsked struct {
	onChip
	Lines []lineLevel `json:"lines" jsonschema:"what to drive, and how" length:"1..64"`
	onRelease
}

type lineLevel struct {
	Line  string `json:"line" jsonschema:"GPIO17 (BCM number), \"pin 11\" (on the header), 17 (on the chip) or the kernel's name"`
	Value int    `json:"value" jsonschema:"0 is low, 1 is high" range:"0..1"`
}

func gpioWrite(ctx context.Context, c *call, in gpioWriteAsked) (gpioValues, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "gpio", in.Device)
	if err != nil {
		return gpioValues{}, "", err
	}
	set := wire.GPIOSet{GPIOEnd: in.end()}
	for _, l := range in.Lines {
		set.Lines.Names = append(set.Lines.Names, wire.GPIOLine(l.Line))
		set.Lines.Levels = append(set.Lines.Levels, wire.GPIOLevel(l.Value))
	}
	got, err := at.GPIOSet(ctx, at.device, set, true)
	if err != nil {
		return gpioValues{}, "", err
	}
	out, text := levels(at.device, got.Lines)
	return out, text, nil
}

type gpioConfigureAsked struct {
	onLines
	Direction       string  `json:"direction,omitempty" enum:"in,out" default:"\"in\""`
	InitialValue    *int    `json:"initial_value,omitempty" jsonschema:"of outputs: the first level; default: the one that the line has" range:"0..1"`
	Pull            string  `json:"pull,omitempty" jsonschema:"pull resistor" enum:"up,down,none,as_is"`
	Drive           string  `json:"drive,omitempty" jsonschema:"of outputs" enum:"push_pull,open_drain,open_source"`
	ActiveLow       *bool   `json:"active_low,omitempty" jsonschema:"1 then stands for the low level"`
	DebounceSeconds float64 `json:"debounce_seconds,omitempty" jsonschema:"of inputs: a level counts once it was stable for so many seconds" range:"0..60"`
	onRelease
}

type gpioConfigured struct {
	Device string          `json:"device"`
	Lines  []gpioLineState `json:"lines"`
}

type gpioLineState struct {
	gpioValue
	Direction string `json:"direction"`
	Pull      string `json:"pull,omitempty"`
	Drive     string `json:"drive,omitempty"`
	ActiveLow bool   `json:"active_low"`
}

func gpioConfigure(ctx context.Context, c *call, in gpioConfigureAsked) (gpioConfigured, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "gpio", in.Device)
	if err != nil {
		return gpioConfigured{}, "", err
	}
	args := wire.GPIOConfigure{
		GPIOSelect: selected(in.Lines), Direction: in.Direction, Pull: in.Pull, Drive: in.Drive, ActiveLow: in.ActiveLow,
		DebounceSeconds: seconds(in.DebounceSeconds), GPIOEnd: in.end(),
	}
	if in.InitialValue != nil {
		level := wire.GPIOLevel(*in.InitialValue)
		args.InitialValue = &level
	}
	got, err := at.GPIOConfigure(ctx, at.device, args, true)
	if err != nil {
		return gpioConfigured{}, "", err
	}
	out := gpioConfigured{Device: at.device, Lines: []gpioLineState{}}
	var text []string
	for _, l := range got.Lines {
		out.Lines = append(out.Lines, gpioLineState{gpioValue(l.GPIOValue), l.Direction, l.Pull, l.Drive, l.ActiveLow})
		text = append(text, fmt.Sprintf("%s is an %sput, level %d", lineName(l.Name, l.Line), l.Direction, l.Value))
	}
	return out, strings.Join(text, "\n"), nil
}

type gpioPWMAsked struct {
	onChip
	Line        string   `json:"line" jsonschema:"GPIO18 (BCM number), \"pin 12\" (on the header), 18 (on the chip) or the kernel's name"`
	FrequencyHz float64  `json:"frequency_hz,omitempty" jsonschema:"in Hz; a servo takes 50; software PWM goes up to 2000" range:"0.1..50000000"`
	DutyPercent *float64 `json:"duty_percent,omitempty" jsonschema:"share of the time at the high level, in percent" range:"0..100"`
	Stop        bool     `json:"stop,omitempty" jsonschema:"end it and drive the line low"`
	Mode        string   `json:"mode,omitempty" enum:"auto,hardware,software"`
	onRelease
}

type gpioPWMState struct {
	Device      string  `json:"device"`
	Line        int     `json:"line"`
	Name        string  `json:"name,omitempty"`
	Running     bool    `json:"running"`
	Kind        string  `json:"kind,omitempty" jsonschema:"hardware or software"`
	FrequencyHz float64 `json:"frequency_hz"`
	DutyPercent float64 `json:"duty_percent"`
	Hint        string  `json:"hint,omitempty"`
}

func gpioPWM(ctx context.Context, c *call, in gpioPWMAsked) (gpioPWMState, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "gpio", in.Device)
	if err != nil {
		return gpioPWMState{}, "", err
	}
	args := wire.GPIOPWM{Line: wire.GPIOLine(in.Line), Mode: in.Mode, Stop: in.Stop, GPIOEnd: in.end(), FrequencyHz: optional(in.FrequencyHz)}
	if in.DutyPercent != nil {
		share := *in.DutyPercent / 100
		args.Duty = &share
	}
	got, err := at.GPIOPWM(ctx, at.device, args, true)
	if err != nil {
		return gpioPWMState{}, "", err
	}
	out := gpioPWMState{
		Device: at.device, Line: got.Line, Name: got.Name, Running: got.Running, Kind: got.Kind,
		FrequencyHz: got.FrequencyHz, DutyPercent: got.Duty * 100, Hint: got.Hint,
	}
	text := lineName(got.Name, got.Line) + " is stopped"
	if got.Running {
		text = fmt.Sprintf("%s: %.6g Hz, %.4g %% high, by %s", lineName(got.Name, got.Line), got.FrequencyHz, out.DutyPercent, got.Kind)
	}
	return out, text, nil
}

type gpioWatchAsked struct {
	onLines
	Edge            string  `json:"edge,omitempty" enum:"rising,falling,both" default:"\"both\""`
	Pull            string  `json:"pull,omitempty" jsonschema:"pull resistor" enum:"up,down,none,as_is"`
	DebounceSeconds float64 `json:"debounce_seconds,omitempty" jsonschema:"a level counts once it was stable for so many seconds" range:"0..60"`
	MaxEvents       int     `json:"max_events,omitempty" jsonschema:"stop after so many edges" default:"1" range:"1..1000"`
	TimeoutSeconds  float64 `json:"timeout_seconds,omitempty" jsonschema:"stop after so many seconds" default:"30" range:"0.1..3600"`
}

type gpioWatched struct {
	Device  string      `json:"device"`
	Initial []gpioValue `json:"initial" jsonschema:"the levels at the beginning"`
	Events  []gpioEvent `json:"events"`
	Ended   string      `json:"ended" jsonschema:"why it ended: max_events, timeout, or what ended it on the machine"`
}

type gpioEvent struct {
	Kind        string `json:"kind" jsonschema:"edge; lost: edges were lost before this; level: how the line is"`
	Line        int    `json:"line"`
	Name        string `json:"name,omitempty"`
	Edge        string `json:"edge,omitempty" jsonschema:"rising or falling"`
	Level       *int   `json:"level,omitempty"`
	Time        string `json:"time,omitempty" jsonschema:"RFC 3339 with nanoseconds, by the machine's clock"`
	TimestampNS uint64 `json:"timestamp_ns,omitempty" jsonschema:"the kernel's monotonic clock, in nanoseconds: take differences of these"`
	Lost        int64  `json:"lost,omitempty"`
}

func gpioWatch(ctx context.Context, c *call, in gpioWatchAsked) (gpioWatched, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "gpio", in.Device)
	if err != nil {
		return gpioWatched{}, "", err
	}
	st, opened, err := at.GPIOWatch(ctx, at.device, wire.GPIOWatch{
		GPIOSelect: selected(in.Lines), Edge: in.Edge, Pull: in.Pull, DebounceSeconds: seconds(in.DebounceSeconds),
	})
	if err != nil {
		return gpioWatched{}, "", err
	}
	defer c.closeStream(ctx, st)
	out := gpioWatched{Device: at.device, Initial: []gpioValue{}, Events: []gpioEvent{}}
	for _, l := range opened.Lines {
		out.Initial = append(out.Initial, gpioValue(l))
	}
	edges := 0
	out.Ended, err = follow(ctx, st, in.TimeoutSeconds, func(raw json.RawMessage) (bool, error) {
		var r wire.GPIORecord
		if err := json.Unmarshal(raw, &r); err != nil {
			return false, err
		}
		if r.Error != nil {
			return false, r.Error
		}
		e := gpioEvent{Kind: r.Kind, Line: r.Line, Name: r.Name, Edge: r.Edge, TimestampNS: r.TimestampNS, Lost: r.Lost}
		if r.Level != nil {
			level := int(*r.Level)
			e.Level = &level
		}
		if r.Time != nil {
			e.Time = r.Time.Format(time.RFC3339Nano)
		}
		out.Events = append(out.Events, e)
		if r.Kind == wire.GPIOEdge {
			edges++
			c.progress(ctx, float64(edges), float64(in.MaxEvents), lineName(r.Name, r.Line)+" "+r.Edge)
		}
		return edges >= in.MaxEvents, nil
	})
	if err != nil {
		return gpioWatched{}, "", err
	}
	if out.Ended == "" {
		out.Ended = "max_events"
	}
	var text strings.Builder
	for _, e := range out.Events {
		fmt.Fprintf(&text, "%s %s %s\n", lineName(e.Name, e.Line), e.Kind+" "+e.Edge, e.Time)
	}
	fmt.Fprintf(&text, "[%d edges; ended: %s]", edges, out.Ended)
	return out, text.String(), nil
}

// follow hands on the records of a stream until take says that it is enough,
// which gives an empty reason, the time is up, or the stream ends.
func follow(ctx context.Context, st *client.Stream, limit float64, take func(json.RawMessage) (enough bool, err error)) (ended string, err error) {
	bounded, cancel := context.WithTimeout(ctx, time.Duration(limit*float64(time.Second)))
	defer cancel()
	for {
		chunk, err := st.Next(bounded)
		switch {
		case errors.Is(err, io.EOF):
			return "end", nil
		case err != nil && ctx.Err() == nil && bounded.Err() != nil:
			return "timeout", nil
		case err != nil:
			return "", err
		}
		for _, raw := range chunk.Records {
			enough, err := take(raw)
			if err != nil || enough {
				return "", err
			}
		}
		if chunk.End != nil {
			return chunk.End.Reason, nil
		}
	}
}

// closeStream ends a stream that nobody reads any more, also when the call was
// cancelled.
func (c *call) closeStream(ctx context.Context, st *client.Stream) {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := st.Close(bounded); err != nil {
		c.log.Debug("stream not closed", "tool", c.tool, "err", err.Error())
	}
}
