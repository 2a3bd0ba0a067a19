package bmap

import (
	"bytes"
	"context"
	"crypto/sha256"
	"reflect"
	"strings"
	"testing"
)

func sample(t testing.TB) (Map, []byte) {
	image := bytes.Repeat([]byte("content "), 40<<20/8)
	image = image[:len(image)-100] // the last block isn't whole
	size := int64(len(image))
	m, err := Make(context.Background(), bytes.NewReader(image), size, 4096, []Extent{{0, 4096}, {1 << 20, 20 << 20}, {30 << 20, size - 30<<20}})
	if err != nil {
		t.Fatal(err)
	}
	return m, image
}

func TestRoundTrip(t *testing.T) {
	m, image := sample(t)
	if len(m.Ranges) != 4 || m.Mapped() != 4096+20<<20+int64(len(image))-30<<20 {
		t.Errorf("%d ranges with %d bytes", len(m.Ranges), m.Mapped())
	}
	text := m.Marshal()
	got, err := Parse(text)
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Fatalf("it is read as %+v, %v", got, err)
	}
	for _, r := range got.Ranges {
		start, length := got.Span(r)
		if sha256.Sum256(image[start:start+length]) != r.Sum {
			t.Errorf("%d-%d: another checksum", r.First, r.Last)
		}
	}
	for _, want := range []string{`<bmap version="2.0">`, "<ImageSize> 41942940 </ImageSize>", "<BlocksCount> 10240 </BlocksCount>", "> 0 </Range>", "> 256-4351 </Range>"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in\n%.900s", want, text)
		}
	}
	if again := m.Marshal(); !bytes.Equal(again, text) {
		t.Error("it is written differently a second time")
	}
}

func TestRefused(t *testing.T) {
	m, _ := sample(t)
	text := string(m.Marshal())
	for name, bad := range map[string]string{
		"nothing":       "",
		"cut":           text[:len(text)/2],
		"one changed":   strings.Replace(text, "256-4351", "256-4350", 1),
		"other version": strings.Replace(text, `"2.0"`, `"1.3"`, 1),
		"no sum":        strings.Replace(text, "BmapFileChecksum", "Checksum", 2),
	} {
		if _, err := Parse([]byte(bad)); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
	for name, bad := range map[string][]Range{
		"backwards": {{First: 2, Last: 2}, {First: 1, Last: 1}}, "twice": {{First: 1, Last: 2}, {First: 2, Last: 3}}, "outside": {{First: 0, Last: 1 << 40}},
	} {
		if _, err := Parse(Map{ImageSize: 1 << 20, BlockSize: 4096, Ranges: bad}.Marshal()); err == nil {
			t.Errorf("%s: it is read", name)
		}
	}
}

// FuzzParse: a map that is read is one that makes sense, and is written as it
// is read.
func FuzzParse(f *testing.F) {
	m, _ := sample(f)
	f.Add(m.Marshal())
	f.Add([]byte("<bmap/>"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := Parse(b)
		if err != nil {
			return
		}
		again, err := Parse(m.Marshal())
		if err != nil || !reflect.DeepEqual(again, m) {
			t.Fatalf("%+v becomes %+v, %v", m, again, err)
		}
	})
}
