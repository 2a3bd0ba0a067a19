package llm

import (
	"context"
	"time"
)

// Kinds of servers, for Config.Kind.
const (
	KindOllama = "ollama" // its own API
	KindOpenAI = "openai" // llama.cpp's server, LM Studio and others that speak OpenAI's API
)

// A backend is a server that has models. Its methods are safe for concurrent use
// and end with their context; an answer of the server that says no is a
// *backendError.
type backend interface {
	// models are those that can be asked for.
	models(ctx context.Context) ([]Model, error)
	// chat runs one conversation and gives take every piece of the answer as it
	// comes; the last has done set. An error of take ends it and is returned.
	chat(ctx context.Context, c chat, take func(piece) error) error
	// embed gives a vector for each input.
	embed(ctx context.Context, e embedding) (vectors [][]float32, tokens *int, err error)
}

// A manager is a backend that says what it has in memory and takes and drops
// models. Only Ollama is one.
type manager interface {
	backend
	version(ctx context.Context) (string, error)
	loaded(ctx context.Context) ([]Loaded, error)
	unload(ctx context.Context, model string) error
	// cacheBytes is what one token of context takes in memory beside the model;
	// 0: the server doesn't say.
	cacheBytes(ctx context.Context, model string) (int64, error)
	pull(ctx context.Context, model string, progress func(Progress) error) error
	remove(ctx context.Context, model string) error
}

// Model is what a server says about one of its models. Only Name is always there.
type Model struct {
	Name         string
	Size         int64 // bytes
	Family       string
	Parameters   string // "1.5B"
	Quantization string // "Q4_K_M"
	Modified     time.Time
	Remote       bool // it runs on another machine (Ollama's cloud)
}

// Loaded is a model that is in memory.
type Loaded struct {
	Name    string
	Size    int64 // bytes, in all
	VRAM    int64 // bytes of it that a graphics card has
	Context int   // tokens; 0: not said
	Expires time.Time
}

// Progress is how far a pull is. Total 0: not about bytes.
type Progress struct {
	Status    string
	Digest    string
	Total     int64
	Completed int64
}

// loading is how a model is to be loaded, for servers that let a request say so. Two
// requests that differ in it have the server load the model anew.
type loading struct {
	context   int           // tokens that prompt and answer may have together; 0: as the server likes
	keepAlive time.Duration // how long it stays in memory afterwards; the same
}

// chat is a conversation to be continued.
type chat struct {
	model       string
	messages    []message
	maxTokens   int
	temperature float64
	topP        float64
	think       bool
	loading
}

// embedding are texts to be turned into vectors.
type embedding struct {
	model  string
	inputs []string
	loading
}

type message struct{ role, content string }

// piece is some of an answer.
type piece struct {
	content  string
	thinking string

	done       bool
	reason     string // why it is done: stop, length, content_filter
	prompt     *int   // tokens
	completion *int
	load       time.Duration // times are 0 where the server doesn't say
	promptTime time.Duration
	evalTime   time.Duration
}
