// Package llmtest is an Ollama server in the process of a test. It answers what a
// real one was recorded to answer (testdata/ollama.json, renewed by make
// ollama-record), with a model that says one known sentence; package llmsuite runs
// the same tests on it and on a real one.
//
// Models of some names, which nobody recorded, do otherwise with what they are told:
// "echo…" says it, "think…" thinks it in hexadecimal digits before the sentence,
// "quote…" fails at once with an error that quotes the end of it, and "die…" after a
// word. "cloud…" is said to run elsewhere.
package llmtest

import (
	"encoding/hex"
	"encoding/json"
	"maps"
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

// Words are the pieces in which Sentence comes.
func Words() []string {
	return []string{"Hello", " from", " a", " tiny", " test", " model", ".", " It", " has", " one", " layer", "!"}
}

// Server is a running server. Its methods are safe for concurrent use.
type Server struct {
	URL string

	shapes map[string]Exchange // by name; only read

	mu     sync.Mutex
	models []string
	loaded []string
	hold   chan struct{} // a completion waits for it after its first piece
	live   int           // completions that run
	ended  int
	state  *sync.Cond
}

// Start starts a server that has these models. Endless says the sentence for ever,
// every other one once.
func Start(t testing.TB, models ...string) *Server {
	t.Helper()
	s := &Server{models: models, shapes: make(map[string]Exchange)}
	s.state = sync.NewCond(&s.mu)
	all, err := Recorded()
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		s.shapes[x.Name] = x
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/version", func(w http.ResponseWriter, _ *http.Request) { s.answer(w, xVersion, filling{}) })
	mux.HandleFunc("GET /api/tags", s.tags)
	mux.HandleFunc("GET /api/ps", s.ps)
	mux.HandleFunc("POST /api/show", s.show)
	mux.HandleFunc("POST /api/chat", s.chat)
	mux.HandleFunc("POST /api/generate", s.generate)
	mux.HandleFunc("POST /api/embed", s.embed)
	mux.HandleFunc("POST /api/pull", s.pull)
	mux.HandleFunc("POST /api/copy", s.copy)
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

// filling is what takes the place of the names and numbers that were recorded.
type filling struct {
	model  string // of Tiny and of the unknown one
	inputs []string
	tokens int // in the answer; 0: as recorded
}

// answer writes what was recorded under a name.
func (s *Server) answer(w http.ResponseWriter, name string, f filling) {
	for _, line := range s.begin(w, name).Answers {
		f.write(w, line)
	}
}

// begin writes all but the lines.
func (s *Server) begin(w http.ResponseWriter, name string) Exchange {
	x := s.shapes[name]
	if x.Type != "" {
		w.Header().Set("Content-Type", x.Type)
	}
	w.WriteHeader(x.Status)
	return x
}

func (f filling) write(w http.ResponseWriter, line any) {
	_ = json.NewEncoder(w).Encode(f.fill(line, ""))
	w.(http.Flusher).Flush()
}

// perToken is how long a token takes by what the server says.
const perToken = 10 * time.Millisecond

// fill is a recorded value with something for each placeholder.
func (f filling) fill(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			out[k] = f.fill(x, k)
		}
		if n, ok := v["eval_count"].(float64); ok {
			if f.tokens > 0 {
				n = float64(f.tokens)
			}
			out["eval_count"], out["eval_duration"] = n, n*float64(perToken)
		}
		return out
	case []any:
		if key == "embeddings" {
			return f.vectors()
		}
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = f.fill(x, "")
		}
		return out
	case string:
		return f.text(v, key)
	}
	return v
}

func (f filling) text(v, key string) any {
	switch v {
	case "<time>":
		if key == "expires_at" {
			return "2126-05-01T12:00:00Z"
		}
		return "2026-05-01T12:00:00Z"
	case "<duration>":
		return int64(30 * time.Millisecond)
	case "<bytes>":
		return 44_000_000
	case "<digest>":
		return "sha256:" + strings.Repeat("0", 64)
	}
	v = strings.NewReplacer("<digest>", strings.Repeat("0", 12), "<registry>", "registry.invalid").Replace(v)
	if f.model != "" {
		v = strings.NewReplacer(Tiny, f.model, nobody, f.model).Replace(v)
	}
	return v
}

