package llmtest

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

// Exchange is one request and what Ollama answers to it, in the lines of a stream
// if it is one. What differs from run to run is replaced by a placeholder: <time>,
// <duration>, <bytes>, <digest>, <text>, <registry>, <256 numbers>. Lines that only
// tell progress of the same thing are one.
type Exchange struct {
	Name    string          `json:"name"`
	Method  string          `json:"method"`
	Path    string          `json:"path"`
	Body    json.RawMessage `json:"body,omitempty"` // as text if it is no JSON
	Status  int             `json:"status"`
	Type    string          `json:"type,omitempty"` // Content-Type of an answer that has something
	Answers []any           `json:"answers"`
}

//go:embed testdata/ollama.json
var recorded []byte

// Recorded are the exchanges with a real Ollama that Server answers by.
func Recorded() ([]Exchange, error) {
	var all []Exchange
	if err := json.Unmarshal(recorded, &all); err != nil {
		return nil, fmt.Errorf("testdata/ollama.json: %w", err)
	}
	return all, nil
}

// Names of the exchanges.
const (
	xVersion       = "version"
	xTags          = "models"
	xNoneLoaded    = "nothing in memory"
	xShow          = "describe"
	xShowUnknown   = "describe an unknown one"
	xLoad          = "load"
	xLoaded        = "one in memory"
	xChat          = "chat"
	xCut           = "chat, cut short"
	xWhole         = "chat in one piece"
	xThink         = "chat with thoughts"
	xChatUnknown   = "chat with an unknown one"
	xMalformed     = "chat, malformed"
	xUnload        = "unload"
	xUnloadUnknown = "unload an unknown one"
	xEmbed         = "embed"
	xEmbedUnknown  = "embed with an unknown one"
	xPull          = "pull"
	xPullUnknown   = "pull an unknown one"
	xPullNowhere   = "pull from nowhere"
	xCopy          = "copy"
	xCopyUnknown   = "copy an unknown one"
	xRemove        = "remove"
	xRemoveUnknown = "remove an unknown one"
)

// The models that a server has when its exchanges are recorded: one that says
// Sentence, and one that says it for ever.
const (
	Tiny    = "tiny:1b"
	Endless = "endless:1b"

	nobody = "nobody:70b"
)

type step struct{ name, method, path, body string }

// steps are in an order in which each finds what it needs.
var steps = []step{
	{xVersion, "GET", "/api/version", ""},
	{xTags, "GET", "/api/tags", ""},
	{xNoneLoaded, "GET", "/api/ps", ""},
	{xShow, "POST", "/api/show", `{"model":"tiny:1b"}`},
	{xShowUnknown, "POST", "/api/show", `{"model":"nobody:70b"}`},
	{xLoad, "POST", "/api/chat", `{"model":"tiny:1b","keep_alive":"10m","options":{"num_ctx":512}}`},
	{xLoaded, "GET", "/api/ps", ""},
	{xChat, "POST", "/api/chat", `{"model":"tiny:1b","messages":[{"role":"user","content":"Hello"}],"think":false,"keep_alive":"10m","options":{"num_ctx":512,"num_predict":100,"temperature":0,"top_p":1}}`},
	{xCut, "POST", "/api/chat", `{"model":"tiny:1b","messages":[{"role":"user","content":"Hello"}],"think":false,"keep_alive":"10m","options":{"num_ctx":512,"num_predict":3,"temperature":0,"top_p":1}}`},
	{xWhole, "POST", "/api/chat", `{"model":"tiny:1b","messages":[{"role":"user","content":"Hello"}],"stream":false,"think":false,"keep_alive":"10m","options":{"num_ctx":512,"num_predict":100,"temperature":0,"top_p":1}}`},
	{xThink, "POST", "/api/chat", `{"model":"tiny:1b","messages":[{"role":"user","content":"Hello"}],"think":true}`},
	{xChatUnknown, "POST", "/api/chat", `{"model":"nobody:70b","messages":[{"role":"user","content":"Hello"}]}`},
	{xMalformed, "POST", "/api/chat", `{"model":`},
	{xUnload, "POST", "/api/generate", `{"model":"tiny:1b","keep_alive":0}`},
	{xUnloadUnknown, "POST", "/api/generate", `{"model":"nobody:70b","keep_alive":0}`},
	{xEmbed, "POST", "/api/embed", `{"model":"tiny:1b","input":["four","seven!!"]}`},
	{xEmbedUnknown, "POST", "/api/embed", `{"model":"nobody:70b","input":["four"]}`},
	{xPull, "POST", "/api/pull", `{"model":"http://<registry>/library/new:1b","insecure":true}`},
	{xPullUnknown, "POST", "/api/pull", `{"model":"http://<registry>/library/nowhere:1b","insecure":true}`},
	{xPullNowhere, "POST", "/api/pull", `{"model":"http://127.0.0.1:1/library/new:1b","insecure":true}`},
	{xCopy, "POST", "/api/copy", `{"source":"tiny:1b","destination":"copy:1b"}`},
	{xCopyUnknown, "POST", "/api/copy", `{"source":"nobody:70b","destination":"copy:1b"}`},
	{xRemove, "DELETE", "/api/delete", `{"model":"copy:1b"}`},
	{xRemoveUnknown, "DELETE", "/api/delete", `{"model":"nobody:70b"}`},
}

