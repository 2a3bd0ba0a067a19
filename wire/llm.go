package wire

import (
	"encoding/json"
	"errors"
	"strings"
)

// LLMMessage is one message of a conversation. Receivers ignore unknown roles.
type LLMMessage struct {
	Role    string `json:"role"` // system, user, assistant
	Content string `json:"content"`
}

// Known says whether the message has a role that the protocol knows.
func (m LLMMessage) Known() bool {
	return m.Role == "system" || m.Role == "user" || m.Role == "assistant"
}

// UnmarshalJSON reads a message. What one of an unknown role holds is not looked at:
// later versions of the protocol may send what isn't text. In the content of others a
// list of parts that are texts is taken, too, as the APIs have it that the protocol
// takes after.
func (m *LLMMessage) UnmarshalJSON(b []byte) error {
	var in struct {
		Role    any             `json:"role"`
		Content json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*m = LLMMessage{}
	if m.Role, _ = in.Role.(string); !m.Known() || len(in.Content) == 0 {
		return nil
	}
	if json.Unmarshal(in.Content, &m.Content) == nil {
		return nil
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(in.Content, &parts) != nil {
		return errContent
	}
	var all strings.Builder
	for _, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return errContent
		}
		all.WriteString(*p.Text)
	}
	m.Content = all.String()
	return nil
}

var errContent = errors.New("the content of a message must be text")

// LocalLLMCompletion is LOCAL_LLM_COMPLETION.payload.
type LocalLLMCompletion struct {
	Model       string       `json:"model"`
	Messages    []LLMMessage `json:"messages"`
	MaxTokens   *int         `json:"max_tokens,omitempty"`  // default 1024
	Temperature *float64     `json:"temperature,omitempty"` // default 0
	TopP        *float64     `json:"top_p,omitempty"`       // default 1
	Stream      *bool        `json:"stream,omitempty"`      // default true

	// What follows is for those who were granted local_llm_extended; from others
	// it is ignored.

	// Think asks a model that can to think first; the protocol's own requests
	// never do. With it or Wait, chunks and answer carry the extended fields.
	Think *bool `json:"think,omitempty"`
	// Wait waits for a completion that runs already instead of LOCAL_LLM_BUSY.
	Wait bool `json:"wait,omitempty"`
}

// Extended says whether the request asks for extended fields in what comes back.
func (c LocalLLMCompletion) Extended() bool { return c.Think != nil || c.Wait }

// LocalLLMChunk is LOCAL_LLM_COMPLETION_CHUNK.payload. FinishReason is null but
// in the last chunk.
type LocalLLMChunk struct {
	Delta        string  `json:"delta"`
	FinishReason *string `json:"finish_reason"` // stop, length, content_filter

	Thinking string `json:"thinking,omitempty"` // extended: what the model thinks
	Waiting  int    `json:"waiting,omitempty"`  // extended: completions before this one
}

// LLMTokens counts tokens; null where the backend doesn't say.
type LLMTokens struct {
	Prompt     *int `json:"prompt"`
	Completion *int `json:"completion"`
	Total      *int `json:"total"`
}

// LocalLLMResponse is LOCAL_LLM_COMPLETION_RESPONSE.payload.
type LocalLLMResponse struct {
	Content         string    `json:"content"`
	FinishReason    string    `json:"finish_reason"`
	Tokens          LLMTokens `json:"tokens"`
	DurationSeconds float64   `json:"duration_seconds"` // three decimals

	Thinking string      `json:"thinking,omitempty"` // extended: all of the thoughts
	Timings  *LLMTimings `json:"timings,omitempty"`  // extended
}

// LLMTimings says where the time went; 0 where the server doesn't say.
type LLMTimings struct {
	LoadSeconds           float64 `json:"load_seconds,omitempty"`
	PromptTokensPerSecond float64 `json:"prompt_tokens_per_second,omitempty"`
	TokensPerSecond       float64 `json:"tokens_per_second,omitempty"`
}

// LLMStatus is LLM_STATUS_RESPONSE.payload: what serves models on this machine and
// what it has.
type LLMStatus struct {
	Kind      string `json:"kind"`              // ollama, openai
	Reachable bool   `json:"reachable"`         //
	Reason    string `json:"reason,omitempty"`  // why it isn't
	Version   string `json:"version,omitempty"` // where the server says it
	// Manages says whether LLM_PULL and LLM_REMOVE can work with this server.
	Manages bool       `json:"manages"`
	Models  []LLMModel `json:"models"`
	// AvailableBytes is the memory that a model could take now; absent where the
	// server isn't on this machine.
	AvailableBytes int64 `json:"available_bytes,omitempty"`
	ContextTokens  int   `json:"context_tokens"` // most of prompt and answer together
	Running        bool  `json:"running"`        // a completion runs
	Waiting        int   `json:"waiting"`        // and so many wait
	// State is one of the LLM constants: what there is, or what is missing first.
	State string `json:"state,omitempty"`
	// Installs says whether LLM_INSTALL and LLM_UNINSTALL can work: on an appliance.
	// Installed is what is there: the beginning of the archive's SHA-256.
	Installs  bool   `json:"installs,omitempty"`
	Installed string `json:"installed,omitempty"`
}