// vectors are one for each input, which begins with its length.
func (f filling) vectors() [][]float32 {
	const width = 256
	all := make([][]float32, len(f.inputs))
	for i, text := range f.inputs {
		all[i] = make([]float32, width)
		all[i][0], all[i][1] = float32(len(text)), 0.5
	}
	return all
}

// each is a list of what was recorded of Tiny, once for each model.
func (s *Server) each(w http.ResponseWriter, name string, models []string) {
	x := s.begin(w, name)
	answer := maps.Clone(x.Answers[0].(map[string]any))
	list := []any{}
	for _, model := range models {
		for _, entry := range answer["models"].([]any) {
			if entry.(map[string]any)["name"] == Tiny {
				filled := filling{model: model}.fill(entry, "").(map[string]any)
				if strings.HasPrefix(model, "cloud") {
					filled["remote_model"], filled["remote_host"] = strings.TrimPrefix(model, "cloud-"), "https://models.example.org"
				}
				list = append(list, filled)
			}
		}
	}
	answer["models"] = list
	filling{}.write(w, answer)
}

func (s *Server) tags(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	models := slices.Clone(s.models)
	s.mu.Unlock()
	s.each(w, xTags, models)
}

func (s *Server) ps(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	loaded := slices.Clone(s.loaded)
	s.mu.Unlock()
	s.each(w, xLoaded, loaded)
}

// request is what the handlers look at.
type request struct {
	Model       string          `json:"model"`
	Stream      *bool           `json:"stream"`
	Think       bool            `json:"think"`
	Input       []string        `json:"input"`
	KeepAlive   json.RawMessage `json:"keep_alive"`
	Source      string          `json:"source"`
	Destination string          `json:"destination"`
	Messages    []struct {
		Content string `json:"content"`
	} `json:"messages"`
	Options struct {
		NumPredict int `json:"num_predict"`
	} `json:"options"`
}

// is says whether the model's name begins so.
func (r request) is(name string) bool { return strings.HasPrefix(r.Model, name) }

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

// read reads a request for a model; one that there isn't is answered by what was
// recorded as unknown.
func (s *Server) read(w http.ResponseWriter, r *http.Request, unknown string) (request, bool) {
	var in request
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		s.answer(w, xMalformed, filling{})
		return in, false
	}
	name := in.Model + in.Source
	s.mu.Lock()
	known := slices.Contains(s.models, name)
	s.mu.Unlock()
	if !known {
		s.answer(w, unknown, filling{model: name})
	}
	return in, known
}

func (s *Server) show(w http.ResponseWriter, r *http.Request) {
	if in, ok := s.read(w, r, xShowUnknown); ok {
		s.answer(w, xShow, filling{model: in.Model})
	}
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
	in, ok := s.read(w, r, xChatUnknown)
	if !ok {
		return
	}
	if in.is("quote") {
		w.WriteHeader(http.StatusInternalServerError)
		failed(w, "can't make sense of "+in.end())
		return
	}
	if in.Think {
		s.answer(w, xThink, filling{model: in.Model})
		return
	}
	s.load(in.Model)
	if len(in.Messages) == 0 {
		s.answer(w, xLoad, filling{model: in.Model})
		return
	}
	s.count(1, 0)
	defer s.count(-1, 1)
	s.say(w, r, in)
}

