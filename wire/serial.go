package wire

import (
	"bytes"
	"encoding/json"
)

// The operations on a serial port.
const (
	OpSerialWrite    = "SERIAL_WRITE"    // SerialWrite -> SerialWritten
	OpSerialRead     = "SERIAL_READ"     // SerialRead -> SerialData
	OpSerialTransact = "SERIAL_TRANSACT" // SerialTransact -> SerialData
	OpSerialExpect   = "SERIAL_EXPECT"   // SerialExpect -> SerialExpected
	OpSerialControl  = "SERIAL_CONTROL"  // SerialControl -> SerialLines
	OpSerialWatch    = "SERIAL_WATCH"    // SerialWatch -> SerialWatching, and a stream of bytes
)

// SerialMode is how a port is set. A null field keeps what the lease has, at
// first 115200 8N1 without flow control.
type SerialMode struct {
	Baudrate *int     `json:"baudrate,omitempty"` // any rate in bit/s; the kernel's own is reported back
	Bytesize *int     `json:"bytesize,omitempty"` // 5 to 8
	Parity   *string  `json:"parity,omitempty"`   // none, even, odd, mark, space, or their first letters
	Stopbits *float64 `json:"stopbits,omitempty"` // 1, 1.5, 2
	RTSCTS   *bool    `json:"rtscts,omitempty"`
	DSRDTR   *bool    `json:"dsrdtr,omitempty"`
	XONXOFF  *bool    `json:"xonxoff,omitempty"`
	// TimeoutSeconds is how long SERIAL_READ and SERIAL_TRANSACT wait that name
	// no time of their own; at first 1. More than 25 is 25.
	TimeoutSeconds *float64 `json:"timeout_seconds,omitempty"`
	// LowLatency has the driver hand on every byte at once instead of
	// gathering (ASYNC_LOW_LATENCY); false leaves the port as it was found.
	LowLatency *bool        `json:"low_latency,omitempty"`
	RS485      *SerialRS485 `json:"rs485,omitempty"` // null, too: as the port was found
	// ResetOnOpen says what becomes of DTR and RTS when this operation opens the
	// port; on a port that is open it does nothing. Linux raises both inside
	// open, which resets many boards the first time after they were plugged in.
	// null leaves them up, as most firmware wants it. false lowers both with the
	// first call after the open and leaves them low. true resets the board by
	// a pulse on both and then waits 2 s before anything is sent; what the board
	// says meanwhile is kept.
	ResetOnOpen *bool `json:"reset_on_open,omitempty"`
}

// SerialRS485 has the driver switch a transceiver with RTS. A null field is the
// default.
type SerialRS485 struct {
	Enabled       *bool `json:"enabled,omitempty"`              // default true
	RTSOnSend     *bool `json:"rts_on_send,omitempty"`          // RTS's logical level while sending; default true
	RTSAfterSend  *bool `json:"rts_after_send,omitempty"`       // and afterwards; default the opposite
	DelayBeforeMS *int  `json:"delay_before_send_ms,omitempty"` // from RTS to the first bit, 0 to 100; default 0
	DelayAfterMS  *int  `json:"delay_after_send_ms,omitempty"`  // from the last bit to RTS, 0 to 100; default 0
	RXDuringTX    *bool `json:"rx_during_tx,omitempty"`         // hear what is sent; default false
	TerminateBus  *bool `json:"terminate_bus,omitempty"`        // switch on the terminating resistor; default false
}

// SerialOpened is part of a result if the operation opened the port, or if it
// changed the bit rate to one that is more than 2 % off.
type SerialOpened struct {
	// Reset says whether opening may have reset the board: "done" (it was asked
	// for), "possible" (DTR and RTS went from low to high, which Linux doesn't
	// let a program prevent), "unlikely" (they have been high since an earlier
	// use), "none" (the port has no modem lines). Empty if it was open already.
	Reset string `json:"reset,omitempty"`
	// Note says so in a sentence, and what can be done about it.
	Note string `json:"note,omitempty"`
	// Warnings name programs on the device that are known to interfere, and a bit
	// rate that is more than 2 % off.
	Warnings []string `json:"warnings,omitempty"`
}

// SerialWrite is the args of SERIAL_WRITE.
type SerialWrite struct {
	Data           []byte      `json:"data"`            // base64
	Drain          bool        `json:"drain,omitempty"` // wait until the bytes left the port
	TimeoutSeconds *float64    `json:"timeout_seconds,omitempty"`
	Mode           *SerialMode `json:"mode,omitempty"`
}

// SerialWritten is the result of SERIAL_WRITE.
type SerialWritten struct {
	BytesWritten int `json:"bytes_written"`
	// Offset is where in what is received from the port the answer to this can
	// begin: a SERIAL_WATCH from there misses nothing of it.
	Offset int64         `json:"offset"`
	Opened *SerialOpened `json:"opened,omitempty"`
}

