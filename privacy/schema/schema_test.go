package schema

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"strings"
	"testing"

	"farhand/wire"
)

func previewOf(t testing.TB, content string, o Options) wire.SchemaPreview {
	t.Helper()
	p, err := Preview(t.Context(), strings.NewReader(content), int64(len(content)), o)
	if err != nil {
		t.Fatal(err)
	}
	if p.ScannedBytes != int64(len(content)) || !p.Complete {
		t.Errorf("%d of %d bytes were looked at, complete %v", p.ScannedBytes, len(content), p.Complete)
	}
	return p
}

func told(t testing.TB, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var csvFile = Options{MIMEType: "text/csv"}

// utf16le is what Windows calls Unicode text.
func utf16le(s string) string {
	b := []byte("\xff\xfe")
	for _, r := range s {
		b = append(b, byte(r), byte(r>>8))
	}
	return string(b)
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		name, content string
		o             Options
		want          string // without scanned_bytes and complete
	}{
		{"empty", "", csvFile, `{"kind":"empty"`},
		{"png", "\x89PNG\r\n\x1a\n....", Options{}, `{"kind":"image","format":"png"`},
		{"webp", "RIFF\x01\x02\x03\x04WEBPVP8 ", Options{}, `{"kind":"image","format":"webp"`},
		{"bmp", "BM1234\x00\x00\x00\x00\x36\x00\x00\x00", Options{}, `{"kind":"image","format":"bmp"`},
		{"text that begins like a picture", "BMW sells cars of its own", Options{}, `{"kind":"text","encoding":"utf-8","lines":1,"longest_line":25`},
		{"binary", "abc\x00def", csvFile, `{"kind":"binary"`},
		{"text", "one\ntwo three\r\n\rüäö", Options{}, `{"kind":"text","encoding":"utf-8","lines":4,"longest_line":9`},
		{"latin-1", "f\xfcr dich\n", Options{}, `{"kind":"text","encoding":"8-bit","lines":1,"longest_line":8`},
		{"utf-16", utf16le("für dich\nund mich"), Options{}, `{"kind":"text","encoding":"utf-16le","lines":2,"longest_line":8`},
		{"utf-16, odd", utf16le("zwei") + "x", Options{}, `{"kind":"text","encoding":"utf-16le","lines":1,"longest_line":4`},
		{"yaml", "a: 1\nb:\n  - 2\n", Options{MIMEType: "application/yaml"}, `{"kind":"text","encoding":"utf-8","lines":3,"longest_line":5`},
		{"prose", "Dear John,\nthank you, but no, thanks.\n", Options{}, `{"kind":"text","encoding":"utf-8","lines":2,"longest_line":26`},
		{"a log", "[12:30] begun\n[12:31] ended\n", Options{}, `{"kind":"text","encoding":"utf-8","lines":2,"longest_line":13`},

		{"json", `{"a":1,"b":[1,2.5,"x",null],"c":{"d":true}}`, Options{},
			`{"kind":"json","encoding":"utf-8","value":{"types":{"object":1},"members":[{"types":{"integer":1}},{"types":{"array":1},"elements":{"types":{"integer":1,"null":1,"number":1,"string":1}},"length":{"least":4,"most":4}},{"types":{"object":1},"members":[{"types":{"boolean":1}}],"size":{"least":1,"most":1}}],"size":{"least":3,"most":3}}`},
		{"json, named", `[{"id":1},{"id":"x","näme":null}]`, Options{Named: true},
			`{"kind":"json","encoding":"utf-8","value":{"types":{"array":1},"elements":{"types":{"object":2},"members":[{"name":"id","types":{"integer":1,"string":1}},{"name":"näme","types":{"null":1}}],"size":{"least":1,"most":2}},"length":{"least":2,"most":2}}`},
		{"a scalar", "12345678\n", Options{MIMEType: "application/json"}, `{"kind":"json","encoding":"utf-8","value":{"types":{"integer":1}}`},
		{"a scalar that nobody calls JSON", "12345678\n", Options{}, `{"kind":"text","encoding":"utf-8","lines":1,"longest_line":8`},
		{"json lines", "{\"a\":1}\n{\"a\":-2e3}\n\n", Options{},
			`{"kind":"json_lines","encoding":"utf-8","value":{"types":{"object":2},"members":[{"types":{"integer":1,"number":1}}],"size":{"least":1,"most":1}}`},
		{"json lines, one being written", "{\"a\":1}\n{\"a\":1}\n{\"a", Options{},
			`{"kind":"json_lines","encoding":"utf-8","value":{"types":{"object":3},"members":[{"types":{"integer":2}}],"size":{"least":0,"most":1}}`},
		{"two values on a line", `{} {}`, Options{}, `{"kind":"text","encoding":"utf-8","lines":1,"longest_line":5`},
		{"not quite json", `{"a":1,}`, Options{Named: true}, `{"kind":"text","encoding":"utf-8","lines":1,"longest_line":8`},
		{"cut json", `{"a":"secret`, Options{Named: true}, `{"kind":"text","encoding":"utf-8","lines":1,"longest_line":12`},
		{"json in utf-16", utf16le(`{"a":1}`), Options{Named: true},
			`{"kind":"json","encoding":"utf-16le","value":{"types":{"object":1},"members":[{"name":"a","types":{"integer":1}}],"size":{"least":1,"most":1}}`},

		{"csv", "name,age\nAda,36\nAlan,\"41\"\n\nBob,n/a\n", csvFile,
			`{"kind":"csv","encoding":"utf-8","table":{"delimiter":"comma","header":true,"rows":3,"uneven_rows":0,"width":2,"columns":[{"types":{"text":3}},{"types":{"empty":1,"integer":2}}]}`},
		{"csv, named", "\xef\xbb\xbfname;\"a \"\"b\"\"\"\r\nAda;1,5\r\n\"A\r\nB\";2,5", Options{MIMEType: "text/csv", Named: true},
			`{"kind":"csv","encoding":"utf-8","table":{"delimiter":"semicolon","header":true,"rows":2,"uneven_rows":0,"width":2,"columns":[{"name":"name","types":{"text":2}},{"name":"a \"b\"","types":{"number":2}}]}`},
		{"csv, named, but nothing tells a header", "Ada,London\nAlan,Manchester\nBob,Paris\n", Options{MIMEType: "text/csv", Named: true},
			`{"kind":"csv","encoding":"utf-8","table":{"delimiter":"comma","header":false,"rows":3,"uneven_rows":0,"width":2,"columns":[{"types":{"text":3}},{"types":{"text":3}}]}`},
		{"csv, named, whose first value is missing", "Ada,unknown\nAlan,41\nBob,7\n", Options{MIMEType: "text/csv", Named: true},
			`{"kind":"csv","encoding":"utf-8","table":{"delimiter":"comma","header":false,"rows":3,"uneven_rows":0,"width":2,"columns":[{"types":{"text":3}},{"types":{"empty":1,"integer":2}}]}`},
		{"a table that nobody calls one, named", "who|when\nAda|1\nAlan|2\n", Options{Named: true},
			`{"kind":"csv","encoding":"utf-8","table":{"delimiter":"pipe","header":true,"rows":2,"uneven_rows":0,"width":2,"columns":[{"types":{"text":2}},{"types":{"integer":2}}]}`},
		{"tsv", "a\tb\n1\t2024-05-06\n2\t2024-05-06 07:08:09.5Z\n3\t7:08\n", Options{MIMEType: "text/tab-separated-values"},
			`{"kind":"csv","encoding":"utf-8","table":{"delimiter":"tab","header":true,"rows":3,"uneven_rows":0,"width":2,"columns":[{"types":{"integer":3}},{"types":{"date":1,"datetime":1,"time":1}}]}`},
		{"one column", "value\n1\n2\n", csvFile,
			`{"kind":"csv","encoding":"utf-8","table":{"header":true,"rows":2,"uneven_rows":0,"width":1,"columns":[{"types":{"integer":2}}]}`},
		{"uneven", "a,b\n" + strings.Repeat("1,2\n", 20) + "3\n", csvFile,
			`{"kind":"csv","encoding":"utf-8","table":{"delimiter":"comma","header":true,"rows":21,"uneven_rows":1,"width":2,"columns":[{"types":{"integer":21}},{"types":{"integer":20}}]}`},
		{"a quote that nothing closes", "a,b\n1,2\n3,\"4\n", csvFile, `{"kind":"text","encoding":"utf-8","lines":3,"longest_line":4`},
	} {
		t.Run(c.name, func(t *testing.T) {
			want := c.want
			kept := fmt.Sprintf(`,"scanned_bytes":%d,"complete":true`, len(c.content))
			for _, key := range []string{`,"lines"`, `,"table"`, `,"value"`} {
				if before, after, ok := strings.Cut(want, key); ok {
					want = before + kept + key + after + "}"
					kept = ""
					break
				}
			}
			if kept != "" {
				want += kept + "}"
			}
			if got := told(t, previewOf(t, c.content, c.o)); got != want {
				t.Errorf("it is\n%s, want\n%s", got, want)
			}
		})
	}
}