// Record has the exchanges with a server that has the models Tiny and Endless, and
// none of them in memory. registry is host and port of a registry with a model
// library/new:1b and none named nowhere.
func Record(ctx context.Context, base, registry string) ([]Exchange, error) {
	var all []Exchange
	for _, s := range steps {
		x, err := s.do(ctx, base, registry)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.name, err)
		}
		all = append(all, x)
	}
	return all, nil
}

func (s step) do(ctx context.Context, base, registry string) (Exchange, error) {
	body := strings.ReplaceAll(s.body, "<registry>", registry)
	req, err := http.NewRequestWithContext(ctx, s.method, base+s.path, strings.NewReader(body))
	if err != nil {
		return Exchange{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return Exchange{}, err
	}
	defer resp.Body.Close()
	x := Exchange{Name: s.name, Method: s.method, Path: s.path, Status: resp.StatusCode, Answers: []any{}}
	if json.Valid([]byte(s.body)) {
		x.Body = json.RawMessage(s.body)
	} else if s.body != "" {
		x.Body, _ = json.Marshal(s.body)
	}
	lines := bufio.NewReader(resp.Body)
	for {
		line, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			var v any
			if e := json.Unmarshal(line, &v); e != nil {
				return Exchange{}, fmt.Errorf("line %q: %w", line, e)
			}
			x.add(normal(v, "", s.path, registry))
			x.Type = resp.Header.Get("Content-Type")
		}
		if errors.Is(err, io.EOF) {
			return x, nil
		}
		if err != nil {
			return Exchange{}, err
		}
	}
}

// add adds a line, or, if it tells how the same thing goes on, what it knows more.
func (x *Exchange) add(v any) {
	line, _ := v.(map[string]any)
	if n := len(x.Answers); n > 0 && line["digest"] != nil {
		last, _ := x.Answers[n-1].(map[string]any)
		if last["status"] == line["status"] && last["total"] == line["total"] {
			maps.Copy(last, line)
			return
		}
	}
	x.Answers = append(x.Answers, v)
}

// placeholders are what values of these keys become.
var placeholders = map[string]string{
	"created_at": "<time>", "modified_at": "<time>", "expires_at": "<time>",
	"total_duration": "<duration>", "load_duration": "<duration>", "prompt_eval_duration": "<duration>", "eval_duration": "<duration>",
	"digest": "<digest>", "completed": "<bytes>", "modelfile": "<text>", "parameters": "<text>", "parent_model": "<text>",
}

var layer = regexp.MustCompile(`^pulling [0-9a-f]{12}$`)

// long is how many numbers an array has that is replaced by how many they are.
const long = 16

// normal is a value of an answer without what differs from run to run.
func normal(v any, key, path, registry string) any {
	if p := placeholders[key]; p != "" {
		return p
	}
	switch v := v.(type) {
	case map[string]any:
		for k, x := range v {
			v[k] = normal(x, k, path, registry)
		}
	case []any:
		if len(v) > long && numbers(v) {
			return fmt.Sprintf("<%d numbers>", len(v))
		}
		for i, x := range v {
			v[i] = normal(x, "", path, registry)
		}
		if key == "models" { // by when they came, to the second
			slices.SortFunc(v, func(a, b any) int { return strings.Compare(nameOf(a), nameOf(b)) })
		}
	case string:
		if layer.MatchString(v) {
			return "pulling <digest>"
		}
		return strings.ReplaceAll(v, registry, "<registry>")
	case float64:
		if path == "/api/ps" && strings.HasPrefix(key, "size") { // what it takes in memory
			return "<bytes>"
		}
	}
	return v
}

func nameOf(model any) string {
	m, _ := model.(map[string]any)
	name, _ := m["name"].(string)
	return name
}

func numbers(list []any) bool {
	for _, x := range list {
		if _, ok := x.(float64); !ok {
			return false
		}
	}
	return true
}
