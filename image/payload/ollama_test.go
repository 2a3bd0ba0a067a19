package payload

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"farhand/image/spec"
)

var epoch = time.Unix(1_790_000_000, 0)

func gz(w io.Writer) (io.WriteCloser, error) { return gzip.NewWriter(w), nil }
func zst(w io.Writer) (io.WriteCloser, error) {
	return zstd.NewWriter(w)
}

// archive writes one and says what a spec says of it.
func archive(t *testing.T, pack func(io.Writer) (io.WriteCloser, error), files ...tar.Header) spec.Ollama {
	t.Helper()
	var b bytes.Buffer
	z, err := pack(&b)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(z)
	for _, h := range files {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(h.Name))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			if _, err := io.WriteString(w, h.Name); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "ollama")
	if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	return spec.Ollama{Tarball: name, SHA256: hex.EncodeToString(sum[:])}
}

func file(name string, mode int64) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}
}

func TestOllama(t *testing.T) {
	for kind, pack := range map[string]func(io.Writer) (io.WriteCloser, error){".tgz": gz, ".tar.zst": zst} {
		o := archive(t, pack,
			tar.Header{Typeflag: tar.TypeDir, Name: "./bin/", Mode: 0o755}, file("./bin/ollama", 0o4755), file("lib/ollama/libggml-cpu.so", 0o644),
			tar.Header{Typeflag: tar.TypeSymlink, Name: "lib/ollama/libggml.so", Linkname: "libggml-cpu.so"},
			tar.Header{Typeflag: tar.TypeLink, Name: "lib/ollama/libggml-base.so", Linkname: "lib/ollama/libggml-cpu.so"},
			file("lib/ollama/cuda_v12/libcublas.so", 0o644), file("lib/ollama/rocm/x.so", 0o644),
		)
		tree := t.TempDir()
		if err := Ollama(t.Context(), o, tree, epoch); err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		current := filepath.Join(tree, "ollama/current")
		for name, want := range map[string]string{"bin/ollama": "./bin/ollama", "lib/ollama/libggml.so": "lib/ollama/libggml-cpu.so", "lib/ollama/libggml-base.so": "lib/ollama/libggml-cpu.so"} {
			if b, err := os.ReadFile(filepath.Join(current, name)); err != nil || string(b) != want {
				t.Errorf("%s: %s is %q, %v", kind, name, b, err)
			}
		}
		if info, err := os.Stat(filepath.Join(current, "bin/ollama")); err != nil || info.Mode() != 0o755 || !info.ModTime().Equal(epoch) {
			t.Errorf("%s: the program is %v", kind, info)
		}
		if left, _ := filepath.Glob(filepath.Join(current, "lib/ollama/[cr]*")); left != nil {
			t.Errorf("%s: libraries for graphics cards are there: %v", kind, left)
		}
		if to, err := os.Readlink(current); err != nil || to != "versions/"+o.SHA256[:12] {
			t.Errorf("%s: the version that runs is %s, %v", kind, to, err)
		}
		if n, err := Size(tree); err != nil || n < 4096 || n > 1<<20 {
			t.Errorf("%s: it takes %d bytes, %v", kind, n, err)
		}
	}
}

func TestOllamaRefused(t *testing.T) {
	whole := archive(t, gz, file("bin/ollama", 0o755))
	wrong := whole
	wrong.SHA256 = strings.Repeat("0", 64)
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("text"))
	for name, c := range map[string]struct {
		o    spec.Ollama
		want string
	}{
		"another sum":       {wrong, "SHA-256 is " + whole.SHA256},
		"no archive":        {spec.Ollama{Tarball: text, SHA256: hex.EncodeToString(sum[:])}, "no .tgz"},
		"nothing there":     {spec.Ollama{Tarball: text + ".none"}, "no such file"},
		"no program":        {archive(t, gz, file("ollama", 0o755)), "no program bin/ollama"},
		"no right to run":   {archive(t, gz, file("bin/ollama", 0o644)), "no program bin/ollama"},
		"a device":          {archive(t, gz, tar.Header{Typeflag: tar.TypeChar, Name: "bin/ollama"}), "of type"},
		"a link elsewhere":  {archive(t, gz, tar.Header{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "/usr/bin"}), "elsewhere"},
		"a way out":         {archive(t, gz, tar.Header{Typeflag: tar.TypeSymlink, Name: "bin", Linkname: "../../../.."}, file("bin/ollama", 0o755)), "escapes"},
		"twice the same":    {archive(t, gz, file("bin/ollama", 0o755), file("bin/ollama", 0o755)), "exists"},
		"a name upwards":    {archive(t, gz, file("../../bin/x", 0o755)), "no program"},
		"a link that isn't": {archive(t, gz, tar.Header{Typeflag: tar.TypeLink, Name: "bin/ollama", Linkname: "../../x"}), "no such file"},
	} {
		tree := t.TempDir()
		if err := Ollama(t.Context(), c.o, tree, epoch); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Ollama(ctx, whole, t.TempDir(), epoch); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}
