// Package llmserver serves the local model of a machine by OpenAI's API, so that
// tools which know that API, and nothing of machines, use it: GET /v1/models,
// POST /v1/chat/completions (whole or as server-sent events) and POST
// /v1/embeddings. It is meant for loopback: it asks for no key, and answers nobody
// who calls it by another name than loopback's, so that no web page reaches it.
package llmserver

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"farhand/wire"
)

// Machine is what the server needs of a client.Session.
type Machine interface {
	Complete(ctx context.Context, req wire.LocalLLMCompletion, piece func(wire.LocalLLMChunk) error) (wire.LocalLLMResponse, error)
	LLM(ctx context.Context) (wire.LLMStatus, error)
	Embed(ctx context.Context, r wire.LLMEmbed) (wire.LLMEmbeddings, error)
}

// maxRequest bounds a request's body.
const maxRequest = 16 << 20

type server struct {
	machine Machine
	now     func() time.Time
}

// Handler serves a machine's model. Requests end with their connections, and then
// generation on the machine does, too.
func Handler(m Machine) http.Handler {
	s := &server{machine: m, now: time.Now}
	mux := http.NewServeMux()
	for path, h := range map[string]http.HandlerFunc{
		"GET /models": s.models, "GET /models/{model...}": s.model, "POST /chat/completions": s.chat, "POST /embeddings": s.embeddings,
	} {
		method, path, _ := strings.Cut(path, " ")
		for _, base := range []string{"/v1", ""} { // a base URL is easily given without /v1
			mux.HandleFunc(method+" "+base+path, h)
			if base+path != "/models/{model...}" {
				mux.HandleFunc(base+path, wrongMethod(method))
			}
		}
	}
	mux.HandleFunc("/models/{model...}", wrongMethod(http.MethodGet))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		refuse(w, http.StatusNotFound, "not_found", fmt.Sprintf("there is no %s here, but /v1/models, /v1/chat/completions and /v1/embeddings", r.URL.Path))
	})
	return loopbackOnly(mux)
}

func wrongMethod(right string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Allow", right+", OPTIONS")
		refuse(w, http.StatusMethodNotAllowed, "method_not_allowed", fmt.Sprintf("%s takes %s", r.URL.Path, right))
	}
}

