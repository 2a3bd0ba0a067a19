package llm

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"farhand/internal/leak"
	"farhand/wire"
)

// events is a server of OpenAI's API that answers each chat with these lines.
func events(t *testing.T, lines ...string) *Service {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, `{"object":"list","data":[{"id":"tiny:1b","object":"model"}]}`)
	})
	mux.HandleFunc("POST /v1/chat/completions", func(w http.ResponseWriter, r *http.Request) {
		var request map[string]any
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil || request["stream"] != true || request["model"] != "tiny:1b" {
			t.Errorf("request %v, %v", request, err)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		for _, line := range lines {
			fmt.Fprintf(w, "%s\n\n", line)
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return newService(t, server.URL, Config{Kind: KindOpenAI})
}

func TestOpenAI(t *testing.T) {
	leak.Check(t)
	s := events(t,
		`data: {"choices":[{"index":0,"delta":{"role":"assistant","content":null},"finish_reason":null}]}`,
		`: a comment`,
		`data: {"choices":[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}]}`,
		`data: {"choices":[{"index":0,"delta":{"reasoning":"m"},"finish_reason":null}]}`,
		`data: {"choices":[{"index":0,"delta":{"content":"Hello"},"finish_reason":null}]}`,
		`data:{"choices":[{"index":0,"delta":{"content":" world"},"finish_reason":null}]}`,
		`data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}`,
		`data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":10,"total_tokens":17},"timings":{"prompt_ms":100,"predicted_ms":2000}}`,
		`data: [DONE]`)
	got, chunks, err := complete(t, s, ask("tiny:1b"))
	if err != nil || chunks != `"Hello" " world" ""!length` || *got.Tokens.Total != 17 || got.Thinking != "" {
		t.Errorf("%s, %+v, %v", chunks, got, err)
	}
	if speed := s.speeds.of("tiny:1b"); speed != 5 {
		t.Errorf("%v tokens/s", speed)
	}
	if got, _, err = complete(t, s, extendedAsk("tiny:1b")); err != nil || got.Thinking != "hmm" || got.Timings.TokensPerSecond != 5 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestOpenAIFails(t *testing.T) {
	hello := `data: {"choices":[{"delta":{"content":"Hel"},"finish_reason":null}]}`
	for name, c := range map[string]struct {
		lines          []string
		reason, chunks string
	}{
		"truncated":        {[]string{hello}, "truncated", `"Hel"`},
		"done without end": {[]string{hello, "data: [DONE]"}, "truncated", `"Hel"`},
		"error event":      {[]string{hello, `data: {"error":{"message":"out of memory","code":500}}`}, "backend_error", `"Hel"`},
		"error line":       {[]string{hello, `error: {"message":"out of memory"}`}, "backend_error", `"Hel"`},
		"not JSON":         {[]string{"data: <html>"}, "backend_error", ""},
		"nothing":          {nil, "truncated", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, chunks, err := complete(t, events(t, c.lines...), ask("tiny:1b"))
			e := wire.AsError(err)
			if e.Code != wire.LocalLLMFailed || e.Details["reason"] != c.reason || chunks != c.chunks {
				t.Errorf("%v %v, chunks %s", err, e.Details, chunks)
			}
			if strings.Contains(name, "error") && e.Details["backend_error"] != "out of memory" {
				t.Errorf("backend_error %q", e.Details["backend_error"])
			}
		})
	}
}

// A server that goes in the middle of an answer left it truncated, in whichever way.
func TestOpenAIGoes(t *testing.T) {
	for name, leave := range map[string]func(net.Conn){
		"in the middle of a piece": func(c net.Conn) { fmt.Fprint(c, "100\r\ndata: {") },
		"between pieces":           func(net.Conn) {},
		"with a reset":             func(c net.Conn) { _ = c.(*net.TCPConn).SetLinger(0) },
	} {
		t.Run(name, func(t *testing.T) {
			began := make(chan struct{})
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/models" {
					fmt.Fprint(w, `{"data":[{"id":"tiny:1b"}]}`)
					return
				}
				fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"Hel\"},\"finish_reason\":null}]}\n\n")
				w.(http.Flusher).Flush()
				<-began
				conn, _, err := w.(http.Hijacker).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				leave(conn)
				conn.Close()
			}))
			t.Cleanup(server.Close)
			s := newService(t, server.URL, Config{Kind: KindOpenAI})
			_, _, err := s.Complete(t.Context(), ask("tiny:1b"), func(wire.LocalLLMChunk) error {
				close(began)
				return nil
			})
			if e := wire.AsError(err); e.Code != wire.LocalLLMFailed || e.Details["reason"] != "truncated" {
				t.Errorf("%v %v", err, e.Details)
			}
		})
	}
}

// A server that is still loading the model says 503 meanwhile.
func TestOpenAILoading(t *testing.T) {
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/v1/models":
			fmt.Fprint(w, `{"data":[{"id":"tiny:1b"}]}`)
		case asked.Add(1) == 1:
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprint(w, `{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}`)
		default:
			fmt.Fprint(w, "data: {\"choices\":[{\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n")
		}
	}))
	t.Cleanup(server.Close)
	s := newService(t, server.URL, Config{Kind: KindOpenAI})
	if got, _, err := complete(t, s, ask("tiny:1b")); err != nil || got.Content != "ok" || asked.Load() != 2 {
		t.Errorf("%+v after %d requests, %v", got, asked.Load(), err)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add("data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n")
	f.Add("error: {}\n")
	f.Add("data: {\"error\":7}\r\n")
	f.Fuzz(func(t *testing.T, text string) {
		done := false
		err := readEvents(strings.NewReader(text), func(p piece) error {
			if done {
				t.Error("a piece after the last")
			}
			done = p.done
			return nil
		})
		if (err == nil) != done {
			t.Errorf("done %v, %v", done, err)
		}
	})
}
