package llm_test

import (
	"context"
	"errors"
	"testing"

	"farhand/internal/leak"
	"farhand/llm"
	"farhand/llm/llmtest"
	"farhand/wire"
)

// A thousand completions that are given up in the middle, every other one about
// something private, leave none running at the server and nothing here.
func TestManyCancelled(t *testing.T) {
	leak.Check(t)
	server := llmtest.Start(t, "tiny:1b")
	release := server.Hold()
	defer release()
	s, err := llm.New(llm.Config{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const many = 1000
	for i := range many {
		ctx, cancel := context.WithCancel(t.Context())
		var err error
		if i%2 == 0 {
			req := wire.LocalLLMCompletion{Model: "tiny:1b", Messages: []wire.LLMMessage{{Role: "user", Content: "Hello"}}}
			_, _, err = s.Complete(ctx, req, func(wire.LocalLLMChunk) error {
				cancel() // after the first piece
				return nil
			})
		} else {
			_, _, err = s.CompletePrivate(ctx, llm.Private{Model: "tiny:1b", User: "Hello", MostChars: 100}, func(string, int) error {
				cancel()
				return nil
			})
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("a completion that was given up ends with %v", err)
		}
	}
	server.Await(0)
	if ended, running := server.Ended(); ended != many || running != 0 {
		t.Errorf("%d have ended and %d run", ended, running)
	}
}
