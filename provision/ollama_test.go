package provision

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"farhand/provision/request"
)

// program is the beginning of one for this machine.
func program(arch string) string {
	machine := map[string]string{"amd64": "\x3e\x00", "arm64": "\xb7\x00"}[arch]
	return "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00" + machine
}

type inArchive struct {
	tar.Header
	content string
}

func inside(name string, mode int64, content string) inArchive {
	return inArchive{tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode}, content}
}

// packed is an archive as farhand llm install makes them, and its hash.
func packed(t testing.TB, entries ...inArchive) ([]byte, string) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		e.Size, e.Format = int64(len(e.content)), tar.FormatUSTAR
		if err := w.WriteHeader(&e.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(e.content)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(b.Bytes())
	return b.Bytes(), hex.EncodeToString(sum[:])
}

// version is an archive that can be installed.
func version(t testing.TB, what string) ([]byte, string) {
	t.Helper()
	return packed(t, inside("bin/ollama", 0o4755, program(runtime.GOARCH)+what), inside("lib/ollama/libggml.so.1", 0o666, what),
		inArchive{tar.Header{Typeflag: tar.TypeSymlink, Name: "lib/ollama/libggml.so", Linkname: "libggml.so.1"}, ""})
}

// withModels is an appliance with a data partition on which models run; down says
// whose program falls over.
func withModels(t testing.TB) (m *machine, down map[string]bool) {
	m, down = newMachine(t), map[string]bool{}
	m.write(ollamaDir+"/models/", "")
	m.write(ollamaDir+"/home/", "")
	m.Free = func(string) (int64, error) { return 10 << 30, nil }
	m.Run = func(ctx context.Context, name string, args ...string) error {
		if args[0] == "is-active" && down[m.runs()] {
			return errors.New("activating")
		}
		return m.run(ctx, name, args...)
	}
	return m, down
}

// runs is what the link leads to; empty: nothing.
func (m *machine) runs() string {
	b, err := os.ReadFile(m.path(ollamaDir, "current/bin/ollama"))
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(string(b), program(runtime.GOARCH))
}

// versions are the names below versions.
func (m *machine) versions() string {
	m.t.Helper()
	list, err := os.ReadDir(m.path(ollamaDir, versions))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func opened(t testing.TB, content []byte) *os.File {
	t.Helper()
	name := filepath.Join(t.TempDir(), "archive")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func install(srv *Server, t testing.TB, content []byte, sum string) error {
	t.Helper()
	return srv.InstallOllama(t.Context(), request.InstallOllama{SHA256: sum}, opened(t, content))
}

// One is installed, updated and removed, and its models are kept as long as nobody
// says otherwise.
func TestOllama(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := withModels(t)
		srv := m.server()
		first, firstSum := version(t, "first")
		if err := install(srv, t, first, firstSum); err != nil {
			t.Fatal(err)
		}
		if m.runs() != "first" || m.versions() != firstSum[:12] || !m.did("systemctl restart ollama.service") {
			t.Errorf("%q runs of %s, %q", m.runs(), m.versions(), m.ran)
		}
		for name, mode := range map[string]fs.FileMode{"bin/ollama": 0o755, "lib/ollama/libggml.so.1": 0o644, "lib/ollama": 0o755 | fs.ModeDir, "": 0o755 | fs.ModeDir} {
			if info, err := os.Stat(m.path(ollamaDir, "current", name)); err != nil || info.Mode() != mode {
				t.Errorf("%s is %v, %v", name, info.Mode(), err)
			}
		}
		if got := m.file(ollamaDir + "/current/lib/ollama/libggml.so"); got != "first" {
			t.Errorf("the link leads to %q", got)
		}
		m.write(ollamaDir+"/models/blobs/sha256-0", "weights")

		second, secondSum := version(t, "second")
		m.ran = nil
		if err := install(srv, t, second, secondSum); err != nil {
			t.Fatal(err)
		}
		if m.runs() != "second" || m.versions() != secondSum[:12] {
			t.Errorf("%q runs of %s", m.runs(), m.versions())
		}
		if err := install(srv, t, second, secondSum); err != nil || m.runs() != "second" {
			t.Errorf("the same once more: %v, and %q runs", err, m.runs())
		}

		m.ran = nil
		if err := srv.RemoveOllama(t.Context(), request.RemoveOllama{}); err != nil {
			t.Fatal(err)
		}
		if m.runs() != "" || m.versions() != "" || !m.did("systemctl stop ollama.service") || m.file(ollamaDir+"/models/blobs/sha256-0") != "weights" {
			t.Errorf("it was removed: %q runs of %q, %q", m.runs(), m.versions(), m.ran)
		}
		for range 2 { // removing what isn't there is no error
			if err := srv.RemoveOllama(t.Context(), request.RemoveOllama{Models: true}); err != nil {
				t.Fatal(err)
			}
		}
		if m.file(ollamaDir+"/models/blobs/sha256-0") != "(none)" || m.file(ollamaDir+"/models/none") != "(none)" {
			t.Error("the models are still there")
		}
		if info, err := os.Stat(m.path(ollamaDir, "models")); err != nil || !info.IsDir() {
			t.Errorf("their directory is gone: %v", err)
		}
	})
}

