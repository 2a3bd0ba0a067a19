package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"farhand/internal/leak"
	"farhand/wire"
)

// extendedAsk asks for all that the extension has.
func extendedAsk(model string) wire.LocalLLMCompletion {
	req, yes := ask(model), true
	req.Think, req.Wait = &yes, true
	return req
}

func TestThoughtsAreTold(t *testing.T) {
	s := newService(t, serve(t, func(c *chatCall) {
		if c.request["think"] != true {
			t.Errorf("think is %v", c.request["think"])
		}
		c.line(`{"message":{"role":"assistant","content":"","thinking":"six by"},"done":false}`)
		c.delta("<think> seven</think>")
		c.delta("42")
		c.line(`{"message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","load_duration":2000000000,"prompt_eval_count":8,"prompt_eval_duration":500000000,"eval_count":20,"eval_duration":4000000000}`)
	}).URL, Config{})
	var answer, thoughts strings.Builder
	got, _, err := s.Complete(t.Context(), extendedAsk("tiny:1b"), func(c wire.LocalLLMChunk) error {
		answer.WriteString(c.Delta)
		thoughts.WriteString(c.Thinking)
		return nil
	})
	if err != nil || answer.String() != "42" || thoughts.String() != "six by seven" || got.Content != "42" || got.Thinking != "six by seven" {
		t.Errorf("%q thinking %q, %+v, %v", answer.String(), thoughts.String(), got, err)
	}
	if want := (wire.LLMTimings{LoadSeconds: 2, PromptTokensPerSecond: 16, TokensPerSecond: 5}); *got.Timings != want {
		t.Errorf("timings %+v", *got.Timings)
	}
}

func TestSpeedIsKept(t *testing.T) {
	took := "4000000000"
	o := serve(t, func(c *chatCall) {
		c.line(`{"message":{"role":"assistant","content":"x"},"done":true,"done_reason":"stop","eval_count":20,"eval_duration":%s}`, took)
	})
	file := filepath.Join(t.TempDir(), "speeds.json")
	s := newService(t, o.URL, Config{Speeds: file})
	for _, step := range []struct {
		took string
		want float64
	}{{"4000000000", 5}, {"4100000000", 5}, {"2000000000", 10}} {
		took = step.took
		if _, _, err := complete(t, s, ask("tiny:1b")); err != nil {
			t.Fatal(err)
		}
		if got := s.speeds.of("tiny:1b"); got != step.want {
			t.Errorf("after %s ns it is %v tokens/s, want %v", step.took, got, step.want)
		}
	}
	if got := newService(t, o.URL, Config{Speeds: file}).speeds.of("tiny:1b"); got != 10 {
		t.Errorf("the next start knows %v tokens/s", got)
	}
}

// Completions that wait run one after another in the order in which they came,
// and hear how many are before them; the queue has a bound.
func TestQueue(t *testing.T) {
	leak.Check(t)
	began, finish := make(chan string), make(chan struct{})
	o := serve(t, func(c *chatCall) {
		began <- fmt.Sprint(c.request["model"])
		<-finish
		c.done("stop")
	})
	o.tags = func(w http.ResponseWriter) {
		fmt.Fprint(w, `{"models":[{"name":"a:1"},{"name":"b:1"},{"name":"c:1"}]}`)
	}
	s := newService(t, o.URL, Config{Queue: 2})
	var all sync.WaitGroup
	positions := make(chan string, 16)
	run := func(model string) {
		all.Go(func() {
			_, _, err := s.Complete(t.Context(), extendedAsk(model), func(c wire.LocalLLMChunk) error {
				if c.Waiting > 0 {
					positions <- fmt.Sprint(model, " ", c.Waiting)
				}
				return nil
			})
			if err != nil {
				t.Error(model, err)
			}
		})
	}
	hears := func(want string) {
		t.Helper()
		if got := <-positions; got != want {
			t.Errorf("heard %q, want %q", got, want)
		}
	}
	run("a:1")
	if got := <-began; got != "a:1" {
		t.Fatal(got)
	}
	run("b:1")
	hears("b:1 1")
	run("c:1")
	hears("c:1 2")
	if _, _, err := complete(t, s, extendedAsk("a:1")); !errors.Is(err, wire.LocalLLMBusy) {
		t.Errorf("a full queue gives %v", err)
	}
	if _, _, err := complete(t, s, ask("a:1")); !errors.Is(err, wire.LocalLLMBusy) {
		t.Errorf("who doesn't wait gets %v", err)
	}
	finish <- struct{}{}
	if got := <-began; got != "b:1" {
		t.Errorf("then %s", got)
	}
	hears("c:1 1")
	finish <- struct{}{}
	if got := <-began; got != "c:1" {
		t.Errorf("then %s", got)
	}
	finish <- struct{}{}
	all.Wait()
}

