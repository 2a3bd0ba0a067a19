package mcp

import (
	"context"
	"fmt"
	"strings"

	"farhand/wire"
)

func serialTools() []tool {
	return []tool{
		define("serial_transact", "Ask over a serial port",
			"Sends something to a serial port and reads the answer until a pattern, a size or a timeout; nobody else gets between the two. The tool for instruments and firmware consoles: text \"*IDN?\\n\", until \"\\n\".",
			destroys, wire.HardwareSerial, serialTransact),
		define("serial_write", "Write to a serial port",
			"Sends something to a serial port and doesn't wait for an answer.",
			destroys, wire.HardwareSerial, serialWrite),
		define("serial_read", "Read a serial port",
			"Reads what comes from a serial port, what came since the last read first, until a pattern, a size or a timeout. It says why it stopped.",
			changes, wire.HardwareSerial, serialRead),
		define("serial_expect", "Dialogue over a serial port",
			"Does a dialogue step by step (log in, talk to a boot loader): each step sends something, waits for one of some patterns, or both. At most 25 s in all.",
			destroys, wire.HardwareSerial, serialExpect),
		define("serial_control", "Control a serial port",
			"Sets and reads the modem lines of a serial port (DTR, RTS, CTS …), sends a break, or sets its mode.",
			destroys, wire.HardwareSerial, serialControl),
	}
}

// onPort is a serial port of a machine and how it is to be set.
type onPort struct {
	onMachine
	Device      string  `json:"device,omitempty" jsonschema:"id of the port (list_devices); default: the only one"`
	Baudrate    int     `json:"baudrate,omitempty" jsonschema:"in bit/s; default: as it is set, at first 115200" range:"50..4000000"`
	Bytesize    int     `json:"bytesize,omitempty" jsonschema:"data bits; default: as it is set, at first 8" range:"5..8"`
	Parity      string  `json:"parity,omitempty" jsonschema:"default: as it is set, at first none" enum:"none,even,odd,mark,space"`
	Stopbits    float64 `json:"stopbits,omitempty" jsonschema:"1, 1.5 or 2; default: as it is set, at first 1" range:"1..2"`
	RTSCTS      *bool   `json:"rtscts,omitempty" jsonschema:"hardware flow control"`
	ResetOnOpen *bool   `json:"reset_on_open,omitempty" jsonschema:"when this call opens the port: true resets the board by DTR and RTS, false lowers both; default leaves them up"`
	Hold        bool    `json:"hold,omitempty" jsonschema:"keep the port for this connection until release_device, so that nothing is missed between calls"`
}

func (p onPort) mode() *wire.SerialMode {
	m := wire.SerialMode{
		Baudrate: optional(p.Baudrate), Bytesize: optional(p.Bytesize), Parity: optional(p.Parity), Stopbits: optional(p.Stopbits),
		RTSCTS: p.RTSCTS, ResetOnOpen: p.ResetOnOpen,
	}
	if m == (wire.SerialMode{}) {
		return nil
	}
	return &m
}

// until is what ends reading.
type until struct {
	Until          string  `json:"until,omitempty" jsonschema:"stop after this text, such as \"\\n\" or \"login: \""`
	UntilHex       string  `json:"until_hex,omitempty" jsonschema:"in place of until: bytes in hexadecimal"`
	UntilRegexp    string  `json:"until_regexp,omitempty" jsonschema:"in place of until: a regular expression in RE2 syntax"`
	Size           int     `json:"size,omitempty" jsonschema:"stop after so many bytes" default:"4096" range:"1..65536"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" jsonschema:"stop after so many seconds" default:"2" range:"0.01..25"`
}

func (u until) pattern() ([]byte, wire.SerialPatterns, error) {
	if u.UntilRegexp != "" {
		return nil, wire.SerialPatterns{{Regexp: u.UntilRegexp}}, nil
	}
	if u.UntilHex != "" {
		b, err := hexBytes("until_hex", u.UntilHex)
		return b, nil, err
	}
	return []byte(u.Until), nil, nil
}

type serialData struct {
	Device string `json:"device"`
	received
	StopReason string   `json:"stop_reason" jsonschema:"until or match: the pattern came; size; timeout"`
	Complete   bool     `json:"complete" jsonschema:"whether the pattern came, if there was one"`
	Waiting    int      `json:"in_waiting" jsonschema:"bytes that wait for the next read"`
	Captures   []string `json:"captures,omitempty" jsonschema:"of until_regexp: the match and its groups"`
	Lost       int64    `json:"lost,omitempty" jsonschema:"bytes that came before this while nobody read, and are gone"`
	Note       string   `json:"note,omitempty" jsonschema:"what opening the port did to the board"`
}