// A version that doesn't stay up makes room for that of before.
func TestOllamaFallsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, down := withModels(t)
		srv := m.server()
		down["broken"] = true
		broken, brokenSum := version(t, "broken")
		if err := install(srv, t, broken, brokenSum); !errors.Is(err, request.Refused) || !strings.Contains(err.Error(), "doesn't stay up") {
			t.Errorf("broken: %v", err)
		}
		if m.runs() != "" || m.versions() != "" || !m.did("systemctl stop ollama.service") {
			t.Errorf("%q runs of %q, %q", m.runs(), m.versions(), m.ran)
		}
		good, goodSum := version(t, "good")
		if err := install(srv, t, good, goodSum); err != nil {
			t.Fatal(err)
		}
		m.ran = nil
		if err := install(srv, t, broken, brokenSum); !errors.Is(err, request.Refused) {
			t.Errorf("broken: %v", err)
		}
		if m.runs() != "good" || m.versions() != goodSum[:12] || len(m.ran) < 2 || m.ran[len(m.ran)-1] != "systemctl restart ollama.service" {
			t.Errorf("%q runs of %q, %q", m.runs(), m.versions(), m.ran)
		}
	})
}

// Whatever is wrong with an archive, nothing of it stays, and what ran runs.
func TestOllamaRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := withModels(t)
		srv := m.server()
		good, goodSum := version(t, "good")
		if err := install(srv, t, good, goodSum); err != nil {
			t.Fatal(err)
		}
		ran := len(m.ran)
		other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]
		link := func(name, to string) inArchive {
			return inArchive{tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: to}, ""}
		}
		runs := inside("bin/ollama", 0o755, program(runtime.GOARCH))
		for name, c := range map[string]struct {
			entries []inArchive
			want    string
		}{
			"no program":        {[]inArchive{inside("ollama", 0o755, program(runtime.GOARCH))}, "no program"},
			"a script":          {[]inArchive{inside("bin/ollama", 0o755, "#!/bin/sh\nexec rm -rf /\n")}, "other processors"},
			"no right to run":   {[]inArchive{inside("bin/ollama", 0o644, program(runtime.GOARCH))}, "no program"},
			"a program's start": {[]inArchive{inside("bin/ollama", 0o755, "\x7fELF")}, "no program"},
			"a link":            {[]inArchive{inside("bin/x", 0o755, "x"), link("bin/ollama", "x")}, "no program"},
			"other processors":  {[]inArchive{inside("bin/ollama", 0o755, program(other))}, "it is for " + other},
			"a name upwards":    {[]inArchive{runs, inside("../../../evil", 0o755, "x")}, "leads elsewhere"},
			"an absolute name":  {[]inArchive{runs, inside("/evil", 0o755, "x")}, "leads elsewhere"},
			"a link out":        {[]inArchive{runs, link("lib", "../../../../etc"), inside("lib/evil", 0o755, "x")}, "beside or below"},
			"an absolute link":  {[]inArchive{runs, link("lib", "/etc")}, "beside or below"},
			"a device":          {[]inArchive{runs, {tar.Header{Typeflag: tar.TypeBlock, Name: "disk", Devmajor: 8}, ""}}, "of type"},
			"a name twice":      {[]inArchive{runs, runs}, "exists"},
			"a file as parent":  {[]inArchive{runs, inside("bin/ollama/x", 0o644, "x")}, "bin/ollama"},
		} {
			content, sum := packed(t, c.entries...)
			if err := install(srv, t, content, sum); !errors.Is(err, request.Refused) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v", name, err)
			}
		}
		content, sum := version(t, "new")
		if err := install(srv, t, content, strings.Repeat("0", 64)); !errors.Is(err, request.Refused) || !strings.Contains(err.Error(), sum) {
			t.Errorf("another hash: %v", err)
		}
		for name, bad := range map[string][]byte{"text": []byte("text"), "half": content[:len(content)/2], "nothing": nil, "a damaged one": append(bytes.Clone(content[:100]), content[120:]...)} {
			h := sha256.Sum256(bad)
			if err := install(srv, t, bad, hex.EncodeToString(h[:])); !errors.Is(err, request.Refused) {
				t.Errorf("%s: %v", name, err)
			}
		}
		dir, err := os.Open(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		if err := srv.InstallOllama(t.Context(), request.InstallOllama{SHA256: sum}, dir); !errors.Is(err, request.Refused) {
			t.Errorf("a directory: %v", err)
		}
		m.Free = func(string) (int64, error) { return roomLeft + 20, nil }
		if err := install(srv, t, content, sum); !errors.Is(err, request.NoRoom) {
			t.Errorf("no room: %v", err)
		}
		m.Free = func(string) (int64, error) { return 10 << 30, nil }
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := srv.InstallOllama(ctx, request.InstallOllama{SHA256: sum}, opened(t, content)); !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
		if m.runs() != "good" || m.versions() != goodSum[:12] || len(m.ran) != ran {
			t.Errorf("%q runs of %q, %q", m.runs(), m.versions(), m.ran[ran:])
		}

		srv.ollama.Lock()
		if err := install(srv, t, content, sum); !errors.Is(err, request.Unavailable) {
			t.Errorf("two at once: %v", err)
		}
		srv.ollama.Unlock()
		srv.report.Degraded = "the disk is read-only"
		if err := install(srv, t, content, sum); !errors.Is(err, request.Unavailable) {
			t.Errorf("a read-only disk: %v", err)
		}
		if err := newMachine(t).server().RemoveOllama(t.Context(), request.RemoveOllama{}); !errors.Is(err, request.Unavailable) {
			t.Errorf("without a data partition: %v", err)
		}
	})
}