// say writes the sentence as it was recorded, or as much of it as was asked for.
func (s *Server) say(w http.ResponseWriter, r *http.Request, in request) {
	s.mu.Lock()
	hold := s.hold
	s.mu.Unlock()
	f := filling{model: in.Model}
	pieces, last := s.pieces(in)
	many := len(pieces)
	if in.Model == Endless {
		many = 1 << 30
	}
	if n := in.Options.NumPredict; n > 0 && n < many {
		many, f.tokens = n, n
		cut := s.shapes[xCut].Answers
		last = cut[len(cut)-1]
	}
	if in.Stream != nil && !*in.Stream {
		s.whole(w, f)
		return
	}
	s.begin(w, xChat)
	for i := range many {
		f.write(w, pieces[i%len(pieces)])
		if in.is("die") {
			failed(w, "the runner died of "+in.end())
			return
		}
		if r.Context().Err() != nil {
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
	f.write(w, last)
}

// pieces are the lines of an answer: as they were recorded, or like them.
func (s *Server) pieces(in request) (pieces []any, last any) {
	said := s.shapes[xChat].Answers
	pieces, last = said[:len(said)-1], said[len(said)-1]
	like := func(key, text string) any {
		line := maps.Clone(pieces[0].(map[string]any))
		message := maps.Clone(line["message"].(map[string]any))
		message["content"], message[key] = "", text
		line["message"] = message
		return line
	}
	switch {
	case in.is("echo"):
		var echo []any
		for word := range strings.SplitAfterSeq(in.prompt(), " ") {
			echo = append(echo, like("content", word))
		}
		return echo, last
	case in.is("think"):
		return slices.Concat([]any{like("thinking", hex.EncodeToString([]byte(in.prompt())))}, pieces), last
	}
	return pieces, last
}

// failed writes an error as a line of a stream, or as all of an answer.
func failed(w http.ResponseWriter, text string) {
	_ = json.NewEncoder(w).Encode(map[string]any{"error": text})
}

// whole writes all of the sentence at once, or its first tokens.
func (s *Server) whole(w http.ResponseWriter, f filling) {
	answer := maps.Clone(s.begin(w, xWhole).Answers[0].(map[string]any))
	if words := Words(); f.tokens > 0 {
		message := maps.Clone(answer["message"].(map[string]any))
		message["content"] = strings.Join(words[:min(f.tokens, len(words))], "")
		answer["message"], answer["done_reason"] = message, "length"
	}
	f.write(w, answer)
}

// generate knows how to give a model's memory back.
func (s *Server) generate(w http.ResponseWriter, r *http.Request) {
	in, ok := s.read(w, r, xUnloadUnknown)
	if !ok {
		return
	}
	if stay := string(in.KeepAlive); stay != "0" && stay != `"0s"` {
		w.WriteHeader(http.StatusNotImplemented)
		return
	}
	s.mu.Lock()
	s.loaded = slices.DeleteFunc(s.loaded, func(name string) bool { return name == in.Model })
	s.mu.Unlock()
	s.answer(w, xUnload, filling{model: in.Model})
}

func (s *Server) embed(w http.ResponseWriter, r *http.Request) {
	in, ok := s.read(w, r, xEmbedUnknown)
	if !ok {
		return
	}
	s.load(in.Model)
	s.answer(w, xEmbed, filling{model: in.Model, inputs: in.Input})
}

// pull brings every model whose name doesn't say that it isn't there.
func (s *Server) pull(w http.ResponseWriter, r *http.Request) {
	var in request
	if json.NewDecoder(r.Body).Decode(&in) != nil {
		s.answer(w, xMalformed, filling{})
		return
	}
	name := strings.TrimPrefix(in.Model, "http://")
	switch {
	case strings.HasPrefix(name, "127.0.0.1:1/"):
		s.answer(w, xPullNowhere, filling{})
		return
	case strings.HasPrefix(name[strings.LastIndex(name, "/")+1:], "nowhere"):
		s.answer(w, xPullUnknown, filling{})
		return
	}
	for _, v := range s.begin(w, xPull).Answers {
		line := v.(map[string]any)
		if line["status"] == "success" {
			s.add(name)
		}
		total, layer := line["total"].(float64)
		if !layer {
			filling{}.write(w, line)
			continue
		}
		on := maps.Clone(line) // progress, of which one line was kept
		delete(on, "completed")
		filling{}.write(w, on)
		for _, part := range []float64{0.25, 0.5, 1} {
			on["completed"] = int64(part * total)
			filling{}.write(w, on)
		}
	}
}

func (s *Server) add(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.models, name) {
		s.models = append(s.models, name)
	}
}

func (s *Server) copy(w http.ResponseWriter, r *http.Request) {
	if in, ok := s.read(w, r, xCopyUnknown); ok {
		s.add(in.Destination)
		s.answer(w, xCopy, filling{})
	}
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request) {
	in, ok := s.read(w, r, xRemoveUnknown)
	if !ok {
		return
	}
	s.mu.Lock()
	gone := func(name string) bool { return name == in.Model }
	s.models, s.loaded = slices.DeleteFunc(s.models, gone), slices.DeleteFunc(s.loaded, gone)
	s.mu.Unlock()
	s.answer(w, xRemove, filling{})
}
