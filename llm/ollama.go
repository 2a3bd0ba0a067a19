package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/url"
	"time"

	"github.com/ollama/ollama/api"
)

// ollama is a backend by Ollama's own API, which alone takes a context length, an
// explicit no to thinking and how long a model is kept.
type ollama struct {
	client *api.Client
	base   *url.URL
	http   *http.Client
}

func newOllama(base *url.URL, client *http.Client) *ollama {
	return &ollama{api.NewClient(base, client), base, client}
}

// stream posts a request and gives take each line of the answer. The client library
// does the same with 8 MiB of fresh memory for each answer, which costs more time
// than all else that is between a question and its first token.
func (o *ollama) stream(ctx context.Context, path string, request any, take func(line []byte) error) error {
	text, err := json.Marshal(request)
	if err != nil {
		return err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, o.base.JoinPath(path).String(), bytes.NewReader(text))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/x-ndjson")
	resp, err := o.http.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := newLines(resp.Body, json.Valid)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 {
			continue
		}
		var failure struct {
			Error string `json:"error"`
		}
		if json.Unmarshal(lines.Bytes(), &failure) == nil && failure.Error != "" {
			return errors.New(failure.Error)
		}
		if err := take(lines.Bytes()); err != nil {
			return err
		}
	}
	return endOf(lines)
}

// streamed is a line as a T, for take.
func streamed[T any](take func(T) error) func([]byte) error {
	return func(line []byte) error {
		var v T
		if err := json.Unmarshal(line, &v); err != nil {
			if !json.Valid(line) {
				return errors.New(excerpt(string(line))) // says more than what is wrong with it
			}
			return err
		}
		return take(v)
	}
}

func (o *ollama) version(ctx context.Context) (string, error) { return o.client.Version(ctx) }

func (o *ollama) models(ctx context.Context) ([]Model, error) {
	answer, err := o.client.List(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]Model, 0, len(answer.Models))
	for _, m := range answer.Models {
		list = append(list, Model{
			Name: m.Name, Size: m.Size, Family: m.Details.Family, Parameters: m.Details.ParameterSize,
			Quantization: m.Details.QuantizationLevel, Modified: m.ModifiedAt, Remote: m.RemoteHost != "" || m.RemoteModel != "",
		})
	}
	return list, nil
}

func (o *ollama) chat(ctx context.Context, c chat, take func(piece) error) error {
	request := &api.ChatRequest{
		Model:   c.model,
		Options: map[string]any{"num_predict": c.maxTokens, "temperature": c.temperature, "top_p": c.topP},
		// Left out, it would mean yes to newer servers.
		Think: &api.ThinkValue{Value: c.think},
	}
	request.KeepAlive = c.ask(request.Options)
	for _, m := range c.messages {
		request.Messages = append(request.Messages, api.Message{Role: m.role, Content: m.content})
	}
	run := func() error {
		return o.stream(ctx, "api/chat", request, streamed(func(r api.ChatResponse) error { return take(ollamaPiece(r)) }))
	}
	err := run()
	if refusal, ok := errors.AsType[*backendError](err); ok && refusal.refusesThink() {
		request.Think = nil // the server, or this model, doesn't know the option
		err = run()
	}
	return err
}

// ask puts into a request's options how the model is to be loaded, and returns how
// long it is to be kept; nil: as the server likes.
func (l loading) ask(options map[string]any) *api.Duration {
	if l.context > 0 {
		options["num_ctx"] = l.context
	}
	if l.keepAlive <= 0 {
		return nil
	}
	return &api.Duration{Duration: l.keepAlive}
}

func ollamaPiece(r api.ChatResponse) piece {
	p := piece{content: r.Message.Content, thinking: r.Message.Thinking, done: r.Done}
	if r.Done {
		p.reason = r.DoneReason
		p.prompt, p.completion = counted(r.PromptEvalCount), counted(r.EvalCount)
		p.load, p.promptTime, p.evalTime = r.LoadDuration, r.PromptEvalDuration, r.EvalDuration
	}
	return p
}

// counted: 0 is how servers and their clients show an absent number.
func counted(n int) *int {
	if n <= 0 {
		return nil
	}
	return &n
}

func (o *ollama) embed(ctx context.Context, e embedding) ([][]float32, *int, error) {
	request := &api.EmbedRequest{Model: e.model, Input: e.inputs, Options: make(map[string]any)}
	request.KeepAlive = e.ask(request.Options)
	answer, err := o.client.Embed(ctx, request)
	if err != nil {
		return nil, nil, err
	}
	return answer.Embeddings, counted(answer.PromptEvalCount), nil
}

func (o *ollama) loaded(ctx context.Context) ([]Loaded, error) {
	answer, err := o.client.ListRunning(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]Loaded, 0, len(answer.Models))
	for _, m := range answer.Models {
		list = append(list, Loaded{Name: m.Name, Size: m.Size, VRAM: m.SizeVRAM, Context: m.ContextLength, Expires: m.ExpiresAt})
	}
	return list, nil
}

// unload asks for the model with no prompt and no time to stay, which is how the
// API says it.
func (o *ollama) unload(ctx context.Context, model string) error {
	request := &api.GenerateRequest{Model: model, KeepAlive: &api.Duration{}}
	return o.stream(ctx, "api/generate", request, func([]byte) error { return nil })
}

// cacheBytes is the key-value cache of a transformer: two vectors a layer and
// token, in 16-bit floats, of as many heads as the model has for keys and values.
func (o *ollama) cacheBytes(ctx context.Context, model string) (int64, error) {
	answer, err := o.client.Show(ctx, &api.ShowRequest{Model: model})
	if err != nil {
		return 0, err
	}
	arch, _ := answer.ModelInfo["general.architecture"].(string)
	number := func(key string) float64 {
		n, _ := answer.ModelInfo[arch+"."+key].(float64)
		return n
	}
	layers, heads, width := number("block_count"), number("attention.head_count"), number("embedding_length")
	if layers <= 0 || heads <= 0 || width <= 0 {
		return 0, nil
	}
	keyValueHeads := number("attention.head_count_kv")
	if keyValueHeads <= 0 {
		keyValueHeads = heads
	}
	head := number("attention.key_length")
	if head <= 0 {
		head = width / heads
	}
	bytes := 2 * 2 * layers * keyValueHeads * head
	if !(bytes < math.MaxInt32) {
		return 0, nil // no model is like that: better not believed
	}
	return int64(bytes), nil
}

func (o *ollama) pull(ctx context.Context, model string, progress func(Progress) error) error {
	return o.stream(ctx, "api/pull", &api.PullRequest{Model: model}, streamed(func(p api.ProgressResponse) error {
		return progress(Progress{Status: p.Status, Digest: p.Digest, Total: p.Total, Completed: p.Completed})
	}))
}

func (o *ollama) remove(ctx context.Context, model string) error {
	return o.client.Delete(ctx, &api.DeleteRequest{Model: model})
}

var _ manager = (*ollama)(nil)

// rate is tokens a second; 0: not known.
func rate(tokens *int, took time.Duration) float64 {
	if tokens == nil || took <= 0 {
		return 0
	}
	return float64(*tokens) / took.Seconds()
}
