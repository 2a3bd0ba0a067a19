// Package llm answers LOCAL_LLM_COMPLETION with the models of an Ollama server
// on this machine or near it. It is the only package that knows the server's
// API.
//
// One completion runs at a time, machine-wide: a board has one model's worth of
// memory. A second one is refused at once rather than queued, since whoever asks
// can decide better what to do meanwhile. What a model thinks never becomes part
// of its answer.
package llm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"farhand/wire"

	"github.com/ollama/ollama/api"
)

// Defaults of Config.
const (
	DefaultURL = "http://localhost:11434"
	// DefaultLoadTimeout lies above what loading from an SD card and reading a
	// long prompt take on a small board, and below the 15 minutes of silence
	// after which the platform forgets a request.
	DefaultLoadTimeout = 10 * time.Minute
	// DefaultTokenTimeout lies far above the seconds that one token takes even
	// on a machine that swaps.
	DefaultTokenTimeout = 2 * time.Minute
)

const (
	probeTimeout = 2 * time.Second // of the list of models (the protocol's reference)
	// probeFresh is how long a list counts as current, so that the HELLOs of
	// all sessions ask once.
	probeFresh = 30 * time.Second

	defaultMaxTokens = 1024 // protocol 1.1
	mostMaxTokens    = 1 << 20
	maxModels        = 200
	maxModelName     = 256
)

// Config says where the server is and how long it may be silent. Zero values
// take the defaults.
type Config struct {
	URL          string
	LoadTimeout  time.Duration // until the first token, at least 5 min is wise
	TokenTimeout time.Duration // from one token to the next
	Log          *slog.Logger
}

// Service completes conversations. It is safe for concurrent use.
type Service struct {
	client       *api.Client
	transport    *http.Transport
	host         string
	loadTimeout  time.Duration
	tokenTimeout time.Duration
	log          *slog.Logger

	busy   atomic.Bool
	models models
}

// New makes a Service. It contacts nobody yet.
func New(c Config) (*Service, error) {
	if c.URL == "" {
		c.URL = DefaultURL
	}
	base, err := url.Parse(c.URL)
	if err != nil || base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		return nil, fmt.Errorf("llm.url %q is no http:// or https:// URL", c.URL)
	}
	if c.LoadTimeout <= 0 {
		c.LoadTimeout = DefaultLoadTimeout
	}
	if c.TokenTimeout <= 0 {
		c.TokenTimeout = DefaultTokenTimeout
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	transport := newTransport()
	client := &http.Client{
		Transport:     checked{transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("redirected") },
	}
	return &Service{
		client:       api.NewClient(base, client),
		transport:    transport,
		host:         base.Host,
		loadTimeout:  c.LoadTimeout,
		tokenTimeout: c.TokenTimeout,
		log:          c.Log,
		models:       models{turn: make(chan struct{}, 1)},
	}, nil
}

// Close gives up idle connections. Completions end with their contexts.
func (s *Service) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// Trace is what the audit log wants to know besides the answer; never text.
type Trace struct {
	Model         string
	Stream        bool
	PromptChars   int // code points of the messages that were used
	ResponseChars int // code points that were generated, also before a failure
}

// Complete runs one completion. With streaming, which is the default, each piece
// goes to emit as it comes, and the last chunk carries the finish reason; an
// error of emit ends the completion and is returned. Ending ctx ends generation
// at the server, too.
//
// Errors are LOCAL_LLM_BUSY, MODEL_NOT_AVAILABLE (details requested_model,
// available_models), LOCAL_LLM_FAILED (details backend_error), INTERNAL_ERROR
// with details.reason for a request that makes no sense, and that of ctx. After
// an error no more is emitted. Output ends at wire.MaxText bytes with finish
// reason length.
func (s *Service) Complete(ctx context.Context, req wire.LocalLLMCompletion, emit func(wire.LocalLLMChunk) error) (wire.LocalLLMResponse, Trace, error) {
	trace := Trace{Model: req.Model, Stream: req.Stream == nil || *req.Stream}
	chat, err := chatRequest(req, &trace)
	if err != nil {
		return wire.LocalLLMResponse{}, trace, err
	}
	if !s.busy.CompareAndSwap(false, true) {
		return wire.LocalLLMResponse{}, trace, wire.Errorf(wire.LocalLLMBusy, "another completion is running")
	}
	defer s.busy.Store(false)
	if err := s.checkModel(ctx, req.Model); err != nil {
		return wire.LocalLLMResponse{}, trace, err
	}
	if !trace.Stream {
		emit = nil
	}
	started := time.Now()
	g := &generation{emit: emit}
	err = s.generate(ctx, chat, g)
	trace.ResponseChars = utf8.RuneCountInString(g.content.String())
	switch {
	case g.emitError != nil:
		return wire.LocalLLMResponse{}, trace, g.emitError
	case err != nil:
		return wire.LocalLLMResponse{}, trace, s.failure(ctx, req.Model, err)
	}
	return wire.LocalLLMResponse{
		Content:         g.content.String(),
		FinishReason:    g.reason,
		Tokens:          g.tokens,
		DurationSeconds: math.Round(time.Since(started).Seconds()*1000) / 1000,
	}, trace, nil
}