// killed does something and is killed at the given step. It says which that was;
// empty: there were fewer.
func (m *machine) killed(n int, do func()) (where string) {
	defer func() {
		if r := recover(); r != nil {
			cut, ok := r.(powerCut)
			if !ok {
				panic(r)
			}
			where = cut.at
		}
		m.step = nil
	}()
	m.step = func(what string) {
		if n--; n < 0 {
			panic(powerCut{what})
		}
	}
	do()
	return ""
}

// A helper that is killed at any step leaves a version that runs, and what the next
// one doesn't complete.
func TestOllamaKilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, oldSum := version(t, "old")
		young, youngSum := version(t, "young")
		steps := 0
		for n := 0; ; n++ {
			m, _ := withModels(t)
			if err := install(m.server(), t, old, oldSum); err != nil {
				t.Fatal(err)
			}
			srv := m.server()
			at := m.killed(n, func() { _ = install(srv, t, young, youngSum) })
			if at == "" {
				break
			}
			steps++
			if r := m.runs(); r != "old" && r != "young" {
				t.Errorf("killed when %s: %q runs", at, r)
			}
			m.write(ollamaDir+"/"+versions+"/"+unfinished+"0123456789ab/bin/ollama", "half")
			srv = m.server()
			if r, v := m.runs(), m.versions(); v != map[string]string{"old": oldSum[:12], "young": youngSum[:12]}[r] {
				t.Errorf("killed when %s: after the next start there are %q", at, v)
			}
			if err := install(srv, t, young, youngSum); err != nil || m.runs() != "young" || m.versions() != youngSum[:12] {
				t.Errorf("killed when %s: once more: %v, %q runs of %q", at, err, m.runs(), m.versions())
			}
			at = m.killed(0, func() { _ = srv.RemoveOllama(t.Context(), request.RemoveOllama{}) })
			if at == "" || m.runs() != "" {
				t.Errorf("killed when %s: %q runs", at, m.runs())
			}
			if m.server(); m.versions() != "" {
				t.Errorf("%q stay", m.versions())
			}
		}
		if steps != 4 {
			t.Errorf("it was killed at %d steps", steps)
		}
	})
}
