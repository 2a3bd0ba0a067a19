package ollamapack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"farhand/internal/ustar"
)

const arm = "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"

type entry struct {
	tar.Header
	content string
}

func file(name string, mode int64, content string) entry {
	return entry{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, content}
}

func link(kind byte, name, to string) entry {
	return entry{tar.Header{Typeflag: kind, Name: name, Linkname: to}, ""}
}

// archive is as the maker's are.
func archive(t *testing.T, compress func(io.Writer) (io.WriteCloser, error), entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := compress(&b)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, e := range entries {
		e.Size = int64(len(e.content))
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, e.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	return append(b.Bytes(), "behind it"...) // counts for the hash alone
}

func gz(w io.Writer) (io.WriteCloser, error)  { return gzip.NewWriter(w), nil }
func zst(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// contents are the files and links of what Pack made.
func contents(t *testing.T, b []byte) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for r := ustar.NewReader(z); ; {
		e, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name] = string(content)
		if e.Kind == ustar.Link {
			all[e.Name] = "-> " + e.Target
		}
		if e.Executable {
			all[e.Name] += " (runs)"
		}
	}
}

func TestPack(t *testing.T) {
	program := arm + strings.Repeat("x", 100_000)
	for kind, compress := range map[string]func(io.Writer) (io.WriteCloser, error){".tgz": gz, ".tar.zst": zst} {
		original := archive(t, compress,
			entry{tar.Header{Typeflag: tar.TypeDir, Name: "./bin/", Mode: 0o755}, ""},
			file("./bin/ollama", 0o4755, program), file("lib/ollama/libggml-cpu.so.1", 0o644, "cpu"),
			link(tar.TypeSymlink, "lib/ollama/libggml.so", "./libggml-cpu.so.1"), link(tar.TypeLink, "lib/ollama/libggml-base.so", "lib/ollama/libggml-cpu.so.1"),
			file("lib/ollama/cuda_v12/libcublas.so", 0o644, strings.Repeat("y", 1<<20)), link(tar.TypeSymlink, "lib/ollama/cuda_v13/x.so", "../cuda_v12/libcublas.so"),
		)
		if kind == ".tar.zst" {
			original = original[:len(original)-len("behind it")] // a second frame would be wanted
		}
		var first, second bytes.Buffer
		got, err := Pack(t.Context(), bytes.NewReader(original), &first)
		if err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		want := Packed{Original: sum(original), SHA256: sum(first.Bytes()), Size: int64(first.Len()), Unpacked: int64(len(program) + len("cpu")), Arch: "arm64"}
		if got != want {
			t.Errorf("%s: %+v, want %+v", kind, got, want)
		}
		for name, want := range map[string]string{
			"bin/ollama": program + " (runs)", "lib/ollama/libggml-cpu.so.1": "cpu", "lib/ollama/libggml.so": "-> libggml-cpu.so.1", "lib/ollama/libggml-base.so": "-> libggml-cpu.so.1",
		} {
			if have := contents(t, first.Bytes())[name]; have != want {
				t.Errorf("%s: %s is %.50q", kind, name, have)
			}
		}
		if n := len(contents(t, first.Bytes())); n != 4 {
			t.Errorf("%s: it has %d files", kind, n)
		}
		if _, err := Pack(t.Context(), bytes.NewReader(original), &second); err != nil || !bytes.Equal(first.Bytes(), second.Bytes()) {
			t.Errorf("%s: the second time it is another, %v", kind, err)
		}
	}
}

func TestPackRefuses(t *testing.T) {
	program := file("bin/ollama", 0o755, arm)
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"no archive":              {[]byte("text"), "no .tgz"},
		"nothing":                 {nil, "no .tgz"},
		"no program":              {archive(t, gz, file("ollama", 0o755, arm)), "no program bin/ollama"},
		"no right to run":         {archive(t, gz, file("bin/ollama", 0o644, arm)), "no program bin/ollama"},
		"a device":                {archive(t, gz, program, entry{tar.Header{Typeflag: tar.TypeChar, Name: "x"}, ""}), "of type"},
		"a link elsewhere":        {archive(t, gz, program, link(tar.TypeSymlink, "x", "/usr/bin")), "isn't beside"},
		"a link upwards":          {archive(t, gz, program, link(tar.TypeSymlink, "lib/x", "a/../../bin/ollama")), "isn't beside"},
		"one with a far file":     {archive(t, gz, program, link(tar.TypeLink, "x", "bin/ollama")), "another directory"},
		"half of it":              {archive(t, gz, program)[:60], "unexpected EOF"},
		"a name that is too long": {archive(t, gz, program, file(strings.Repeat("n", 150), 0o644, "")), "USTAR"},
	} {
		if got, err := Pack(t.Context(), bytes.NewReader(c.archive), io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Pack(ctx, bytes.NewReader(archive(t, gz, program)), io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
	if got, err := Pack(t.Context(), bytes.NewReader(archive(t, gz, file("bin/ollama", 0o755, "#!/bin/sh"))), io.Discard); err != nil || got.Arch != "" {
		t.Errorf("a script: %+v, %v", got, err)
	}
}
