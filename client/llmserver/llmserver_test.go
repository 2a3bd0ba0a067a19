package llmserver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"farhand/wire"
)

// board is a machine whose model says what it is told to.
type board struct {
	chunks   []wire.LocalLLMChunk
	answer   wire.LocalLLMResponse
	err      error
	asked    wire.LocalLLMCompletion
	embedded int           // how often
	gone     chan struct{} // closed when a completion was given up; nil: none waits
	began    chan struct{} // closed when one begins, unless nil
}

func (b *board) Complete(ctx context.Context, req wire.LocalLLMCompletion, piece func(wire.LocalLLMChunk) error) (wire.LocalLLMResponse, error) {
	b.asked = req
	if b.began != nil {
		close(b.began)
	}
	for _, c := range b.chunks {
		if piece == nil {
			break
		}
		if err := piece(c); err != nil {
			return wire.LocalLLMResponse{}, err
		}
	}
	if b.gone != nil {
		<-ctx.Done()
		close(b.gone)
		return wire.LocalLLMResponse{}, ctx.Err()
	}
	return b.answer, b.err
}

func (b *board) LLM(context.Context) (wire.LLMStatus, error) {
	return wire.LLMStatus{Kind: "ollama", Models: []wire.LLMModel{{Name: "tiny:1b", Modified: 1712340000}, {Name: "last:latest"}}}, b.err
}

func (b *board) Embed(_ context.Context, r wire.LLMEmbed) (wire.LLMEmbeddings, error) {
	three := 3
	b.embedded++
	out := wire.LLMEmbeddings{Tokens: &three}
	for range r.Input {
		out.Embeddings = append(out.Embeddings, []float32{1, -0.5})
	}
	return out, b.err
}

func start(t *testing.T, b *board) string {
	t.Helper()
	server := httptest.NewServer(Handler(b))
	t.Cleanup(server.Close)
	return server.URL
}

