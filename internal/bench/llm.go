package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"farhand/wire"
)

const (
	// An answer is this many tokens, at a pace that no board reaches.
	answerTokens = 400
	tokenPace    = time.Millisecond
	modelRounds  = 15
	modelWarmUp  = 2
)

// benchLLM measures what the daemon adds between a model's server and whoever
// asks: until the first token, and over a whole answer.
func benchLLM(ctx context.Context, bin, dir string) ([]bar, error) {
	server, err := self("-role", "model")
	if err != nil {
		return nil, err
	}
	defer server.stop()
	line, err := server.line("http://")
	if err != nil {
		return nil, err
	}
	d, err := newDaemonBench(bin, dir, fmt.Sprintf("llm.enabled = true\nllm.url = %q\n", line), wire.LocalLLM)
	if err != nil {
		return nil, err
	}
	defer d.server.Close()
	return d.withPeer(ctx, func(_ *program, data, _ *socket) ([]bar, error) {
		var first, bareFirst []time.Duration
		var ratios []float64
		for round := range modelRounds + modelWarmUp {
			ours, err := throughDaemon(data)
			if err != nil {
				return nil, fmt.Errorf("a completion by the daemon: %w", err)
			}
			bare, err := straight(ctx, line)
			if err != nil {
				return nil, fmt.Errorf("a completion by the server: %w", err)
			}
			if round < modelWarmUp {
				continue
			}
			first, bareFirst = append(first, ours.first), append(bareFirst, bare.first)
			ratios = append(ratios, bare.all.Seconds()/ours.all.Seconds())
		}
		added := median(first) - median(bareFirst)
		fmt.Printf("%-16s ours %10s  bare %10s\n", "llm_first_token", median(first), median(bareFirst))
		fmt.Printf("%-16s %d tokens, %s each: ratio %.3f\n", "llm_throughput", answerTokens, tokenPace, median(ratios))
		return []bar{
			{name: "llm_first_token", value: float64(added) / float64(time.Millisecond), limit: 2, unit: "ms, more than a direct client"},
			{name: "llm_throughput", value: median(ratios), limit: 0.95, floor: true},
		}, nil
	})
}

// answerTimes are those of one answer: until its first token, and in all.
type answerTimes struct{ first, all time.Duration }

func throughDaemon(data *socket) (t answerTimes, err error) {
	frame := request(wire.TLocalLLMCompletion, map[string]any{
		"model": "tiny:1b", "messages": []map[string]string{{"role": "user", "content": "Hello"}},
	})()
	begin := time.Now()
	b, err := data.roundTrip(frame)
	for ; err == nil; b, err = data.read() {
		head := b[:min(len(b), 200)]
		switch {
		case bytes.Contains(head, []byte(`"type":"LOCAL_LLM_COMPLETION_CHUNK"`)):
			if t.first == 0 {
				t.first = time.Since(begin)
			}
		case bytes.Contains(head, []byte(`"type":"LOCAL_LLM_COMPLETION_RESPONSE"`)):
			t.all = time.Since(begin)
			return t, nil
		case !bytes.Contains(head, []byte(`"type":"STATUS"`)):
			return t, fmt.Errorf("got %s", head)
		}
	}
	return t, err
}

func straight(ctx context.Context, url string) (t answerTimes, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/api/chat",
		strings.NewReader(`{"model":"tiny:1b","messages":[{"role":"user","content":"Hello"}],"stream":true}`))
	if err != nil {
		return t, err
	}
	begin := time.Now()
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return t, err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		if t.first == 0 {
			t.first = time.Since(begin)
		}
	}
	t.all = time.Since(begin)
	return t, lines.Err()
}

// model is a server that answers as Ollama does, at a steady pace.
func model(ctx context.Context) error {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /api/tags", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"models":[{"name":"tiny:1b"}]}`) })
	mux.HandleFunc("GET /api/ps", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"models":[{"name":"tiny:1b"}]}`) })
	mux.HandleFunc("POST /api/chat", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		pace := time.NewTicker(tokenPace)
		defer pace.Stop()
		for range answerTokens {
			select {
			case <-pace.C:
			case <-r.Context().Done():
				return
			}
			fmt.Fprintln(w, `{"model":"tiny:1b","created_at":"2026-05-01T12:00:00Z","message":{"role":"assistant","content":" word"},"done":false}`)
			w.(http.Flusher).Flush()
		}
		fmt.Fprintf(w, `{"model":"tiny:1b","message":{"role":"assistant","content":""},"done":true,"done_reason":"stop","eval_count":%d}`+"\n", answerTokens)
	})
	fmt.Printf("http://%s\n", l.Addr())
	server := &http.Server{Handler: mux}
	context.AfterFunc(ctx, func() { server.Close() })
	return server.Serve(l)
}
