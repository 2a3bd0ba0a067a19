package mcp

import (
	"context"
	"fmt"
	"strings"

	"farhand/wire"
)

func modelTools() []tool {
	return []tool{
		define("list_models", "List local models",
			"Lists the language models that the machine itself can run, and whether one is busy.",
			reads, wire.LocalLLM, listModels),
		define("ask_model", "Ask a local model",
			"Has the machine's own language model continue a conversation: what it reads stays on the machine. Small boards are slow; progress tells what has come so far.",
			reads, wire.LocalLLM, askModel),
	}
}

type modelsFound struct {
	Reachable bool         `json:"reachable" jsonschema:"whether the server of models answers"`
	Reason    string       `json:"reason,omitempty" jsonschema:"why it doesn't"`
	Models    []modelFound `json:"models"`
	Running   bool         `json:"running" jsonschema:"a completion runs now"`
	Context   int          `json:"context_tokens,omitempty" jsonschema:"most tokens of prompt and answer together"`
}

type modelFound struct {
	Model string `json:"model" jsonschema:"its name, which ask_model takes"`
	Size  int64  `json:"size_bytes,omitempty"`
}

func listModels(ctx context.Context, c *call, in onMachine) (modelsFound, string, error) {
	out := modelsFound{Models: []modelFound{}}
	ses, err := c.session(ctx, in.Machine, "")
	if err != nil {
		return out, "", err
	}
	st, err := ses.LLM(ctx)
	if err != nil {
		return out, "", err
	}
	out.Reachable, out.Reason, out.Running, out.Context = st.Reachable, st.Reason, st.Running, st.ContextTokens
	var names []string
	for _, m := range st.Models {
		out.Models = append(out.Models, modelFound{m.Name, m.SizeBytes})
		names = append(names, m.Name)
	}
	if len(names) == 0 {
		return out, strings.TrimSpace("no models " + st.Reason), nil
	}
	return out, strings.Join(names, "\n"), nil
}

type modelAsked struct {
	onMachine
	Model       string    `json:"model,omitempty" jsonschema:"a name that list_models shows; default: the first"`
	Messages    []message `json:"messages" jsonschema:"the conversation so far; the last one is usually the user's" length:"1..200"`
	MaxTokens   int       `json:"max_tokens,omitempty" default:"1024" range:"1..131072"`
	Temperature float64   `json:"temperature,omitempty" jsonschema:"0 answers the same each time" range:"0..2"`
	Wait        bool      `json:"wait,omitempty" jsonschema:"wait while another completion runs, instead of failing with LOCAL_LLM_BUSY"`
}

type message struct {
	Role    string `json:"role" enum:"system,user,assistant"`
	Content string `json:"content"`
}

type modelAnswer struct {
	Content      string  `json:"content"`
	FinishReason string  `json:"finish_reason" jsonschema:"stop, length (max_tokens) or content_filter"`
	Tokens       *int    `json:"total_tokens,omitempty"`
	Seconds      float64 `json:"duration_seconds"`
}

func askModel(ctx context.Context, c *call, in modelAsked) (modelAnswer, string, error) {
	ses, err := c.session(ctx, in.Machine, "")
	if err != nil {
		return modelAnswer{}, "", err
	}
	if in.Model == "" {
		st, err := ses.LLM(ctx)
		if err != nil {
			return modelAnswer{}, "", err
		}
		if len(st.Models) == 0 {
			return modelAnswer{}, "", wire.Errorf(wire.ModelNotAvailable, "the machine has no model").With("hint", "ask the user to run farhand llm pull")
		}
		in.Model = st.Models[0].Name
	}
	ask := wire.LocalLLMCompletion{Model: in.Model, MaxTokens: &in.MaxTokens, Temperature: &in.Temperature, Wait: in.Wait}
	for _, m := range in.Messages {
		ask.Messages = append(ask.Messages, wire.LLMMessage{Role: m.Role, Content: m.Content})
	}
	came := 0
	answer, err := ses.Complete(ctx, ask, func(chunk wire.LocalLLMChunk) error {
		came += len(chunk.Delta)
		c.progress(ctx, float64(came), 0, fmt.Sprintf("%d bytes of the answer", came))
		return nil
	})
	if err != nil {
		return modelAnswer{}, "", err
	}
	return modelAnswer{answer.Content, answer.FinishReason, answer.Tokens.Total, answer.DurationSeconds}, answer.Content, nil
}
