package device

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"farhand/wire"
)

func TestBadArgs(t *testing.T) {
	type args struct {
		Line int    `json:"line"`
		Data []byte `json:"data"`
	}
	for text, want := range map[string]string{
		`{"line":"secret"}`:  "line must not be a string",
		`{"data":"§secret"}`: "data is base64",
		`{secret}`:           "no valid JSON",
	} {
		err := BadArgs(json.Unmarshal([]byte(text), new(args)), "data is base64")
		if !errors.Is(err, wire.InvalidArgument) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	own := wire.Errorf(wire.InvalidArgument, "a line must be a number").With("field", "line")
	if BadArgs(own, "") != error(own) {
		t.Error("what says it already doesn't stay as it is")
	}
}