// SerialRead is the args of SERIAL_READ.
type SerialRead struct {
	Size           int            `json:"size"`                      // at most this many bytes; 0 means 4096
	TimeoutSeconds *float64       `json:"timeout_seconds,omitempty"` // default 1
	Until          []byte         `json:"until,omitempty"`           // base64; stop after this sequence
	Expect         SerialPatterns `json:"expect,omitempty"`          // stop after what matches one of these
	Mode           *SerialMode    `json:"mode,omitempty"`
}

// SerialData is the result of SERIAL_READ and SERIAL_TRANSACT.
type SerialData struct {
	Data      []byte `json:"data"` // base64
	TimedOut  bool   `json:"timed_out"`
	InWaiting int    `json:"in_waiting"` // bytes that wait for the next read
	// StopReason says why reading ended: "until" (the pattern came), "match"
	// (one of expect came), "size" (the limit was reached), "timeout".
	StopReason    string       `json:"stop_reason"`
	Match         *SerialMatch `json:"match,omitempty"` // if one of expect came
	BytesSeen     int          `json:"bytes_seen"`
	BytesReturned int          `json:"bytes_returned"`
	BytesWritten  int          `json:"bytes_written,omitempty"` // SERIAL_TRANSACT only
	// Offset is where Data begins, counted in what was received since the port
	// was opened.
	Offset int64 `json:"offset"`
	// Lost counts bytes before Data that came while nobody read and are gone.
	Lost   int64         `json:"lost,omitempty"`
	Opened *SerialOpened `json:"opened,omitempty"`
}

// SerialTransact is the args of SERIAL_TRANSACT: write, then read until a pattern.
type SerialTransact struct {
	Data           []byte         `json:"data"`             // base64
	Until          []byte         `json:"until,omitempty"`  // base64
	Expect         SerialPatterns `json:"expect,omitempty"` // stop after what matches one of these
	Size           int            `json:"size,omitempty"`
	TimeoutSeconds *float64       `json:"timeout_seconds,omitempty"`
	Flush          bool           `json:"flush,omitempty"` // drop what was waiting before writing
	Mode           *SerialMode    `json:"mode,omitempty"`
}

// SerialPattern is something to wait for: one of Data, Text and Regexp. As JSON
// it may also be a plain string, which is Text.
type SerialPattern struct {
	Name   string `json:"name,omitempty"`   // comes back with the match
	Data   []byte `json:"data,omitempty"`   // base64: these bytes
	Text   string `json:"text,omitempty"`   // these bytes, as UTF-8
	Regexp string `json:"regexp,omitempty"` // RE2 on bytes; as soon as it matches what has come so far
	// Stop ends a SERIAL_EXPECT when this pattern comes: the steps after it are
	// left out.
	Stop bool `json:"stop,omitempty"`
}

// UnmarshalJSON takes a string as text.
func (p *SerialPattern) UnmarshalJSON(b []byte) error {
	if bytes.HasPrefix(bytes.TrimSpace(b), []byte(`"`)) {
		*p = SerialPattern{}
		return json.Unmarshal(b, &p.Text)
	}
	type plain SerialPattern
	return json.Unmarshal(b, (*plain)(p))
}

// SerialPatterns are patterns of which any one will do: of several that match,
// the one that begins first, then the first in the list. As JSON it may also be
// a single pattern.
type SerialPatterns []SerialPattern

// UnmarshalJSON takes a single pattern as a list of one.
func (p *SerialPatterns) UnmarshalJSON(b []byte) error {
	switch first := bytes.TrimSpace(b); {
	case bytes.HasPrefix(first, []byte(`"`)), bytes.HasPrefix(first, []byte(`{`)):
		var one SerialPattern
		if err := json.Unmarshal(b, &one); err != nil {
			return err
		}
		*p = SerialPatterns{one}
		return nil
	}
	return json.Unmarshal(b, (*[]SerialPattern)(p))
}

// SerialMatch is which pattern came.
type SerialMatch struct {
	Pattern int    `json:"pattern"` // its index
	Name    string `json:"name,omitempty"`
	// Captures are the whole match and then the groups of a regular expression;
	// null for a group that has no part in the match. base64.
	Captures [][]byte `json:"captures"`
	// Named are the named groups of a regular expression. base64.
	Named map[string][]byte `json:"named,omitempty"`
}

// SerialExpect is the args of SERIAL_EXPECT: a dialogue, step by step.
type SerialExpect struct {
	Steps          []SerialStep `json:"steps,omitempty"`           // 1 to 32
	TimeoutSeconds *float64     `json:"timeout_seconds,omitempty"` // for all of it, at most 25; default 25
	Flush          bool         `json:"flush,omitempty"`           // drop what was waiting before the first step
	Mode           *SerialMode  `json:"mode,omitempty"`

	// The short form of a single step, in the place of Steps.
	Send     []byte         `json:"send,omitempty"`
	SendText string         `json:"send_text,omitempty"`
	Expect   SerialPatterns `json:"expect,omitempty"`
}