// States of what serves models, for LLMStatus.State.
const (
	LLMReady        = "ready"
	LLMNoModel      = "no_model"      // the server runs, and has none
	LLMStopped      = "stopped"       // it is installed here, and its unit doesn't run
	LLMNotInstalled = "not_installed" // nothing of the kind is on this machine
	LLMUnreachable  = "unreachable"   // nobody answers at llm.url
)

// LLMModel is a model that the server has. Only Name is always there.
type LLMModel struct {
	Name         string     `json:"name"`
	SizeBytes    int64      `json:"size_bytes,omitempty"`
	Family       string     `json:"family,omitempty"`
	Parameters   string     `json:"parameters,omitempty"`   // "1.5B"
	Quantization string     `json:"quantization,omitempty"` // "Q4_K_M"
	Modified     float64    `json:"modified,omitempty"`     // Unix seconds
	Loaded       *LLMLoaded `json:"loaded,omitempty"`       // absent: not in memory
	Remote       bool       `json:"remote,omitempty"`       // it runs on another machine, to which prompts go
	// TokensPerSecond is what was measured on this machine; absent: not used yet.
	TokensPerSecond float64 `json:"tokens_per_second,omitempty"`
}

// LLMLoaded is what a model in memory takes.
type LLMLoaded struct {
	Bytes         int64   `json:"bytes"`
	VRAMBytes     int64   `json:"vram_bytes,omitempty"`
	ContextTokens int     `json:"context_tokens,omitempty"`
	Expires       float64 `json:"expires,omitempty"` // Unix seconds
}

// Bounds of LLM_EMBED.
const (
	MaxEmbedInputs = 256
	MaxEmbedBytes  = 1 << 20 // of all inputs together
)

// LLMEmbed is LLM_EMBED.payload.
type LLMEmbed struct {
	Model string   `json:"model"`
	Input []string `json:"input"` // 1 to MaxEmbedInputs
}

// LLMEmbeddings is LLM_EMBED_RESPONSE.payload.
type LLMEmbeddings struct {
	Embeddings [][]float32 `json:"embeddings"` // one for each input
	Tokens     *int        `json:"tokens"`     // of the inputs
}

// LLMPull is LLM_PULL.payload. The answer names a stream of LLMProgress records,
// which ends with reason "done" or, after a record with Error, "failed". Closing
// the stream gives the pull up; what has come is kept by the server and not
// fetched again.
type LLMPull struct {
	Model  string `json:"model"`
	Credit int    `json:"credit,omitempty"` // bytes; default StreamCreditDefault
}

// LLMPulling is LLM_PULL_RESPONSE.payload.
type LLMPulling struct {
	Stream string `json:"stream"`
}

// OpenedStream is the stream that the answer opens.
func (p LLMPulling) OpenedStream() string { return p.Stream }

// LLMProgress is one record of a pull.
type LLMProgress struct {
	Status         string `json:"status"`           // in the server's words
	Digest         string `json:"digest,omitempty"` // of the layer that comes
	TotalBytes     int64  `json:"total_bytes,omitempty"`
	CompletedBytes int64  `json:"completed_bytes,omitempty"`
	Error          *Error `json:"error,omitempty"` // in the last record of a pull that failed
}

// LLMRemove is LLM_REMOVE.payload.
type LLMRemove struct {
	Model string `json:"model"`
}

// LLMInstall is LLM_INSTALL.payload: the machine's Ollama is to be what an archive
// holds, one that was sent before and lies below the session's root. The answer
// names a stream of LLMProgress records as that of LLM_PULL; the archive is
// removed once it is installed.
type LLMInstall struct {
	Path   string `json:"path"`
	SHA256 string `json:"sha256"`           // of the archive, in hexadecimal digits
	Credit int    `json:"credit,omitempty"` // bytes; default StreamCreditDefault
}

// LLMUninstall is LLM_UNINSTALL.payload.
type LLMUninstall struct {
	Models bool `json:"models,omitempty"` // and all models, too
}
