package llm

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"farhand/wire"
)

// Status says what the server is and has. It waits for it at most as long as a
// probe does; a server that doesn't answer is no error but a status.
func (s *Service) Status(ctx context.Context) (wire.LLMStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	m, manages := s.backend.(manager)
	status := wire.LLMStatus{Kind: s.kind, Manages: manages, Models: []wire.LLMModel{}, ContextTokens: s.context}
	status.Running, status.Waiting = s.turn.state()
	if s.available != nil {
		status.AvailableBytes, _ = s.available()
	}
	list, err := s.models.probe(ctx, s, true)
	if err != nil {
		status.Reason = excerpt(err.Error())
		return status, nil
	}
	status.Reachable = true
	var loaded []Loaded
	if manages {
		status.Version, _ = m.version(ctx) // not said: left out
		loaded, _ = m.loaded(ctx)
	}
	for _, model := range list {
		status.Models = append(status.Models, s.describe(model, loaded))
	}
	return status, nil
}

func (s *Service) describe(m Model, loaded []Loaded) wire.LLMModel {
	d := wire.LLMModel{
		Name: m.Name, SizeBytes: m.Size, Family: m.Family, Parameters: m.Parameters, Quantization: m.Quantization,
		TokensPerSecond: s.speeds.of(m.Name), Remote: m.Remote,
	}
	if !m.Modified.IsZero() {
		d.Modified = float64(m.Modified.Unix())
	}
	for _, l := range loaded {
		if l.Name == m.Name {
			d.Loaded = &wire.LLMLoaded{Bytes: l.Size, VRAMBytes: l.VRAM, ContextTokens: l.Context}
			if !l.Expires.IsZero() {
				d.Loaded.Expires = float64(l.Expires.Unix())
			}
		}
	}
	return d
}

// Embed turns texts into vectors. It takes turns with completions, since it needs
// a model in memory as they do, and waits for them.
func (s *Service) Embed(ctx context.Context, r wire.LLMEmbed) (wire.LLMEmbeddings, error) {
	if err := checkEmbed(r); err != nil {
		return wire.LLMEmbeddings{}, err
	}
	leave, err := s.turn.enter(ctx, true, func(int) error { return nil })
	if err != nil {
		return wire.LLMEmbeddings{}, err
	}
	defer leave()
	if err := s.checkModel(ctx, r.Model); err != nil {
		return wire.LLMEmbeddings{}, err
	}
	if err := s.makeRoom(ctx, r.Model); err != nil {
		return wire.LLMEmbeddings{}, s.failure(ctx, r.Model, err)
	}
	limited, cancel := context.WithTimeoutCause(ctx, s.loadTimeout, &silence{"load_timeout", "the embeddings", s.loadTimeout})
	defer cancel()
	vectors, tokens, err := s.backend.embed(limited, embedding{r.Model, r.Input, s.loading()})
	switch {
	case err != nil && ctx.Err() == nil && limited.Err() != nil:
		return wire.LLMEmbeddings{}, s.failure(ctx, r.Model, context.Cause(limited))
	case err != nil:
		return wire.LLMEmbeddings{}, s.failure(ctx, r.Model, err)
	case len(vectors) != len(r.Input):
		return wire.LLMEmbeddings{}, failed("backend_error", fmt.Sprintf("the server answered %d inputs with %d vectors", len(r.Input), len(vectors)))
	}
	return wire.LLMEmbeddings{Embeddings: vectors, Tokens: tokens}, nil
}

func checkEmbed(r wire.LLMEmbed) error {
	invalid := func(reason, text string) error {
		return wire.Errorf(wire.InternalError, "%s", text).With("reason", reason)
	}
	total := 0
	for _, text := range r.Input {
		total += len(text)
	}
	switch {
	case r.Model == "" || len(r.Model) > maxModelName:
		return invalid("invalid_model", "model must be a name of 1 to 256 bytes")
	case len(r.Input) == 0 || len(r.Input) > wire.MaxEmbedInputs:
		return invalid("invalid_input", fmt.Sprintf("input must be 1 to %d texts", wire.MaxEmbedInputs))
	case total > wire.MaxEmbedBytes:
		return invalid("invalid_input", fmt.Sprintf("the texts of input may have %d bytes together", wire.MaxEmbedBytes))
	}
	return nil
}

// Pull has the server fetch a model and reports on it. Ending ctx gives it up;
// asked again, the server goes on where it was. While the model works on something
// private it is LOCAL_LLM_BUSY: it would be another one in the middle of that.
func (s *Service) Pull(ctx context.Context, model string, progress func(wire.LLMProgress) error) error {
	m, err := s.manager(model)
	if err != nil {
		return err
	}
	leave, err := s.uses.enter(model, fetching)
	if err != nil {
		return err
	}
	defer leave()
	done := false
	err = m.pull(ctx, model, func(p Progress) error {
		done = p.Status == "success"
		return progress(wire.LLMProgress{Status: excerpt(p.Status), Digest: excerpt(p.Digest), TotalBytes: p.Total, CompletedBytes: p.Completed})
	})
	switch {
	case err != nil:
		return s.failure(ctx, model, err)
	case !done:
		return s.failure(ctx, model, errTruncated)
	}
	_, _ = s.models.probe(ctx, s, true) // so that it can be asked for at once
	return nil
}

// Remove deletes a model.
func (s *Service) Remove(ctx context.Context, model string) error {
	m, err := s.manager(model)
	if err != nil {
		return err
	}
	err = m.remove(ctx, model)
	if refusal, ok := errors.AsType[*backendError](err); ok && refusal.status == http.StatusNotFound {
		available, _ := s.models.probe(ctx, s, true)
		return notAvailable(model, available)
	}
	if err != nil {
		return s.failure(ctx, model, err)
	}
	_, _ = s.models.probe(ctx, s, true)
	return nil
}

func (s *Service) manager(model string) (manager, error) {
	if !presentable(model) {
		return nil, wire.Errorf(wire.InternalError, "model must be a name of 1 to 256 bytes").With("reason", "invalid_model")
	}
	m, ok := s.backend.(manager)
	if !ok {
		return nil, wire.Errorf(wire.FeatureNotSupported, "models are managed on Ollama only; this machine has llm.kind = %q", s.kind).With("feature", "llm_manage")
	}
	return m, nil
}
