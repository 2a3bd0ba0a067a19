package llm

import (
	"context"
	"errors"
	"slices"
	"strings"
	"unicode/utf8"

	"farhand/wire"
)

// Private is a completion whose prompt must not leave the machine: only its answer
// does, and not more of that than MostChars code points.
type Private struct {
	Model       string
	System      string
	User        string
	MaxTokens   *int
	Temperature *float64
	Wait        bool
	MostChars   int
}

// Bytes that one token of a prompt is taken for, and what is kept of the context
// for what the model's template adds.
const (
	tokenBytes     = 3
	templateTokens = 256
)

// PromptBytes is about how much text a prompt may have beside an answer of so many
// tokens (nil: the default); 0 if there is no room.
func (s *Service) PromptBytes(maxTokens *int) int64 {
	answer := defaultMaxTokens
	if maxTokens != nil {
		answer = *maxTokens
	}
	return max(0, int64(s.context)-int64(max(answer, 0))-templateTokens) * tokenBytes
}

// errCut ends an answer that is long enough.
var errCut = errors.New("long enough")

// CompletePrivate runs one. emit, which may be nil, gets the answer piece by piece,
// and how many completions are before this one as long as there are any. truncated
// says that there was more.
//
// Errors are those of Complete, without anything of what the server said, which may
// quote the prompt; besides, LOCAL_LLM_FAILED with details.reason remote_server and
// MODEL_NOT_AVAILABLE with remote_model, where the prompt would leave the machine, and
// LOCAL_LLM_BUSY with fetching while the model is pulled, which may make it such a one.
func (s *Service) CompletePrivate(ctx context.Context, p Private, emit func(delta string, waiting int) error) (_ wire.LocalLLMResponse, truncated bool, _ error) {
	if s.available == nil {
		return wire.LocalLLMResponse{}, false, failed("remote_server", "the model's server is not on this machine, so private files are not given to it")
	}
	leave, err := s.uses.enter(p.Model, private)
	if err != nil {
		return wire.LocalLLMResponse{}, false, err
	}
	defer leave()
	if emit == nil {
		emit = func(string, int) error { return nil }
	}
	var output strings.Builder
	left := p.MostChars
	answer, _, err := s.complete(ctx, wire.LocalLLMCompletion{
		Model: p.Model, MaxTokens: p.MaxTokens, Temperature: p.Temperature, Wait: p.Wait,
		Messages: []wire.LLMMessage{{Role: "system", Content: p.System}, {Role: "user", Content: p.User}},
	}, s.staysHere, func(c wire.LocalLLMChunk) error {
		if c.Waiting > 0 {
			return emit("", c.Waiting)
		}
		delta, more := firstChars(c.Delta, left)
		left -= utf8.RuneCountInString(delta)
		output.WriteString(delta)
		if delta != "" {
			if err := emit(delta, 0); err != nil {
				return err
			}
		}
		if more {
			return errCut
		}
		return nil
	})
	switch {
	case errors.Is(err, errCut):
		answer, truncated = wire.LocalLLMResponse{FinishReason: "length"}, true
	case err != nil:
		return wire.LocalLLMResponse{}, false, withoutWords(ctx, err)
	}
	answer.Content = output.String()
	return answer, truncated, nil
}

// firstChars are the first n code points of s; more says that there are others.
func firstChars(s string, n int) (first string, more bool) {
	for i := range s {
		if n == 0 {
			return s[:i], true
		}
		n--
	}
	return s, false
}

// staysHere says whether the model runs on this machine, as its server says at
// this moment.
func (s *Service) staysHere(ctx context.Context, model string) error {
	list, err := s.models.probe(ctx, s, true)
	switch {
	case err != nil:
		return s.failure(ctx, model, err)
	case !has(list, model):
		return notAvailable(model, list)
	}
	here := slices.DeleteFunc(slices.Clone(list), func(m Model) bool { return m.Remote })
	for _, m := range list {
		if m.Remote && sameModel(m.Name, model) {
			return notAvailable(model, here).With("reason", "remote_model").With("hint", "it runs on another machine; use one that runs here")
		}
	}
	return nil
}

// withoutWords is an error of ours without what somebody else put into words.
func withoutWords(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	was, ok := errors.AsType[*wire.Error](err)
	if !ok {
		return failed("backend_error", "the local model failed")
	}
	switch was.Code {
	case wire.LocalLLMFailed:
		reason, _ := was.Details["reason"].(string)
		e := failed(reason, "the local model failed: "+strings.ReplaceAll(reason, "_", " "))
		for _, figure := range []string{"needed_bytes", "available_bytes"} {
			if n, ok := was.Details[figure]; ok {
				e.With(figure, n)
			}
		}
		return e
	case wire.ModelNotAvailable:
		e := wire.Errorf(was.Code, "the model is not available for private files")
		for _, key := range []string{"requested_model", "available_models", "reason", "hint"} {
			if v, ok := was.Details[key]; ok {
				e.With(key, v)
			}
		}
		return e
	}
	return err
}
