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
}

// LocalLLMChunk is LOCAL_LLM_COMPLETION_CHUNK.payload. FinishReason is null but
// in the last chunk.
type LocalLLMChunk struct {
	Delta        string  `json:"delta"`
	FinishReason *string `json:"finish_reason"` // stop, length, content_filter
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
}
