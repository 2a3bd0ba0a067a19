package llm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"farhand/internal/leak"
	"farhand/wire"
)

// server is one that speaks the real protocol: NDJSON, line by line.
type server struct {
	*httptest.Server
	tags func(w http.ResponseWriter)
	chat func(c *chatCall)

	mu       sync.Mutex
	probes   int
	requests []map[string]any
}

// chatCall is one POST /api/chat.
type chatCall struct {
	http.ResponseWriter
	r       *http.Request
	request map[string]any
}

func (c *chatCall) line(format string, args ...any) {
	fmt.Fprintf(c, format+"\n", args...)
	c.ResponseWriter.(http.Flusher).Flush()
}

func (c *chatCall) delta(s string) {
	q, _ := json.Marshal(s)
	c.line(`{"model":"m","created_at":"2026-05-01T12:00:00Z","message":{"role":"assistant","content":%s},"done":false}`, q)
}

func (c *chatCall) done(reason string) {
	c.line(`{"model":"m","created_at":"2026-05-01T12:00:00Z","message":{"role":"assistant","content":""},"done":true,"done_reason":%q,"prompt_eval_count":7,"eval_count":3}`, reason)
}

// cut ends the connection in the middle of the answer.
func (c *chatCall) cut() {
	conn, _, err := c.ResponseWriter.(http.Hijacker).Hijack()
	if err == nil {
		conn.Close()
	}
}

func serve(t *testing.T, chat func(*chatCall)) *server {
	t.Helper()
	o := &server{chat: chat}
	o.tags = func(w http.ResponseWriter) { fmt.Fprint(w, `{"models":[{"name":"tiny:1b"},{"name":"other:latest"}]}`) }
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/tags", func(w http.ResponseWriter, r *http.Request) {
		o.mu.Lock()
		o.probes++
		tags := o.tags
		o.mu.Unlock()
		tags(w)
	})
	mux.HandleFunc("POST /api/chat", func(w http.ResponseWriter, r *http.Request) {
		var request map[string]any
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			t.Errorf("request: %v", err)
		}
		io.Copy(io.Discard, r.Body)
		o.mu.Lock()
		o.requests = append(o.requests, request)
		o.mu.Unlock()
		w.Header().Set("Content-Type", "application/x-ndjson")
		o.chat(&chatCall{w, r, request})
	})
	o.Server = httptest.NewServer(mux)
	t.Cleanup(o.Close)
	return o
}

