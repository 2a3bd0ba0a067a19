package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// openAI is a backend by OpenAI's API, as far as llama.cpp's server and LM Studio
// have it: /v1/models, /v1/chat/completions as server-sent events, /v1/embeddings.
type openAI struct {
	base   *url.URL
	client *http.Client
}

func (o *openAI) models(ctx context.Context) ([]Model, error) {
	var answer struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := o.ask(ctx, http.MethodGet, "v1/models", nil, &answer); err != nil {
		return nil, err
	}
	list := make([]Model, 0, len(answer.Data))
	for _, m := range answer.Data {
		list = append(list, Model{Name: m.ID})
	}
	return list, nil
}

func (o *openAI) embed(ctx context.Context, e embedding) ([][]float32, *int, error) {
	var answer struct {
		Data []struct {
			Index     int       `json:"index"`
			Embedding []float32 `json:"embedding"`
		} `json:"data"`
		Usage struct {
			Prompt int `json:"prompt_tokens"`
		} `json:"usage"`
	}
	request := map[string]any{"model": e.model, "input": e.inputs}
	if err := o.ask(ctx, http.MethodPost, "v1/embeddings", request, &answer); err != nil {
		return nil, nil, err
	}
	vectors := make([][]float32, len(e.inputs))
	for _, d := range answer.Data {
		if d.Index < 0 || d.Index >= len(vectors) {
			return nil, nil, fmt.Errorf("the server answered %d inputs with a vector number %d", len(e.inputs), d.Index)
		}
		vectors[d.Index] = d.Embedding
	}
	return vectors, counted(answer.Usage.Prompt), nil
}

type openAIMessage struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// openAIEvent is one event of a stream. Servers differ in what they call thoughts.
type openAIEvent struct {
	Choices []struct {
		Delta struct {
			Content   string `json:"content"`
			Reasoning string `json:"reasoning"`
			Thoughts  string `json:"reasoning_content"`
		} `json:"delta"`
		FinishReason *string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
	} `json:"usage"`
	Timings *struct { // llama.cpp
		PromptMS    float64 `json:"prompt_ms"`
		PredictedMS float64 `json:"predicted_ms"`
	} `json:"timings"`
	Error json.RawMessage `json:"error"`
}

func (o *openAI) chat(ctx context.Context, c chat, take func(piece) error) error {
	request := struct {
		Model         string          `json:"model"`
		Messages      []openAIMessage `json:"messages"`
		MaxTokens     int             `json:"max_tokens"`
		Temperature   float64         `json:"temperature"`
		TopP          float64         `json:"top_p"`
		Stream        bool            `json:"stream"`
		StreamOptions map[string]bool `json:"stream_options"`
		// Templates of models that can think ask for it; others don't.
		Template map[string]bool `json:"chat_template_kwargs"`
	}{
		Model: c.model, MaxTokens: c.maxTokens, Temperature: c.temperature, TopP: c.topP, Stream: true,
		StreamOptions: map[string]bool{"include_usage": true},
		Template:      map[string]bool{"enable_thinking": c.think},
	}
	for _, m := range c.messages {
		request.Messages = append(request.Messages, openAIMessage{m.role, m.content})
	}
	body, err := o.open(ctx, request)
	if err != nil {
		return err
	}
	defer body.Close()
	return readEvents(body, take)
}

// open asks for the stream, again and again while the server says that it is
// loading the model: the caller's context says how long.
func (o *openAI) open(ctx context.Context, request any) (io.ReadCloser, error) {
	const again = 500 * time.Millisecond
	for {
		resp, err := o.send(ctx, http.MethodPost, "v1/chat/completions", request)
		if err == nil {
			return resp.Body, nil
		}
		if refusal, ok := errors.AsType[*backendError](err); !ok || refusal.status != http.StatusServiceUnavailable {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(again):
		}
	}
}

// readEvents reads server-sent events (WHATWG HTML §9.2) until [DONE]. What is
// counted comes after the finish reason, so the last piece waits for it.
func readEvents(body io.Reader, take func(piece) error) error {
	lines := newLines(body, func([]byte) bool { return false })
	var last piece
	for lines.Scan() {
		data, ok := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !ok {
			if text, bad := bytes.CutPrefix(lines.Bytes(), []byte("error:")); bad { // llama.cpp
				return &backendError{text: errorText(bytes.TrimSpace(text))}
			}
			continue
		}
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			break
		}
		var e openAIEvent
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("the server sent an event that makes no sense: %w", err)
		}
		if len(e.Error) > 0 && string(e.Error) != "null" {
			return &backendError{text: errorText(data)}
		}
		if e.Usage != nil {
			last.prompt, last.completion = counted(e.Usage.Prompt), counted(e.Usage.Completion)
		}
		if e.Timings != nil {
			last.promptTime = milliseconds(e.Timings.PromptMS)
			last.evalTime = milliseconds(e.Timings.PredictedMS)
		}
		if len(e.Choices) == 0 {
			continue
		}
		choice := e.Choices[0]
		if choice.FinishReason != nil {
			last.done, last.reason = true, *choice.FinishReason
		}
		if err := take(piece{content: choice.Delta.Content, thinking: choice.Delta.Thoughts + choice.Delta.Reasoning}); err != nil {
			return err
		}
	}
	if err := endOf(lines); err != nil {
		return err
	}
	if !last.done {
		return errTruncated
	}
	return take(last)
}

func milliseconds(ms float64) time.Duration {
	if !(ms > 0 && ms < 1e12) {
		return 0
	}
	return time.Duration(ms * float64(time.Millisecond))
}

func (o *openAI) ask(ctx context.Context, method, path string, request, answer any) error {
	resp, err := o.send(ctx, method, path, request)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		return fmt.Errorf("%s gave an answer that makes no sense: %w", path, err)
	}
	return nil
}

func (o *openAI) send(ctx context.Context, method, path string, request any) (*http.Response, error) {
	var body io.Reader
	if request != nil {
		text, err := json.Marshal(request)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	r, err := http.NewRequestWithContext(ctx, method, o.base.JoinPath(path).String(), body)
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	return o.client.Do(r)
}