func TestCells(t *testing.T) {
	for want, cells := range map[cellType][]string{
		cellInteger:  {"0", "7", "-12", "+3", " 41 ", "123456789012345678901"},
		cellNumber:   {"0.5", ".5", "1.", "1,5", "-2e10", "2.5E-3"},
		cellBoolean:  {"true", "FALSE", "Yes", "no"},
		cellDate:     {"2024-05-06", "6.5.2024", "05/06/2024", "2024/5/6"},
		cellTime:     {"12:30", "7:08:09", "12:30:59.125", "12:30+02:00", "12:30Z"},
		cellDateTime: {"2024-05-06T12:30:00Z", "2024-05-06 12:30", "2024-05-06T12:30:00.5+0200", "06.05.2024 7:08"},
		cellEmpty:    {"", "  ", "-", "n/a", "NaN", "NULL"},
		cellText:     {"007", "0151 234", "1.2.3", "1.2.3.4", "1e", "1e+", ".", "+", "x", "1:2", "2024-05", "2024-05-06x", "12:30:1", "12:30+2:00", "1-2/2024", "12345-6789", strings.Repeat("1", 65), "tru"},
	} {
		for _, c := range cells {
			if got := typeOf([]byte(c), ';'); got != want {
				t.Errorf("%q is %s, want %s", c, cellNames[got], cellNames[want])
			}
		}
	}
	if got := typeOf([]byte("1,5"), ','); got != cellText {
		t.Errorf("a comma between the cells is %s", cellNames[got])
	}
}

