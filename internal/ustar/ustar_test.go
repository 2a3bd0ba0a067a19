package ustar

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

type entry struct {
	tar.Header
	content string
}

func archive(t testing.TB, format tar.Format, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		e.Size, e.Format = int64(len(e.content)), format
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// read is every entry with its content, and how it ends.
func read(r io.Reader) (entries []Entry, contents []string, err error) {
	for a := NewReader(r); ; {
		e, err := a.Next()
		if err != nil {
			return entries, contents, err
		}
		content, err := io.ReadAll(a)
		if err != nil {
			return entries, contents, err
		}
		entries, contents = append(entries, e), append(contents, string(content))
	}
}

// What the standard library writes is read, also byte by byte, and nothing beyond.
func TestRead(t *testing.T) {
	long := strings.Repeat("d", 90) + "/" + strings.Repeat("f", 90)
	b := archive(t, tar.FormatUSTAR,
		entry{tar.Header{Name: "bin/", Typeflag: tar.TypeDir, Mode: 0o755}, ""},
		entry{tar.Header{Name: "bin/ollama", Typeflag: tar.TypeReg, Mode: 0o755}, strings.Repeat("x", 1000)},
		entry{tar.Header{Name: "lib/a.so", Typeflag: tar.TypeSymlink, Linkname: "a.so.1"}, ""},
		entry{tar.Header{Name: long, Typeflag: tar.TypeReg, Mode: 0o644}, strings.Repeat("y", block)},
		entry{tar.Header{Name: "empty", Typeflag: tar.TypeReg, Mode: 0o600}, ""},
	)
	want := []Entry{
		{Name: "bin", Kind: Directory}, {Name: "bin/ollama", Kind: File, Size: 1000, Executable: true},
		{Name: "lib/a.so", Kind: Link, Target: "a.so.1"}, {Name: long, Kind: File, Size: block}, {Name: "empty", Kind: File},
	}
	rest := strings.NewReader("behind it")
	for _, r := range []io.Reader{io.MultiReader(bytes.NewReader(b), rest), iotest.OneByteReader(bytes.NewReader(b)), iotest.DataErrReader(bytes.NewReader(b))} {
		got, contents, err := read(r)
		if err != io.EOF || len(got) != len(want) {
			t.Fatalf("%v, %v", got, err)
		}
		for i := range want {
			if got[i] != want[i] || int64(len(contents[i])) != want[i].Size {
				t.Errorf("%+v with %d bytes, want %+v", got[i], len(contents[i]), want[i])
			}
		}
	}
	if rest.Len() != len("behind it") {
		t.Error("it reads beyond the end")
	}
	a := NewReader(bytes.NewReader(b)) // without reading contents
	for range want {
		if _, err := a.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.Next(); err != io.EOF {
		t.Error(err)
	}
}

func TestRefused(t *testing.T) {
	file := func(name string) entry {
		return entry{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}, "x"}
	}
	link := func(to string) entry {
		return entry{tar.Header{Name: "lib/l", Typeflag: tar.TypeSymlink, Linkname: to}, ""}
	}
	for name, b := range map[string][]byte{
		"absolute":         archive(t, tar.FormatUSTAR, file("/etc/passwd")),
		"above":            archive(t, tar.FormatUSTAR, file("../x")),
		"above, later":     archive(t, tar.FormatUSTAR, file("a/../../x")),
		"the root itself":  archive(t, tar.FormatUSTAR, entry{tar.Header{Name: "./", Typeflag: tar.TypeDir}, ""}),
		"absolute link":    archive(t, tar.FormatUSTAR, link("/etc")),
		"link above":       archive(t, tar.FormatUSTAR, link("../../x")),
		"link up and down": archive(t, tar.FormatUSTAR, link("../bin/ollama")),
		"link to nothing":  archive(t, tar.FormatUSTAR, link("")),
		"hard link":        archive(t, tar.FormatUSTAR, entry{tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "x"}, ""}),
		"device":           archive(t, tar.FormatUSTAR, entry{tar.Header{Name: "d", Typeflag: tar.TypeChar, Devmajor: 1, Devminor: 3}, ""}),
		"FIFO":             archive(t, tar.FormatUSTAR, entry{tar.Header{Name: "d", Typeflag: tar.TypeFifo}, ""}),
		"GNU's kind":       archive(t, tar.FormatGNU, file("x")),
		"PAX":              archive(t, tar.FormatPAX, entry{tar.Header{Name: "x", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"a.b": "c"}}, ""}),
		"nothing":          nil,
		"no end":           archive(t, tar.FormatUSTAR, file("x"))[:2*block],
		"half an end":      archive(t, tar.FormatUSTAR, file("x"))[:3*block],
		"half a file":      archive(t, tar.FormatUSTAR, file("x"))[:block+1],
		"no file":          bytes.Repeat([]byte("no tar\n"), 1000),
	} {
		if got, _, err := read(bytes.NewReader(b)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("%s gives %+v, %v", name, got, err)
		}
	}
	good := archive(t, tar.FormatUSTAR, file("x"))
	for _, at := range []int{0, 124, 148, 156, 257} {
		bad := bytes.Clone(good)
		bad[at] ^= 0x11
		if got, _, err := read(bytes.NewReader(bad)); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("with another byte at %d it gives %+v", at, got)
		}
	}
}

// Whatever comes, what is told of it is within the rules.
func FuzzRead(f *testing.F) {
	f.Add(archive(f, tar.FormatUSTAR, entry{tar.Header{Name: "bin/ollama", Typeflag: tar.TypeReg, Mode: 0o755}, "x"},
		entry{tar.Header{Name: "lib/l", Typeflag: tar.TypeSymlink, Linkname: "x"}, ""}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for r := NewReader(bytes.NewReader(b)); ; {
			e, err := r.Next()
			if err != nil {
				return
			}
			for _, name := range []string{e.Name, e.Target} {
				for element := range strings.SplitSeq(name, "/") {
					if element == ".." || element == "." || element == "" && name != "" {
						t.Errorf("%+v", e)
					}
				}
			}
			if n, err := io.Copy(io.Discard, r); err == nil && n != e.Size {
				t.Errorf("%+v has %d bytes", e, n)
			}
		}
	})
}
