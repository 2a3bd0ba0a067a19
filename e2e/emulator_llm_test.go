package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"farhand/shim/shimtest"
	"farhand/wire"
)

// ollama is a server of models whose every answer is scripted.
type ollama struct {
	*httptest.Server
	mu     sync.Mutex
	asked  []map[string]any
	answer func(w http.ResponseWriter, r *http.Request)
	models string
}

func newOllama(t *testing.T) *ollama {
	o := &ollama{models: `{"models":[{"name":"tiny:1b"},{"name":"embed:latest"}]}`}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/tags", func(w http.ResponseWriter, _ *http.Request) {
		o.mu.Lock()
		defer o.mu.Unlock()
		fmt.Fprint(w, o.models)
	})
	mux.HandleFunc("POST /api/chat", func(w http.ResponseWriter, r *http.Request) {
		var request map[string]any
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Errorf("request: %v", err)
		}
		o.mu.Lock()
		o.asked = append(o.asked, request)
		answer := o.answer
		o.mu.Unlock()
		w.Header().Set("Content-Type", "application/x-ndjson")
		answer(w, r)
	})
	o.Server = httptest.NewServer(mux)
	t.Cleanup(o.Server.Close)
	t.Cleanup(o.Server.CloseClientConnections)
	return o
}

func (o *ollama) answers(f func(w http.ResponseWriter, r *http.Request)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.answer = f
}

// lines answers with these lines of NDJSON.
func (o *ollama) lines(lines ...string) {
	o.answers(func(w http.ResponseWriter, _ *http.Request) {
		for _, line := range lines {
			fmt.Fprintln(w, line)
			w.(http.Flusher).Flush()
		}
	})
}

func said(text string) string {
	return fmt.Sprintf(`{"model":"tiny:1b","message":{"role":"assistant","content":%q},"done":false}`, text)
}

const ended = `{"model":"tiny:1b","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","prompt_eval_count":7,"eval_count":3}`

// completion is the frames of one LOCAL_LLM_COMPLETION, chunks first.
func completion(s *shimtest.Socket, payload map[string]any) (chunks []string, last wire.Envelope) {
	id := s.Request(wire.TLocalLLMCompletion, payload)
	for {
		e := s.Wait(id)
		if e.Type != wire.TLocalLLMCompletionChunk {
			return chunks, e
		}
		chunks = append(chunks, string(e.Payload))
	}
}

