package mcp

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"farhand/wire"
)

func privateTools() []tool {
	return []tool{
		define("file_stub", "Look at a private file",
			"Says what may be known of a file whose content never leaves its machine (read_file answers PRIVACY_MODE_BLOCKED): size, type, and how it is built, in types and counts. Names may be aliases, which are good wherever a path is wanted.",
			reads, wire.Privacy, fileStub),
		define("ask_files", "Ask about private files",
			"Has the machine's own language model work on private files: it reads them there, and only its answer comes back. Ask for what you need in one task, precisely; the answer is short. Small boards are slow, and the owner may want to see the answer first.",
			reads, wire.Privacy, askFiles),
	}
}

type stubFound struct {
	Path     string         `json:"path" jsonschema:"with aliases in the place of names that aren't told"`
	Size     int64          `json:"size_bytes"`
	MIMEType string         `json:"mime_type,omitempty"`
	Digest   string         `json:"hmac_sha256" jsonschema:"changes whenever the file does; says nothing about its content"`
	Built    map[string]any `json:"schema_preview,omitempty" jsonschema:"how the content is built, without values"`
}

func fileStub(ctx context.Context, c *call, in onFile) (stubFound, string, error) {
	ses, err := c.at(ctx, in.Machine, in.Path)
	if err != nil {
		return stubFound{}, "", err
	}
	s, err := ses.ReadStub(ctx, in.Path)
	if err != nil {
		return stubFound{}, "", err
	}
	out := stubFound{Path: s.Path, Size: s.SizeBytes, MIMEType: s.MIMEType, Digest: s.HMAC}
	kind := ""
	if s.SchemaPreview != nil {
		kind = ", " + s.SchemaPreview.Kind
		b, err := json.Marshal(s.SchemaPreview) // whose type refers to itself, which no schema here can say
		if err == nil {
			err = json.Unmarshal(b, &out.Built)
		}
		if err != nil {
			return stubFound{}, "", err
		}
	}
	return out, fmt.Sprintf("%s: %d bytes%s", s.Path, s.SizeBytes, kind), nil
}

type filesAsked struct {
	onMachine
	Paths       []string `json:"paths" jsonschema:"private files below one root, absolute or relative to the first root, by name or alias" length:"1..16"`
	Task        string   `json:"task" jsonschema:"what the model is to do with them" length:"1..65536"`
	Context     string   `json:"context,omitempty" jsonschema:"what it is told before the files" length:"..65536"`
	Model       string   `json:"model,omitempty" jsonschema:"a name that list_models shows; default: the first that runs on the machine"`
	MaxTokens   int      `json:"max_tokens,omitempty" default:"1024" range:"1..131072"`
	Temperature float64  `json:"temperature,omitempty" jsonschema:"0 answers the same each time" range:"0..2"`
	Wait        bool     `json:"wait,omitempty" jsonschema:"wait while another completion runs, instead of failing with LOCAL_LLM_BUSY"`
}

type filesAnswer struct {
	Output       string  `json:"output"`
	FinishReason string  `json:"finish_reason" jsonschema:"stop, length or content_filter"`
	Truncated    bool    `json:"truncated" jsonschema:"cut to what the machine's owner allows"`
	Model        string  `json:"model"`
	Seconds      float64 `json:"duration_seconds"`
}

func askFiles(ctx context.Context, c *call, in filesAsked) (filesAnswer, string, error) {
	ses, err := c.at(ctx, in.Machine, in.Paths...)
	if err != nil {
		return filesAnswer{}, "", err
	}
	if in.Model == "" {
		st, err := ses.LLM(ctx)
		if err != nil {
			return filesAnswer{}, "", err
		}
		for _, m := range st.Models {
			if in.Model == "" && !m.Remote {
				in.Model = m.Name
			}
		}
		if in.Model == "" {
			return filesAnswer{}, "", wire.Errorf(wire.ModelNotAvailable, "the machine has no model of its own").With("hint", "ask the user to run farhand llm pull")
		}
	}
	turn := wire.LLMTurn{Model: in.Model, Task: in.Task, Context: in.Context, MaxTokens: &in.MaxTokens, Temperature: &in.Temperature, Wait: in.Wait}
	for _, path := range in.Paths {
		s, err := ses.ReadStub(ctx, path)
		if err != nil {
			return filesAnswer{}, "", err
		}
		turn.StubRefs = append(turn.StubRefs, s.StubID)
	}
	came := 0
	answer, err := ses.Turn(ctx, turn, func(chunk wire.LLMTurnChunk) error {
		came += len(chunk.Delta)
		c.progress(ctx, float64(came), 0, fmt.Sprintf("%d bytes of the answer", came))
		return nil
	})
	if err != nil {
		return filesAnswer{}, "", err
	}
	return filesAnswer{answer.Output, answer.FinishReason, answer.Truncated, answer.Model, answer.Duration}, strings.TrimSpace(answer.Output), nil
}
