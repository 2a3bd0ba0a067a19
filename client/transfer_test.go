package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"farhand/client"
	"farhand/client/clienttest"
	"farhand/wire"
)

// machine is a scripted one that takes and gives files in pieces. Requests reach it
// in any order, which a relay's never do.
type machine struct {
	content []byte
	spoil   func(r wire.TransferRead, d *wire.TransferData, data *[]byte) error
	entries []wire.TransferEntry
}

func (m *machine) handle(env wire.Envelope) (wire.Type, any, error) {
	switch env.Type {
	case wire.TTransferRead:
		var r wire.TransferRead
		if err := wire.Decode(env.Payload, &r); err != nil {
			return "", nil, err
		}
		end := min(r.Offset+r.Length, int64(len(m.content)))
		data := m.content[min(r.Offset, end):end]
		sum := sha256.Sum256(data)
		d := wire.TransferData{Version: "v", Size: int64(len(m.content)), Mode: "0640", MTimeNS: 1e18, Length: int64(len(data)), SHA256: hex.EncodeToString(sum[:])}
		if m.spoil != nil {
			if err := m.spoil(r, &d, &data); err != nil {
				return "", nil, err
			}
		}
		if r.HashOnly {
			data = nil
		}
		return wire.TTransferData, &wire.Attached{Payload: d, Data: data}, nil
	case wire.TTransferList:
		return wire.TTransferEntries, wire.TransferEntries{Entries: m.entries}, nil
	}
	return "", nil, clienttest.ErrPass
}

func transfers(t *testing.T, m *machine) *client.Session {
	r, c := setup(t)
	r.Change(func() {
		r.Handle = m.handle
		r.Machines[0].Capabilities = append(slices.Clone(r.Machines[0].Capabilities), wire.Transfer)
	})
	return open(t, c)
}

func noise(n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}

