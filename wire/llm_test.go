package wire

import (
	"encoding/json"
	"errors"
	"testing"
)

// What a message of a role that isn't known holds is nobody's concern, and text may
// come in parts.
func TestLLMMessages(t *testing.T) {
	for _, c := range []struct{ in, role, content string }{
		{`{"role":"user","content":"Hi"}`, "user", "Hi"},
		{`{"role":"user","content":[{"type":"text","text":"H"},{"type":"text","text":"i"}]}`, "user", "Hi"},
		{`{"role":"assistant","content":null,"tool_calls":[{}]}`, "assistant", ""},
		{`{"role":"system"}`, "system", ""},
		{`{"role":"user","content":[]}`, "user", ""},
		{`{"role":"tool","content":[{"type":"image","source":{}}]}`, "tool", ""},
		{`{"role":"tool","content":7}`, "tool", ""},
		{`{"role":7,"content":"Hi"}`, "", ""},
		{`{"content":{"a":1}}`, "", ""},
		{`null`, "", ""},
	} {
		var r LocalLLMCompletion
		if err := Decode([]byte(`{"model":"m","messages":[`+c.in+`]}`), &r); err != nil || len(r.Messages) != 1 {
			t.Errorf("%s: %+v, %v", c.in, r, err)
		} else if m := r.Messages[0]; m.Role != c.role || m.Content != c.content {
			t.Errorf("%s is %+v", c.in, m)
		}
	}
	for _, in := range []string{`{"role":"user","content":7}`, `{"role":"user","content":{"text":"Hi"}}`, `{"role":"user","content":[{"type":"image_url"}]}`, `{"role":"user","content":[{"type":"text"}]}`, `7`} {
		var r LocalLLMCompletion
		if err := Decode([]byte(`{"model":"m","messages":[`+in+`]}`), &r); !errors.Is(err, InternalError) {
			t.Errorf("%s: %+v, %v", in, r, err)
		}
	}
	b, err := json.Marshal(LLMMessage{"user", "Hi"})
	if err != nil || string(b) != `{"role":"user","content":"Hi"}` {
		t.Errorf("%s, %v", b, err)
	}
}