func post(t *testing.T, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

func said(content string) wire.LocalLLMResponse {
	four, two, six := 4, 2, 6
	return wire.LocalLLMResponse{Content: content, FinishReason: "stop", Tokens: wire.LLMTokens{Prompt: &four, Completion: &two, Total: &six}}
}

func TestWhole(t *testing.T) {
	b := &board{answer: said("Hello")}
	status, text := post(t, start(t, b)+"/v1/chat/completions",
		`{"model":"tiny:1b","messages":[{"role":"developer","content":"Be brief."},{"role":"user","content":[{"type":"text","text":"Hi"}]}],"max_tokens":5,"temperature":0.5}`)
	var got completion
	if err := json.Unmarshal([]byte(text), &got); err != nil || status != 200 {
		t.Fatalf("%d %s %v", status, text, err)
	}
	if got.Object != "chat.completion" || got.Choices[0].Message.Content != "Hello" || *got.Choices[0].FinishReason != "stop" || *got.Usage != (usage{4, 2, 6}) {
		t.Errorf("%s", text)
	}
	if m := b.asked.Messages; len(m) != 2 || m[0].Role != "system" || m[1].Content != "Hi" || *b.asked.MaxTokens != 5 || *b.asked.Temperature != 0.5 || !b.asked.Wait || b.asked.Think != nil {
		t.Errorf("asked %+v", b.asked)
	}
}

func TestStream(t *testing.T) {
	stop := "stop"
	b := &board{
		chunks: []wire.LocalLLMChunk{{Waiting: 1}, {Thinking: "hm"}, {Delta: "Hel"}, {Delta: "lo"}, {FinishReason: &stop}},
		answer: said("Hello"),
	}
	status, text := post(t, start(t, b)+"/v1/chat/completions",
		`{"model":"tiny:1b","messages":[{"role":"user","content":"Hi"}],"stream":true,"stream_options":{"include_usage":true},"reasoning_effort":"low"}`)
	if status != 200 || !*b.asked.Think {
		t.Fatalf("%d, asked %+v", status, b.asked)
	}
	var content, thoughts, last string
	var counted *usage
	events := strings.Split(strings.TrimSuffix(text, "\n\n"), "\n\n")
	for _, e := range events {
		last = strings.TrimPrefix(e, "data: ")
		var c completion
		if json.Unmarshal([]byte(last), &c) != nil {
			continue
		}
		counted = c.Usage
		for _, choice := range c.Choices {
			if choice.Delta.Content != nil {
				content += *choice.Delta.Content
			}
			thoughts += choice.Delta.Reasoning
		}
	}
	if content != "Hello" || thoughts != "hm" || last != "[DONE]" || counted == nil || counted.Total != 6 || !strings.Contains(events[0], `"role":"assistant"`) {
		t.Errorf("%q thinking %q, %+v, last %q:\n%s", content, thoughts, counted, last, text)
	}
}

func TestErrors(t *testing.T) {
	ask := `{"model":"tiny:1b","messages":[{"role":"user","content":"Hi"}]%s}`
	for name, c := range map[string]struct {
		err    error
		body   string
		status int
		want   string
	}{
		"no such model": {wire.Errorf(wire.ModelNotAvailable, "no"), fmt.Sprintf(ask, ""), 404, "MODEL_NOT_AVAILABLE"},
		"busy":          {wire.Errorf(wire.LocalLLMBusy, "no"), fmt.Sprintf(ask, `,"stream":true`), 429, "LOCAL_LLM_BUSY"},
		"failed":        {wire.Errorf(wire.LocalLLMFailed, "no"), fmt.Sprintf(ask, ""), 502, "LOCAL_LLM_FAILED"},
		"not allowed":   {wire.Errorf(wire.CapabilityNotGranted, "no"), fmt.Sprintf(ask, ""), 403, "CAPABILITY_NOT_GRANTED"},
		"nonsense":      {wire.Errorf(wire.InternalError, "no").With("reason", "invalid_model"), fmt.Sprintf(ask, ""), 400, "invalid_request_error"},
		"not JSON":      {nil, `{`, 400, "can't be read"},
		"an image":      {nil, `{"messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, 400, "image_url"},
		"tools":         {nil, fmt.Sprintf(ask, `,"tools":[{}]`), 400, "tools"},
		"two answers":   {nil, fmt.Sprintf(ask, `,"n":2`), 400, "n must be 1"},
		"functions":     {nil, fmt.Sprintf(ask, `,"functions":[{}]`), 400, "tools"},
		"a schema":      {nil, fmt.Sprintf(ask, `,"response_format":{"type":"json_schema"}`), 400, "json_schema"},
		"probabilities": {nil, fmt.Sprintf(ask, `,"logprobs":true`), 400, "logprobs"},
		"an empty stop": {nil, fmt.Sprintf(ask, `,"stop":[""]`), 400, "stop may"},
		"a stop of 7":   {nil, fmt.Sprintf(ask, `,"stop":7`), 400, "a list of texts"},
		"no device":     {wire.Errorf(wire.ShimOverloaded, "no"), fmt.Sprintf(ask, ""), 429, "SHIM_OVERLOADED"},
		"too much":      {nil, `"` + strings.Repeat("x", maxRequest), 413, "bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := post(t, start(t, &board{err: c.err})+"/v1/chat/completions", c.body)
			if status != c.status || !strings.Contains(text, c.want) {
				t.Errorf("%d %s", status, text)
			}
		})
	}
	t.Run("in the middle", func(t *testing.T) {
		b := &board{chunks: []wire.LocalLLMChunk{{Delta: "Hel"}}, err: wire.Errorf(wire.LocalLLMFailed, "the board went dark")}
		status, text := post(t, start(t, b)+"/v1/chat/completions", fmt.Sprintf(ask, `,"stream":true`))
		if status != 200 || !strings.Contains(text, "the board went dark") || strings.Contains(text, "[DONE]") {
			t.Errorf("%d %s", status, text)
		}
	})
}

// What clients send that means nothing is no reason to refuse them.
func TestHarmless(t *testing.T) {
	b := &board{answer: said("Hello")}
	status, text := post(t, start(t, b)+"/v1/chat/completions", `{"model":"tiny:1b","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null}],
		"stop":null,"tools":[],"functions":null,"tool_choice":"none","response_format":{"type":"text"},"logprobs":null,"n":1,"max_tokens":null,"user":"x","seed":1,"stream":null,"stream_options":null}`)
	if status != 200 || !strings.Contains(text, "Hello") {
		t.Errorf("%d %s", status, text)
	}
	status, text = post(t, start(t, b)+"/v1/chat/completions", `{"model":"tiny:1b","messages":[{"role":"user","content":"Hi"}],"tools":[{}],"tool_choice":"none","max_tokens":-1}`)
	if status != 200 || b.asked.MaxTokens != nil {
		t.Errorf("%d %s, asked %+v", status, text, b.asked)
	}
}

