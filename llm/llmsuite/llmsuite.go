// Package llmsuite is what must hold of package llm with Ollama, with a real one
// and with the server that stands for it in tests (llmtest).
package llmsuite

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"farhand/internal/leak"
	"farhand/llm"
	"farhand/llm/llmtest"
	"farhand/wire"
)

// Run runs the suite on a server that has the models Tiny and Endless of llmtest.
func Run(t *testing.T, url string) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *suite)
	}{
		{"Status", status},
		{"Streams", streams},
		{"Whole", whole},
		{"CutShort", cutShort},
		{"NoThoughts", noThoughts},
		{"Embeds", embeds},
		{"InMemory", inMemory},
		{"CancelEndsIt", cancelEndsIt},
		{"Unknown", unknown},
		{"PullFails", pullFails},
		{"Removes", removes},
	} {
		t.Run(c.name, func(t *testing.T) {
			leak.Check(t)
			service, err := llm.New(llm.Config{URL: url, Context: contextTokens})
			if err != nil {
				t.Fatal(err)
			}
			defer service.Close()
			c.run(t, &suite{service, url})
		})
	}
}

// contextTokens is what the models were made with.
const contextTokens = 512

type suite struct {
	*llm.Service
	url string
}

// ask has a model answer and collects the pieces.
func (s *suite) ask(ctx context.Context, model string, change func(*wire.LocalLLMCompletion)) (wire.LocalLLMResponse, []string, error) {
	req := wire.LocalLLMCompletion{Model: model, Messages: []wire.LLMMessage{{Role: "user", Content: "Hello"}}}
	if change != nil {
		change(&req)
	}
	var pieces []string
	got, _, err := s.Complete(ctx, req, func(c wire.LocalLLMChunk) error {
		if c.Delta != "" {
			pieces = append(pieces, c.Delta)
		}
		return nil
	})
	return got, pieces, err
}

// model is what the status says of one.
func (s *suite) model(t *testing.T, name string) (wire.LLMModel, bool) {
	t.Helper()
	status, err := s.Status(t.Context())
	if err != nil || !status.Reachable {
		t.Fatalf("status %+v, %v", status, err)
	}
	i := slices.IndexFunc(status.Models, func(m wire.LLMModel) bool { return m.Name == name })
	if i < 0 {
		return wire.LLMModel{}, false
	}
	return status.Models[i], true
}

func status(t *testing.T, s *suite) {
	got, err := s.Status(t.Context())
	if err != nil || !got.Reachable || got.Version == "" || !got.Manages || got.AvailableBytes <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
	for _, name := range []string{llmtest.Tiny, llmtest.Endless} {
		if m, ok := s.model(t, name); !ok || m.SizeBytes < 1<<20 || m.Family != "llama" || m.Quantization == "" || m.Modified == 0 {
			t.Errorf("%s is %+v", name, m)
		}
	}
}

// streams: piece by piece, to the letter.
func streams(t *testing.T, s *suite) {
	got, pieces, err := s.ask(t.Context(), llmtest.Tiny, nil)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(pieces, llmtest.Words()) || got.Content != llmtest.Sentence || got.FinishReason != "stop" {
		t.Errorf("%q, %+v", pieces, got)
	}
	tokens := got.Tokens
	if tokens.Prompt == nil || *tokens.Prompt < 2 || tokens.Completion == nil || *tokens.Completion < len(pieces) || *tokens.Total != *tokens.Prompt+*tokens.Completion {
		t.Errorf("tokens %+v", tokens)
	}
	if m, _ := s.model(t, llmtest.Tiny); m.TokensPerSecond <= 0 {
		t.Errorf("its speed isn't known: %+v", m)
	}
}

func whole(t *testing.T, s *suite) {
	no := false
	got, pieces, err := s.ask(t.Context(), llmtest.Tiny, func(r *wire.LocalLLMCompletion) { r.Stream = &no })
	if err != nil || len(pieces) != 0 || got.Content != llmtest.Sentence || got.FinishReason != "stop" {
		t.Errorf("%q, %+v, %v", pieces, got, err)
	}
}

func cutShort(t *testing.T, s *suite) {
	most := 4
	got, pieces, err := s.ask(t.Context(), llmtest.Tiny, func(r *wire.LocalLLMCompletion) { r.MaxTokens = &most })
	if err != nil || got.FinishReason != "length" || got.Content != strings.Join(llmtest.Words()[:most], "") || *got.Tokens.Completion != most {
		t.Errorf("%q, %+v, %v", pieces, got, err)
	}
}

