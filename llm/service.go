// Package llm answers LOCAL_LLM_COMPLETION with the models of a server on this
// machine or near it: Ollama, or one that speaks OpenAI's API (llama.cpp, LM
// Studio).
//
// One completion runs at a time, machine-wide, and one model is in memory: a board
// has one model's worth of it. A second completion is refused at once, since
// whoever asks can decide better what to do meanwhile; only who may and wants to
// waits, in a queue with a bound. What a model thinks never becomes part of its
// answer.
package llm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"farhand/wire"
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
	// DefaultContext is Ollama's own. More is slow on a board and takes memory
	// that it may not have.
	DefaultContext = 4096
	// DefaultKeepAlive is longer than the server's five minutes: loading again
	// takes the better part of one.
	DefaultKeepAlive = 30 * time.Minute
	// DefaultQueue is how many completions may wait that ask to.
	DefaultQueue = 4
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

// Config says where the server is, how long it may be silent and what of the
// board it may use. Zero values take the defaults.
type Config struct {
	Kind         string // KindOllama or KindOpenAI; default KindOllama
	URL          string
	LoadTimeout  time.Duration // until the first token, at least 5 min is wise
	TokenTimeout time.Duration // from one token to the next
	Context      int           // most tokens of prompt and answer together (Ollama's num_ctx)
	KeepAlive    time.Duration // how long a model stays in memory after its last use (Ollama)
	Queue        int           // completions that may wait; negative: none
	// Vet, if not nil, decides whether a connection to a server on this machine leads
	// to who it should.
	Vet func(net.Conn) error
	// Speeds is the file that keeps what was measured; "": only memory does.
	Speeds string
	Log    *slog.Logger
}

// Service completes conversations. It is safe for concurrent use.
type Service struct {
	backend      backend
	kind         string
	transport    *http.Transport
	host         string
	loadTimeout  time.Duration
	tokenTimeout time.Duration
	context      int
	keepAlive    time.Duration
	// available is what memory a model may take, bytes; nil: the server isn't on
	// this machine.
	available func() (int64, error)
	log       *slog.Logger

	turn   *turn
	uses   uses
	models models
	speeds speeds
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
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Queue == 0 {
		c.Queue = DefaultQueue
	}
	s := &Service{
		kind:         orElse(c.Kind, KindOllama),
		host:         base.Host,
		loadTimeout:  positive(c.LoadTimeout, DefaultLoadTimeout),
		tokenTimeout: positive(c.TokenTimeout, DefaultTokenTimeout),
		context:      positive(c.Context, DefaultContext),
		keepAlive:    positive(c.KeepAlive, DefaultKeepAlive),
		log:          c.Log,
		turn:         &turn{most: max(c.Queue, 0)},
		models:       models{turn: make(chan struct{}, 1)},
	}
	if !onThisMachine(base.Hostname()) {
		c.Vet = nil
	}
	s.transport = newTransport(c.Vet)
	client := &http.Client{
		Transport:     checked{s.transport},
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("redirected") },
	}
	switch s.kind {
	case KindOllama:
		s.backend = newOllama(base, client)
	case KindOpenAI:
		s.backend = &openAI{base, client}
	default:
		return nil, fmt.Errorf("llm.kind %q is neither %s nor %s", c.Kind, KindOllama, KindOpenAI)
	}
	if onThisMachine(base.Hostname()) {
		s.available = availableMemory
	}
	if err := s.speeds.open(c.Speeds); err != nil {
		c.Log.Warn("how fast the models are is measured anew", "error", err)
	}
	return s, nil
}

// OnThisMachine says whether the server is to be on this machine, by its address.
func (s *Service) OnThisMachine() bool { return s.available != nil }

