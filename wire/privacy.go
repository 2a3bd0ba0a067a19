package wire

// What an owner marked private never leaves the machine but in the answer of a
// LOCAL_LLM_TURN: an agent gets stubs of such files, under the capability privacy.

// The modes of FILE_READ.
const (
	ModeContent = "content"
	ModeStub    = "stub"
)

// Bounds of LOCAL_LLM_TURN.
const (
	MaxStubRefs = 16
	MaxTurnText = 64 << 10 // bytes of task and context, each
)

// FileStub is FILE_CONTENTS.payload of a FILE_READ with mode "stub": what may be
// known of a private file.
type FileStub struct {
	Mode      string `json:"mode"` // ModeStub
	Path      string `json:"path"` // with an alias in the place of each name that isn't told
	SizeBytes int64  `json:"size_bytes"`
	MIMEType  string `json:"mime_type"` // by the name's extension; empty: unknown
	// HMAC is in hex, of the content and of what tells this file in this state from
	// every other, under a key that is made at each start of the daemon: the same
	// content elsewhere has another, so nobody can try what the content may be.
	HMAC string `json:"hmac_sha256"`
	// StubID stands for the file, as it is now, in this session.
	StubID string `json:"stub_id"`
	// SchemaPreview is how the content is built, without values.
	SchemaPreview *SchemaPreview `json:"schema_preview"`
}

// LLMTurn is LOCAL_LLM_TURN.payload: the local model is to do something with
// private files, of which only its answer leaves the machine.
type LLMTurn struct {
	Model    string   `json:"model"`
	Task     string   `json:"task"`              // what is to be done; the system message
	StubRefs []string `json:"stub_refs"`         // 1 to MaxStubRefs ids of stubs
	Context  string   `json:"context,omitempty"` // stands before the files in the user's message

	MaxTokens   *int     `json:"max_tokens,omitempty"`  // default 1024
	Temperature *float64 `json:"temperature,omitempty"` // default 0
	// Verify is the draft protocol's. Contents are always compared with their stubs.
	Verify *bool `json:"verify_sha256,omitempty"`
	Stream *bool `json:"stream,omitempty"` // default true
	// Wait waits for a completion that runs already instead of LOCAL_LLM_BUSY.
	Wait bool `json:"wait,omitempty"`
}

// LLMTurnChunk is LOCAL_LLM_TURN_CHUNK.payload.
type LLMTurnChunk struct {
	Delta   string `json:"delta"`
	Waiting int    `json:"waiting,omitempty"` // completions before this one
}

// LLMTurnResponse is LOCAL_LLM_TURN_RESPONSE.payload.
type LLMTurnResponse struct {
	Output       string    `json:"output"`
	FinishReason string    `json:"finish_reason"` // stop, length, content_filter
	Truncated    bool      `json:"truncated"`     // cut to the most characters that the owner allows
	Tokens       LLMTokens `json:"tokens_used"`
	Duration     float64   `json:"duration_seconds"` // three decimals
	Model        string    `json:"model"`
}
