package wire

// LLMMessage is one message of a conversation. Receivers ignore unknown roles.
type LLMMessage struct {
	Role    string `json:"role"` // system, user, assistant
	Content string `json:"content"`
}

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