func serialResult(device string, got wire.SerialData) (serialData, string) {
	out := serialData{
		Device: device, received: bytesReceived(got.Data), StopReason: got.StopReason,
		Complete: got.StopReason == "until" || got.StopReason == "match", Waiting: got.InWaiting, Lost: got.Lost, Note: note(got.Opened),
	}
	if got.Match != nil {
		for _, m := range got.Match.Captures {
			out.Captures = append(out.Captures, bytesReceived(m).shown())
		}
	}
	text := out.shown()
	if text == "" {
		text = "[nothing came]"
	}
	if !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return out, fmt.Sprintf("%s[stopped: %s]", text, out.StopReason)
}

// note is what opening a port did, and what is known to interfere.
func note(o *wire.SerialOpened) string {
	if o == nil {
		return ""
	}
	return strings.Join(append([]string{o.Note}, o.Warnings...), " ")
}

type serialTransactAsked struct {
	onPort
	payload
	until
	Flush bool `json:"flush,omitempty" jsonschema:"drop what was waiting before"`
}

func serialTransact(ctx context.Context, c *call, in serialTransactAsked) (serialData, string, error) {
	data, err := in.bytes(true)
	if err != nil {
		return serialData{}, "", err
	}
	end, expect, err := in.pattern()
	if err != nil {
		return serialData{}, "", err
	}
	at, err := c.onDevice(ctx, in.Machine, "serial", in.Device)
	if err != nil {
		return serialData{}, "", err
	}
	got, err := at.SerialTransact(ctx, at.device, wire.SerialTransact{
		Data: data, Until: end, Expect: expect, Size: in.Size, TimeoutSeconds: seconds(in.TimeoutSeconds), Flush: in.Flush, Mode: in.mode(),
	}, hold(in.Hold))
	if err != nil {
		return serialData{}, "", err
	}
	out, text := serialResult(at.device, got)
	return out, text, nil
}

type serialWriteAsked struct {
	onPort
	payload
	Drain bool `json:"drain,omitempty" jsonschema:"wait until the bytes have left the port"`
}

type serialWritten struct {
	Device string `json:"device"`
	Bytes  int    `json:"bytes_written"`
	Note   string `json:"note,omitempty" jsonschema:"what opening the port did to the board"`
}

func serialWrite(ctx context.Context, c *call, in serialWriteAsked) (serialWritten, string, error) {
	data, err := in.bytes(true)
	if err != nil {
		return serialWritten{}, "", err
	}
	at, err := c.onDevice(ctx, in.Machine, "serial", in.Device)
	if err != nil {
		return serialWritten{}, "", err
	}
	got, err := at.SerialWrite(ctx, at.device, wire.SerialWrite{Data: data, Drain: in.Drain, Mode: in.mode()}, hold(in.Hold))
	if err != nil {
		return serialWritten{}, "", err
	}
	return serialWritten{at.device, got.BytesWritten, note(got.Opened)}, fmt.Sprintf("%d bytes written to %s", got.BytesWritten, at.device), nil
}

type serialReadAsked struct {
	onPort
	until
}

func serialRead(ctx context.Context, c *call, in serialReadAsked) (serialData, string, error) {
	end, expect, err := in.pattern()
	if err != nil {
		return serialData{}, "", err
	}
	at, err := c.onDevice(ctx, in.Machine, "serial", in.Device)
	if err != nil {
		return serialData{}, "", err
	}
	got, err := at.SerialRead(ctx, at.device, wire.SerialRead{
		Size: in.Size, TimeoutSeconds: seconds(in.TimeoutSeconds), Until: end, Expect: expect, Mode: in.mode(),
	}, hold(in.Hold))
	if err != nil {
		return serialData{}, "", err
	}
	out, text := serialResult(at.device, got)
	return out, text, nil
}

type serialExpectAsked struct {
	onPort
	Steps          []serialStep `json:"steps" jsonschema:"one after the other" length:"1..32"`
	TimeoutSeconds float64      `json:"timeout_seconds,omitempty" jsonschema:"for all of it, in seconds" default:"25" range:"0.1..25"`
	Flush          bool         `json:"flush,omitempty" jsonschema:"drop what was waiting before the first step"`
}

type serialStep struct {
	Send           string   `json:"send,omitempty" jsonschema:"text to send"`
	Expect         []string `json:"expect,omitempty" jsonschema:"texts of which any one ends the step; none: the step only sends" length:"1..16"`
	ExpectRegexp   []string `json:"expect_regexp,omitempty" jsonschema:"regular expressions in RE2 syntax, likewise" length:"1..16"`
	TimeoutSeconds float64  `json:"timeout_seconds,omitempty" jsonschema:"in seconds" default:"5" range:"0.01..25"`
}