// An answer ends before the first of the texts that end it, however it is cut into
// pieces, and the machine writes no more.
func TestStop(t *testing.T) {
	for _, c := range []struct{ answer, stop, want, reason string }{
		{"one two three", `"two"`, "one ", "stop"},
		{"one two three", `["three","two"]`, "one ", "stop"},
		{"one two three", `["four"]`, "one two three", "length"},
		{"one two thr", `["three"]`, "one two thr", "length"}, // held until it is over
		{"aaab", `["aab"]`, "a", "stop"},
		{"Question", `["Question"]`, "", "stop"},
		{"grün, größer", `["ß"]`, "grün, grö", "stop"},
	} {
		for size := 1; size <= 4; size++ {
			b := &board{answer: said(c.answer)}
			b.answer.FinishReason = "length"
			for rest := []rune(c.answer); len(rest) > 0; {
				n := min(size, len(rest))
				b.chunks = append(b.chunks, wire.LocalLLMChunk{Delta: string(rest[:n])})
				rest = rest[n:]
			}
			b.chunks = append(b.chunks, wire.LocalLLMChunk{FinishReason: &b.answer.FinishReason})
			url := start(t, b) + "/v1/chat/completions"
			ask := `{"model":"m","messages":[{"role":"user","content":"Hi"}],"stop":` + c.stop
			_, text := post(t, url, ask+`}`)
			var whole completion
			if !strings.Contains(text, `"content":`) { // which clients expect, empty or not
				t.Errorf("%q until %s: there is no content in %s", c.answer, c.stop, text)
			}
			if err := json.Unmarshal([]byte(text), &whole); err != nil || whole.Choices[0].Message.Content != c.want || *whole.Choices[0].FinishReason != c.reason {
				t.Errorf("%q until %s in pieces of %d: %s %v", c.answer, c.stop, size, text, err)
			}
			_, text = post(t, url, ask+`,"stream":true,"stream_options":{"include_usage":true}}`)
			if first, _, _ := strings.Cut(text, "\n"); !strings.Contains(first, `"role":"assistant","content":"`) {
				t.Errorf("%q until %s begins with %s", c.answer, c.stop, first)
			}
			if c.reason == "stop" && strings.Contains(text, `"choices":[]`) {
				t.Errorf("%q until %s: what nobody counted is told: %s", c.answer, c.stop, text)
			}
			got, reason := "", ""
			for e := range strings.SplitSeq(text, "\n\n") {
				var piece completion
				if json.Unmarshal([]byte(strings.TrimPrefix(e, "data: ")), &piece) != nil {
					continue
				}
				for _, choice := range piece.Choices {
					if choice.Delta.Content != nil {
						got += *choice.Delta.Content
					}
					if choice.FinishReason != nil {
						reason += *choice.FinishReason
					}
				}
			}
			if got != c.want || reason != c.reason || !strings.HasSuffix(text, "data: [DONE]\n\n") {
				t.Errorf("%q until %s in pieces of %d, streamed: %q, %q", c.answer, c.stop, size, got, reason)
			}
		}
	}
}

