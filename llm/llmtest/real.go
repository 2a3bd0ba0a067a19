package llmtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"farhand/internal/testenv"
	"farhand/llm/llmtest/tinymodel"
)

// RealVar names the environment variable that says where a real Ollama is: make
// ollama-test builds one and sets it.
const RealVar = "FARHAND_TEST_OLLAMA"

// startTime is how long a real server may take to answer for the first time.
const startTime = 30 * time.Second

// StartReal starts a real Ollama with the models Tiny and Endless and returns its
// URL. It skips the test where there is none.
func StartReal(t testing.TB) string {
	t.Helper()
	program := os.Getenv(RealVar)
	testenv.Need(t, "ollama", program != "", "a real Ollama: make ollama-test")
	l, err := net.Listen("tcp", "127.0.0.1:0") // a port that is free, most likely still in a moment
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	var said bytes.Buffer
	cmd := exec.Command(program, "serve")
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "OLLAMA_MODELS=" + filepath.Join(dir, "models"), "OLLAMA_HOST=" + address,
		"OLLAMA_NO_CLOUD=1", "OLLAMA_MAX_LOADED_MODELS=1", "OLLAMA_NUM_PARALLEL=1",
	}
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if text := said.String(); t.Failed() {
			t.Logf("Ollama said:\n%s", text[max(0, len(text)-4000):])
		}
	})
	r := real{base: "http://" + address}
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	err = r.await(ctx)
	for _, name := range []string{Endless, Tiny} {
		if err == nil {
			err = r.create(ctx, name, tinymodel.Model{Words: Words(), Endless: name == Endless})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return r.base
}

type real struct{ base string }

// await waits for the server's first answer.
func (r real) await(ctx context.Context) error {
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		err := r.do(ctx, http.MethodGet, "/api/version", nil)
		if err == nil {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		}
	}
}

func (r real) do(ctx context.Context, method, path string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, method, r.base+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return err
	}
	if resp.StatusCode >= 300 || bytes.Contains(answer, []byte(`"error"`)) {
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, answer)
	}
	return nil
}

// create gives the server a model.
func (r real) create(ctx context.Context, name string, m tinymodel.Model) error {
	var file bytes.Buffer
	if err := m.Write(&file); err != nil {
		return err
	}
	digest := digestOf(file.Bytes())
	if err := r.do(ctx, http.MethodPost, "/api/blobs/"+digest, file.Bytes()); err != nil {
		return err
	}
	body, err := json.Marshal(map[string]any{
		"model": name, "stream": false, "files": map[string]string{"tiny.gguf": digest},
		"template":   "{{ range .Messages }}{{ .Content }}{{ end }}" + tinymodel.Start,
		"parameters": map[string]any{"temperature": 0, "num_ctx": 512, "num_thread": 1},
	})
	if err != nil {
		return err
	}
	return r.do(ctx, http.MethodPost, "/api/create", body)
}

func digestOf(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// startRegistry is one with the model library/new:1b, as the steps want it, and
// answers with host and port.
func startRegistry(t testing.TB) string {
	t.Helper()
	weights := bytes.Repeat([]byte("weights "), 1<<17) // 1 MiB
	config := []byte(`{"model_format":"gguf","model_family":"llama","model_families":["llama"],"model_type":"1M","file_type":"F32"}`)
	blobs := map[string][]byte{digestOf(weights): weights, digestOf(config): config}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
		"config": map[string]any{"mediaType": "application/vnd.docker.container.image.v1+json", "digest": digestOf(config), "size": len(config)},
		"layers": []any{map[string]any{"mediaType": "application/vnd.ollama.image.model", "digest": digestOf(weights), "size": len(weights)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v2/library/new/manifests/1b", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(manifest) })
	mux.HandleFunc("/v2/library/new/blobs/{digest}", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet { // Ollama wants to be sent elsewhere
			_, port, _ := net.SplitHostPort(r.Host)
			http.Redirect(w, r, "http://localhost:"+port+"/there/"+r.PathValue("digest"), http.StatusTemporaryRedirect)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(blobs[r.PathValue("digest")]))
	})
	mux.HandleFunc("/there/{digest}", func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(blobs[r.PathValue("digest")]))
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}
