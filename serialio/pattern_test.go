package serialio

import (
	"bytes"
	"testing"

	"farhand/wire"
)

// FuzzSearch gives a pattern its bytes in two pieces and compares with all of
// them at once: a literal is found all the same, and what is found is there.
func FuzzSearch(f *testing.F) {
	f.Add("b+c", "xabbc", []byte("aabbbc"), 3)
	f.Add(`(\d)(x)?`, "\xff", []byte("\xff\xff7"), 1)
	f.Add("", "ok", []byte("o"), 0)
	f.Fuzz(func(t *testing.T, re, text string, data []byte, cut int) {
		p, err := CompilePatterns("expect", wire.SerialPatterns{{Text: text}, {Regexp: re, Stop: true}})
		if err != nil {
			if p, err = CompilePatterns("expect", wire.SerialPatterns{{Text: text}}); err != nil {
				return
			}
		}
		data = data[:min(len(data), 4096)]
		cut = max(0, min(cut, len(data)))
		s := search{ReadOptions: ReadOptions{Size: len(data) + 1, Expect: p}}
		r := ReadResult{Data: data[:cut]}
		end, ok := s.find(&r)
		if !ok {
			r.Data = data
			end, ok = s.find(&r)
		}
		if !ok {
			if bytes.Contains(data, []byte(text)) {
				t.Fatalf("%q isn't found in %q", text, data)
			}
			return
		}
		m := r.Match
		if r.Stop != StopMatch || m == nil || m.Pattern >= len(p.all) || end > len(r.Data) || !bytes.HasSuffix(r.Data[:end], m.Captures[0]) {
			t.Fatalf("in %q: end %d, %+v", r.Data, end, m)
		}
		if m.Pattern == 0 && string(m.Captures[0]) != text {
			t.Fatalf("the text is %q", m.Captures[0])
		}
	})
}