// What JSON isn't by its grammar is none, and what it is is one.
func TestGrammar(t *testing.T) {
	parts := []string{"{", "}", "[", "]", ",", ":", `"a"`, `"\u00e4\n"`, `"\x"`, "\"\t\"", "1", "-", "0", "01", "1.5", "1.", "2e5", "2e", "1E+3", "1E+", "true", "nul", "null", " ", "x"}
	var docs []string
	for _, a := range parts {
		for _, b := range parts {
			docs = append(docs, "["+a+b+"]", a+b+"1]", `{"k"`+a+b+"}", `[`+a+`,`+b+`]`, `{"k":`+a+b+`}`, `{`+a+":"+b+`}`)
		}
	}
	for _, doc := range docs {
		if strings.IndexAny(doc, "[{") != 0 {
			continue // whoever begins otherwise is called JSON by its name alone
		}
		got := previewOf(t, doc, Options{}).Kind == wire.SchemaJSON
		if want := json.Valid([]byte(doc)); got != want {
			t.Errorf("%q is JSON: %v, want %v", doc, got, want)
		}
	}
}

// An object with a key for each entry is a table of data: its keys are counted
// and not told, whatever was declared.
func TestKeysThatAreData(t *testing.T) {
	var b strings.Builder
	for i := range 200 {
		fmt.Fprintf(&b, `%s"person%d":{"age":%d,"tags":["x"],"more":{"k%d":1}}`, map[bool]string{true: "{", false: ","}[i == 0], i, i, i)
	}
	b.WriteString("}")
	p := previewOf(t, b.String(), Options{Named: true})
	v := p.Value
	if p.Kind != wire.SchemaJSON || len(v.Members) != 0 || v.Values == nil || v.Values.Types["object"] != 200 || v.Size.Most != 200 {
		t.Fatalf("it is %s", told(t, p))
	}
	if strings.Contains(told(t, p), "person") {
		t.Errorf("there are keys in %s", told(t, p))
	}
	m := v.Values.Members
	if len(m) != 3 || m[0].Name != "age" || m[0].Types["integer"] != 200 || m[1].Elements.Types["string"] != 200 || m[2].Values.Types["integer"] != 200 {
		t.Errorf("its values are %s", told(t, v.Values))
	}
}

// endless repeats a text.
type endless struct {
	begin, again string
	size         int64
}

func (e endless) ReadAt(b []byte, off int64) (int, error) {
	b = b[:max(0, min(int64(len(b)), e.size-off))]
	for n := 0; n < len(b); {
		at := off + int64(n)
		if begin := int64(len(e.begin)); at < begin {
			n += copy(b[n:], e.begin[at:])
		} else {
			n += copy(b[n:], e.again[(at-begin)%int64(len(e.again)):])
		}
	}
	if off+int64(len(b)) == e.size {
		return len(b), io.EOF
	}
	return len(b), nil
}

