package wire

import "encoding/json"

// Figures of streams. They are the extension's own.
const (
	StreamCreditDefault = 256 << 10 // bytes of encoded data that may be under way unless the request says otherwise
	StreamDataMax       = 32 << 10  // bytes of data, or of encoded records, in one STREAM_DATA
	MaxStreamCredit     = 16 << 20  // more than this is never outstanding
)

// Opened is part of the result of every operation that opens a stream.
type Opened struct {
	Stream string `json:"stream"` // 128 random bits in hex
}

// OpenedStream is the id of the stream.
func (o Opened) OpenedStream() string { return o.Stream }

// StreamData is STREAM_DATA.payload: a piece of a stream, sent unasked by the
// device as far as the credit reaches. Its envelope's id begins with the id of
// the request that opened or last attached the stream, a slash after it, so
// that a relay finds the receiver without reading the payload.
type StreamData struct {
	Stream string `json:"stream"`
	// Offset is that of the first byte of Data or the first of Records, counted
	// from the beginning of the stream. Without either it is the next one's.
	Offset  int64             `json:"offset"`
	Data    []byte            `json:"data,omitempty"` // base64
	Records []json.RawMessage `json:"records,omitempty"`
	// Lost is what came before Offset and is gone.
	Lost *StreamGap `json:"lost,omitempty"`
	// End is set in the stream's last frame.
	End *StreamEnd `json:"end,omitempty"`
}

// StreamGap is a range of offsets that nobody can have any more: From is the
// first that is lost, To the first that is not.
type StreamGap struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// StreamEnd says why a stream is over.
type StreamEnd struct {
	Reason   string `json:"reason"`
	ExitCode *int   `json:"exit_code,omitempty"`
}

// StreamCredit is STREAM_CREDIT.payload: the receiver allows so many bytes of
// encoded data more. It is never answered. Zero bytes only say that the
// receiver is still there.
type StreamCredit struct {
	Stream string `json:"stream"`
	Bytes  int    `json:"bytes"`
}

// StreamAttach is STREAM_ATTACH.payload: the sender takes the stream over from
// whoever received it before.
type StreamAttach struct {
	Stream string `json:"stream"`
	// From is the first offset that is wanted: null for the oldest there is.
	From *int64 `json:"from,omitempty"`
	// Credit replaces what was left; absent or 0 is StreamCreditDefault.
	Credit int `json:"credit,omitempty"`
}

// StreamAttached is STREAM_ATTACHED.payload.
type StreamAttached struct {
	Stream string `json:"stream"`
	Oldest int64  `json:"oldest"` // the first offset that can still be had
	Next   int64  `json:"next"`   // the offset of what comes next
}

// StreamClose is STREAM_CLOSE.payload. Closing a stream that has ended, or that
// nobody knows, is no error.
type StreamClose struct {
	Stream string `json:"stream"`
}
