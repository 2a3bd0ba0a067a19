package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"farhand/client"
	"farhand/wire"
)

// wires is a TCP proxy in front of a bench's relay whose connections are cut after
// some bytes, or stand still there.
type wires struct {
	t      *testing.T
	to     string
	listen net.Listener
	url    string
	moved  atomic.Int64 // bytes, both ways together
	cuts   atomic.Int64

	mu       sync.Mutex
	rng      *rand.Rand
	most     int64         // a connection lasts up to so many bytes; 0: for ever
	still    int64         // of moved, where all stands still; 0: never
	stood    chan struct{} // closed when it does
	released chan struct{} // closed when it goes on
	live     map[net.Conn]bool
}

func newWires(b *bench, seed uint64) *wires {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.t.Fatal(err)
	}
	w := &wires{t: b.t, to: b.listen, listen: l, url: "http://" + l.Addr().String(), rng: rand.New(rand.NewPCG(seed, seed)), live: map[net.Conn]bool{}}
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { w.carry(c) })
		}
	})
	b.t.Cleanup(func() {
		l.Close()
		w.goOn()
		w.cut()
		tasks.Wait()
	})
	return w
}

// carry copies both ways until an end closes or the connection's time is over.
func (w *wires) carry(near net.Conn) {
	far, err := net.Dial("tcp", w.to)
	if err != nil {
		near.Close()
		return
	}
	w.mu.Lock()
	left := new(atomic.Int64)
	left.Store(1 << 62)
	if w.most > 0 {
		left.Store(1 + w.rng.Int64N(w.most))
	}
	w.live[near], w.live[far] = true, true
	w.mu.Unlock()
	end := func() { near.Close(); far.Close() }
	var both sync.WaitGroup
	for _, d := range [][2]net.Conn{{near, far}, {far, near}} {
		both.Go(func() {
			defer end()
			w.copy(d[1], d[0], left)
		})
	}
	both.Wait()
	w.mu.Lock()
	delete(w.live, near)
	delete(w.live, far)
	w.mu.Unlock()
}

func (w *wires) copy(to, from net.Conn, left *atomic.Int64) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		w.pass(int64(n))
		if over := left.Add(-int64(n)); over < 0 { // cut in the middle of what was read
			to.Write(buf[:max(0, int64(n)+over)])
			w.cuts.Add(1)
			return
		}
		if _, e := to.Write(buf[:n]); err != nil || e != nil {
			return
		}
	}
}

// pass counts, and stands still where it is to.
func (w *wires) pass(n int64) {
	moved := w.moved.Add(n)
	w.mu.Lock()
	wait := w.released
	if w.still == 0 || moved < w.still {
		wait = nil
	} else if moved-n < w.still {
		close(w.stood)
	}
	w.mu.Unlock()
	if wait != nil {
		<-wait
	}
}

// standStill lets so many more bytes through, and none after these.
func (w *wires) standStill(after int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.still, w.stood, w.released = w.moved.Load()+after, make(chan struct{}), make(chan struct{})
}

// await waits until it stands still.
func (w *wires) await() {
	w.t.Helper()
	select {
	case <-w.stood:
	case <-time.After(patience):
		w.t.Fatal("not enough bytes came for the wires to stand still")
	}
}

func (w *wires) goOn() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.still != 0 {
		w.still = 0
		close(w.released)
	}
}

// cut cuts every connection there is.
func (w *wires) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.live {
		c.Close()
	}
}

// cutWithin cuts each connection to come after up to so many bytes; 0: never.
func (w *wires) cutWithin(most int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.most = most
}