func newService(t *testing.T, url string, c Config) *Service {
	t.Helper()
	c.URL = url
	s, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func ask(model string) wire.LocalLLMCompletion {
	return wire.LocalLLMCompletion{Model: model, Messages: []wire.LLMMessage{{Role: "user", Content: "hé?"}}}
}

// complete runs a completion and collects what was emitted, one chunk a word.
func complete(t *testing.T, s *Service, req wire.LocalLLMCompletion) (wire.LocalLLMResponse, string, error) {
	t.Helper()
	var chunks strings.Builder
	response, _, err := s.Complete(t.Context(), req, func(c wire.LocalLLMChunk) error {
		if c.FinishReason != nil {
			fmt.Fprintf(&chunks, "%q!%s ", c.Delta, *c.FinishReason)
		} else {
			fmt.Fprintf(&chunks, "%q ", c.Delta)
		}
		return nil
	})
	return response, strings.TrimSpace(chunks.String()), err
}

func TestStreaming(t *testing.T) {
	leak.Check(t)
	o := serve(t, func(c *chatCall) {
		c.delta("Hello")
		c.delta("")
		c.delta(" world")
		c.done("stop")
	})
	s := newService(t, o.URL, Config{})
	req := ask("tiny:1b")
	req.Messages = append(req.Messages, wire.LLMMessage{Role: "tool", Content: "x"}, wire.LLMMessage{Role: "assistant", Content: "yes"})
	response, chunks, err := complete(t, s, req)
	if err != nil {
		t.Fatal(err)
	}
	if chunks != `"Hello" " world" ""!stop` {
		t.Errorf("chunks %s", chunks)
	}
	if response.Content != "Hello world" || response.FinishReason != "stop" || *response.Tokens.Prompt != 7 || *response.Tokens.Completion != 3 || *response.Tokens.Total != 10 {
		t.Errorf("response %+v", response)
	}
	sent, _ := json.Marshal(o.requests[0])
	want := `{"keep_alive":"30m0s","messages":[{"content":"hé?","role":"user"},{"content":"yes","role":"assistant"}],"model":"tiny:1b","options":{"num_ctx":4096,"num_predict":1024,"temperature":0,"top_p":1},"think":false}`
	if string(sent) != want {
		t.Errorf("sent %s\nwant %s", sent, want)
	}
	o.Close()
}

func TestNotStreaming(t *testing.T) {
	o := serve(t, func(c *chatCall) { c.delta("a"); c.delta("b"); c.done("length") })
	s := newService(t, o.URL, Config{})
	no, tokens, temperature, topP := false, 5, 0.5, 0.9
	req := ask("tiny:1b")
	req.Stream, req.MaxTokens, req.Temperature, req.TopP = &no, &tokens, &temperature, &topP
	response, chunks, err := complete(t, s, req)
	if err != nil || chunks != "" || response.Content != "ab" || response.FinishReason != "length" {
		t.Errorf("%+v, chunks %q, %v", response, chunks, err)
	}
	options, _ := json.Marshal(o.requests[0]["options"])
	if string(options) != `{"num_ctx":4096,"num_predict":5,"temperature":0.5,"top_p":0.9}` {
		t.Errorf("options %s", options)
	}
}

func TestTrace(t *testing.T) {
	o := serve(t, func(c *chatCall) { c.delta("größer"); c.cut() })
	s := newService(t, o.URL, Config{})
	_, trace, err := s.Complete(t.Context(), ask("tiny:1b"), func(wire.LocalLLMChunk) error { return nil })
	if err == nil || trace != (Trace{Model: "tiny:1b", Stream: true, PromptChars: 3, ResponseChars: 6}) {
		t.Errorf("%+v, %v", trace, err)
	}
}

func TestFinishReasons(t *testing.T) {
	for given, want := range map[string]string{"stop": "stop", "length": "length", "content_filter": "content_filter", "load": "stop", "": "stop"} {
		s := newService(t, serve(t, func(c *chatCall) { c.done(given) }).URL, Config{})
		response, chunks, err := complete(t, s, ask("tiny:1b"))
		if err != nil || response.FinishReason != want || chunks != `""!`+want {
			t.Errorf("%q: %+v, %s, %v", given, response, chunks, err)
		}
	}
}

func TestTokensUnknown(t *testing.T) {
	s := newService(t, serve(t, func(c *chatCall) { c.line(`{"message":{"content":"x"},"done":true,"eval_count":3}`) }).URL, Config{})
	response, chunks, err := complete(t, s, ask("tiny:1b"))
	if err != nil || response.Tokens.Prompt != nil || *response.Tokens.Completion != 3 || response.Tokens.Total != nil {
		t.Errorf("%+v, %v", response, err)
	}
	if chunks != `"x" ""!stop` {
		t.Errorf("chunks %s", chunks)
	}
}

func TestFailures(t *testing.T) {
	for _, c := range []struct {
		name    string
		chat    func(*chatCall)
		code    wire.Code
		backend string // must stand in details.backend_error
		chunks  string
	}{
		{"error in the stream", func(c *chatCall) { c.delta("Hel"); c.line(`{"error":"out of memory"}`) }, wire.LocalLLMFailed, "out of memory", `"Hel"`},
		{"error at once", func(c *chatCall) { c.line(`{"error":"no GPU"}`) }, wire.LocalLLMFailed, "no GPU", ""},
		{"end without done", func(c *chatCall) { c.delta("Hel") }, wire.LocalLLMFailed, "before the answer was complete", `"Hel"`},
		{"nothing at all", func(c *chatCall) {}, wire.LocalLLMFailed, "before the answer was complete", ""},
		{"connection cut", func(c *chatCall) { c.delta("Hel"); c.cut() }, wire.LocalLLMFailed, "before the answer was complete", `"Hel"`},
		{"connection cut early", func(c *chatCall) { c.cut() }, wire.LocalLLMFailed, "EOF", ""},
		{"not JSON", func(c *chatCall) { c.delta("Hel"); c.line("<html>") }, wire.LocalLLMFailed, "<html>", `"Hel"`},
		{"wrong types", func(c *chatCall) { c.line(`{"message":7}`) }, wire.LocalLLMFailed, "cannot unmarshal", ""},
		{"500", func(c *chatCall) { c.WriteHeader(500); fmt.Fprint(c, `{"error":"boom"}`) }, wire.LocalLLMFailed, "boom", ""},
		{"500 without a body", func(c *chatCall) { c.WriteHeader(500) }, wire.LocalLLMFailed, "", ""},
		{"502 of a proxy", func(c *chatCall) { c.WriteHeader(502); fmt.Fprint(c, "<html>\nbad gateway") }, wire.LocalLLMFailed, "<html>\nbad gateway", ""},
		{"204", func(c *chatCall) { c.WriteHeader(204) }, wire.LocalLLMFailed, "", ""},
		{"401", func(c *chatCall) { c.WriteHeader(401); fmt.Fprint(c, `{"error":"unauthorized"}`) }, wire.LocalLLMFailed, "unauthorized", ""},
		{"redirect", func(c *chatCall) { c.Header().Set("Location", "http://elsewhere.test/"); c.WriteHeader(307) }, wire.LocalLLMFailed, "", ""},
		{"404", func(c *chatCall) { c.WriteHeader(404); fmt.Fprint(c, `{"error":"model 'tiny:1b' not found"}`) }, wire.ModelNotAvailable, "not found", ""},
		{"a line of 9 MB", func(c *chatCall) { c.delta(strings.Repeat("x", 9<<20)) }, wire.LocalLLMFailed, "a line of more than 8388608 bytes", ""},
		{"a line that nothing ends", func(c *chatCall) { c.delta("Hel"); fmt.Fprint(c, `{"error":"no`) }, wire.LocalLLMFailed, "before the answer was complete", `"Hel"`},
		{"an error that nothing ends", func(c *chatCall) { c.delta("Hel"); fmt.Fprint(c, `{"error":"no memory"}`) }, wire.LocalLLMFailed, "no memory", `"Hel"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newService(t, serve(t, c.chat).URL, Config{})
			_, chunks, err := complete(t, s, ask("tiny:1b"))
			e := wire.AsError(err)
			if e.Code != c.code || chunks != c.chunks {
				t.Fatalf("%s %v, chunks %s", e.Code, err, chunks)
			}
			backend, isText := e.Details["backend_error"].(string)
			if !isText || !strings.Contains(backend, c.backend) || utf8.RuneCountInString(backend) > 200 || utf8.RuneCountInString(e.Message) > 200 {
				t.Errorf("details %v, message %q", e.Details, e.Message)
			}
			// The next one isn't refused as busy.
			if _, _, err := complete(t, s, ask("tiny:1b")); errors.Is(err, wire.LocalLLMBusy) {
				t.Error(err)
			}
		})
	}
}

// An answer takes memory by its own size: a board has little, and clearing it takes
// longer than all else that is between a question and its first token.
func TestMemoryOfAnswers(t *testing.T) {
	s := newService(t, serve(t, func(c *chatCall) { c.delta("Hello"); c.done("stop") }).URL, Config{})
	const many = 20
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range many {
		if _, _, err := complete(t, s, ask("tiny:1b")); err != nil {
			t.Fatal(err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / many; each > 1<<20 {
		t.Errorf("an answer of a word takes %d bytes", each)
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	l.Close()
	s := newService(t, "http://"+address, Config{})
	if _, _, err := complete(t, s, ask("tiny:1b")); wire.CodeOf(err) != wire.LocalLLMFailed || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
	if got, err := s.Models(t.Context()); err == nil || len(got) != 0 {
		t.Error(got, err)
	}
}

func TestModelNotAvailable(t *testing.T) {
	o := serve(t, func(c *chatCall) { c.delta("hi"); c.done("stop") })
	s := newService(t, o.URL, Config{})
	if got, err := s.Models(t.Context()); err != nil || strings.Join(got, " ") != "tiny:1b other:latest" {
		t.Fatal(got, err)
	}
	_, _, err := complete(t, s, ask("new:7b"))
	e := wire.AsError(err)
	if e.Code != wire.ModelNotAvailable || e.Details["requested_model"] != "new:7b" || fmt.Sprint(e.Details["available_models"]) != "[tiny:1b other:latest]" {
		t.Errorf("%v %v", err, e.Details)
	}
	if len(o.requests) != 0 {
		t.Error("asked for a model that isn't there")
	}
	if _, _, err := complete(t, s, ask("other")); err != nil { // means other:latest
		t.Error(err)
	}

	// A model that was pulled meanwhile is found at once.
	o.mu.Lock()
	o.tags = func(w http.ResponseWriter) { fmt.Fprint(w, `{"models":[{"name":"new:7b"}]}`) }
	o.mu.Unlock()
	if _, _, err := complete(t, s, ask("new:7b")); err != nil {
		t.Error(err)
	}
	o.mu.Lock()
	o.tags = func(w http.ResponseWriter) { fmt.Fprint(w, `{"models":[]}`) }
	o.mu.Unlock()
	_, _, err = complete(t, s, ask("tiny:1b"))
	if e := wire.AsError(err); e.Code != wire.ModelNotAvailable || fmt.Sprint(e.Details["available_models"]) != "[]" {
		t.Errorf("%v %v", err, e.Details)
	}
}

func TestModelsAreCached(t *testing.T) {
	o := serve(t, nil)
	o.tags = func(w http.ResponseWriter) {
		fmt.Fprint(w, `{"models":[{"name":"a:1"},{"name":""},{"name":"evil\u001b[2J"},{"name":"<b>"},{"name":"ü:2"}]}`)
	}
	s := newService(t, o.URL, Config{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if got, err := s.Models(t.Context()); err != nil || strings.Join(got, " ") != "a:1 ü:2" {
				t.Error(got, err)
			}
		})
	}
	wg.Wait()
	if o.probes != 1 {
		t.Errorf("%d probes for one HELLO's worth", o.probes)
	}
}

func TestProbeIsBounded(t *testing.T) {
	release := make(chan struct{})
	o := serve(t, nil)
	o.tags = func(w http.ResponseWriter) { <-release }
	defer close(release)
	s := newService(t, o.URL, Config{})
	start := time.Now()
	// Ten seconds more, since the machine may be busy.
	if _, err := s.Models(t.Context()); err == nil || time.Since(start) > probeTimeout+10*time.Second {
		t.Errorf("%v after %v", err, time.Since(start))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.models.probe(ctx, s, true); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestBusy(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	o := serve(t, func(c *chatCall) {
		close(started)
		<-release
		c.done("stop")
	})
	s := newService(t, o.URL, Config{})
	first := make(chan error)
	go func() {
		_, _, err := s.Complete(t.Context(), ask("tiny:1b"), func(wire.LocalLLMChunk) error { return nil })
		first <- err
	}()
	<-started
	if _, _, err := complete(t, s, ask("tiny:1b")); wire.CodeOf(err) != wire.LocalLLMBusy {
		t.Errorf("second: %v", err)
	}
	close(release)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// A request that nobody waits for any more must not keep the server busy.
func TestCancelStopsTheServer(t *testing.T) {
	leak.Check(t)
	started, stopped := make(chan struct{}), make(chan struct{})
	o := serve(t, func(c *chatCall) {
		c.delta("Hel")
		close(started)
		<-c.r.Context().Done()
		close(stopped)
	})
	s := newService(t, o.URL, Config{})
	lost := errors.New("link lost")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-started
		cancel(lost)
	}()
	_, _, err := s.Complete(ctx, ask("tiny:1b"), func(wire.LocalLLMChunk) error { return nil })
	if !errors.Is(err, lost) {
		t.Error(err)
	}
	<-stopped
	o.Close()
}

func TestEmitFails(t *testing.T) {
	stopped := make(chan struct{})
	o := serve(t, func(c *chatCall) {
		c.delta("Hel")
		<-c.r.Context().Done()
		close(stopped)
	})
	s := newService(t, o.URL, Config{})
	broken := errors.New("socket closed")
	calls := 0
	_, _, err := s.Complete(t.Context(), ask("tiny:1b"), func(wire.LocalLLMChunk) error { calls++; return broken })
	if err != broken || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	<-stopped
}

func TestTimeouts(t *testing.T) {
	hold := func(c *chatCall) { <-c.r.Context().Done() }
	for _, c := range []struct {
		name   string
		chat   func(*chatCall)
		config Config
		want   string
	}{
		{"load", hold, Config{LoadTimeout: 50 * time.Millisecond}, "the first token did not come within 50ms"},
		{"token", func(c *chatCall) { c.delta("x"); hold(c) }, Config{TokenTimeout: 50 * time.Millisecond}, "the next token did not come within 50ms"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newService(t, serve(t, c.chat).URL, c.config)
			_, _, err := complete(t, s, ask("tiny:1b"))
			if e := wire.AsError(err); e.Code != wire.LocalLLMFailed || e.Details["backend_error"] != c.want {
				t.Errorf("%v %v", err, e.Details)
			}
		})
	}
}

// A receiver that is slow isn't a server that is silent.
func TestSlowReceiver(t *testing.T) {
	o := serve(t, func(c *chatCall) { c.delta("a"); c.delta("b"); c.done("stop") })
	s := newService(t, o.URL, Config{TokenTimeout: 300 * time.Millisecond})
	response, _, err := s.Complete(t.Context(), ask("tiny:1b"), func(wire.LocalLLMChunk) error {
		<-time.NewTimer(400 * time.Millisecond).C // longer than the timeout on purpose
		return nil
	})
	if err != nil || response.Content != "ab" {
		t.Errorf("%+v, %v", response, err)
	}
}

func TestThinking(t *testing.T) {
	t.Run("in its own field", func(t *testing.T) {
		s := newService(t, serve(t, func(c *chatCall) {
			c.line(`{"message":{"role":"assistant","content":"","thinking":"hmm"},"done":false}`)
			c.delta("42")
			c.done("stop")
		}).URL, Config{})
		if _, chunks, err := complete(t, s, ask("tiny:1b")); err != nil || chunks != `"42" ""!stop` {
			t.Errorf("%s, %v", chunks, err)
		}
	})
	t.Run("counts as progress", func(t *testing.T) {
		s := newService(t, serve(t, func(c *chatCall) {
			for range 4 {
				c.line(`{"message":{"role":"assistant","content":"","thinking":"hmm"},"done":false}`)
				<-time.NewTimer(300 * time.Millisecond).C // altogether longer than the timeout
			}
			c.done("stop")
		}).URL, Config{LoadTimeout: time.Second, TokenTimeout: time.Second})
		if _, _, err := complete(t, s, ask("tiny:1b")); err != nil {
			t.Error(err)
		}
	})
	t.Run("in the text of old servers", func(t *testing.T) {
		s := newService(t, serve(t, func(c *chatCall) {
			for _, d := range []string{"<th", "ink>\nlet me", " see </thi", "nk>\n", "\n4", "2 <think>"} {
				c.delta(d)
			}
			c.done("stop")
		}).URL, Config{})
		response, chunks, err := complete(t, s, ask("tiny:1b"))
		if err != nil || response.Content != "42 <think>" || chunks != `"4" "2 <think>" ""!stop` {
			t.Errorf("%q, %s, %v", response.Content, chunks, err)
		}
	})
	t.Run("server refuses the option", func(t *testing.T) {
		o := serve(t, func(c *chatCall) {
			if _, has := c.request["think"]; has {
				c.WriteHeader(400)
				fmt.Fprint(c, `{"error":"\"tiny:1b\" does not support thinking"}`)
				return
			}
			c.delta("ok")
			c.done("stop")
		})
		s := newService(t, o.URL, Config{})
		if response, _, err := complete(t, s, ask("tiny:1b")); err != nil || response.Content != "ok" || len(o.requests) != 2 {
			t.Errorf("%+v, %v", response, err)
		}
	})
}

func TestOutputIsBounded(t *testing.T) {
	stopped := make(chan struct{})
	o := serve(t, func(c *chatCall) {
		defer close(stopped)
		for piece := strings.Repeat("é", 50_000); c.r.Context().Err() == nil; {
			c.delta(piece)
		}
	})
	s := newService(t, o.URL, Config{})
	total := 0
	var last wire.LocalLLMChunk
	response, _, err := s.Complete(t.Context(), ask("tiny:1b"), func(c wire.LocalLLMChunk) error {
		total += len(c.Delta)
		last = c
		return nil
	})
	if err != nil || response.FinishReason != "length" || last.FinishReason == nil || *last.FinishReason != "length" {
		t.Fatalf("%s, %v", response.FinishReason, err)
	}
	if n := len(response.Content); n > wire.MaxText || n < wire.MaxText-4 || n != total || !utf8.ValidString(response.Content) {
		t.Errorf("%d bytes in the response, %d in chunks", n, total)
	}
	<-stopped
}

func TestInvalidRequests(t *testing.T) {
	o := serve(t, nil)
	s := newService(t, o.URL, Config{})
	zero, minus, two := 0, -0.5, 2.0
	for reason, change := range map[string]func(*wire.LocalLLMCompletion){
		"invalid_model":       func(r *wire.LocalLLMCompletion) { r.Model = "" },
		"no_messages":         func(r *wire.LocalLLMCompletion) { r.Messages[0].Role = "tool" },
		"invalid_max_tokens":  func(r *wire.LocalLLMCompletion) { r.MaxTokens = &zero },
		"invalid_temperature": func(r *wire.LocalLLMCompletion) { r.Temperature = &minus },
		"invalid_top_p":       func(r *wire.LocalLLMCompletion) { r.TopP = &two },
	} {
		req := ask("tiny:1b")
		change(&req)
		_, _, err := complete(t, s, req)
		if e := wire.AsError(err); e.Code != wire.InternalError || e.Details["reason"] != reason {
			t.Errorf("%s: %v %v", reason, err, e.Details)
		}
	}
	if o.probes != 0 {
		t.Error("asked the server about nonsense")
	}
}

func TestNew(t *testing.T) {
	for _, bad := range []string{"localhost:11434", "unix:///x", "http://", "http://a b"} {
		if _, err := New(Config{URL: bad}); err == nil {
			t.Errorf("took %q", bad)
		}
	}
	if _, err := New(Config{}); err != nil {
		t.Error(err)
	}
}

// However an answer is cut into pieces, what comes out is the same.
func FuzzThink(f *testing.F) {
	f.Add("<think>a</think>\nb", uint8(3))
	f.Add("  <think>", uint8(1))
	f.Add("<thin", uint8(1))
	f.Add("a<think>b</think>", uint8(2))
	f.Add("<think></think></think>", uint8(1))
	f.Fuzz(func(t *testing.T, s string, size uint8) {
		if len(s) >= maxHeld {
			return
		}
		filter := func(size int) (answer, thoughts string) {
			var f thinkFilter
			take := func(a, t string) { answer, thoughts = answer+a, thoughts+t }
			for rest := s; rest != ""; {
				n := min(size, len(rest))
				take(f.feed(rest[:n]))
				rest = rest[n:]
			}
			take(f.end())
			return answer, thoughts
		}
		want, wantThoughts := filter(len(s))
		got, thoughts := filter(int(size%16) + 1)
		if got != want || thoughts != wantThoughts {
			t.Errorf("%q in pieces of %d: %q thinking %q, whole: %q thinking %q", s, size%16+1, got, thoughts, want, wantThoughts)
		}
		if !strings.HasPrefix(strings.TrimLeft(s, space), thinkOpen) && want != s {
			t.Errorf("%q became %q", s, want)
		}
	})
}
