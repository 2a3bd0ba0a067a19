package wire

// Figures of capability forward. They are the extension's own.
const (
	MaxForwardData = 128 << 10 // bytes in one FORWARD_DATA
	ForwardWindow  = 256 << 10 // bytes that the device takes before the target has
)

// ForwardOpen is FORWARD_OPEN.payload: a TCP connection from the machine to a
// target that its configuration allows.
type ForwardOpen struct {
	Host   string `json:"host"` // a name, which the machine resolves, or an address
	Port   int    `json:"port"`
	Credit int    `json:"credit,omitempty"` // at most MaxPacedCredit
}

// ForwardOpened is FORWARD_OPENED.payload. The stream is of ForwardRecords, the
// first of which says whether the connection came about; the device waits for its
// receiver. The connection lasts as long as its stream.
type ForwardOpened struct {
	Opened
	Limit int64 `json:"limit"` // as in ForwardRecord
}

// ForwardRecord is what comes of a connection.
type ForwardRecord struct {
	// Connected, in the first record, is the address that was connected to.
	Connected string `json:"connected,omitempty"`
	// Error, in the first record, is why there is no connection. The stream ends.
	Error *Error `json:"error,omitempty"`
	Data  []byte `json:"data,omitempty"` // base64
	EOF   bool   `json:"eof,omitempty"`  // the target sends no more
	// Limit is the offset up to which FORWARD_DATA is taken: it grows as the target
	// takes what was sent.
	Limit int64 `json:"limit,omitempty"`
}

// ForwardData is FORWARD_DATA.payload: bytes for the target, which it gets once
// however often they are sent.
type ForwardData struct {
	Stream string `json:"stream"`
	Offset int64  `json:"offset"`         // of the first byte of Data, from the connection's beginning
	Data   []byte `json:"data,omitempty"` // base64; at most MaxForwardData
	EOF    bool   `json:"eof,omitempty"`  // nothing comes after Data
}

// ForwardTaken is FORWARD_TAKEN.payload. What lies beyond Next was not taken: the
// limit forbade it, or something before it is missing.
type ForwardTaken struct {
	Next  int64 `json:"next"`
	Limit int64 `json:"limit"`
}
