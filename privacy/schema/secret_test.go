package schema

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"farhand/internal/canary"
	"farhand/wire"
)

// document is a file of one structure, and with values from a source of their own:
// shape decides what there is and how long it is, fill what it says.
type document struct {
	shape, fill *rand.Rand
	values      []string // the strings that were written
	keys        []string // the keys and header cells
	out         strings.Builder
}

func newDocument(shape, fill uint64) *document {
	return &document{shape: rand.New(rand.NewPCG(shape, 0)), fill: rand.New(rand.NewPCG(fill, 1))}
}

func (d *document) text() string {
	s := canary.Text(d.fill, 8+d.shape.IntN(30))
	s = "xyz"[d.fill.IntN(3):][:1] + s[1:] // no number by chance
	d.values = append(d.values, s)
	return s
}

func (d *document) number(digits int) string {
	b := make([]byte, digits)
	for i := range b {
		b[i] = byte('1' + d.fill.IntN(9))
	}
	return string(b)
}

func (d *document) boolean() string { return []string{"true ", "false"}[d.fill.IntN(2)] }

// names are keys, different from each other.
func (d *document) names(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("%c%s", 'a'+i%26, canary.Text(d.fill, 10+d.shape.IntN(20)))
	}
	d.keys = append(d.keys, names...)
	return names
}

func (d *document) json(depth int) {
	k := d.shape.IntN(8)
	if depth == 0 {
		k = 6 + d.shape.IntN(2)
	} else if depth > 10 || d.out.Len() > 8<<10 {
		k = d.shape.IntN(6)
	}
	switch k {
	case 0, 1:
		fmt.Fprintf(&d.out, `"%s\n%s\u00e4"`, d.text(), d.text())
	case 2:
		d.out.WriteString(d.number(1 + d.shape.IntN(12)))
	case 3:
		fmt.Fprintf(&d.out, "-%s.%se%s", d.number(3), d.number(8), d.number(1))
	case 4:
		d.out.WriteString(d.boolean())
	case 5:
		d.out.WriteString("null")
	case 6:
		n := d.shape.IntN(6)
		if d.shape.IntN(20) == 0 {
			n = 100 // keys that are data
		}
		names := d.names(n)
		for i, name := range names {
			fmt.Fprintf(&d.out, "%s\"%s\": ", map[bool]string{true: "{", false: ","}[i == 0], name)
			d.json(depth + 1)
		}
		d.out.WriteString(map[bool]string{true: "{}", false: "}"}[n == 0])
	case 7:
		d.out.WriteString("[")
		for i := range d.shape.IntN(8) {
			if i > 0 {
				d.out.WriteString(",")
			}
			d.json(depth + 1)
		}
		d.out.WriteString("]")
	}
}

// lines are objects of one kind, a line each.
func (d *document) lines() {
	names := d.names(4)
	for range 2 + d.shape.IntN(20) {
		fmt.Fprintf(&d.out, `{"%s":"%s","%s":%s,"%s":%s,"%s":["%s"]}`+"\n", names[0], d.text(), names[1], d.number(5), names[2], d.boolean(), names[3], d.text())
	}
}

func (d *document) table() {
	columns, delimiter := 1+d.shape.IntN(12), []string{",", ";", "\t", "|"}[d.shape.IntN(4)]
	kinds := make([]int, columns)
	for i := range kinds {
		kinds[i] = d.shape.IntN(7)
	}
	if d.shape.IntN(3) > 0 {
		d.out.WriteString(strings.Join(d.names(columns), delimiter) + "\n")
	}
	for range 1 + d.shape.IntN(30) {
		for i, k := range kinds {
			if i > 0 {
				d.out.WriteString(delimiter)
			}
			switch k {
			case 0:
				d.out.WriteString(d.text())
			case 1:
				fmt.Fprintf(&d.out, "\"%s%s \"\"%s\n%s\"", d.text(), delimiter, d.text(), d.text())
			case 2:
				d.out.WriteString(d.number(1 + d.shape.IntN(9)))
			case 3:
				fmt.Fprintf(&d.out, "%s.%s", d.number(2), d.number(8))
			case 4:
				d.out.WriteString(d.boolean())
			case 5:
				fmt.Fprintf(&d.out, "%s-%s-%sT%s:%s", d.number(4), d.number(2), d.number(2), d.number(2), d.number(2))
			case 6:
				if d.shape.IntN(2) == 0 {
					d.out.WriteString(d.text())
				}
			}
		}
		d.out.WriteString("\n")
	}
}