func knownRole(role string) bool { return role == "system" || role == "user" || role == "assistant" }

// PromptChars is how many code points the messages have that a completion uses:
// those of other roles are left out.
func PromptChars(messages []wire.LLMMessage) int {
	n := 0
	for _, m := range messages {
		if knownRole(m.Role) {
			n += utf8.RuneCountInString(m.Content)
		}
	}
	return n
}

// chatRequest is the request in the server's terms. Messages with roles that we
// don't know are left out, as the protocol asks.
func chatRequest(req wire.LocalLLMCompletion, trace *Trace) (*api.ChatRequest, error) {
	maxTokens, temperature, topP := defaultMaxTokens, 0.0, 1.0
	if req.MaxTokens != nil {
		maxTokens = min(*req.MaxTokens, mostMaxTokens)
	}
	if req.Temperature != nil {
		temperature = *req.Temperature
	}
	if req.TopP != nil {
		topP = *req.TopP
	}
	invalid := func(reason, text string) error {
		return wire.Errorf(wire.InternalError, "%s", text).With("reason", reason)
	}
	switch {
	case req.Model == "" || len(req.Model) > maxModelName:
		return nil, invalid("invalid_model", "model must be a name of 1 to 256 bytes")
	case maxTokens < 1:
		return nil, invalid("invalid_max_tokens", "max_tokens must be at least 1")
	case !(temperature >= 0):
		return nil, invalid("invalid_temperature", "temperature must be at least 0")
	case !(topP >= 0 && topP <= 1):
		return nil, invalid("invalid_top_p", "top_p must be from 0 to 1")
	}
	chat := &api.ChatRequest{
		Model:   req.Model,
		Options: map[string]any{"num_predict": maxTokens, "temperature": temperature, "top_p": topP},
		// Left out, it would mean yes to newer servers.
		Think: &api.ThinkValue{Value: false},
	}
	for _, m := range req.Messages {
		if knownRole(m.Role) {
			chat.Messages = append(chat.Messages, api.Message{Role: m.Role, Content: m.Content})
		}
	}
	trace.PromptChars = PromptChars(req.Messages)
	if len(chat.Messages) == 0 {
		return nil, invalid("no_messages", "no message has a role of system, user or assistant")
	}
	return chat, nil
}

// generate runs the request, once more without the wish not to think if the
// server doesn't take that.
func (s *Service) generate(ctx context.Context, chat *api.ChatRequest, g *generation) error {
	err := s.attempt(ctx, chat, g)
	if refusal, ok := errors.AsType[*backendError](err); ok && refusal.refusesThink() {
		chat.Think = nil
		err = s.attempt(ctx, chat, g)
	}
	return err
}

// errEnough ends a stream from our side: the answer is complete.
var errEnough = errors.New("enough")

func (s *Service) attempt(ctx context.Context, chat *api.ChatRequest, g *generation) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(s.loadTimeout, func() {
		cancel(&silence{"the first token", s.loadTimeout})
	})
	err := s.client.Chat(ctx, chat, func(r api.ChatResponse) error {
		// A fired watchdog has cancelled ctx; resetting it can't undo that.
		watchdog.Stop()
		err := g.take(r)
		watchdog = time.AfterFunc(s.tokenTimeout, func() {
			cancel(&silence{"the next token", s.tokenTimeout})
		})
		return err
	})
	watchdog.Stop()
	silent, wasSilent := errors.AsType[*silence](context.Cause(ctx))
	switch {
	case g.done && (err == nil || errors.Is(err, errEnough)):
		return nil
	case g.emitError != nil:
		return g.emitError
	case wasSilent:
		return silent
	case err != nil:
		return err
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	// The client doesn't tell a cut connection from an end.
	return errors.New("the stream ended before the answer was complete")
}