// noThoughts: a model that can't think answers all the same.
func noThoughts(t *testing.T, s *suite) {
	yes := true
	got, _, err := s.ask(t.Context(), llmtest.Tiny, func(r *wire.LocalLLMCompletion) { r.Think = &yes })
	if err != nil || got.Content != llmtest.Sentence || got.Thinking != "" || got.Timings == nil || got.Timings.TokensPerSecond <= 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func embeds(t *testing.T, s *suite) {
	got, err := s.Embed(t.Context(), wire.LLMEmbed{Model: llmtest.Tiny, Input: []string{"four", "seven!!", "four"}})
	if err != nil || len(got.Embeddings) != 3 || got.Tokens == nil || *got.Tokens < 3 {
		t.Fatalf("%d vectors, tokens %v, %v", len(got.Embeddings), got.Tokens, err)
	}
	if v := got.Embeddings; len(v[0]) != 256 || !slices.Equal(v[0], v[2]) || slices.Equal(v[0], v[1]) {
		t.Errorf("vectors of %d, %d and %d numbers, or the wrong ones alike", len(v[0]), len(v[1]), len(v[2]))
	}
}

// inMemory: one model at a time, and it stays.
func inMemory(t *testing.T, s *suite) {
	most := 20
	for _, names := range [][2]string{{llmtest.Tiny, llmtest.Endless}, {llmtest.Endless, llmtest.Tiny}} {
		if _, _, err := s.ask(t.Context(), names[0], func(r *wire.LocalLLMCompletion) { r.MaxTokens = &most }); err != nil {
			t.Fatal(err)
		}
		m, _ := s.model(t, names[0])
		if m.Loaded == nil || m.Loaded.Bytes <= 0 || m.Loaded.ContextTokens != contextTokens || m.Loaded.Expires < float64(time.Now().Add(llm.DefaultKeepAlive/2).Unix()) {
			t.Errorf("%s is in memory as %+v", names[0], m.Loaded)
		}
		if other, _ := s.model(t, names[1]); other.Loaded != nil {
			t.Errorf("%s is, too: %+v", names[1], other.Loaded)
		}
	}
}

// cancelEndsIt: a completion that would never end is given up, and the next one
// has its turn.
func cancelEndsIt(t *testing.T, s *suite) {
	for range 3 {
		ctx, cancel := context.WithCancel(t.Context())
		many, n := 1<<20, 0
		req := wire.LocalLLMCompletion{Model: llmtest.Endless, MaxTokens: &many, Messages: []wire.LLMMessage{{Role: "user", Content: "Hello"}}}
		_, _, err := s.Complete(ctx, req, func(wire.LocalLLMChunk) error {
			if n++; n == 2*len(llmtest.Words()) {
				cancel()
			}
			return nil
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("after %d pieces: %v", n, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if got, _, err := s.ask(ctx, llmtest.Tiny, nil); err != nil || got.Content != llmtest.Sentence {
		t.Errorf("the next: %+v, %v", got, err)
	}
}

func unknown(t *testing.T, s *suite) {
	_, pieces, err := s.ask(t.Context(), "nobody:70b", nil)
	e := wire.AsError(err)
	if e.Code != wire.ModelNotAvailable || len(pieces) != 0 || e.Details["requested_model"] != "nobody:70b" || !strings.Contains(fmt.Sprint(e.Details["available_models"]), llmtest.Tiny) {
		t.Errorf("%+v", e)
	}
	if _, err := s.Embed(t.Context(), wire.LLMEmbed{Model: "nobody:70b", Input: []string{"x"}}); !errors.Is(err, wire.ModelNotAvailable) {
		t.Errorf("embed: %v", err)
	}
}

// pullFails: a registry that nobody answers at is the server's failure.
func pullFails(t *testing.T, s *suite) {
	var said []string
	err := s.Pull(t.Context(), "127.0.0.1:1/library/new:1b", func(p wire.LLMProgress) error {
		said = append(said, p.Status)
		return nil
	})
	e := wire.AsError(err)
	if e.Code != wire.LocalLLMFailed || e.Details["reason"] != "backend_error" || !strings.Contains(fmt.Sprint(e.Details["backend_error"]), "pull model manifest") {
		t.Errorf("%+v", e)
	}
	if !slices.Equal(said, []string{"pulling manifest"}) {
		t.Errorf("it said %q", said)
	}
}

func removes(t *testing.T, s *suite) {
	const name = "copied:1b"
	body := strings.NewReader(`{"source":"` + llmtest.Tiny + `","destination":"` + name + `"}`)
	resp, err := http.Post(s.url+"/api/copy", "application/json", body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if _, ok := s.model(t, name); !ok {
		t.Fatalf("there is no copy: HTTP %d", resp.StatusCode)
	}
	if err := s.Remove(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.model(t, name); ok {
		t.Error("it is still there")
	}
	if err := s.Remove(t.Context(), name); !errors.Is(err, wire.ModelNotAvailable) {
		t.Errorf("once more: %v", err)
	}
}