func noise(seed uint64, n int) []byte {
	b := make([]byte, n)
	rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// copied is what put, get and cp say with --json.
type copied struct {
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"`
	Resumed int64  `json:"resumed_bytes"`
	SHA256  string `json:"sha256"`

	Files   int `json:"files"`
	Dirs    int `json:"directories"`
	Links   int `json:"links"`
	Same    int `json:"unchanged"`
	Skipped []struct{ Path, Why string }
}

// leftovers are what unfinished copies left in a directory.
func leftovers(t *testing.T, dir string) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if strings.HasPrefix(d.Name(), ".farhand-") {
			all = append(all, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A file arrives whole whatever is cut while it is on its way: the operator's link
// and the machine's, at bytes that nobody chose.
func TestTransferCuts(t *testing.T) {
	t.Parallel()
	seed := uint64(number(t, "FARHAND_TEST_SEED", int(time.Now().UnixNano()&0xffff)))
	t.Logf("FARHAND_TEST_SEED=%d", seed)
	b := newBench(t)
	machine := newWires(b, seed)
	b.url = machine.url
	b.claim("files")
	operator := newWires(b, seed+1)
	b.url = operator.url
	content := noise(seed, 24<<20+123)
	b.write(filepath.Join(b.here(), "big"), string(content))
	src, err := client.LocalSource(filepath.Join(b.here(), "big"))
	if err != nil {
		t.Fatal(err)
	}
	c := b.sdk()
	s, err := c.Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	operator.cutWithin(6 << 20)
	var cutMachine sync.Once
	var last int64
	tell := func(done, total int64) {
		if done > total {
			t.Errorf("%d of %d bytes", done, total)
		}
		if last = done; done > total/2 {
			cutMachine.Do(machine.cut)
		}
	}
	sent, err := s.Put(t.Context(), "sub/big", src, client.PutOptions{CreateParents: true, Tell: tell, Patience: patience})
	if err != nil || sent.SHA256 != sumOf(content) || sent.Bytes != int64(len(content)) || last != sent.Bytes {
		t.Fatalf("%+v, told %d, %v", sent, last, err)
	}
	if got := b.read(filepath.Join(b.root(), "sub/big")); !bytes.Equal(got, content) {
		t.Fatal("the machine has another content")
	}
	if operator.cuts.Load() < 2 {
		t.Errorf("only %d cuts", operator.cuts.Load())
	}

	before := operator.cuts.Load()
	back, err := s.Source(t.Context(), "sub/big", patience)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.OpenRoot(b.here())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	cutMachine = sync.Once{}
	got, err := client.PutLocal(t.Context(), dir, "back", back, client.PutOptions{Tell: tell})
	if err != nil || got.Bytes != int64(len(content)) {
		t.Fatalf("%+v, %v", got, err)
	}
	if !bytes.Equal(b.read(filepath.Join(b.here(), "back")), content) {
		t.Fatal("another content came back")
	}
	if operator.cuts.Load()-before < 2 {
		t.Errorf("only %d cuts on the way back", operator.cuts.Load()-before)
	}
	if left := append(leftovers(t, b.root()), leftovers(t, b.here())...); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// A daemon and a relay that are killed while a file is on its way cost no more than
// what lay in memory, 32 MiB at most, and the command goes on by itself.
func TestTransferKills(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files")
	w := newWires(b, 1)
	far := b.operator("far", "FARHAND_URL="+w.url, "FARHAND_TOKEN="+b.owner.secret())
	content := noise(2, 64<<20)
	b.write(filepath.Join(b.here(), "big"), string(content))
	farhand := func(args ...string) *process {
		t.Helper()
		cmd := append([]string{program("farhand"), "--json"}, args...)
		return startIn(t, "farhand", b.here(), b.env(far.env...), cmd...)
	}
	for name, kill := range map[string]func(){
		"daemon": func() {
			b.daemon.kill()
			b.startDaemon()
		},
		"stopped daemon": func() {
			b.daemon.stop()
			b.startDaemon()
		},
		"relay": func() {
			b.relay.kill()
			b.startRelay()
		},
	} {
		for _, args := range [][]string{{"put", "big", ":by " + name}, {"get", ":by " + name, "back " + name}} {
			w.standStill(56 << 20)
			from := w.moved.Load()
			p := farhand(args...)
			w.await()
			kill()
			w.goOn()
			if code := p.exit(); code != 0 {
				t.Fatalf("%s killed: %q gives %d", name, args, code)
			}
			if moved := w.moved.Load() - from; moved > int64(len(content))+(34<<20) {
				t.Errorf("%s killed: %q moved %d bytes for %d", name, args, moved, len(content))
			}
		}
		if !bytes.Equal(b.read(filepath.Join(b.root(), "by "+name)), content) || !bytes.Equal(b.read(filepath.Join(b.here(), "back "+name)), content) {
			t.Errorf("%s killed: another content", name)
		}
	}
	t.Run("command", func(t *testing.T) {
		for _, args := range [][]string{{"put", "big", ":there"}, {"get", ":there", "here"}} {
			w.standStill(24 << 20)
			p := farhand(args...)
			w.await()
			p.kill()
			w.cut()
			w.goOn()
			done := parse[copied](t, far.must(append([]string{"--json"}, args...)...))
			if done.Bytes != int64(len(content)) || done.Resumed < 16<<20 {
				t.Errorf("%q again: %+v", args, done)
			}
		}
		if !bytes.Equal(b.read(filepath.Join(b.root(), "there")), content) || !bytes.Equal(b.read(filepath.Join(b.here(), "here")), content) {
			t.Error("another content")
		}
	})
	if left := append(leftovers(t, b.root()), leftovers(t, b.here())...); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	b.wholeAudit()
}

// A file that changes on its way is an error, and nothing of it takes a place.
func TestTransferSourceChanges(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files")
	w := newWires(b, 1)
	far := b.operator("far", "FARHAND_URL="+w.url, "FARHAND_TOKEN="+b.owner.secret())
	content := noise(3, 12<<20)
	for _, c := range []struct {
		name, file, left string
		args             []string
	}{
		{"put", filepath.Join(b.here(), "big"), b.root(), []string{"put", "big", ":there"}},
		{"get", filepath.Join(b.root(), "big"), b.here(), []string{"get", ":big", "there"}},
	} {
		b.write(c.file, string(content))
		w.standStill(4 << 20)
		p := startIn(t, c.name, b.here(), b.env(far.env...), append([]string{program("farhand")}, c.args...)...)
		w.await()
		f, err := os.OpenFile(c.file, os.O_WRONLY|os.O_APPEND, 0)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(f, "more")
		f.Close()
		w.goOn()
		if code := p.exit(); code != 1 {
			t.Errorf("%s gives %d", c.name, code)
		}
		p.await(0, "SOURCE_CHANGED")
		if _, err := os.Lstat(filepath.Join(c.left, "there")); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", c.name, err)
		}
		if left := leftovers(t, c.left); len(left) > 0 {
			t.Errorf("%s left %q", c.name, left)
		}
	}
}

// Trees with everything that can be in them, there, from there to another machine,
// and back.
func TestTransferTrees(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files")
	second := bareBench(t)
	second.url, second.owner = b.url, b.owner
	second.claim("files")

	top := filepath.Join(b.here(), "tree")
	when := time.Date(2003, 4, 5, 6, 7, 8, 123456789, time.UTC)
	for name, f := range map[string]struct {
		size int
		mode fs.FileMode
	}{
		"plain": {5, 0o644}, "script": {100, 0o755}, "secret": {1, 0o600}, "readonly": {3, 0o444}, "empty": {0, 0o640},
		"a/b/c/deep": {1000, 0o664}, "large": {3<<20 + 1, 0o644}, "just a piece": {wire.TransferPiece, 0o644},
		"grüße 🙂": {7, 0o644}, "line\nbreak": {7, 0o644}, "-dash": {7, 0o644}, "quote'\"$(x)": {7, 0o644}, "a:b": {1, 0o644}, `back\slash`: {1, 0o644},
		".hidden": {2, 0o644}, "..dots": {2, 0o644}, "locked/in": {4, 0o644},
	} {
		path := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		b.write(path, string(noise(uint64(len(name)), f.size)))
		if err := errors.Join(os.Chmod(path, f.mode), os.Chtimes(path, when, when)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 60 {
		b.write(filepath.Join(top, fmt.Sprintf("many-%02d", i)), fmt.Sprint(i))
	}
	for link, target := range map[string]string{
		"to-plain": "plain", "a/up": "../plain", "to-dir": "a/b", "dangling": "not/there", "a/b/self": ".",
		"out": "../outside", "abs": "/etc/passwd", "a/b/out": "../../../outside", "sly": "a/b/self/../../../outside", "a/dotted": "b/../../plain",
	} {
		if err := os.Symlink(target, filepath.Join(top, link)); err != nil {
			t.Fatal(err)
		}
	}
	for dir, mode := range map[string]fs.FileMode{"nothing/in/it": 0o700, "locked": 0o555, "a/b": 0o751, "": 0o750} {
		path := filepath.Join(top, dir)
		if err := errors.Join(os.MkdirAll(path, 0o755), os.Chmod(path, mode), os.Chtimes(path, when, when)); err != nil {
			t.Fatal(err)
		}
		defer os.Chmod(path, 0o755)
	}
	b.write(filepath.Join(b.here(), "outside"), "never to be seen")

	out := parse[copied](t, b.owner.must("--json", "put", "tree", "bench:"))
	skipped := func(c copied) []string {
		var names []string
		for _, s := range c.Skipped {
			names = append(names, s.Path)
		}
		slices.Sort(names)
		return names
	}
	left := []string{"a/b/out", "a/dotted", "abs", "out", "sly"}
	if out.Files != 77 || out.Dirs != 7 || out.Links != 5 || out.Same != 0 || !slices.Equal(skipped(out), left) {
		t.Errorf("put: %+v", out)
	}
	sameTree(t, top, filepath.Join(b.root(), "tree"), left)

	again := parse[copied](t, b.owner.must("--json", "put", "tree", "bench:"))
	if again.Same != out.Files || again.Bytes != out.Bytes {
		t.Errorf("put again: %+v", again)
	}
	over := parse[copied](t, b.owner.must("--json", "cp", "bench:tree", "bench-2:copy"))
	if over.Files != out.Files || over.Dirs != out.Dirs || over.Links != out.Links || len(over.Skipped) != 0 {
		t.Errorf("cp: %+v", over)
	}
	sameTree(t, top, filepath.Join(second.root(), "copy"), left)

	back := parse[copied](t, b.owner.must("--json", "get", "bench-2:copy", "back"))
	if back.Files != out.Files || len(back.Skipped) != 0 {
		t.Errorf("get: %+v", back)
	}
	sameTree(t, top, filepath.Join(b.here(), "back"), left)
	for _, dir := range []string{b.root(), second.root(), b.here()} {
		if n := leftovers(t, dir); len(n) > 0 {
			t.Errorf("left behind: %q", n)
		}
	}

	// A machine that would lead a copy astray: links out of what is copied.
	b.owner.must("put", "outside", "bench:outside")
	for link, target := range map[string]string{"out": "../outside", "abs": b.root() + "/outside"} {
		if err := os.Symlink(target, filepath.Join(b.root(), "tree", link)); err != nil {
			t.Fatal(err)
		}
	}
	astray := parse[copied](t, b.owner.must("--json", "get", "bench:tree", "astray"))
	if !slices.Equal(skipped(astray), []string{"abs", "out"}) {
		t.Errorf("left out: %+v", astray.Skipped)
	}
	b.owner.fails(1, wire.PathOutsideAllowedRoot, "get", "bench:../here/outside", "x")
	b.owner.fails(2, "USAGE", "get", "bench:tree", "-")

	// One file from machine to machine, without a copy here.
	b.owner.must("cp", "bench:tree/large", "bench-2:")
	if !bytes.Equal(second.read(filepath.Join(second.root(), "large")), b.read(filepath.Join(top, "large"))) {
		t.Error("cp brought another content")
	}
	b.owner.must("cp", "bench:tree/large", "bench:large2")
	if !bytes.Equal(b.read(filepath.Join(b.root(), "large2")), b.read(filepath.Join(top, "large"))) {
		t.Error("cp on one machine brought another content")
	}
	b.wholeAudit()
}

// sameTree compares all that is kept; left is what isn't copied.
func sameTree(t *testing.T, want, got string, left []string) {
	t.Helper()
	describe := func(top string) (map[string]string, map[string]time.Time) {
		all, dirs := make(map[string]string), make(map[string]time.Time)
		err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			name, _ := filepath.Rel(top, path)
			info, err := d.Info()
			if err != nil {
				return err
			}
			text := fmt.Sprint(info.Mode())
			switch {
			case d.Type() == fs.ModeSymlink:
				target, _ := os.Readlink(path)
				text = "link to " + target
			case d.Type().IsRegular():
				b, err := os.ReadFile(path)
				if err != nil {
					return err
				}
				text += " " + info.ModTime().UTC().Format(time.RFC3339Nano) + " " + sumOf(b)
			case strings.Contains("nothing/in/it locked a/b .", name):
				dirs[name] = info.ModTime()
			}
			if !slices.Contains(left, name) {
				all[name] = text
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return all, dirs
	}
	w, wantTimes := describe(want)
	g, gotTimes := describe(got)
	for name, at := range wantTimes {
		// The time of what was asked for itself comes as a number of seconds.
		if off := gotTimes[name].Sub(at).Abs(); off > time.Microsecond {
			t.Errorf("%s %q is of %v, want %v", got, name, gotTimes[name], at)
		}
	}
	for name := range w {
		if w[name] != g[name] {
			t.Errorf("%s %q is %q, want %q", got, name, g[name], w[name])
		}
	}
	for name := range g {
		if _, ok := w[name]; !ok {
			t.Errorf("%s %q is there", got, name)
		}
	}
}

// Several at once, each whole, with other requests between them.
func TestTransferParallel(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files")
	s, err := b.sdk().Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.OpenRoot(b.here())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	b.write(filepath.Join(b.root(), "there"), string(noise(9, 6<<20)))
	var all sync.WaitGroup
	for i := range 6 {
		name := fmt.Sprintf("up-%d", i)
		b.write(filepath.Join(b.here(), name), string(noise(uint64(i), 5<<20+i)))
		all.Go(func() {
			src, err := client.LocalSource(filepath.Join(b.here(), name))
			if err == nil {
				_, err = s.Put(ctx, name, src, client.PutOptions{})
			}
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
		all.Go(func() {
			src, err := s.Source(ctx, "there", 0)
			if err == nil {
				_, err = client.PutLocal(ctx, dir, fmt.Sprintf("down-%d", i), src, client.PutOptions{})
			}
			if err != nil {
				t.Errorf("down %d: %v", i, err)
			}
		})
	}
	moving := make(chan struct{})
	var between sync.WaitGroup
	asked := 0
	between.Go(func() {
		for {
			select {
			case <-moving:
				return
			default:
			}
			if _, err := s.Stat(ctx, "there", true); err != nil {
				t.Errorf("between: %v", err)
				return
			}
			asked++
		}
	})
	all.Wait()
	close(moving)
	between.Wait()
	if asked == 0 {
		t.Error("nothing else got through")
	}
	for i := range 6 {
		name := fmt.Sprintf("up-%d", i)
		if !bytes.Equal(b.read(filepath.Join(b.root(), name)), noise(uint64(i), 5<<20+i)) {
			t.Errorf("%s is another", name)
		}
		if !bytes.Equal(b.read(filepath.Join(b.here(), fmt.Sprintf("down-%d", i))), noise(9, 6<<20)) {
			t.Errorf("down-%d is another", i)
		}
	}
}