func (d *document) prose() {
	for range 1 + d.shape.IntN(30) {
		for range d.shape.IntN(12) {
			d.out.WriteString(d.text() + []string{" ", ", ", ": ", "\t"}[d.shape.IntN(4)])
		}
		d.out.WriteString("\n")
	}
}

// written is a document of some kind; which, the shape decides.
func written(shape, fill uint64) *document {
	d := newDocument(shape, fill)
	[]func(){func() { d.json(0) }, d.lines, d.table, d.table, d.prose}[d.shape.IntN(5)]()
	return d
}

var mimeTypes = []string{"", "text/csv", "text/tab-separated-values", "application/json", "application/x-ndjson", "text/plain"}

func seedOf(t *testing.T) uint64 {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	return seed
}

// Files that differ in their values alone have one preview: there is nothing in it
// from which a value, or anything about it, could be told.
func TestSameStructureSamePreview(t *testing.T) {
	seed := seedOf(t)
	kinds := make(map[string]int)
	for i := range uint64(1000) {
		a, b := written(seed+i, 2*i), written(seed+i, 2*i+1)
		for _, named := range []bool{false, true} {
			o := Options{MIMEType: mimeTypes[i%uint64(len(mimeTypes))], Named: named}
			one, other := previewOf(t, a.out.String(), o), previewOf(t, b.out.String(), o)
			kinds[one.Kind]++
			if named { // names are what may differ
				unname(&one)
				unname(&other)
			}
			if x, y := told(t, one), told(t, other); x != y {
				t.Fatalf("document %d, named %v:\n%s\n%s\nis\n%s\nor\n%s", i, named, a.out.String(), b.out.String(), x, y)
			}
		}
	}
	for _, k := range []string{wire.SchemaJSON, wire.SchemaJSONLines, wire.SchemaCSV, wire.SchemaText} {
		if kinds[k] < 50 {
			t.Errorf("only %d of %s were made: %v", kinds[k], k, kinds)
		}
	}
}

func unname(p *wire.SchemaPreview) {
	if p.Table != nil {
		for i := range p.Table.Columns {
			p.Table.Columns[i].Name = ""
		}
	}
	unnameValue(p.Value)
}

func unnameValue(v *wire.SchemaValue) {
	if v == nil {
		return
	}
	v.Name = ""
	for _, m := range append(slices.Clone(v.Members), v.Values, v.Elements) {
		unnameValue(m)
	}
}

// No 8 bytes of a value are in a preview, in no form; of a name neither, but if
// names were declared.
func TestNoValueInPreview(t *testing.T) {
	seed := seedOf(t)
	named := 0
	for i := range uint64(200) {
		d := written(seed+i, seed-i)
		secrets := make(map[string]string)
		for k, v := range d.values[:min(len(d.values), 60)] {
			secrets[fmt.Sprintf("value %d", k)] = v
		}
		values := canary.New(secrets)
		for k, name := range d.keys[:min(len(d.keys), 20)] {
			secrets[fmt.Sprintf("name %d", k)] = name
		}
		all := canary.New(secrets)
		o := Options{MIMEType: mimeTypes[i%uint64(len(mimeTypes))]}
		if hits := all.Find([]byte(told(t, previewOf(t, d.out.String(), o)))); len(hits) > 0 {
			t.Fatalf("document %d: %v of\n%s", i, hits, d.out.String())
		}
		o.Named = true
		preview := []byte(told(t, previewOf(t, d.out.String(), o)))
		if hits := values.Find(preview); len(hits) > 0 {
			t.Fatalf("document %d, named: %v of\n%s", i, hits, d.out.String())
		}
		if len(all.Find(preview)) > 0 {
			named++
		}
		if len(d.values) > 0 && len(values.Find([]byte(d.out.String()))) == 0 {
			t.Fatalf("document %d: what is looked for isn't found in the document itself", i)
		}
	}
	if named < 20 {
		t.Errorf("only %d previews had names, though they were declared", named)
	}
}

