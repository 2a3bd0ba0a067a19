package mcp

import (
	"encoding/json"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/jsonschema-go/jsonschema"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"farhand/wire"
)

// A reader that knows nothing else must be able to use a tool by what it says.
func TestToolsExplainThemselves(t *testing.T) {
	doc, err := os.ReadFile("../docs/mcp.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, one := range tools() {
		if seen[one.Name] || !regexp.MustCompile(`^[a-z0-9]+(_[a-z0-9]+)*$`).MatchString(one.Name) {
			t.Errorf("%s: a bad name, or one that is there twice", one.Name)
		}
		seen[one.Name] = true
		if !strings.Contains(string(doc), "`"+one.Name+"`") {
			t.Errorf("docs/mcp.md doesn't tell of %s", one.Name)
		}
		if len(one.Description) < 40 || !strings.HasSuffix(one.Description, ".") {
			t.Errorf("%s says of itself: %q", one.Name, one.Description)
		}
		explained(t, one.Name, one.InputSchema.(*jsonschema.Schema))
		sound(t, one.Name, one.OutputSchema.(*jsonschema.Schema))
		a := one.Annotations
		if a.ReadOnlyHint && *a.DestructiveHint || a.OpenWorldHint == nil {
			t.Errorf("%s: annotations %+v", one.Name, a)
		}
	}
	for _, m := range regexp.MustCompile("`([a-z0-9]+_[a-z0-9_]+)`").FindAllStringSubmatch(string(doc), -1) {
		if name := m[1]; !seen[name] && !strings.HasPrefix(name, "hardware_") && name != "local_llm" && name != "on_release" {
			t.Errorf("docs/mcp.md tells of %s, which there isn't", name)
		}
	}
}

// explained checks that every argument says what it is.
func explained(t *testing.T, where string, s *jsonschema.Schema) {
	t.Helper()
	sound(t, where, s)
	for name, p := range s.Properties {
		if p.Description == "" && p.Enum == nil && p.Type != "boolean" && p.Default == nil && (p.Items == nil || p.Items.Enum == nil) &&
			p.Minimum == nil && name != "content" {
			t.Errorf("%s: %s isn't explained", where, name)
		}
		if p.Items != nil && p.Items.Type == "object" {
			explained(t, where+" "+name, p.Items)
		}
	}
}

// sound checks what clients stumble over: types that may be null, and objects that
// may have more than they say.
func sound(t *testing.T, where string, s *jsonschema.Schema) {
	t.Helper()
	if s.Type == "" || len(s.Types) > 0 {
		t.Errorf("%s: type %q or one of %q", where, s.Type, s.Types)
	}
	for name, p := range s.Properties {
		sound(t, where+" "+name, p)
	}
	if s.Items != nil {
		sound(t, where+" item", s.Items)
	}
}

var update = flag.Bool("update", false, "write testdata/tools.json anew")

// What agents are shown of the tools, all of it: a change of a name, of a schema or
// of what a tool says about itself is one that agents notice.
func TestToolsAreAsBefore(t *testing.T) {
	type shown struct {
		*sdk.Tool
		Needs wire.Capability `json:"needs_capability,omitempty"`
		Here  bool            `json:"needs_local_root,omitempty"`
	}
	var all []shown
	for _, one := range tools() {
		all = append(all, shown{one.Tool, one.needs, one.here})
	}
	got, err := json.MarshalIndent(all, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile("testdata/tools.json", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/tools.json")
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("(-want +got; -update writes it anew):\n%s", d)
	}
}

type sample struct {
	Need  string   `json:"need" length:"1..3"`
	Kind  string   `json:"kind,omitempty" enum:"in,out" default:"\"in\""`
	Share float64  `json:"share,omitempty" range:"0..100"`
	Bytes []int    `json:"bytes,omitempty" range:"0..255" length:"1..2"`
	Flag  *bool    `json:"flag,omitempty"`
	Deep  []sample `json:"-"`
}

func TestArguments(t *testing.T) {
	resolved, err := schemaOf[sample]().Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		t.Fatal(err)
	}
	var in sample
	if err := decode(resolved, []byte(`{"need": "x", "share": null, "bytes": [1, 255]}`), &in); err != nil || in.Kind != "in" || in.Bytes[1] != 255 {
		t.Errorf("%+v, %v", in, err)
	}
	for _, bad := range []string{
		``, `{}`, `[]`, `null`, `{"need": ""}`, `{"need": "long"}`, `{"need": 1}`, `{"need": "x", "kind": "sideways"}`, `{"need": "x", "share": 101}`,
		`{"need": "x", "bytes": [256]}`, `{"need": "x", "bytes": []}`, `{"need": "x", "other": 1}`, `{"need": "x", "flag": "yes"}`, `{"need"`,
	} {
		var in sample
		if err := decode(resolved, []byte(bad), &in); wire.CodeOf(err) != wire.InvalidArgument {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

func TestEdits(t *testing.T) {
	for _, c := range []struct {
		edits string
		want  string
		n     int
	}{
		{`[{"old_text": "b", "new_text": "B"}]`, "aBca", 1},
		{`[{"old_text": "a", "new_text": "x", "replace_all": true}]`, "xbcx", 2},
		{`[{"old_text": "b", "new_text": "d"}, {"old_text": "d", "new_text": ""}]`, "aca", 2},
		{`[{"old_text": "a", "new_text": "x"}]`, "", 0},
		{`[{"old_text": "z", "new_text": "x"}]`, "", 0},
	} {
		var edits []edit
		if err := json.Unmarshal([]byte(c.edits), &edits); err != nil {
			t.Fatal(err)
		}
		got, n, err := apply("abca", edits)
		if got != c.want || n != c.n || (err == nil) != (c.n > 0) {
			t.Errorf("%s: %q, %d, %v", c.edits, got, n, err)
		}
	}
}

func TestShorten(t *testing.T) {
	if got, cut := shorten("äöüäöüäöüäöü", 8); !cut || !utf8.ValidString(got) || !strings.HasPrefix(got, "äö\n[… 16 bytes") || !strings.HasSuffix(got, "\nöü") {
		t.Errorf("%q, %t", got, cut)
	}
	if got, cut := shorten("short", 5); cut || got != "short" {
		t.Errorf("%q, %t", got, cut)
	}
}

func TestCutRune(t *testing.T) {
	for text, want := range map[string]int{"": 0, "a": 0, "ä": 0, "a\xc3": 1, "\xe2\x82": 2, "\xf0\x9f\x98": 3, "\x80\x80\x80\x80": 0} {
		if got := cutRune([]byte(text)); got != want {
			t.Errorf("% x: %d, want %d", text, got, want)
		}
	}
}

func FuzzHex(f *testing.F) {
	for _, s := range []string{"", "9f", "0x9f,de:ad", "9f 0", "zz", "0x", "9f\n00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		b, err := hexBytes("data", s)
		if err != nil {
			if wire.CodeOf(err) != wire.InvalidArgument {
				t.Fatal(err)
			}
			return
		}
		again, err := hexBytes("data", hexText(b))
		if err != nil || string(again) != string(b) {
			t.Fatalf("% x comes back as % x, %v", b, again, err)
		}
	})
}

func FuzzResourceURI(f *testing.F) {
	for _, s := range []string{machinesURI, "farhand://pi/devices", "farhand://pi/files//etc/a%20b", "farhand://%zz/devices", "http://x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		machine, _, _, ok := parseURI(s)
		if ok && (machine == "" || !strings.HasPrefix(s, scheme)) {
			t.Fatalf("%q is read as machine %q", s, machine)
		}
	})
}