func onThisMachine(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func orElse[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

func positive[T ~int | ~int64](v, otherwise T) T {
	if v <= 0 {
		return otherwise
	}
	return v
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
// available_models), LOCAL_LLM_FAILED (details backend_error and reason: see
// Reasons), INTERNAL_ERROR with details.reason for a request that makes no sense,
// and that of ctx. After an error no more is emitted. Output ends at wire.MaxText
// bytes with finish reason length.
//
// The extended fields of the request (think, wait) and of chunks and answer
// (thinking, waiting, timings) are for those who may have them: callers empty
// those of the request otherwise, and then the others stay empty, too.
func (s *Service) Complete(ctx context.Context, req wire.LocalLLMCompletion, emit func(wire.LocalLLMChunk) error) (wire.LocalLLMResponse, Trace, error) {
	return s.complete(ctx, req, s.checkModel, emit)
}

// complete is Complete with another check of the model, which is made when its turn
// has come: until then it may become another.
func (s *Service) complete(ctx context.Context, req wire.LocalLLMCompletion, check func(ctx context.Context, model string) error, emit func(wire.LocalLLMChunk) error) (wire.LocalLLMResponse, Trace, error) {
	trace := Trace{Model: req.Model, Stream: req.Stream == nil || *req.Stream}
	c, err := s.chat(req, &trace)
	if err != nil {
		return wire.LocalLLMResponse{}, trace, err
	}
	if !trace.Stream {
		emit = nil
	}
	g := &generation{emit: emit, extended: req.Extended()}
	leave, err := s.turn.enter(ctx, req.Wait, g.waiting)
	if err != nil {
		return wire.LocalLLMResponse{}, trace, err
	}
	defer leave()
	if err := check(ctx, req.Model); err != nil {
		return wire.LocalLLMResponse{}, trace, err
	}
	if err := s.makeRoom(ctx, req.Model); err != nil {
		return wire.LocalLLMResponse{}, trace, s.failure(ctx, req.Model, err)
	}
	started := time.Now()
	err = s.attempt(ctx, c, g)
	trace.ResponseChars = utf8.RuneCountInString(g.content.String())
	switch {
	case g.emitError != nil:
		return wire.LocalLLMResponse{}, trace, g.emitError
	case err != nil:
		return wire.LocalLLMResponse{}, trace, s.failure(ctx, req.Model, err)
	}
	if err := s.speeds.measured(req.Model, g.last); err != nil {
		s.log.Warn("how fast a model is could not be kept", "error", err)
	}
	answer := wire.LocalLLMResponse{
		Content:         g.content.String(),
		FinishReason:    g.reason,
		Tokens:          g.tokens(),
		DurationSeconds: math.Round(time.Since(started).Seconds()*1000) / 1000,
	}
	if g.extended {
		answer.Thinking, answer.Timings = g.thoughts.String(), g.timings()
	}
	return answer, trace, nil
}

// PromptChars is how many code points the messages have that a completion uses:
// those of other roles are left out.
func PromptChars(messages []wire.LLMMessage) int {
	n := 0
	for _, m := range messages {
		if m.Known() {
			n += utf8.RuneCountInString(m.Content)
		}
	}
	return n
}

// loading is how every model is loaded.
func (s *Service) loading() loading { return loading{s.context, s.keepAlive} }

// chat is the request in a server's terms. Messages with roles that we don't know
// are left out, as the protocol asks.
func (s *Service) chat(req wire.LocalLLMCompletion, trace *Trace) (chat, error) {
	c := chat{
		model: req.Model, maxTokens: defaultMaxTokens, topP: 1, think: req.Think != nil && *req.Think, loading: s.loading(),
	}
	if req.MaxTokens != nil {
		c.maxTokens = min(*req.MaxTokens, mostMaxTokens)
	}
	if req.Temperature != nil {
		c.temperature = *req.Temperature
	}
	if req.TopP != nil {
		c.topP = *req.TopP
	}
	invalid := func(reason, text string) (chat, error) {
		return chat{}, wire.Errorf(wire.InternalError, "%s", text).With("reason", reason)
	}
	switch {
	case req.Model == "" || len(req.Model) > maxModelName:
		return invalid("invalid_model", "model must be a name of 1 to 256 bytes")
	case c.maxTokens < 1:
		return invalid("invalid_max_tokens", "max_tokens must be at least 1")
	case !(c.temperature >= 0):
		return invalid("invalid_temperature", "temperature must be at least 0")
	case !(c.topP >= 0 && c.topP <= 1):
		return invalid("invalid_top_p", "top_p must be from 0 to 1")
	}
	for _, m := range req.Messages {
		if m.Known() {
			c.messages = append(c.messages, message{m.Role, m.Content})
		}
	}
	trace.PromptChars = PromptChars(req.Messages)
	if len(c.messages) == 0 {
		return invalid("no_messages", "no message has a role of system, user or assistant")
	}
	return c, nil
}

var (
	// errEnough ends a stream from our side: the answer is complete.
	errEnough = errors.New("enough")
	// errTruncated: no client tells a cut connection from an end.
	errTruncated = errors.New("the stream ended before the answer was complete")
)

func (s *Service) attempt(ctx context.Context, c chat, g *generation) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watchdog := time.AfterFunc(s.loadTimeout, func() {
		cancel(&silence{"load_timeout", "the first token", s.loadTimeout})
	})
	err := s.backend.chat(ctx, c, func(p piece) error {
		// A fired watchdog has cancelled ctx; resetting it can't undo that.
		watchdog.Stop()
		err := g.take(p)
		watchdog = time.AfterFunc(s.tokenTimeout, func() {
			cancel(&silence{"token_timeout", "the next token", s.tokenTimeout})
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
	return errTruncated
}

// silence is the error of a server that says nothing for too long.
type silence struct {
	reason  string
	what    string
	timeout time.Duration
}

func (e *silence) Error() string { return fmt.Sprintf("%s did not come within %v", e.what, e.timeout) }

// generation is one answer as it grows.
type generation struct {
	emit      func(wire.LocalLLMChunk) error // nil: not streaming
	extended  bool
	think     thinkFilter
	content   strings.Builder
	thoughts  strings.Builder // extended only
	reason    string
	last      piece
	done      bool
	emitError error
}

// take takes one piece of the stream. What is thought is progress, but no answer.
func (g *generation) take(p piece) error {
	delta, thought := g.think.feed(p.content)
	if p.done {
		answer, rest := g.think.end()
		delta, thought = delta+answer, thought+rest
	}
	if err := g.thinks(p.thinking + thought); err != nil {
		return err
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
	case p.done:
		g.reason, g.last = finishReason(p.reason), p
	default:
		return nil
	}
	if err := g.send(wire.LocalLLMChunk{FinishReason: &g.reason}); err != nil {
		return err
	}
	g.done = true
	return errEnough
}

// thinks passes thoughts on, as far as they fit into an answer.
func (g *generation) thinks(thought string) error {
	if !g.extended {
		return nil
	}
	thought = cut(thought, wire.MaxText-g.thoughts.Len())
	if thought == "" {
		return nil
	}
	g.thoughts.WriteString(thought)
	return g.send(wire.LocalLLMChunk{Thinking: thought})
}

// waiting says how many are before this completion.
func (g *generation) waiting(before int) error { return g.send(wire.LocalLLMChunk{Waiting: before}) }

func (g *generation) send(c wire.LocalLLMChunk) error {
	if g.emit == nil {
		return nil
	}
	g.emitError = g.emit(c)
	return g.emitError
}

// tokens counts them as far as the server did.
func (g *generation) tokens() wire.LLMTokens {
	t := wire.LLMTokens{Prompt: g.last.prompt, Completion: g.last.completion}
	if t.Prompt != nil && t.Completion != nil {
		n := *t.Prompt + *t.Completion
		t.Total = &n
	}
	return t
}

func (g *generation) timings() *wire.LLMTimings {
	return &wire.LLMTimings{
		LoadSeconds:           g.last.load.Seconds(),
		PromptTokensPerSecond: rate(g.last.prompt, g.last.promptTime),
		TokensPerSecond:       rate(g.last.completion, g.last.evalTime),
	}
}

func finishReason(done string) string {
	switch done {
	case "length", "content_filter":
		return done
	}
	return "stop"
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
	if ready, ok := errors.AsType[*wire.Error](err); ok {
		return ready
	}
	if refusal, ok := errors.AsType[*backendError](err); ok {
		if refusal.status == http.StatusNotFound {
			available, _ := s.models.probe(ctx, s, true)
			return notAvailable(model, available).With("backend_error", refusal.text)
		}
		return failed("backend_error", refusal.Error()).With("backend_error", refusal.text)
	}
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		return failed("unreachable", fmt.Sprintf("%s at %s: %v", s.kind, s.host, wrapped.Err)).With("backend_error", excerpt(wrapped.Err.Error()))
	}
	reason := "backend_error"
	if silent, ok := errors.AsType[*silence](err); ok {
		reason = silent.reason
	} else if errors.Is(err, errTruncated) {
		reason = "truncated"
	}
	return failed(reason, err.Error()).With("backend_error", excerpt(err.Error()))
}

func notAvailable(model string, available []Model) *wire.Error {
	names := namesOf(available)
	text := fmt.Sprintf("model %q is not available", model)
	if len(names) == 0 {
		text = "this machine has no model yet; farhand llm pull gets one"
	}
	return wire.Errorf(wire.ModelNotAvailable, "%s", text).
		With("requested_model", model).With("available_models", names)
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

func has(models []Model, name string) bool {
	for _, m := range models {
		if sameModel(m.Name, name) {
			return true
		}
	}
	return false
}

// sameModel knows that a name without a tag means the tag latest.
func sameModel(full, name string) bool {
	return full == name || full == name+":latest" && !strings.Contains(name[strings.LastIndex(name, "/")+1:], ":")
}
