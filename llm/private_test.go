package llm_test

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"strings"
	"testing"
	"unicode/utf8"

	"farhand/llm"
	"farhand/llm/llmtest"
	"farhand/wire"
)

// canary is what must not be quoted by anybody but a model.
const canary = "canary-of-the-prompt"

func private(t *testing.T, c llm.Config) *llm.Service {
	t.Helper()
	s, err := llm.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestCompletePrivate(t *testing.T) {
	server := llmtest.Start(t, "tiny:1b", "echo:1b", "quote:1b", "die:1b", "think:1b", "cloud-tiny:1b", "cloud:latest")
	s := private(t, llm.Config{URL: server.URL})
	ask := func(p llm.Private) (wire.LocalLLMResponse, string, bool, error) {
		t.Helper()
		p.System, p.User = "task", canary+" é "+strings.Repeat("x", 100)
		var pieces strings.Builder
		answer, cut, err := s.CompletePrivate(t.Context(), p, func(delta string, _ int) error {
			pieces.WriteString(delta)
			return nil
		})
		return answer, pieces.String(), cut, err
	}
	answer, pieces, cut, err := ask(llm.Private{Model: "tiny:1b", MostChars: 1000})
	if err != nil || cut || answer.Content != llmtest.Sentence || pieces != llmtest.Sentence || answer.FinishReason != "stop" || answer.Tokens.Total == nil {
		t.Errorf("%+v, pieces %q, cut %t: %v", answer, pieces, cut, err)
	}
	for _, most := range []int{1, 5, 22, utf8.RuneCountInString(llmtest.Sentence) - 1} {
		answer, pieces, cut, err = ask(llm.Private{Model: "tiny:1b", MostChars: most})
		if err != nil || !cut || pieces != llmtest.Sentence[:most] || answer.Content != pieces || answer.FinishReason != "length" {
			t.Errorf("%d characters: %+v, %q, cut %t: %v", most, answer, pieces, cut, err)
		}
	}
	if _, pieces, cut, err = ask(llm.Private{Model: "tiny:1b", MostChars: len(llmtest.Sentence)}); err != nil || cut || pieces != llmtest.Sentence {
		t.Errorf("as many as there are: %q, cut %t: %v", pieces, cut, err)
	}
	if answer, pieces, _, err = ask(llm.Private{Model: "think:1b", MostChars: 1000, Wait: true}); err != nil || pieces != llmtest.Sentence || answer.Content != pieces {
		t.Errorf("what was thought became part of %q: %v", pieces, err)
	}
	server.Await(0) // those that were cut are over at the server, too
	for _, c := range []struct {
		model  string
		code   wire.Code
		reason string
	}{
		{"quote:1b", wire.LocalLLMFailed, "backend_error"},
		{"die:1b", wire.LocalLLMFailed, "backend_error"},
		{"cloud-tiny:1b", wire.ModelNotAvailable, "remote_model"},
		{"cloud", wire.ModelNotAvailable, "remote_model"},
		{"cloud:latest", wire.ModelNotAvailable, "remote_model"},
		{"TINY:1b", wire.ModelNotAvailable, ""},
		{"absent", wire.ModelNotAvailable, ""},
	} {
		_, _, _, err := ask(llm.Private{Model: c.model, MostChars: 1000})
		e := wire.AsError(err)
		if reason, _ := e.Details["reason"].(string); e.Code != c.code || reason != c.reason {
			t.Errorf("%s: %s %v (%v)", c.model, e.Code, e.Details, err)
		}
		if b, _ := json.Marshal(e); strings.Contains(string(b), canary) || strings.Contains(err.Error(), canary) {
			t.Errorf("%s: an error quotes the prompt: %s", c.model, b)
		}
		if models, ok := e.Details["available_models"].([]string); ok && c.reason == "remote_model" && strings.Contains(strings.Join(models, " "), "cloud") {
			t.Errorf("%s: those that may be used are %v", c.model, models)
		}
	}
}

// TestPrivateStaysHere: what isn't surely on this machine gets nothing.
func TestPrivateStaysHere(t *testing.T) {
	p := llm.Private{Model: "tiny:1b", User: canary, MostChars: 10}
	reason := func(c llm.Config) string {
		t.Helper()
		_, _, err := private(t, c).CompletePrivate(t.Context(), p, nil)
		if err == nil {
			t.Errorf("%s was asked", c.URL)
			return ""
		}
		r, _ := wire.AsError(err).Details["reason"].(string)
		return r
	}
	if got := reason(llm.Config{URL: "http://192.0.2.1:11434"}); got != "remote_server" {
		t.Errorf("another machine: %s", got)
	}
	server := llmtest.Start(t, "tiny:1b")
	vetted := 0
	if got := reason(llm.Config{URL: server.URL, Vet: func(net.Conn) error { vetted++; return errors.New("an impostor") }}); got != "unreachable" || vetted == 0 {
		t.Errorf("an impostor: %s, looked at %d times", got, vetted)
	}
	if got := reason(llm.Config{URL: "http://127.0.0.1:1"}); got != "unreachable" {
		t.Errorf("nobody: %s", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	release := server.Hold()
	defer release()
	s := private(t, llm.Config{URL: server.URL})
	done := make(chan error, 1)
	go func() {
		_, _, err := s.CompletePrivate(ctx, llm.Private{Model: "tiny:1b", User: canary, MostChars: 100}, nil)
		done <- err
	}()
	server.Await(1)
	_, _, err := s.CompletePrivate(t.Context(), p, nil)
	if wire.CodeOf(err) != wire.LocalLLMBusy {
		t.Errorf("while another runs: %v", err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	server.Await(0)
}

func TestPromptBytes(t *testing.T) {
	s := private(t, llm.Config{Context: 4096})
	most, none, all := 4096, 0, 1024
	if a, b := s.PromptBytes(nil), s.PromptBytes(&all); a != b || a < 4096 || a > 4*4096 {
		t.Errorf("%d and %d bytes fit beside the default answer", a, b)
	}
	if got := s.PromptBytes(&most); got != 0 {
		t.Errorf("%d bytes fit beside an answer that takes all", got)
	}
	if got := s.PromptBytes(&none); got <= s.PromptBytes(nil) {
		t.Errorf("%d bytes fit beside no answer", got)
	}
}
