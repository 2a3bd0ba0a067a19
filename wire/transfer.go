package wire

// Files of any size go in pieces that lie as they are behind the JSON of their
// frame (Attached), under the capability transfer.

// TransferPiece is how many bytes of a file one frame carries at most: small
// enough that others get a turn between two of them.
const TransferPiece = 256 << 10

// TransferHashMost is how many bytes one TRANSFER_READ without data may hash:
// two seconds of work where the processor has no instructions for SHA-256.
const TransferHashMost = 64 << 20

// TransferOpen is TRANSFER_OPEN.payload: a file is to be sent. A transfer of the
// same path, size and key that ended half way goes on where it ended.
type TransferOpen struct {
	Path string `json:"path"`
	// Size is that of the whole file; null if nobody knows before its end.
	Size *int64 `json:"size"`
	// Key names the very content that is sent, at most 128 characters. Without one
	// the transfer can't be found again once it was closed.
	Key string `json:"key,omitempty"`
	// Mode is the permission bits in octal ("0755"). Without it the file that is
	// replaced keeps its own, and a new one has 0666 less the umask.
	Mode *string `json:"mode,omitempty"`
	// MTimeNS is when the content was last changed, in nanoseconds since 1970.
	MTimeNS *int64 `json:"mtime_ns,omitempty"`
	// CreateParents makes missing directories above the file.
	CreateParents bool `json:"create_parents,omitempty"`
	// UnlessSame sends nothing if a file of this size and time is there.
	UnlessSame bool `json:"unless_same,omitempty"`
	// SHA256 is the hash of the content in hexadecimal digits, given if all of it
	// is attached to this message. Then nothing more is sent.
	SHA256 string `json:"sha256,omitempty"`
}

// TransferOpened is TRANSFER_OPENED.payload.
type TransferOpened struct {
	Transfer string `json:"transfer,omitempty"` // 128 bits in hex; empty if Done
	Offset   int64  `json:"offset"`             // how much of the file is there already
	Done     bool   `json:"done"`               // all of it: nothing is left to be sent
}

// TransferChunk is TRANSFER_CHUNK.payload: the bytes from Offset on are attached,
// at most TransferPiece. What was there already is passed over, so sending a
// chunk twice does no harm.
type TransferChunk struct {
	Transfer string `json:"transfer"`
	Offset   int64  `json:"offset"`
}

// TransferCommit is TRANSFER_COMMIT.payload: all was sent. If the hash agrees the
// file takes its place, at once and durably, else what came is thrown away.
type TransferCommit struct {
	Transfer string `json:"transfer"`
	SHA256   string `json:"sha256"` // of the whole file, in hexadecimal digits
}

// TransferCommitted is TRANSFER_COMMITTED.payload.
type TransferCommitted struct {
	Path string `json:"path"` // canonical
	Size int64  `json:"size"`
}

// TransferAbort is TRANSFER_ABORT.payload: what came is thrown away. Of a
// transfer that nobody knows it is no error.
type TransferAbort struct {
	Transfer string `json:"transfer"`
}

// TransferRead is TRANSFER_READ.payload: a piece of a file is wanted.
type TransferRead struct {
	Path   string `json:"path"`
	Offset int64  `json:"offset"`
	// Length is at most TransferPiece, or TransferHashMost with HashOnly.
	Length int64 `json:"length"`
	// Version is that of an earlier answer: the file must still be the same, else
	// the answer is SOURCE_CHANGED.
	Version string `json:"version,omitempty"`
	// HashOnly leaves the data out of the answer.
	HashOnly bool `json:"hash_only,omitempty"`
}

// TransferData is TRANSFER_DATA.payload. The bytes are attached: fewer than were
// asked for only at the end of the file.
type TransferData struct {
	Version string `json:"version"` // changes with the file's content or place
	Size    int64  `json:"size"`    // of the whole file
	Mode    string `json:"mode"`    // octal, four digits
	MTimeNS int64  `json:"mtime_ns"`
	Length  int64  `json:"length"` // of this piece
	SHA256  string `json:"sha256"` // of this piece
}

// TransferList is TRANSFER_LIST.payload: the entries of a directory in the order
// of their names' bytes, from the first one after After on.
type TransferList struct {
	Path  string `json:"path"`
	After string `json:"after,omitempty"`
}

// The kinds of TransferEntry.
const (
	TransferFile      = "file"
	TransferDirectory = "directory"
	TransferLink      = "link"
	TransferOther     = "other" // a socket, a device, a FIFO: can't be copied
)

// TransferEntry is one entry of a directory, a link as itself.
type TransferEntry struct {
	Name    string `json:"name"`
	Kind    string `json:"kind"`
	Size    int64  `json:"size"`
	Mode    string `json:"mode"`
	MTimeNS int64  `json:"mtime_ns"`
	Target  string `json:"target,omitempty"` // of a link
}

// TransferEntries is TRANSFER_ENTRIES.payload. With More, what follows the last
// entry comes with another TRANSFER_LIST.
type TransferEntries struct {
	Entries []TransferEntry `json:"entries"`
	More    bool            `json:"more"`
}

// TransferMake is TRANSFER_MAKE.payload: a directory or a link is there
// afterwards, with this mode and time. What is there already of the same kind
// (and, for a link, with the same target) is kept.
type TransferMake struct {
	Path    string  `json:"path"`
	Kind    string  `json:"kind"` // TransferDirectory or TransferLink
	Mode    *string `json:"mode,omitempty"`
	MTimeNS *int64  `json:"mtime_ns,omitempty"`
	// Target of a link must not lead out of the root.
	Target string `json:"target,omitempty"`
	// CreateParents makes missing directories above.
	CreateParents bool `json:"create_parents,omitempty"`
}