// However a file is built, what it takes to look at it is bounded.
func TestMemory(t *testing.T) {
	var wide, keys strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&wide, "%d,", i)
		fmt.Fprintf(&keys, `"%d":{"a%d":[{"b":%d}]},`, i, i, i)
	}
	for name, e := range map[string]endless{
		"a string":         {begin: `["`, again: strings.Repeat("x", 1000)},
		"a key":            {begin: `{"`, again: strings.Repeat("x", 1000)},
		"a number":         {begin: `[`, again: strings.Repeat("1", 1000)},
		"many keys":        {begin: `{`, again: keys.String()},
		"nested":           {begin: `[`, again: strings.Repeat("[", 200) + strings.Repeat("]", 200) + ","},
		"too nested":       {begin: `[`, again: "["},
		"a line":           {again: strings.Repeat("x", 1000)},
		"lines":            {again: strings.Repeat("\n", 1000)},
		"a row":            {begin: "a,b\n1,2\n", again: wide.String()},
		"rows":             {again: wide.String() + "\n"},
		"a cell":           {begin: "a,b\n1,2\n\"", again: strings.Repeat("x", 1000)},
		"cells":            {begin: "a,b\n", again: "true,none\n"},
		"a line of quotes": {begin: "a,b\n1,2\n", again: strings.Repeat(`"`, 1000)},
	} {
		e.size = 2 << 20
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p, err := Preview(t.Context(), e, e.size, Options{MIMEType: "text/csv", Named: true})
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatal(err)
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20 {
			t.Errorf("%s takes %d bytes", name, used)
		}
		if n := len(told(t, p)); n > 64<<10 {
			t.Errorf("%s is told in %d bytes", name, n)
		}
	}
}

// Of a large file the begin is looked at.
func TestBegin(t *testing.T) {
	const most = 200_000
	for _, c := range []struct {
		name, kind string
		e          endless
	}{
		{"json", wire.SchemaJSON, endless{begin: `{"a":[`, again: `"` + strings.Repeat("x", 99) + `",`}},
		{"json lines", wire.SchemaJSONLines, endless{again: `{"text":"` + strings.Repeat("x", 99) + "\"}\n"}},
		{"csv", wire.SchemaCSV, endless{again: strings.Repeat("x", 99) + ",1\n"}},
	} {
		c.e.size = most + 1000
		p, err := preview(t.Context(), c.e, c.e.size, most, Options{})
		if err != nil || p.Kind != c.kind || p.Complete || p.ScannedBytes != most {
			t.Errorf("%s is %s, %v", c.name, told(t, p), err)
		}
	}
}

// failing fails from some byte on.
type failing struct {
	io.ReaderAt
	from int64
	err  error
}

func (f failing) ReadAt(b []byte, off int64) (int, error) {
	if off+int64(len(b)) > f.from {
		return 0, f.err
	}
	return f.ReaderAt.ReadAt(b, off)
}

func TestFailures(t *testing.T) {
	text := endless{again: "secret\n", size: 1 << 20}
	disk := errors.New("input/output error")
	_, err := Preview(t.Context(), failing{text, 200000, &fs.PathError{Op: "read", Path: "/private/name", Err: disk}}, text.size, Options{})
	if !errors.Is(err, disk) || strings.Contains(err.Error(), "name") || strings.Contains(err.Error(), "secret") {
		t.Errorf("a disk that fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Preview(ctx, text, text.size, Options{}); !errors.Is(err, context.Canceled) {
		t.Errorf("nobody waits any more: %v", err)
	}
	p, err := Preview(t.Context(), text, 2<<20, Options{})
	if err != nil || p.ScannedBytes != text.size || !p.Complete || p.Lines != (text.size+6)/7 {
		t.Errorf("a file that has become shorter: %s, %v", told(t, p), err)
	}
	p, err = Preview(t.Context(), bytes.NewReader(nil), 10, Options{})
	if err != nil || p.Kind != wire.SchemaEmpty {
		t.Errorf("a file that has become empty: %s, %v", told(t, p), err)
	}
}

func TestNames(t *testing.T) {
	long := strings.Repeat("k", 65)
	doc := map[string]int{"plain": 1, "two\nlines": 1, long: 1, "<b>": 1, strings.Repeat("ü", 40): 1}
	p := previewOf(t, told(t, doc), Options{Named: true})
	var names []string
	for _, m := range p.Value.Members {
		names = append(names, m.Name)
	}
	slices.Sort(names)
	if want := []string{"", "", "", "plain", strings.Repeat("ü", 40)}; !slices.Equal(names, want) {
		t.Errorf("the names are %q, want %q", names, want)
	}
}
