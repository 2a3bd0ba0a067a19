package wire

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestSerialPatterns is every way to write what is expected.
func TestSerialPatterns(t *testing.T) {
	for in, want := range map[string]SerialPatterns{
		`"login: "`:                          {{Text: "login: "}},
		` {"regexp":"a+","name":"n"}`:        {{Regexp: "a+", Name: "n"}},
		`["a", {"data":"AP8=","stop":true}]`: {{Text: "a"}, {Data: []byte{0, 0xff}, Stop: true}},
		`[{"text":"a","unknown":1}]`:         {{Text: "a"}},
		`null`:                               nil,
		`[]`:                                 {},
	} {
		var got SerialPatterns
		if err := json.Unmarshal([]byte(in), &got); err != nil {
			t.Errorf("%s: %v", in, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", in, diff)
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		var back SerialPatterns
		if err := json.Unmarshal(again, &back); err != nil || !cmp.Equal(got, back) {
			t.Errorf("%s becomes %s and then %v, %v", in, again, back, err)
		}
	}
	for _, bad := range []string{`7`, `[7]`, `true`, `{"data":"!"}`, `[["a"]]`} {
		var got SerialPatterns
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s is taken as %v", bad, got)
		}
	}
}