// Who gives up waiting leaves no gap behind.
func TestQueueGivenUp(t *testing.T) {
	leak.Check(t)
	q := &turn{most: 8}
	leave, err := q.enter(t.Context(), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan int, 16)
	enter := func(ctx context.Context) <-chan error {
		done := make(chan error, 1)
		go func() {
			leave, err := q.enter(ctx, true, func(before int) error { waits <- before; return nil })
			if err == nil {
				leave()
			}
			done <- err
		}()
		return done
	}
	ctx, cancel := context.WithCancel(t.Context())
	first := enter(ctx)
	<-waits
	second := enter(t.Context())
	<-waits
	cancel()
	if err := <-first; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if before := <-waits; before != 1 {
		t.Errorf("then %d before", before)
	}
	leave()
	if err := <-second; err != nil {
		t.Error(err)
	}
	if leave, err = q.enter(t.Context(), false, nil); err != nil {
		t.Fatal(err)
	}
	leave()
	gone := errors.New("gone")
	leave, _ = q.enter(t.Context(), false, nil)
	if _, err := q.enter(t.Context(), true, func(int) error { return gone }); !errors.Is(err, gone) {
		t.Error(err)
	}
	leave()
}

// board is a server with memory: what it has loaded, and what models need.
type board struct {
	*server
	mu      sync.Mutex
	loaded  []string
	unloads []string
	gone    string // this one the server no longer knows
}

