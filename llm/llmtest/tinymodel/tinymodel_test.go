package tinymodel

import (
	"bytes"
	"strings"
	"testing"
)

// What a server makes of it is tested with one (package llmsuite); here, that it is
// the same every time, of a small size, and what an ending changes.
func TestWrite(t *testing.T) {
	m := Model{Words: []string{"Hello", " from", " here", "."}}
	var first, second, endless bytes.Buffer
	if err := m.Write(&first); err != nil {
		t.Fatal(err)
	}
	if err := m.Write(&second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Errorf("the second time it is another, %v", err)
	}
	if first.Len()%alignment != 0 || first.Len() < 2<<20 || first.Len() > 4<<20 {
		t.Errorf("%d bytes", first.Len())
	}
	m.Endless = true
	if err := m.Write(&endless); err != nil || bytes.Equal(first.Bytes(), endless.Bytes()) || endless.Len() != first.Len() {
		t.Errorf("an endless one is no other, %v", err)
	}
	if !strings.Contains(first.String(), "▁from") || strings.Contains(first.String(), " from") {
		t.Error("the words aren't spelled as a vocabulary has them")
	}
}

func TestNoModel(t *testing.T) {
	for _, words := range [][]string{nil, {"a", "b", "a"}, {""}, {Start}} {
		if err := (Model{Words: words}).Write(new(bytes.Buffer)); err == nil {
			t.Errorf("%q make one", words)
		}
	}
}