// Who hangs up stops the machine, also one that hasn't said anything yet, and if there
// was more of the request than needed to be read.
func TestHangUpBeforeTheAnswer(t *testing.T) {
	b := &board{gone: make(chan struct{}), began: make(chan struct{})}
	body := `{"model":"m","messages":[{"role":"user","content":"Hi"}]}` + strings.Repeat("\n", 100_000)
	conn, err := net.Dial("tcp", strings.TrimPrefix(start(t, b), "http://"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	<-b.began
	conn.Close()
	<-b.gone
}

func TestHangUp(t *testing.T) {
	b := &board{chunks: []wire.LocalLLMChunk{{Delta: "Hel"}}, gone: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, "POST", start(t, b)+"/v1/chat/completions",
		strings.NewReader(`{"model":"m","stream":true,"messages":[{"role":"user","content":"Hi"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	cancel()
	<-b.gone
}

func TestModelsAndEmbeddings(t *testing.T) {
	url := start(t, &board{})
	for path, want := range map[string]string{"/v1/models": `"id":"tiny:1b"`, "/v1/models/tiny:1b": `"object":"model"`, "/models": `"id":"tiny:1b"`, "/v1/models/none": "model_not_found",
		"/v1/models/tiny": "model_not_found", "/v1/models/last": `"id":"last:latest"`, "/v1/nothing": `"code":"not_found"`, "/": `"code":"not_found"`, "/v1/embeddings": `"code":"method_not_allowed"`} {
		resp, err := http.Get(url + path)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if !strings.Contains(string(text), want) {
			t.Errorf("%s gives %s", path, text)
		}
	}
	if _, text := post(t, url+"/v1/embeddings", `{"model":"m","input":["a","b"]}`); !strings.Contains(text, `"index":1`) || !strings.Contains(text, `[1,-0.5]`) || !strings.Contains(text, `"total_tokens":3`) {
		t.Error(text)
	}
	if _, text := post(t, url+"/v1/embeddings", `{"model":"m","input":"a","encoding_format":"base64"}`); !strings.Contains(text, `"AACAPwAAAL8="`) {
		t.Error(text)
	}
	many := func(n, size int) string {
		return strings.TrimSuffix(strings.Repeat(fmt.Sprintf("%q,", strings.Repeat("x", size)), n), ",")
	}
	for _, c := range []struct{ n, size, asked int }{{600, 1, 3}, {3, wire.MaxEmbedBytes / 2, 2}, {2, wire.MaxEmbedBytes, 2}} {
		b := &board{}
		_, text := post(t, start(t, b)+"/v1/embeddings", `{"model":"m","input":[`+many(c.n, c.size)+`]}`)
		var got struct {
			Data []struct{ Index int }
		}
		if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Data) != c.n || got.Data[c.n-1].Index != c.n-1 || b.embedded != c.asked {
			t.Errorf("%d inputs of %d: %d vectors, asked %d times, %v", c.n, c.size, len(got.Data), b.embedded, err)
		}
	}
	for _, bad := range []string{`[` + many(maxInputs+1, 1) + `]`, `7`, `[[1,2]]`, `"a","dimensions":64`, `"a","encoding_format":"int8"`} {
		if status, _ := post(t, url+"/v1/embeddings", `{"model":"m","input":`+bad+`}`); status != 400 {
			t.Errorf("%s gives %d", bad, status)
		}
	}
}

// A page that loopback itself serves may ask, and its browser hears so beforehand.
func TestPagesOfLoopback(t *testing.T) {
	url := start(t, &board{answer: said("Hello")})
	ask := func(method, path string, headers ...string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, url+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Origin", "http://localhost:3000")
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp
	}
	resp := ask("OPTIONS", "/v1/chat/completions", "Access-Control-Request-Method", "POST", "Access-Control-Request-Headers", "authorization,x-stainless-os")
	if h := resp.Header; resp.StatusCode != 204 || h.Get("Access-Control-Allow-Origin") != "http://localhost:3000" || h.Get("Access-Control-Allow-Headers") != "authorization,x-stainless-os" ||
		!strings.Contains(h.Get("Access-Control-Allow-Methods"), "POST") {
		t.Errorf("%d %v", resp.StatusCode, h)
	}
	if resp := ask("GET", "/v1/models"); resp.StatusCode != 200 || resp.Header.Get("Access-Control-Allow-Origin") != "http://localhost:3000" {
		t.Errorf("%d %v", resp.StatusCode, resp.Header)
	}
	if resp := ask("HEAD", "/v1/models"); resp.StatusCode != 200 {
		t.Errorf("HEAD: %d", resp.StatusCode)
	}
	if resp := ask("PUT", "/v1/chat/completions"); resp.StatusCode != 405 || !strings.Contains(resp.Header.Get("Allow"), "POST") {
		t.Errorf("PUT: %d %v", resp.StatusCode, resp.Header)
	}
}

// A page in a browser must not reach the model, by a name of its own or openly.
func TestWebPagesAreRefused(t *testing.T) {
	url := start(t, &board{})
	for _, change := range []func(*http.Request){
		func(r *http.Request) { r.Host = "evil.test:80" },
		func(r *http.Request) { r.Header.Set("Origin", "https://evil.test") },
		func(r *http.Request) { r.Header.Set("Origin", "null") },
		func(r *http.Request) { r.Method = "OPTIONS"; r.Header.Set("Origin", "http://localhost.evil.test") },
	} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", url+"/v1/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		change(r)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusForbidden {
			t.Errorf("host %q, origin %q: %d", r.Host, r.Header.Get("Origin"), resp.StatusCode)
		}
	}
}