func newBoard(t *testing.T, loaded ...string) *board {
	b := &board{server: serve(t, func(c *chatCall) { c.delta("ok"); c.done("stop") }), loaded: loaded}
	b.tags = func(w http.ResponseWriter) {
		fmt.Fprint(w, `{"models":[{"name":"tiny:1b","size":100000000},{"name":"big:7b","size":4000000000}]}`)
	}
	mux := b.Config.Handler.(*http.ServeMux)
	mux.HandleFunc("GET /api/ps", func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		var list []string
		for _, name := range b.loaded {
			list = append(list, fmt.Sprintf(`{"name":%q,"size":1}`, name))
		}
		fmt.Fprintf(w, `{"models":[%s]}`, strings.Join(list, ","))
	})
	mux.HandleFunc("POST /api/show", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"model_info":{"general.architecture":"llama","llama.block_count":16,"llama.attention.head_count":32,"llama.attention.head_count_kv":8,"llama.embedding_length":2048}}`)
	})
	mux.HandleFunc("POST /api/generate", func(w http.ResponseWriter, r *http.Request) {
		var request struct{ Model string }
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if request.Model == b.gone {
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprintf(w, `{"error":"model '%s' not found"}`, b.gone)
			return
		}
		b.unloads = append(b.unloads, request.Model)
		b.loaded = slices.DeleteFunc(b.loaded, func(name string) bool { return name == request.Model })
		fmt.Fprintln(w, `{"done":true}`)
	})
	return b
}

func TestMemory(t *testing.T) {
	// 2 × 2 bytes × 16 layers × 8 heads × 64 = 32 KiB a token.
	const need = 100_000_000 + 4096*32<<10 + runnerBytes
	for _, c := range []struct {
		name   string
		loaded []string
		free   int64
		model  string
		fits   bool
	}{
		{"room", nil, need, "tiny:1b", true},
		{"a byte too little", nil, need - 1, "tiny:1b", false},
		{"loaded already", []string{"tiny:1b"}, 0, "tiny:1b", true},
		{"too big for ever", nil, 1 << 30, "big:7b", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBoard(t, c.loaded...)
			s := newService(t, b.URL, Config{})
			s.available = func() (int64, error) { return c.free, nil }
			_, _, err := complete(t, s, ask(c.model))
			if c.fits {
				if err != nil {
					t.Error(err)
				}
				return
			}
			e := wire.AsError(err)
			if e.Code != wire.LocalLLMFailed || e.Details["reason"] != "insufficient_memory" || e.Details["available_bytes"] != c.free || e.Details["backend_error"] == nil {
				t.Errorf("%v %v", err, e.Details)
			}
			if len(b.requests) != 0 {
				t.Error("it was loaded all the same")
			}
		})
	}
}

func TestOneModelInMemory(t *testing.T) {
	b := newBoard(t, "big:7b")
	s := newService(t, b.URL, Config{})
	s.available = func() (int64, error) { return 8 << 30, nil }
	if _, _, err := complete(t, s, ask("tiny:1b")); err != nil {
		t.Fatal(err)
	}
	if strings.Join(b.unloads, " ") != "big:7b" {
		t.Errorf("sent out: %q", b.unloads)
	}
	if got := b.requests[0]; fmt.Sprint(got["options"].(map[string]any)["num_ctx"]) != "4096" || got["keep_alive"] != "30m0s" {
		t.Errorf("asked with %v", got)
	}
}

// Vectors are made by a model that is loaded as for everything else, or the next
// completion would load it once more, and its context has no bound.
func TestEmbedLoadsAlike(t *testing.T) {
	o := serve(t, nil)
	asked := make(chan map[string]any, 1)
	o.Config.Handler.(*http.ServeMux).HandleFunc("POST /api/embed", func(w http.ResponseWriter, r *http.Request) {
		var request map[string]any
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Error(err)
		}
		asked <- request
		fmt.Fprint(w, `{"embeddings":[[1]]}`)
	})
	s := newService(t, o.URL, Config{Context: 2048})
	if _, err := s.Embed(t.Context(), wire.LLMEmbed{Model: "tiny:1b", Input: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	if got := <-asked; fmt.Sprint(got["options"]) != "map[num_ctx:2048]" || got["keep_alive"] != "30m0s" {
		t.Errorf("asked with %v", got)
	}
}

// A model that was removed while it was in memory holds nobody up.
func TestRemovedWhileInMemory(t *testing.T) {
	b := newBoard(t)
	b.loaded = []string{"gone:1b", "big:7b"}
	b.gone = "gone:1b"
	s := newService(t, b.URL, Config{})
	s.available = func() (int64, error) { return 8 << 30, nil }
	if _, _, err := complete(t, s, ask("tiny:1b")); err != nil {
		t.Fatal(err)
	}
	if strings.Join(b.unloads, " ") != "big:7b" {
		t.Errorf("sent out: %q", b.unloads)
	}
}

func TestMemAvailable(t *testing.T) {
	for text, want := range map[string]int64{
		"MemTotal: 1 kB\nMemAvailable:    2048 kB\n": 2 << 20,
		"MemAvailable: -1 kB\n":                      -1,
		"MemAvailable: 99999999999999999999 kB\n":    -1,
		"MemTotal: 1 kB\n":                           -1,
		"":                                           -1,
	} {
		got, err := parseAvailable(strings.NewReader(text))
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q gives %d, %v", text, got, err)
		}
	}
}
