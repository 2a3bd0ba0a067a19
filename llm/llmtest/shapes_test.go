package llmtest

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write what a real Ollama answers into testdata")

func record(t *testing.T, base, registry string) []byte {
	t.Helper()
	all, err := Record(t.Context(), base, registry)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "\t")
	if err := e.Encode(all); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func compare(t *testing.T, got []byte) {
	t.Helper()
	if d := cmp.Diff(string(recorded), string(got)); d != "" {
		t.Errorf("it answers otherwise than was recorded (-recorded +answered):\n%s", d)
	}
}

// A real Ollama answers as it did when it was recorded: the server of tests is
// still like it.
func TestRealShapes(t *testing.T) {
	got := record(t, StartReal(t), startRegistry(t))
	if *update {
		if err := os.WriteFile("testdata/ollama.json", got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	compare(t, got)
}

// And so does the server of tests.
func TestShapes(t *testing.T) {
	compare(t, record(t, Start(t, Tiny, Endless).URL, "registry.invalid"))
}