// silence is the error of a server that says nothing for too long.
type silence struct {
	what    string
	timeout time.Duration
}

func (e *silence) Error() string { return fmt.Sprintf("%s did not come within %v", e.what, e.timeout) }

// generation is one answer as it grows.
type generation struct {
	emit      func(wire.LocalLLMChunk) error // nil: not streaming
	think     thinkFilter
	content   strings.Builder
	reason    string
	tokens    wire.LLMTokens
	done      bool
	emitError error
}

// take takes one line of the stream. What stands in message.thinking is
// progress, but no answer.
func (g *generation) take(r api.ChatResponse) error {
	delta := g.think.feed(r.Message.Content)
	if r.Done {
		delta += g.think.end()
	}
	full := false
	if left := wire.MaxText - g.content.Len(); len(delta) > left {
		delta, full = cut(delta, left), true
	}
	g.content.WriteString(delta)
	if delta != "" {
		if err := g.send(wire.LocalLLMChunk{Delta: delta}); err != nil {
			return err
		}
	}
	switch {
	case full:
		g.reason = "length"
	case r.Done:
		g.reason = finishReason(r.DoneReason)
		g.tokens = countTokens(r)
	default:
		return nil
	}
	if err := g.send(wire.LocalLLMChunk{FinishReason: &g.reason}); err != nil {
		return err
	}
	g.done = true
	return errEnough
}

func (g *generation) send(c wire.LocalLLMChunk) error {
	if g.emit == nil {
		return nil
	}
	g.emitError = g.emit(c)
	return g.emitError
}

func finishReason(done string) string {
	switch done {
	case "length", "content_filter":
		return done
	}
	return "stop"
}

// countTokens: 0 is how the client shows an absent number.
func countTokens(r api.ChatResponse) wire.LLMTokens {
	var t wire.LLMTokens
	if n := r.PromptEvalCount; n > 0 {
		t.Prompt = &n
	}
	if n := r.EvalCount; n > 0 {
		t.Completion = &n
	}
	if t.Prompt != nil && t.Completion != nil {
		n := *t.Prompt + *t.Completion
		t.Total = &n
	}
	return t
}

// cut is the longest prefix of s of at most n bytes that ends with a character.
func cut(s string, n int) string {
	n = min(n, len(s))
	for n > 0 && n < len(s) && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// failure is err as it goes on the wire.
func (s *Service) failure(ctx context.Context, model string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("completion given up: %w", context.Cause(ctx))
	}
	if refusal, ok := errors.AsType[*backendError](err); ok {
		if refusal.status == http.StatusNotFound {
			available, _ := s.models.probe(ctx, s, true)
			return notAvailable(model, available).With("backend_error", refusal.text)
		}
		return failed(refusal.Error()).With("backend_error", refusal.text)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return failed(fmt.Sprintf("Ollama at %s: %v", s.host, wrapped.Err)).With("backend_error", excerpt(wrapped.Err.Error()))
	}
	return failed(err.Error()).With("backend_error", excerpt(err.Error()))
}

func failed(text string) *wire.Error { return wire.Errorf(wire.LocalLLMFailed, "%s", excerpt(text)) }

func notAvailable(model string, available []string) *wire.Error {
	if available == nil {
		available = []string{}
	}
	return wire.Errorf(wire.ModelNotAvailable, "model %q is not available", model).
		With("requested_model", model).With("available_models", available)
}

// excerpt is what of a server's message is passed on: 200 characters, as the
// protocol's reference does.
func excerpt(s string) string {
	const most = 200
	s = strings.ToValidUTF8(strings.TrimSpace(cut(s, 4*most)), "\ufffd") // no character has more than 4 bytes
	if runes := []rune(s); len(runes) > most {
		return string(runes[:most])
	}
	return s
}

// checkModel refuses a model that the server doesn't have. If the list isn't to
// be had, the server shall say so itself.
func (s *Service) checkModel(ctx context.Context, model string) error {
	if has(s.models.known(), model) {
		return nil
	}
	available, err := s.models.probe(ctx, s, true)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && !has(available, model):
		return notAvailable(model, available)
	}
	return nil
}

// has knows that a name without a tag means the tag latest.
func has(models []string, name string) bool {
	if slices.Contains(models, name) {
		return true
	}
	return !strings.Contains(name[strings.LastIndex(name, "/")+1:], ":") && slices.Contains(models, name+":latest")
}
