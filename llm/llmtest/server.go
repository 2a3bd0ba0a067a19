// Package llmtest is an Ollama server in the process of a test. It answers as the
// real one does (docs/api.md of ollama/ollama), with a model that says one known
// sentence, a word a piece. Models of some names do otherwise with what they are
// told: "echo…" says it, "think…" thinks it in hexadecimal digits before the
// sentence, "quote…" fails at once with an error that quotes the end of it, and
// "die…" after a word. "cloud…" is said to run elsewhere.
package llmtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Sentence is what the model answers to everything.
const Sentence = "Hello from a tiny test model. It has one layer!"

// Server is a running server. Its methods are safe for concurrent use.
type Server struct {
	URL string

	mu     sync.Mutex
	models []string
	loaded []string
	hold   chan struct{} // a completion waits for it after its first piece
	live   int           // completions that run
	ended  int
	state  *sync.Cond
}

// Start starts a server that has these models.
func Start(t testing.TB, models ...string) *Server {
	t.Helper()
	s := &Server{models: models}
	s.state = sync.NewCond(&s.mu)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/version", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"version":"0.17.4"}`) })
	mux.HandleFunc("GET /api/tags", s.tags)
	mux.HandleFunc("GET /api/ps", s.ps)
	mux.HandleFunc("POST /api/show", s.show)
	mux.HandleFunc("POST /api/chat", s.chat)
	mux.HandleFunc("POST /api/generate", s.generate)
	mux.HandleFunc("POST /api/embed", s.embed)
	mux.HandleFunc("POST /api/pull", s.pull)
	mux.HandleFunc("DELETE /api/delete", s.remove)
	server := httptest.NewServer(mux)
	s.URL = server.URL
	t.Cleanup(server.Close)
	t.Cleanup(server.CloseClientConnections)
	return s
}

// Hold lets no completion go on after its first piece until release is called.
func (s *Server) Hold() (release func()) {
	hold := make(chan struct{})
	s.mu.Lock()
	s.hold = hold
	s.mu.Unlock()
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.hold = nil
		s.mu.Unlock()
		close(hold)
	})
}

// Await waits until so many completions run.
func (s *Server) Await(running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.live != running {
		s.state.Wait()
	}
}

// Ended is how many completions are over, and Running how many aren't.
func (s *Server) Ended() (ended, running int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended, s.live
}

func (s *Server) has(name string) bool { return slices.Contains(s.models, name) }

func missing(w http.ResponseWriter, name string) {
	w.WriteHeader(http.StatusNotFound)
	fmt.Fprintf(w, `{"error":"model %s not found"}`, strings.ReplaceAll(fmt.Sprintf("%q", name), `"`, "'"))
}

func (s *Server) tags(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []map[string]any{}
	for _, name := range s.models {
		entry := map[string]any{
			"name": name, "model": name, "modified_at": "2026-05-01T12:00:00Z", "size": 3200000, "digest": "sha256:0000",
			"details": map[string]any{"format": "gguf", "family": "llama", "families": []string{"llama"}, "parameter_size": "820.22K", "quantization_level": "F32"},
		}
		if strings.HasPrefix(name, "cloud") {
			entry["remote_model"], entry["remote_host"] = strings.TrimPrefix(name, "cloud-"), "https://models.example.org"
		}
		list = append(list, entry)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"models": list})
}

func (s *Server) ps(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := []map[string]any{}
	for _, name := range s.loaded {
		list = append(list, map[string]any{
			"name": name, "model": name, "size": 44000000, "size_vram": 0, "context_length": 4096, "expires_at": "2126-05-01T12:00:00Z",
		})
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"models": list})
}

func (s *Server) show(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprint(w, `{"details":{"family":"llama"},"model_info":{"general.architecture":"llama","llama.block_count":1,"llama.attention.head_count":4,"llama.embedding_length":256}}`)
}

// request is what the handlers look at.
type request struct {
	Model     string          `json:"model"`
	Input     []string        `json:"input"`
	KeepAlive json.RawMessage `json:"keep_alive"`
	Messages  []struct{ Content string }
}

// prompt is all that a model is told.
func (r request) prompt() string {
	var b strings.Builder
	for _, m := range r.Messages {
		b.WriteString(m.Content + "\n")
	}
	return b.String()
}

// end is what of the prompt still stands in an error that is cut short.
func (r request) end() string {
	p := r.prompt()
	return p[max(0, len(p)-150):]
}

