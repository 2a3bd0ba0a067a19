package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"farhand/internal/ustar"
	"farhand/llm/llmtest"
	"farhand/provision/request"
	"farhand/wire"
)

// ollamaArchive is one as its maker gives it out, and its hash.
func ollamaArchive(t *testing.T, arch string) (name, sum string) {
	t.Helper()
	header := "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00" + map[string]string{"amd64": "\x3e\x00", "arm64": "\xb7\x00"}[arch]
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, f := range []struct {
		name, content string
		mode          int64
	}{
		{"./bin/ollama", header + strings.Repeat("program ", 200_000), 0o755}, {"lib/ollama/libggml.so", "library", 0o644},
		{"lib/ollama/cuda_v12/libcublas.so", strings.Repeat("cuda", 100_000), 0o644},
	} {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.content); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	name = filepath.Join(t.TempDir(), "ollama-linux.tgz")
	if err := os.WriteFile(name, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	digest := sha256.Sum256(b.Bytes())
	return name, hex.EncodeToString(digest[:])
}

// The archive that its maker gives out reaches the helper of an appliance without
// what no board needs, and Ollama is removed again.
func TestInstallOllama(t *testing.T) {
	t.Parallel()
	server := llmtest.Start(t, "tiny:1b")
	b := newBench(t)
	helper, _ := b.appliance()
	b.tables += fmt.Sprintf("[llm]\nenabled = true\nurl = %q\n", server.URL)
	b.claim("local_llm,llm_manage,files")
	own := b.owner
	archive, sum := ollamaArchive(t, runtime.GOARCH)

	status := parse[map[string]any](t, own.must("llm", "ps", "bench", "--json"))
	if status["state"] != wire.LLMReady || status["version"] != "0.17.4" {
		t.Errorf("ps says %v", status)
	}
	lines := strings.Split(strings.TrimSpace(own.must("llm", "install", "bench", "--from", archive, "--sha256", sum, "--json")), "\n")
	got := parse[map[string]any](t, lines[len(lines)-1])
	if got["sha256"] != sum || got["state"] != wire.LLMReady || got["version"] != "0.17.4" {
		t.Errorf("install says %v", got)
	}
	helper.mu.Lock()
	sent := helper.archive
	helper.mu.Unlock()
	z, err := gzip.NewReader(bytes.NewReader(sent))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for r := ustar.NewReader(z); ; {
		e, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, e.Name)
	}
	if strings.Join(names, " ") != "bin/ollama lib/ollama/libggml.so" {
		t.Errorf("the helper is given %q", names)
	}
	digest := sha256.Sum256(sent)
	helper.heard(t, "install "+hex.EncodeToString(digest[:]))
	if left := b.hidden(); len(left) != 0 {
		t.Errorf("in the root lie %q", left)
	}

	own.fails(1, wire.TransferMismatch, "llm", "install", "bench", "--from", archive, "--sha256", strings.Repeat("0", 64))
	other, _ := ollamaArchive(t, map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH])
	own.fails(1, wire.InvalidArgument, "llm", "install", "bench", "--from", other)
	for refusal, code := range map[request.Code]wire.Code{request.Refused: wire.InvalidArgument, request.NoRoom: wire.DiskFull, request.Failed: wire.LocalLLMFailed} {
		helper.mu.Lock()
		helper.refuse = &request.Error{Code: refusal, Message: "it is not to be"}
		helper.mu.Unlock()
		own.fails(1, code, "llm", "install", "bench", "--from", archive)
	}
	own.must("llm", "uninstall", "bench")
	helper.heard(t, "uninstall false")
	own.must("llm", "uninstall", "bench", "--models")
	helper.heard(t, "uninstall true")

	agent := b.with(b.newToken("agent", "--capability", "local_llm", "--capability", "files"))
	agent.fails(1, wire.CapabilityNotGranted, "llm", "install", "bench", "--from", archive)
	agent.refuses("token", wire.CapabilityNotGranted, "llm", "uninstall", "bench")
	log := string(b.read(b.stateDir() + "/audit.log"))
	for _, op := range []string{`"LLM_INSTALL"`, `"LLM_UNINSTALL"`} {
		if !strings.Contains(log, op) {
			t.Errorf("%s is not on the record", op)
		}
	}
}

// hidden are the files in the root that begin with a dot.
func (b *bench) hidden() []string {
	b.t.Helper()
	names, err := filepath.Glob(filepath.Join(b.root(), ".farhand-ollama*"))
	if err != nil {
		b.t.Fatal(err)
	}
	return names
}

// Elsewhere than on an appliance nothing is sent, and it is said what to do.
func TestInstallOllamaElsewhere(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.tables += "[llm]\nenabled = true\nurl = \"http://127.0.0.1:1\"\n"
	b.claim("local_llm,llm_manage,files")
	archive, _ := ollamaArchive(t, runtime.GOARCH)
	e := b.owner.fails(1, wire.FeatureNotSupported, "llm", "install", "bench", "--from", archive)
	if !strings.Contains(fmt.Sprint(e), "maker's installer") {
		t.Errorf("it says %v", e)
	}
	b.owner.fails(1, wire.FeatureNotSupported, "llm", "uninstall", "bench")
	status := parse[map[string]any](t, b.owner.must("llm", "ps", "bench", "--json"))
	if state := status["state"]; state != wire.LLMNotInstalled && state != wire.LLMUnreachable && state != wire.LLMStopped {
		t.Errorf("ps says %v", status)
	}
}
