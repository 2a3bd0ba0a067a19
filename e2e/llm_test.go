package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"farhand/llm/llmtest"
	"farhand/wire"
)

// TestLocalModels is all that a person does with the models of a machine.
func TestLocalModels(t *testing.T) {
	t.Parallel()
	server := llmtest.Start(t, "tiny:1b")
	b := newBench(t)
	b.tables += fmt.Sprintf("[llm]\nenabled = true\nurl = %q\n", server.URL)
	b.claim("local_llm,llm_manage")
	own := b.owner

	status := parse[wire.LLMStatus](t, own.must("llm", "models", "bench", "--json"))
	if status.Kind != "ollama" || status.Version != "0.17.4" || !status.Manages || len(status.Models) != 1 || status.Models[0].Name != "tiny:1b" || status.AvailableBytes == 0 {
		t.Errorf("status %+v", status)
	}
	if got := own.must("llm", "chat", "bench", "--", "Hello", "there"); got != llmtest.Sentence+"\n" {
		t.Errorf("chat says %q", got)
	}
	if r := own.feed("Hello from a pipe", "llm", "chat", "bench", "--json", "--think"); r.code != 0 || parse[wire.LocalLLMResponse](t, r.stdout).Content != llmtest.Sentence {
		t.Errorf("chat gives %+v", r)
	}
	if got := own.must("llm", "ps", "bench"); !strings.Contains(got, "tiny:1b") || !strings.Contains(got, "100.0") {
		t.Errorf("ps shows %q", got)
	}
	bench := parse[map[string]any](t, own.must("llm", "bench", "bench", "--json"))
	if bench["model"] != "tiny:1b" || bench["timings"].(map[string]any)["tokens_per_second"] != 100.0 {
		t.Errorf("bench says %v", bench)
	}

	own.must("llm", "pull", "bench", "new:2b")
	if got := own.must("llm", "models", "bench"); !strings.Contains(got, "new:2b") {
		t.Errorf("after the pull there are %q", got)
	}
	records := own.must("llm", "pull", "bench", "new:2b", "--json")
	if !strings.Contains(records, `"completed_bytes":524288`) || !strings.Contains(records, `"reason":"done"`) {
		t.Errorf("a pull in JSON is %s", records)
	}
	own.fails(1, wire.LocalLLMFailed, "llm", "pull", "bench", "nowhere:1b")
	own.must("llm", "rm", "bench", "new:2b")
	own.fails(1, wire.ModelNotAvailable, "llm", "rm", "bench", "new:2b")
	own.fails(1, wire.ModelNotAvailable, "llm", "chat", "bench", "--model", "new:2b", "--", "Hello")

	// A token for the model alone may ask, and change nothing.
	agent := b.with(b.newToken("agent", "--capability", "local_llm"))
	if got := agent.must("llm", "chat", "bench", "--", "Hello"); got != llmtest.Sentence+"\n" {
		t.Errorf("chat says %q", got)
	}
	agent.refuses("token", wire.CapabilityNotGranted, "llm", "pull", "bench", "new:2b")
	agent.refuses("token", wire.CapabilityNotGranted, "llm", "rm", "bench", "tiny:1b")
	if strings.Contains(string(b.read(b.stateDir()+"/audit.log")), "there") {
		t.Error("what was asked is on the record")
	}
}

// Tools that know OpenAI's API use a machine's model by it.
func TestServeModels(t *testing.T) {
	t.Parallel()
	server := llmtest.Start(t, "tiny:1b")
	b := newBench(t)
	b.tables += fmt.Sprintf("[llm]\nenabled = true\nurl = %q\n", server.URL)
	b.claim("local_llm")
	serve := start(t, "serve", b.owner.env, program("farhand"), "llm", "serve", "bench", "--listen", "127.0.0.1:0")
	base := serve.await(0, `(http://\S+/v1)`)[1]
	post := func(path, body string) string {
		t.Helper()
		resp, err := http.Post(base+path, "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s gives %d %s, %v", path, resp.StatusCode, text, err)
		}
		return string(text)
	}
	ask := `{"model":"tiny:1b","messages":[{"role":"user","content":"Hello"}],"stream":%v}`
	if got := post("/chat/completions", fmt.Sprintf(ask, false)); !strings.Contains(got, llmtest.Sentence) {
		t.Error(got)
	}
	var said strings.Builder
	for event := range strings.SplitSeq(post("/chat/completions", fmt.Sprintf(ask, true)), "\n\n") {
		var chunk struct {
			Choices []struct{ Delta struct{ Content string } }
		}
		if json.Unmarshal(bytes.TrimPrefix([]byte(event), []byte("data: ")), &chunk) == nil {
			for _, c := range chunk.Choices {
				said.WriteString(c.Delta.Content)
			}
		}
	}
	if said.String() != llmtest.Sentence {
		t.Errorf("the stream says %q", said.String())
	}
	if got := post("/embeddings", `{"model":"tiny:1b","input":["four","seven!!"]}`); !strings.Contains(got, "[4,0.5,") || !strings.Contains(got, "[7,0.5,") {
		t.Error(got)
	}
	serve.stop()
}