func localRoot(t *testing.T) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func TestPutLocal(t *testing.T) {
	m := &machine{content: noise(3*wire.TransferPiece + 5)}
	s := transfers(t, m)
	src, err := s.Source(t.Context(), "f", -1)
	if err != nil || src.Size != int64(len(m.content)) || src.Mode != 0o640 {
		t.Fatalf("%+v, %v", src, err)
	}
	dir := localRoot(t)
	if err := dir.WriteFile("f", []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	var last int64
	sent, err := client.PutLocal(t.Context(), dir, "f", src, client.PutOptions{Tell: func(done, _ int64) { last = done }})
	if err != nil || sent.Bytes != src.Size || last != src.Size || sent.Resumed != 0 {
		t.Fatalf("%+v, told %d, %v", sent, last, err)
	}
	got, _ := dir.ReadFile("f")
	info, _ := dir.Stat("f")
	if !bytes.Equal(got, m.content) || info.Mode() != 0o640 || !info.ModTime().Equal(time.Unix(0, 1e18)) {
		t.Errorf("%d bytes, %v, %v", len(got), info.Mode(), info.ModTime())
	}
	if sent, err = client.PutLocal(t.Context(), dir, "f", src, client.PutOptions{UnlessSame: true}); err != nil || !sent.Same {
		t.Errorf("the same: %+v, %v", sent, err)
	}
}

// What came of a file is gone on with as far as the machine still has it.
func TestPutLocalGoesOn(t *testing.T) {
	m := &machine{content: noise(4 * wire.TransferPiece)}
	s := transfers(t, m)
	dir := localRoot(t)
	broken := errors.New("the disk is broken")
	m.spoil = func(r wire.TransferRead, _ *wire.TransferData, _ *[]byte) error {
		if !r.HashOnly && r.Offset >= 2*wire.TransferPiece {
			return wire.Errorf(wire.InternalError, "%v", broken)
		}
		return nil
	}
	copy := func() (client.Sent, error) {
		src, err := s.Source(t.Context(), "f", -1)
		if err != nil {
			return client.Sent{}, err
		}
		return client.PutLocal(t.Context(), dir, "f", src, client.PutOptions{})
	}
	if _, err := copy(); !errors.Is(err, wire.InternalError) {
		t.Fatal(err)
	}
	left, _ := filepath.Glob(filepath.Join(dir.Name(), ".farhand-get-*"))
	if _, err := dir.Stat("f"); !errors.Is(err, os.ErrNotExist) || len(left) != 1 {
		t.Fatalf("%v, left %q", err, left)
	}
	m.spoil = nil
	if sent, err := copy(); err != nil || sent.Resumed != 2*wire.TransferPiece {
		t.Fatalf("%+v, %v", sent, err)
	}
	if got, _ := dir.ReadFile("f"); !bytes.Equal(got, m.content) {
		t.Error("another content")
	}
	// A part that isn't what the machine has is begun anew.
	if err := errors.Join(dir.Remove("f"), os.WriteFile(left[0], noise(100)[50:], 0o600)); err != nil {
		t.Fatal(err)
	}
	if sent, err := copy(); err != nil || sent.Resumed != 0 {
		t.Fatalf("%+v, %v", sent, err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir.Name(), ".farhand-get-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	// One that nobody wants is swept by who comes after a week.
	old := filepath.Join(dir.Name(), ".farhand-get-0123456789abcdef")
	then := time.Now().Add(-8 * 24 * time.Hour)
	if err := errors.Join(os.WriteFile(old, nil, 0o600), os.Chtimes(old, then, then)); err != nil {
		t.Fatal(err)
	}
	if _, err := copy(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(old); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

// Old files that come side by side aren't taken for what nobody went on with.
func TestPutLocalSideBySide(t *testing.T) {
	dir := localRoot(t)
	then := time.Now().Add(-10 * 365 * 24 * time.Hour)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for j := range 50 {
				name := fmt.Sprint(i, "-", j)
				src := client.Source{Size: 1, Key: name, ModTime: then, Open: func(context.Context, int64) (io.ReadCloser, error) {
					return io.NopCloser(strings.NewReader("x")), nil
				}}
				if _, err := client.PutLocal(t.Context(), dir, name, src, client.PutOptions{}); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if info, err := dir.Stat(name); err != nil || !info.ModTime().Equal(then) {
					t.Errorf("%s: %v, %v", name, info, err)
				}
			}
		})
	}
	all.Wait()
}

// What a machine says that isn't so never becomes a file.
func TestFetchDistrusts(t *testing.T) {
	m := &machine{content: noise(2 * wire.TransferPiece)}
	s := transfers(t, m)
	later := func(f func(d *wire.TransferData, data *[]byte)) func(wire.TransferRead, *wire.TransferData, *[]byte) error {
		return func(r wire.TransferRead, d *wire.TransferData, data *[]byte) error {
			if r.Offset > 0 {
				f(d, data)
			}
			return nil
		}
	}
	for name, c := range map[string]struct {
		spoil func(d *wire.TransferData, data *[]byte)
		code  wire.Code
	}{
		"another byte":    {func(_ *wire.TransferData, data *[]byte) { *data = append([]byte{1}, (*data)[1:]...) }, wire.TransferMismatch},
		"too little":      {func(_ *wire.TransferData, data *[]byte) { *data = (*data)[1:] }, wire.SourceChanged},
		"nothing":         {func(_ *wire.TransferData, data *[]byte) { *data = nil }, wire.SourceChanged},
		"too much":        {func(_ *wire.TransferData, data *[]byte) { *data = append(slices.Clone(*data), 1) }, wire.SourceChanged},
		"another version": {func(d *wire.TransferData, _ *[]byte) { d.Version = "w" }, wire.SourceChanged},
	} {
		m.spoil = nil
		src, err := s.Source(t.Context(), "f", -1)
		if err != nil {
			t.Fatal(err)
		}
		m.spoil = later(c.spoil)
		dir := localRoot(t)
		if _, err = client.PutLocal(t.Context(), dir, "f", src, client.PutOptions{}); !errors.Is(err, c.code) {
			t.Errorf("%s: %v, want %s", name, err, c.code)
		}
		if _, err := dir.Lstat("f"); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", name, err)
		}
	}
	m.spoil = func(_ wire.TransferRead, d *wire.TransferData, _ *[]byte) error { d.Mode = "rwx"; return nil }
	if _, err := s.Source(t.Context(), "f", -1); !errors.Is(err, wire.InternalError) {
		t.Errorf("a mode that is none: %v", err)
	}
}

// A reader that ends early leaves nothing under way.
func TestFetchClosedEarly(t *testing.T) {
	s := transfers(t, &machine{content: noise(20 * wire.TransferPiece)})
	src, err := s.Source(t.Context(), "f", -1)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 { // more than there are slots
		r, err := src.Open(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(r, make([]byte, 10)); err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, err := src.Open(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := io.Copy(io.Discard, r); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.Close()
}

// Names and links from a machine stay where they belong.
func TestTreeDistrusts(t *testing.T) {
	m := &machine{}
	s := transfers(t, m)
	for _, name := range []string{"..", ".", "", "a/b", "/etc", "../x", "a\x00b/.."} {
		m.entries = []wire.TransferEntry{{Name: name, Kind: wire.TransferFile}}
		if all, err := s.Entries(t.Context(), "d"); !errors.Is(err, wire.InternalError) {
			t.Errorf("%q: %v, %v", name, all, err)
		}
	}
	m.entries = []wire.TransferEntry{{Name: "b"}, {Name: "a"}}
	if _, err := s.Entries(t.Context(), "d"); !errors.Is(err, wire.InternalError) {
		t.Errorf("out of order: %v", err)
	}
}

// tree is a directory in memory to copy from.
type tree map[string][]wire.TransferEntry

func (t tree) Self(context.Context) (wire.TransferEntry, error) {
	return wire.TransferEntry{Kind: wire.TransferDirectory, Mode: "0755", MTimeNS: 1e18}, nil
}
func (t tree) Entries(_ context.Context, dir string) ([]wire.TransferEntry, error) {
	return t[dir], nil
}
func (t tree) Source(_ context.Context, file string) (client.Source, error) {
	if strings.Contains(file, "bad") {
		return client.Source{}, wire.Errorf(wire.PathNotAllowed, "not this one")
	}
	return client.Source{Size: int64(len(file)), Mode: 0o600, HasMode: true, ModTime: time.Unix(0, 5e17),
		Open: func(context.Context, int64) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(file)), nil }}, nil
}

func TestCopyTree(t *testing.T) {
	link := func(name, target string) wire.TransferEntry {
		return wire.TransferEntry{Name: name, Kind: wire.TransferLink, Mode: "0777", Target: target}
	}
	from := tree{
		".": {
			{Name: "d", Kind: wire.TransferDirectory, Mode: "0500", MTimeNS: 7e17}, {Name: "f", Kind: wire.TransferFile, Size: 1, Mode: "0600", MTimeNS: 5e17},
			link("in", "d/g"), link("up", "../x"), link("abs", "/etc/passwd"), link("sly", "in/../../x"), link("empty", ""), {Name: "socket", Kind: wire.TransferOther},
			{Name: "not\xff", Kind: wire.TransferFile},
		},
		"d": {{Name: "g", Kind: wire.TransferFile, Size: 3, Mode: "0600", MTimeNS: 5e17}, link("up", "../f"), link("over", "../../f")},
	}
	dir := localRoot(t)
	var left []string
	o := client.TreeOptions{Skipped: func(name, _ string) { left = append(left, name) }}
	done, err := client.CopyTree(t.Context(), from, client.LocalTree{Root: dir}, o)
	if err != nil || done != (client.TreeCopied{Files: 2, Dirs: 1, Links: 2, Bytes: 4, Skipped: 7}) {
		t.Fatalf("%+v, %v", done, err)
	}
	if slices.Sort(left); !slices.Equal(left, []string{"abs", "d/over", "empty", "not\xff", "sly", "socket", "up"}) {
		t.Errorf("left out: %q", left)
	}
	if b, err := dir.ReadFile("in"); string(b) != "d/g" {
		t.Errorf("%q, %v", b, err)
	}
	if info, _ := dir.Stat("d"); info.Mode().Perm() != 0o500 || !info.ModTime().Equal(time.Unix(0, 7e17)) {
		t.Errorf("%v %v", info.Mode(), info.ModTime())
	}
	t.Cleanup(func() { dir.Chmod("d", 0o700) })
	if done, err = client.CopyTree(t.Context(), from, client.LocalTree{Root: dir}, o); err != nil || done.Same != 2 || done.Files != 2 {
		t.Errorf("again: %+v, %v", done, err)
	}
	from["."] = append(from["."], wire.TransferEntry{Name: "zbad", Kind: wire.TransferFile})
	if _, err = client.CopyTree(t.Context(), from, client.LocalTree{Root: dir}, o); !errors.Is(err, wire.PathNotAllowed) || !strings.Contains(fmt.Sprint(err), "not this one") {
		t.Errorf("%v", err)
	}
}

// Standard input can be gone on with a little way back, and no further.
func TestStreamSource(t *testing.T) {
	content := noise(30 << 20)
	src := client.StreamSource(bytes.NewReader(content))
	read := func(from, n int64) error {
		r, err := src.Open(t.Context(), from)
		if err != nil {
			return err
		}
		got := make([]byte, n)
		if _, err := io.ReadFull(r, got); err != nil {
			return err
		}
		if !bytes.Equal(got, content[from:from+n]) {
			return errors.New("another content")
		}
		return nil
	}
	for _, at := range []int64{0, 1 << 20, 4 << 20} {
		if err := read(at, 8<<20); err != nil {
			t.Errorf("from %d: %v", at, err)
		}
	}
	if err := read(20<<20, 1); err == nil {
		t.Error("what hasn't come yet was skipped to")
	}
	if err := read(12<<20, 18<<20); err != nil {
		t.Error(err)
	}
	if err := read(0, 1); err == nil {
		t.Error("what was long gone came again")
	}
	if err := read(13<<20, 10<<20); err != nil {
		t.Error(err)
	}
}

func TestLocalSource(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(name, []byte("content"), 0o640); err != nil {
		t.Fatal(err)
	}
	src, err := client.LocalSource(name)
	if err != nil || src.Size != 7 || src.Mode != 0o640 || src.Check(t.Context()) != nil {
		t.Fatalf("%+v, %v", src, err)
	}
	again, _ := client.LocalSource(name)
	if again.Key != src.Key {
		t.Error("the same file has another key")
	}
	if err := os.WriteFile(name, []byte("changed, longer"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := src.Check(t.Context()); !errors.Is(err, wire.SourceChanged) {
		t.Errorf("%v", err)
	}
	if _, err := src.Open(t.Context(), 0); !errors.Is(err, wire.SourceChanged) {
		t.Errorf("%v", err)
	}
	if other, _ := client.LocalSource(name); other.Key == src.Key {
		t.Error("another content has the same key")
	}
	if _, err := client.LocalSource(filepath.Dir(name)); !errors.Is(err, wire.InternalError) {
		t.Errorf("a directory: %v", err)
	}
}

// Two copies of one file into one directory at once don't spoil each other's: each
// comes to its own end, and nothing is left behind.
func TestPutLocalTwice(t *testing.T) {
	m := &machine{content: noise(4 * wire.TransferPiece)}
	s := transfers(t, m)
	dir := localRoot(t)
	reached, goOn := make(chan struct{}), make(chan struct{})
	source := func(hold bool) client.Source {
		src, err := s.Source(t.Context(), "f", -1)
		if err != nil {
			t.Fatal(err)
		}
		open := src.Open
		src.Open = func(ctx context.Context, offset int64) (io.ReadCloser, error) {
			r, err := open(ctx, offset)
			if hold && err == nil {
				return &held{ReadCloser: r, left: wire.TransferPiece, reached: reached, goOn: goOn}, nil
			}
			return r, err
		}
		return src
	}
	first := make(chan error, 1)
	go func() {
		_, err := client.PutLocal(t.Context(), dir, "f", source(true), client.PutOptions{})
		first <- err
	}()
	<-reached // the first has a part of it
	// The second one is given up in the middle; a third comes to its end.
	ctx, cancel := context.WithCancel(t.Context())
	src := source(false)
	open := src.Open
	src.Open = func(_ context.Context, offset int64) (io.ReadCloser, error) {
		cancel()
		return open(ctx, offset)
	}
	if _, err := client.PutLocal(t.Context(), dir, "f", src, client.PutOptions{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("the second: %v", err)
	}
	if sent, err := client.PutLocal(t.Context(), dir, "f", source(false), client.PutOptions{}); err != nil || sent.Bytes != src.Size {
		t.Fatalf("the third: %+v, %v", sent, err)
	}
	if got, _ := dir.ReadFile("f"); !bytes.Equal(got, m.content) {
		t.Error("the third has another content")
	}
	close(goOn)
	if err := <-first; err != nil {
		t.Fatalf("the first: %v", err)
	}
	if got, _ := dir.ReadFile("f"); !bytes.Equal(got, m.content) {
		t.Error("the first has another content")
	}
	if left, _ := filepath.Glob(filepath.Join(dir.Name(), ".farhand-get-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// held is a reader that waits after some bytes.
type held struct {
	io.ReadCloser
	left          int
	reached, goOn chan struct{}
}

func (h *held) Read(b []byte) (int, error) {
	if h.left == 0 {
		h.left--
		close(h.reached)
		<-h.goOn
	}
	if h.left > 0 {
		b = b[:min(len(b), h.left)]
	}
	n, err := h.ReadCloser.Read(b)
	if h.left > 0 {
		h.left -= n
	}
	return n, err
}