// words are all that a preview is made of, beside counts.
var words = append(append(slices.Clone(kindNames[:]), cellNames[:]...),
	wire.SchemaEmpty, wire.SchemaJSON, wire.SchemaJSONLines, wire.SchemaCSV, wire.SchemaText, wire.SchemaImage, wire.SchemaBinary,
	"utf-8", "utf-16le", "utf-16be", "8-bit", "png", "jpeg", "gif", "webp", "bmp", "tiff", "comma", "semicolon", "tab", "pipe")

// strangers are what of a preview is neither a word nor a count, nor one of its
// fields. most is the largest count that there can be.
func strangers(raw []byte, most int, named bool) (all []string) {
	var check func(key string, v any)
	check = func(key string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, x := range v {
				if key == "types" && !slices.Contains(words, k) {
					all = append(all, "type "+k)
				}
				check(k, x)
			}
		case []any:
			for _, x := range v {
				check(key, x)
			}
		case string:
			if !slices.Contains(words, v) && (key != "name" || !named || len([]rune(v)) > maxName) {
				all = append(all, key+" "+v)
			}
		case float64:
			if v != float64(int64(v)) || v < 0 || v > float64(most) {
				all = append(all, fmt.Sprint(key, " ", v))
			}
		}
	}
	var p any
	if err := json.Unmarshal(raw, &p); err != nil {
		return []string{err.Error()}
	}
	check("", p)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(new(wire.SchemaPreview)); err != nil {
		all = append(all, err.Error())
	}
	return all
}

func FuzzPreview(f *testing.F) {
	for i := range uint64(20) {
		f.Add([]byte(written(i, i).out.String()), byte(i))
	}
	f.Add([]byte("\xff\xfea\x00,\x00\n\x00"), byte(1))
	f.Add([]byte("{\"a\":[1,2,{\"b\":\"\\u00e4\"}]}"), byte(8))
	f.Add([]byte("a;b\r\n\"1\";2024-01-02\r\n"), byte(9))
	f.Fuzz(func(t *testing.T, content []byte, how byte) {
		o := Options{MIMEType: mimeTypes[int(how&7)%len(mimeTypes)], Named: how&8 != 0}
		p := previewOf(t, string(content), o)
		if all := strangers([]byte(told(t, p)), len(content)+1, o.Named); len(all) > 0 { // n delimiters stand around n+1 cells
			t.Errorf("there are %q", all)
		}
		if p.Kind == wire.SchemaJSON && p.Encoding == "utf-8" {
			if text := strings.TrimPrefix(string(content), "\xef\xbb\xbf"); !json.Valid([]byte(text)) {
				t.Errorf("%q isn't JSON", content)
			}
		}
	})
}

// The checks above can fail.
func TestChecksFail(t *testing.T) {
	secret := canary.Text(rand.New(rand.NewPCG(3, 4)), 20)
	p := previewOf(t, "a,b\n1,2\n", Options{})
	p.Table.Columns[0].Types[secret[:9]] = 1
	if len(canary.New(map[string]string{"it": secret}).Find([]byte(told(t, p)))) == 0 {
		t.Error("a value in a preview isn't found")
	}
	if all := strangers([]byte(told(t, p)), 9, false); len(all) != 1 {
		t.Errorf("of a preview with a type of its own there are %q", all)
	}
	p = previewOf(t, `[{"name":1}]`, Options{Named: true})
	if all := strangers([]byte(told(t, p)), 0, false); len(all) < 2 {
		t.Errorf("of a preview with a name and counts there are %q", all)
	}
}