type serialExpected struct {
	Device     string             `json:"device"`
	Complete   bool               `json:"complete" jsonschema:"every step came to its end"`
	StopReason string             `json:"stop_reason" jsonschema:"done, timeout or size"`
	Steps      []serialStepResult `json:"steps" jsonschema:"those that were begun"`
	Note       string             `json:"note,omitempty"`
}

type serialStepResult struct {
	StopReason string `json:"stop_reason" jsonschema:"match, sent, timeout or size"`
	received
	Pattern  *int     `json:"pattern,omitempty" jsonschema:"which came: its index in expect, then in expect_regexp"`
	Captures []string `json:"captures,omitempty"`
	Seconds  float64  `json:"seconds"`
}

func serialExpect(ctx context.Context, c *call, in serialExpectAsked) (serialExpected, string, error) {
	ask := wire.SerialExpect{TimeoutSeconds: seconds(in.TimeoutSeconds), Flush: in.Flush, Mode: in.mode()}
	for _, s := range in.Steps {
		step := wire.SerialStep{SendText: s.Send, TimeoutSeconds: seconds(s.TimeoutSeconds)}
		for _, t := range s.Expect {
			step.Expect = append(step.Expect, wire.SerialPattern{Text: t})
		}
		for _, r := range s.ExpectRegexp {
			step.Expect = append(step.Expect, wire.SerialPattern{Regexp: r})
		}
		ask.Steps = append(ask.Steps, step)
	}
	at, err := c.onDevice(ctx, in.Machine, "serial", in.Device)
	if err != nil {
		return serialExpected{}, "", err
	}
	got, err := at.SerialExpect(ctx, at.device, ask, hold(in.Hold))
	if err != nil {
		return serialExpected{}, "", err
	}
	out := serialExpected{Device: at.device, Complete: got.Complete, StopReason: got.StopReason, Steps: []serialStepResult{}, Note: note(got.Opened)}
	var text strings.Builder
	for i, s := range got.Steps {
		step := serialStepResult{StopReason: s.StopReason, received: bytesReceived(s.Data), Seconds: s.Seconds}
		if s.Match != nil {
			step.Pattern = &s.Match.Pattern
			for _, m := range s.Match.Captures {
				step.Captures = append(step.Captures, bytesReceived(m).shown())
			}
		}
		out.Steps = append(out.Steps, step)
		fmt.Fprintf(&text, "[step %d: %s]\n%s\n", i+1, s.StopReason, step.shown())
	}
	fmt.Fprintf(&text, "[ended: %s]", got.StopReason)
	return out, text.String(), nil
}

type serialControlAsked struct {
	onPort
	DTR          *bool   `json:"dtr,omitempty" jsonschema:"true raises it; absent leaves it as it is"`
	RTS          *bool   `json:"rts,omitempty" jsonschema:"true raises it; absent leaves it as it is"`
	BreakSeconds float64 `json:"break_seconds,omitempty" jsonschema:"send a break of so many seconds" range:"0.001..5"`
}

type serialLines struct {
	Device     string `json:"device"`
	ModemLines bool   `json:"modem_lines" jsonschema:"whether the port has them; without, the six mean nothing"`
	DTR        bool   `json:"dtr"`
	RTS        bool   `json:"rts"`
	CTS        bool   `json:"cts"`
	DSR        bool   `json:"dsr"`
	DCD        bool   `json:"dcd"`
	RI         bool   `json:"ri"`
	Baudrate   int    `json:"baudrate" jsonschema:"what is really set, in bit/s"`
	Note       string `json:"note,omitempty"`
}

func serialControl(ctx context.Context, c *call, in serialControlAsked) (serialLines, string, error) {
	at, err := c.onDevice(ctx, in.Machine, "serial", in.Device)
	if err != nil {
		return serialLines{}, "", err
	}
	got, err := at.SerialControl(ctx, at.device, wire.SerialControl{DTR: in.DTR, RTS: in.RTS, BreakSeconds: seconds(in.BreakSeconds), Mode: in.mode()}, hold(in.Hold))
	if err != nil {
		return serialLines{}, "", err
	}
	out := serialLines{at.device, got.ModemLines, got.DTR, got.RTS, got.CTS, got.DSR, got.DCD, got.RI, got.Baudrate, note(got.Opened)}
	text := fmt.Sprintf("%d bit/s", got.Baudrate)
	if got.ModemLines {
		text += fmt.Sprintf("; DTR %t, RTS %t, CTS %t, DSR %t, DCD %t, RI %t", got.DTR, got.RTS, got.CTS, got.DSR, got.DCD, got.RI)
	}
	return out, text, nil
}