// loopbackOnly refuses callers that a web page sent: a name of its own that leads
// to loopback shows in Host, and its origin in Origin. Pages that loopback itself
// serves may ask, and so their browsers are told.
func loopbackOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if !loopbackHost(r.Host) || !loopbackOrigin(origin) {
			refuse(w, http.StatusForbidden, "forbidden", "this server answers on loopback's own names only")
			return
		}
		if origin != "" {
			w.Header().Set("Access-Control-Allow-Origin", origin)
			w.Header().Add("Vary", "Origin")
		}
		if r.Method == http.MethodOptions {
			w.Header().Set("Access-Control-Allow-Methods", "GET, POST")
			w.Header().Set("Access-Control-Allow-Headers", orElse(r.Header.Get("Access-Control-Request-Headers"), "Authorization, Content-Type"))
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func orElse(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}

func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func loopbackOrigin(origin string) bool {
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && loopbackHost(u.Host)
}

type modelObject struct {
	ID      string `json:"id"`
	Object  string `json:"object"`
	Created int64  `json:"created"`
	OwnedBy string `json:"owned_by"`
}

func (s *server) list(ctx context.Context) ([]modelObject, error) {
	status, err := s.machine.LLM(ctx)
	if err != nil {
		return nil, err
	}
	list := make([]modelObject, 0, len(status.Models))
	for _, m := range status.Models {
		list = append(list, modelObject{m.Name, "model", int64(m.Modified), status.Kind})
	}
	return list, nil
}

func (s *server) models(w http.ResponseWriter, r *http.Request) {
	list, err := s.list(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, map[string]any{"object": "list", "data": list})
}

func (s *server) model(w http.ResponseWriter, r *http.Request) {
	list, err := s.list(r.Context())
	if err != nil {
		fail(w, err)
		return
	}
	id := r.PathValue("model")
	for _, m := range list {
		if m.ID == id || m.ID == id+":latest" { // as completions take it
			answer(w, m)
			return
		}
	}
	refuse(w, http.StatusNotFound, "model_not_found", fmt.Sprintf("the machine has no model %q", id))
}

// chatRequest is what of a request can be done here. What a model on a board
// can't do (tools, images, several choices, JSON by a schema) is refused rather than
// left out, but for what doesn't change the meaning of an answer.
type chatRequest struct {
	Model               string          `json:"model"`
	Messages            []message       `json:"messages"`
	Stream              bool            `json:"stream"`
	StreamOptions       *streamOptions  `json:"stream_options"`
	MaxTokens           *int            `json:"max_tokens"`
	MaxCompletionTokens *int            `json:"max_completion_tokens"`
	Temperature         *float64        `json:"temperature"`
	TopP                *float64        `json:"top_p"`
	ReasoningEffort     *string         `json:"reasoning_effort"`
	Stop                list            `json:"stop"`
	N                   *int            `json:"n"`
	Tools               json.RawMessage `json:"tools"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	Functions           json.RawMessage `json:"functions"`
	LogProbs            bool            `json:"logprobs"`
	ResponseFormat      *struct {
		Type string `json:"type"`
	} `json:"response_format"`
}

// list is a text or a list of texts.
type list []string

func (l *list) UnmarshalJSON(b []byte) error {
	var one *string
	if json.Unmarshal(b, &one) == nil {
		if one != nil {
			*l = list{*one}
		}
		return nil
	}
	var all []string
	if err := json.Unmarshal(b, &all); err != nil {
		return errors.New("a text or a list of texts is wanted")
	}
	*l = all
	return nil
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type message struct {
	Role    string `json:"role"`
	Content text   `json:"content"`
}

// text is a text, or a list of parts that are texts.
type text string

func (t *text) UnmarshalJSON(b []byte) error {
	var whole *string
	if json.Unmarshal(b, &whole) == nil {
		if whole != nil {
			*t = text(*whole)
		}
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}
	if err := json.Unmarshal(b, &parts); err != nil {
		return errors.New("content must be a text or a list of parts")
	}
	var all strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return fmt.Errorf("a part of type %q can't be given to the machine's model, only text can", p.Type)
		}
		all.WriteString(p.Text)
	}
	*t = text(all.String())
	return nil
}

func (r chatRequest) completion() (wire.LocalLLMCompletion, error) {
	if r.N != nil && *r.N != 1 {
		return wire.LocalLLMCompletion{}, errors.New("n must be 1: a machine gives one answer")
	}
	for _, tools := range []json.RawMessage{r.Tools, r.Functions} {
		if len(tools) > 0 && string(tools) != "null" && string(tools) != "[]" && string(r.ToolChoice) != `"none"` {
			return wire.LocalLLMCompletion{}, errors.New("the machine's model can't call tools")
		}
	}
	if f := r.ResponseFormat; f != nil && f.Type != "text" {
		return wire.LocalLLMCompletion{}, fmt.Errorf("response_format can't be %q: the machine's model answers with text", f.Type)
	}
	if r.LogProbs {
		return wire.LocalLLMCompletion{}, errors.New("logprobs aren't known of the machine's model")
	}
	if len(r.Stop) > maxStops || slices.ContainsFunc(r.Stop, func(s string) bool { return s == "" || len(s) > maxStop }) {
		return wire.LocalLLMCompletion{}, fmt.Errorf("stop may have %d texts of 1 to %d bytes", maxStops, maxStop)
	}
	c := wire.LocalLLMCompletion{
		Model: r.Model, MaxTokens: r.MaxCompletionTokens, Temperature: r.Temperature, TopP: r.TopP, Wait: true,
	}
	if c.MaxTokens == nil {
		c.MaxTokens = r.MaxTokens
	}
	if c.MaxTokens != nil && *c.MaxTokens == -1 { // what those write who know llama.cpp's server or LM Studio
		c.MaxTokens = nil
	}
	if r.ReasoningEffort != nil {
		think := *r.ReasoningEffort != "none"
		c.Think = &think
	}
	for _, m := range r.Messages {
		role := m.Role
		if role == "developer" {
			role = "system"
		}
		c.Messages = append(c.Messages, wire.LLMMessage{Role: role, Content: string(m.Content)})
	}
	return c, nil
}

type delta struct {
	Role      string  `json:"role,omitempty"`
	Content   *string `json:"content,omitempty"` // there in the first, empty or not: clients take it for the begin
	Reasoning string  `json:"reasoning_content,omitempty"`
}

type usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

func used(t wire.LLMTokens) *usage {
	if t.Total == nil {
		return nil
	}
	return &usage{*t.Prompt, *t.Completion, *t.Total}
}

// whole is an answer that isn't streamed. Clients expect its content, empty or not.
type whole struct {
	Role      string `json:"role"`
	Content   string `json:"content"`
	Reasoning string `json:"reasoning_content,omitempty"`
}

type choice struct {
	Index        int     `json:"index"`
	Delta        *delta  `json:"delta,omitempty"`
	Message      *whole  `json:"message,omitempty"`
	FinishReason *string `json:"finish_reason"`
}

type completion struct {
	ID      string   `json:"id"`
	Object  string   `json:"object"`
	Created int64    `json:"created"`
	Model   string   `json:"model"`
	Choices []choice `json:"choices"`
	Usage   *usage   `json:"usage,omitempty"`
}

func (s *server) chat(w http.ResponseWriter, r *http.Request) {
	var in chatRequest
	if !read(w, r, &in) {
		return
	}
	request, err := in.completion()
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request_error", err.Error())
		return
	}
	out := completion{ID: "chatcmpl-" + rand.Text(), Created: s.now().Unix(), Model: in.Model}
	if in.Stream {
		s.stream(w, r, request, ending{stops: in.Stop}, out, in.StreamOptions != nil && in.StreamOptions.IncludeUsage)
		return
	}
	var piece func(wire.LocalLLMChunk) error
	end := ending{stops: in.Stop}
	if len(in.Stop) > 0 {
		piece = func(c wire.LocalLLMChunk) error { return end.take(c, func(wire.LocalLLMChunk) error { return nil }) }
	}
	got, err := s.machine.Complete(r.Context(), request, piece)
	if errors.Is(err, errStopped) {
		got, err = end.answer(), nil
	}
	if err != nil {
		fail(w, err)
		return
	}
	out.Object = "chat.completion"
	out.Choices = []choice{{Message: &whole{"assistant", got.Content, got.Thinking}, FinishReason: &got.FinishReason}}
	out.Usage = used(got.Tokens)
	answer(w, out)
}

// stream sends the answer as it comes. An error before its first piece is an
// answer like any other; a later one is an event, as there is no status any more.
func (s *server) stream(w http.ResponseWriter, r *http.Request, request wire.LocalLLMCompletion, end ending, out completion, count bool) {
	out.Object = "chat.completion.chunk"
	e := &events{w: w}
	show := func(c wire.LocalLLMChunk) error {
		if c.Delta == "" && c.Thinking == "" && c.FinishReason == nil {
			return nil // it waits its turn
		}
		d := delta{Reasoning: c.Thinking}
		if !e.begun {
			d.Role = "assistant"
		}
		if !e.begun || c.Delta != "" {
			d.Content = &c.Delta
		}
		out.Choices = []choice{{Delta: &d, FinishReason: c.FinishReason}}
		return e.send(out)
	}
	got, err := s.machine.Complete(r.Context(), request, func(c wire.LocalLLMChunk) error { return end.take(c, show) })
	if errors.Is(err, errStopped) {
		err = nil
	}
	switch {
	case err != nil && !e.begun:
		fail(w, err)
		return
	case err != nil:
		_, failure := describe(err)
		_ = e.send(failure) // the connection may be what failed
		return
	case count && got.Tokens.Total != nil: // of an answer that was stopped nobody knows
		out.Choices, out.Usage = []choice{}, used(got.Tokens)
		if e.send(out) != nil {
			return
		}
	}
	_ = e.raw("[DONE]")
}

// events writes server-sent events.
type events struct {
	w     http.ResponseWriter
	begun bool
}

func (e *events) send(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return e.raw(string(b))
}

func (e *events) raw(data string) error {
	if !e.begun {
		e.begun = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("Cache-Control", "no-store")
	}
	if _, err := fmt.Fprintf(e.w, "data: %s\n\n", data); err != nil {
		return err
	}
	return http.NewResponseController(e.w).Flush()
}

type embedRequest struct {
	Model          string `json:"model"`
	Input          list   `json:"input"`
	EncodingFormat string `json:"encoding_format"`
	Dimensions     *int   `json:"dimensions"`
}

func (s *server) embeddings(w http.ResponseWriter, r *http.Request) {
	var in embedRequest
	if !read(w, r, &in) {
		return
	}
	if f := in.EncodingFormat; f != "" && f != "float" && f != "base64" {
		refuse(w, http.StatusBadRequest, "invalid_request_error", fmt.Sprintf("encoding_format is float or base64, not %q", f))
		return
	}
	if in.Dimensions != nil {
		refuse(w, http.StatusBadRequest, "invalid_request_error", "dimensions can't be chosen: they are the model's")
		return
	}
	if len(in.Input) > maxInputs {
		refuse(w, http.StatusBadRequest, "invalid_request_error", fmt.Sprintf("input may have %d texts", maxInputs))
		return
	}
	got, err := s.embed(r.Context(), in)
	if err != nil {
		fail(w, err)
		return
	}
	data := make([]map[string]any, len(got.Embeddings))
	for i, vector := range got.Embeddings {
		var shown any = vector
		if in.EncodingFormat == "base64" {
			shown = packed(vector)
		}
		data[i] = map[string]any{"object": "embedding", "index": i, "embedding": shown}
	}
	tokens := 0
	if got.Tokens != nil {
		tokens = *got.Tokens
	}
	answer(w, map[string]any{
		"object": "list", "data": data, "model": in.Model,
		"usage": map[string]int{"prompt_tokens": tokens, "total_tokens": tokens},
	})
}

// maxInputs is how many texts OpenAI's API takes at once, which is more than a machine
// does.
const maxInputs = 2048

// embed asks a machine for vectors as often as it takes.
func (s *server) embed(ctx context.Context, in embedRequest) (all wire.LLMEmbeddings, err error) {
	tokens := 0
	all.Tokens = &tokens
	for rest := in.Input; ; {
		n, size := 0, 0
		for n < len(rest) && n < wire.MaxEmbedInputs && (n == 0 || size+len(rest[n]) <= wire.MaxEmbedBytes) {
			size += len(rest[n])
			n++
		}
		got, err := s.machine.Embed(ctx, wire.LLMEmbed{Model: in.Model, Input: rest[:n]})
		if err != nil {
			return wire.LLMEmbeddings{}, err
		}
		all.Embeddings = append(all.Embeddings, got.Embeddings...)
		if got.Tokens != nil {
			tokens += *got.Tokens
		}
		if rest = rest[n:]; len(rest) == 0 {
			return all, nil
		}
	}
}

// packed is a vector as OpenAI's own clients ask for it: 32-bit floats, little
// endian, base64.
func packed(vector []float32) string {
	b := make([]byte, 0, 4*len(vector))
	for _, x := range vector {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}

func read(w http.ResponseWriter, r *http.Request, v any) bool {
	body := http.MaxBytesReader(w, r.Body, maxRequest)
	err := json.NewDecoder(body).Decode(v)
	if err == nil {
		// Only once nothing is left of the request is it noticed that its client hangs up.
		_, err = io.Copy(io.Discard, body)
	}
	if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
		refuse(w, http.StatusRequestEntityTooLarge, "invalid_request_error", fmt.Sprintf("a request may have %d bytes", large.Limit))
		return false
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, "invalid_request_error", "the request can't be read: "+err.Error())
		return false
	}
	return true
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // fails with the connection
}

type failure struct {
	Error struct {
		Message string         `json:"message"`
		Type    string         `json:"type"`
		Code    string         `json:"code"`
		Details map[string]any `json:"details,omitempty"`
	} `json:"error"`
}

func refuse(w http.ResponseWriter, status int, code, message string) {
	var f failure
	f.Error.Message, f.Error.Type, f.Error.Code = message, code, code
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(f)
}

// describe is an error of the machine as this API has them.
func describe(err error) (status int, f failure) {
	e := wire.AsError(err)
	f.Error.Message, f.Error.Type, f.Error.Code, f.Error.Details = e.Message, "server_error", string(e.Code), e.Details
	switch e.Code {
	case wire.ModelNotAvailable:
		return http.StatusNotFound, f
	case wire.LocalLLMBusy, wire.ShimOverloaded:
		return http.StatusTooManyRequests, f
	case wire.CapabilityNotGranted:
		return http.StatusForbidden, f
	case wire.LocalLLMFailed, wire.MachineUnreachable:
		return http.StatusBadGateway, f
	}
	if reason, _ := e.Details["reason"].(string); strings.HasPrefix(reason, "invalid_") || reason == "no_messages" {
		f.Error.Type = "invalid_request_error"
		return http.StatusBadRequest, f
	}
	return http.StatusInternalServerError, f
}

func fail(w http.ResponseWriter, err error) {
	status, f := describe(err)
	w.Header().Set("Content-Type", "application/json")
	if status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "5")
	}
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(f)
}