func (s *Server) read(w http.ResponseWriter, r *http.Request) (request, bool) {
	var in request
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		fmt.Fprintf(w, `{"error":%q}`, err)
		return in, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.has(in.Model) {
		missing(w, in.Model)
		return in, false
	}
	return in, true
}

func (s *Server) load(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.loaded, name) {
		s.loaded = append(s.loaded, name)
	}
}

func (s *Server) count(live, ended int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live, s.ended = s.live+live, s.ended+ended
	s.state.Broadcast()
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) {
	in, ok := s.read(w, r)
	if !ok {
		return
	}
	if strings.HasPrefix(in.Model, "quote") {
		w.WriteHeader(http.StatusInternalServerError)
		fmt.Fprintf(w, `{"error":%s}`, quoted("can't make sense of "+in.end()))
		return
	}
	s.load(in.Model)
	s.count(1, 0)
	defer s.count(-1, 1)
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-ndjson")
	line := func(format string, args ...any) {
		fmt.Fprintf(w, `{"model":%q,"created_at":"2026-05-01T12:00:00Z",`+format+"}\n", append([]any{in.Model}, args...)...)
		w.(http.Flusher).Flush()
	}
	answer := Sentence
	switch {
	case strings.HasPrefix(in.Model, "echo"):
		answer = in.prompt()
	case strings.HasPrefix(in.Model, "think"):
		line(`"message":{"role":"assistant","content":"","thinking":"%x"},"done":false`, in.prompt())
	}
	words := strings.SplitAfter(answer, " ")
	for i, word := range words {
		line(`"message":{"role":"assistant","content":%s},"done":false`, quoted(word))
		if strings.HasPrefix(in.Model, "die") {
			fmt.Fprintf(w, `{"error":%s}`+"\n", quoted("the runner died of "+in.end()))
			return
		}
		if i > 0 || hold == nil {
			continue
		}
		select {
		case <-hold:
		case <-r.Context().Done():
			return
		}
	}
	line(`"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","total_duration":330000000,"load_duration":300000000,"prompt_eval_count":9,"prompt_eval_duration":9000000,"eval_count":%d,"eval_duration":%d`,
		len(words), len(words)*int(10*time.Millisecond))
}

// quoted is a string as JSON has it.
func quoted(s string) []byte {
	b, _ := json.Marshal(s) // a string always can be
	return b
}

func (s *Server) generate(w http.ResponseWriter, r *http.Request) {
	in, ok := s.read(w, r)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = slices.DeleteFunc(s.loaded, func(name string) bool { return name == in.Model })
	fmt.Fprintf(w, `{"model":%q,"created_at":"2026-05-01T12:00:00Z","response":"","done":true,"done_reason":"unload"}`+"\n", in.Model)
}

func (s *Server) embed(w http.ResponseWriter, r *http.Request) {
	in, ok := s.read(w, r)
	if !ok {
		return
	}
	s.load(in.Model)
	vectors := make([][]float32, len(in.Input))
	for i, text := range in.Input {
		vectors[i] = []float32{float32(len(text)), 0.5}
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"model": in.Model, "embeddings": vectors, "prompt_eval_count": len(in.Input)})
}

// pull brings every model whose name doesn't say that it isn't there.
func (s *Server) pull(w http.ResponseWriter, r *http.Request) {
	var in request
	_ = json.NewDecoder(r.Body).Decode(&in)
	line := func(text string) {
		fmt.Fprintln(w, text)
		w.(http.Flusher).Flush()
	}
	line(`{"status":"pulling manifest"}`)
	if strings.HasPrefix(in.Model, "nowhere") {
		line(`{"error":"pull model manifest: file does not exist"}`)
		return
	}
	const digest = `"digest":"sha256:7f4030143c1c"`
	line(`{"status":"pulling 7f4030143c1c",` + digest + `,"total":3200000}`)
	for _, n := range []int{1000000, 2000000, 3200000} {
		line(fmt.Sprintf(`{"status":"pulling 7f4030143c1c",%s,"total":3200000,"completed":%d}`, digest, n))
	}
	for _, status := range []string{"verifying sha256 digest", "writing manifest"} {
		line(fmt.Sprintf(`{"status":%q}`, status))
	}
	s.mu.Lock()
	if !s.has(in.Model) {
		s.models = append(s.models, in.Model)
	}
	s.mu.Unlock()
	line(`{"status":"success"}`)
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	in, ok := s.read(w, r)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	gone := func(name string) bool { return name == in.Model }
	s.models, s.loaded = slices.DeleteFunc(s.models, gone), slices.DeleteFunc(s.loaded, gone)
}
