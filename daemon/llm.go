package daemon

import (
	"context"
	"sync"

	"farhand/audit"
	"farhand/llm"
	"farhand/shim"
	"farhand/stream"
	"farhand/wire"
)

// model is the local model's service, or the error of a machine without one.
func (s *session) model() (*llm.Service, error) {
	if s.d.llm == nil {
		return nil, wire.Errorf(wire.CapabilityNotGranted, "the local model is off on this machine; its owner turns it on with llm.enabled").
			With("capability", string(wire.LocalLLM)).With("required_capability", string(wire.LocalLLM)).With("ceiling", "config")
	}
	return s.d.llm, nil
}

func (s *session) complete(ctx context.Context, c *shim.Call, r wire.LocalLLMCompletion) (any, error) {
	service, err := s.model()
	if err != nil {
		return nil, err
	}
	if !c.Granted().Has(wire.LocalLLMExtended) {
		r.Think, r.Wait = nil, false
	}
	prompt := llm.PromptChars(r.Messages)
	streaming := r.Stream == nil || *r.Stream
	details := func(answer wire.LocalLLMResponse, chars int) []audit.Field {
		return []audit.Field{
			audit.String("model", r.Model), audit.Bool("stream", streaming), audit.Int("prompt_chars", prompt),
			audit.Int("response_chars", chars), audit.String("finish_reason", answer.FinishReason),
			audit.IntOrNull("tokens_prompt", answer.Tokens.Prompt), audit.IntOrNull("tokens_completion", answer.Tokens.Completion),
			audit.IntOrNull("tokens_total", answer.Tokens.Total),
		}
	}
	return change(s, c, "", details(wire.LocalLLMResponse{}, 0), func() (any, []audit.Field, error) {
		answer, t, err := service.Complete(ctx, r, func(chunk wire.LocalLLMChunk) error {
			return c.Emit(wire.TLocalLLMCompletionChunk, chunk)
		})
		return answer, details(answer, t.ResponseChars), err
	})
}

func (s *session) llmStatus(ctx context.Context, _ *shim.Call, _ wire.Empty) (any, error) {
	if _, err := s.model(); err != nil {
		return nil, err
	}
	return s.d.modelStatus(ctx)
}

func (s *session) embed(ctx context.Context, c *shim.Call, r wire.LLMEmbed) (any, error) {
	service, err := s.model()
	if err != nil {
		return nil, err
	}
	chars := 0
	for _, text := range r.Input {
		chars += len([]rune(text))
	}
	details := []audit.Field{audit.String("model", r.Model), audit.Int("inputs", len(r.Input)), audit.Int("prompt_chars", chars)}
	return change(s, c, "", details, func() (any, []audit.Field, error) {
		answer, err := service.Embed(ctx, r)
		return answer, details, err
	})
}

func (s *session) removeModel(ctx context.Context, c *shim.Call, r wire.LLMRemove) (any, error) {
	service, err := s.model()
	if err != nil {
		return nil, err
	}
	details := []audit.Field{audit.String("model", r.Model)}
	return change(s, c, "", details, func() (any, []audit.Field, error) {
		return wire.Ack{OK: true}, details, service.Remove(ctx, r.Model)
	})
}

// Reasons for the end of a pull's stream beyond those that every stream has.
const reasonDone = "done"

// pull starts fetching a model and answers with a stream about it, which a lost
// link doesn't end.
func (s *session) pull(_ context.Context, c *shim.Call, r wire.LLMPull) (any, error) {
	service, err := s.model()
	if err != nil {
		return nil, err
	}
	details := []audit.Field{audit.String("model", r.Model)}
	return change(s, c, "", details, func() (any, []audit.Field, error) {
		st, err := s.d.streams.Open(stream.Options{
			Owner: caller(c), Records: true, Credit: r.Credit, Op: string(c.Type), Capability: wire.LLMManage,
		})
		if err != nil {
			return nil, details, err
		}
		release := s.Hold()
		s.d.pulls.running.Go(func() {
			defer release()
			streaming(st, func(ctx context.Context) error {
				return service.Pull(ctx, r.Model, func(p wire.LLMProgress) error { return st.Record(p) })
			})
		})
		answer := wire.LLMPulling{Stream: st.ID()}
		s.d.begin(c, answer)
		return answer, append(details, audit.String("stream", st.ID())), nil
	})
}

// pulls are the models that are being fetched, and servers being installed. Each ends with its stream.
type pulls struct{ running sync.WaitGroup }

// Close waits for the pulls, whose streams have ended.
func (p *pulls) Close() error {
	p.running.Wait()
	return nil
}

// streaming does what a stream tells about, until it is done or the stream ends.
func streaming(st *stream.Stream, do func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	var ending sync.WaitGroup
	defer ending.Wait()
	defer cancel()
	ending.Go(func() {
		select {
		case <-st.Done():
			cancel()
		case <-ctx.Done():
		}
	})
	err := do(ctx)
	if err == nil {
		st.End(reasonDone, nil)
		return
	}
	e := wire.AsError(err)
	_ = st.Record(wire.LLMProgress{Status: "failed", Error: e}) // refused: the stream has ended for another reason
	st.End(stream.ReasonFailed, nil)
}