// The local model over a scripted Ollama: which frames, in which order, and
// exactly one that ends it.
func TestEmulatorLocalModel(t *testing.T) {
	t.Parallel()
	c, o := newCloud(t), newOllama(t)
	b := c.bench()
	b.tables += fmt.Sprintf("[llm]\nenabled = true\nurl = %q\n", o.URL)
	b.configure()
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon()
	p := b.on(c)
	s, _ := p.open("model")
	other, _ := p.open("other")
	for _, h := range []wire.Hello{p.control.Hello, s.Hello} {
		if !h.Capabilities.Has(wire.LocalLLM) || fmt.Sprint(h.LocalLLMModels) != "[tiny:1b embed:latest]" {
			t.Errorf("HELLO has %v and the models %v", h.Capabilities, h.LocalLLMModels)
		}
	}
	ask := func(more ...any) map[string]any {
		payload := map[string]any{"model": "tiny:1b", "messages": []map[string]any{
			{"role": "system", "content": "be brief"}, {"role": "user", "content": "a secret question"}, {"role": "tool", "content": "ignored"},
		}, "max_tokens": 50, "temperature": 0.5, "top_p": 0.9, "stream": true}
		for i := 0; i < len(more); i += 2 {
			payload[more[i].(string)] = more[i+1]
		}
		return payload
	}
	const finish = `{"delta":"","finish_reason":"stop"}`
	delta := func(text string) string { return fmt.Sprintf(`{"delta":%q,"finish_reason":null}`, text) }

	o.lines(said("a secret "), said("answer"), ended)
	chunks, last := completion(s, ask())
	if got, want := strings.Join(chunks, " "), strings.Join([]string{delta("a secret "), delta("answer"), finish}, " "); got != want {
		t.Errorf("the chunks are %s, want %s", got, want)
	}
	v := emObject(t, last, wire.TLocalLLMCompletionResponse, "content", "finish_reason", "tokens", "duration_seconds")
	if v["content"] != "a secret answer" || v["finish_reason"] != "stop" || fmt.Sprint(v["tokens"]) != "map[completion:3 prompt:7 total:10]" {
		t.Errorf("RESPONSE %s", last.Payload)
	}
	asked := o.asked[len(o.asked)-1]
	options := asked["options"].(map[string]any)
	if asked["stream"] == false || len(asked["messages"].([]any)) != 2 || options["num_predict"] != 50.0 || options["temperature"] != 0.5 || options["top_p"] != 0.9 {
		t.Errorf("Ollama is asked %v", asked)
	}
	if chunks, last = completion(s, ask("stream", false)); len(chunks) != 0 || last.Type != wire.TLocalLLMCompletionResponse {
		t.Errorf("without streaming: %v, then %s", chunks, last.Type)
	}
	o.lines(said("cut"), strings.Replace(ended, `"stop"`, `"length"`, 1))
	if _, last = completion(s, ask()); emObject(t, last, wire.TLocalLLMCompletionResponse)["finish_reason"] != "length" {
		t.Errorf("RESPONSE %s", last.Payload)
	}

	// Failures end it with one ERROR, after as many chunks as there were.
	o.lines(said("half"))
	chunks, last = completion(s, ask())
	emRefused(t, last, wire.LocalLLMFailed, nil)
	if len(chunks) != 1 {
		t.Errorf("chunks of a stream that breaks off: %v", chunks)
	}
	o.lines(said("half"), `{"error":"the runner has died"}`)
	_, last = completion(s, ask())
	if e := emRefused(t, last, wire.LocalLLMFailed, nil); !strings.Contains(fmt.Sprint(e.Details["backend_error"]), "the runner has died") {
		t.Errorf("ERROR %+v", e)
	}
	o.answers(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error":"out of memory"}`, http.StatusInternalServerError)
	})
	_, last = completion(s, ask())
	if e := emRefused(t, last, wire.LocalLLMFailed, nil); !strings.Contains(fmt.Sprint(e.Details["backend_error"]), "out of memory") {
		t.Errorf("ERROR %+v", e)
	}
	o.answers(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"error":"model 'tiny:1b' not found"}`, http.StatusNotFound)
	})
	_, last = completion(s, ask())
	emRefused(t, last, wire.ModelNotAvailable, map[string]any{"requested_model": "tiny:1b", "available_models": "[tiny:1b embed:latest]"})
	_, last = completion(s, ask("model", "nobody:70b"))
	emRefused(t, last, wire.ModelNotAvailable, map[string]any{"requested_model": "nobody:70b", "available_models": "[tiny:1b embed:latest]"})

	// One at a time on the machine; whoever goes away ends it at Ollama, too.
	begun, gone := make(chan struct{}), make(chan struct{})
	o.answers(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, said("begun"))
		w.(http.Flusher).Flush()
		close(begun)
		<-r.Context().Done()
		close(gone)
	})
	id := s.Request(wire.TLocalLLMCompletion, ask())
	<-begun
	if e := s.Wait(id); e.Type != wire.TLocalLLMCompletionChunk {
		t.Errorf("%s %s", e.Type, e.Payload)
	}
	_, last = completion(other, ask())
	emRefused(t, last, wire.LocalLLMBusy, nil)
	s.Drop()
	<-gone
	o.lines(ended)
	eventually(t, "the next completion", func() error {
		if _, last := completion(other, ask()); last.Type != wire.TLocalLLMCompletionResponse {
			return fmt.Errorf("%s", last.Payload)
		}
		return nil
	})

	log := fmt.Sprint(string(b.read(b.stateDir()+"/audit.log")), b.daemon.out.String())
	for _, secret := range []string{"a secret question", "a secret answer", "be brief"} {
		if strings.Contains(log, secret) {
			t.Errorf("a log has %q", secret)
		}
	}
	var found bool
	for _, r := range b.chained() {
		if r.Op == "LOCAL_LLM_COMPLETION" && r.Details["phase"] == nil && r.Result.OK && r.Details["response_chars"] == 15.0 {
			found = true
			for key, want := range map[string]any{"model": "tiny:1b", "stream": true, "prompt_chars": 25.0, "finish_reason": "stop", "tokens_prompt": 7.0, "tokens_completion": 3.0, "tokens_total": 10.0} {
				if r.Details[key] != want && (key != "stream" || r.Details[key] != false) {
					t.Errorf("the record has %s %v, want %v", key, r.Details[key], want)
				}
			}
		}
	}
	if !found {
		t.Error("a completion isn't on record")
	}
	p.unsent()
}

// A server without models, or none at all, is no reason to wait or to fail.
func TestEmulatorNoModels(t *testing.T) {
	t.Parallel()
	c, o := newCloud(t), newOllama(t)
	o.models = `{"models":[]}`
	b := c.bench()
	b.tables += fmt.Sprintf("[llm]\nenabled = true\nurl = %q\n", o.URL)
	b.configure()
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon()
	p := b.on(c)
	if p.control.Hello.Capabilities.Has(wire.LocalLLM) || len(p.control.Hello.LocalLLMModels) != 0 {
		t.Errorf("HELLO has %v and %v", p.control.Hello.Capabilities, p.control.Hello.LocalLLMModels)
	}
	s, _ := p.open("model")
	_, last := completion(s, map[string]any{"model": "x", "messages": []any{}})
	emRefused(t, last, wire.CapabilityNotGranted, map[string]any{"capability": "local_llm", "required_capability": "local_llm"})
}