// SerialStep sends something, waits for something, or both in this order.
type SerialStep struct {
	Send           []byte         `json:"send,omitempty"`            // base64
	SendText       string         `json:"send_text,omitempty"`       // in its place: as UTF-8
	Expect         SerialPatterns `json:"expect,omitempty"`          // none: this step only sends
	TimeoutSeconds *float64       `json:"timeout_seconds,omitempty"` // default 5; never longer than what is left for all
	Size           int            `json:"size,omitempty"`            // at most this many bytes are waited through, 1 to 65536; 0 means 16384
}

// SerialExpected is the result of SERIAL_EXPECT.
type SerialExpected struct {
	Steps []SerialStepResult `json:"steps"` // those that were begun
	// Complete says that every step came to its end.
	Complete bool `json:"complete"`
	// StopReason says why it ended: "done", "stop" (a pattern with stop came),
	// "timeout", "size" (of a step, or 1 MiB in all).
	StopReason   string        `json:"stop_reason"`
	BytesWritten int           `json:"bytes_written"`
	BytesSeen    int           `json:"bytes_seen"`
	InWaiting    int           `json:"in_waiting"`
	Offset       int64         `json:"offset"` // where the next read begins
	Opened       *SerialOpened `json:"opened,omitempty"`
}

// SerialStepResult is what became of a step.
type SerialStepResult struct {
	// StopReason is "match", "sent" (it waits for nothing), "timeout" or "size".
	StopReason   string       `json:"stop_reason"`
	Match        *SerialMatch `json:"match,omitempty"`
	BytesWritten int          `json:"bytes_written"`
	// Data is what came in this step, to the end of the match. base64.
	Data      []byte  `json:"data"`
	BytesSeen int     `json:"bytes_seen"` // what came after the match is there for the next step
	Offset    int64   `json:"offset"`     // where Data begins
	Lost      int64   `json:"lost,omitempty"`
	Seconds   float64 `json:"seconds"` // how long it took
}

// SerialControl is the args of SERIAL_CONTROL. A null field is left as it is;
// the answer carries the modem lines as they are afterwards. A request that is
// about them on a port that has none is FEATURE_NOT_SUPPORTED.
type SerialControl struct {
	DTR          *bool       `json:"dtr,omitempty"`
	RTS          *bool       `json:"rts,omitempty"`
	BreakSeconds *float64    `json:"break_seconds,omitempty"` // send a break of this length
	Mode         *SerialMode `json:"mode,omitempty"`
}

// SerialLines is the result of SERIAL_CONTROL.
type SerialLines struct {
	// ModemLines says whether the port has modem lines. Without them a request
	// that only sets the mode is still answered, and the six mean nothing.
	ModemLines bool `json:"modem_lines"`

	DTR bool `json:"dtr"`
	RTS bool `json:"rts"`
	CTS bool `json:"cts"`
	DSR bool `json:"dsr"`
	DCD bool `json:"dcd"`
	RI  bool `json:"ri"`
	// Baudrate is what the kernel really set.
	Baudrate int `json:"baudrate"`
	// BaudrateDeviation is how far that is from what was asked, in percent. Above
	// about 2 the far end may not understand.
	BaudrateDeviation float64      `json:"baudrate_deviation"`
	LowLatency        bool         `json:"low_latency"`
	RS485             *SerialRS485 `json:"rs485,omitempty"` // if the driver can do it: what it really set
	// Offset is how much was received since the port was opened.
	Offset int64         `json:"offset"`
	Opened *SerialOpened `json:"opened,omitempty"`
}

// SerialWatch is the args of SERIAL_WATCH: what is received, as a stream of
// bytes, from now on or from an offset that an earlier answer named.
type SerialWatch struct {
	// From is the offset to begin with, counted since the port was opened: 0 is
	// all there is. null is what comes from now on. What the port no longer has
	// is a gap in the stream.
	From   *int64      `json:"from,omitempty"`
	Credit int         `json:"credit,omitempty"` // bytes; absent or 0 is StreamCreditDefault
	Mode   *SerialMode `json:"mode,omitempty"`
}

// SerialWatching is the result of SERIAL_WATCH. The stream ends with
// device_gone, port_shared (another program takes the port's bytes), released,
// session_ended and so on.
type SerialWatching struct {
	Opened
	// Start is the offset of the stream's first byte in what was received since
	// the port was opened: the stream's own offsets begin there with 0.
	Start  int64         `json:"start"`
	Offset int64         `json:"offset"` // of what comes next
	Oldest int64         `json:"oldest"` // the first that the port still has
	Port   *SerialOpened `json:"opened,omitempty"`
}
