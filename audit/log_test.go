package audit

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"farhand/internal/leak"
	"farhand/wire"
)

var testKey = bytes.Repeat([]byte("a"), KeySize)

func open(t *testing.T, path string, change ...func(*Options)) *Log {
	t.Helper()
	o := Options{Path: path, Key: testKey, MachineID: "m-1", ShimVersion: "0.1.0"}
	for _, c := range change {
		c(&o)
	}
	l, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func add(t *testing.T, l *Log, n int) {
	t.Helper()
	for i := range n {
		if err := l.Append(Entry{SessionID: "s", RequestID: fmt.Sprint("r", i), Op: "FILE_STAT", Details: []Field{String("path", "/home/pi/x")}, Result: Result{OK: true}}); err != nil {
			t.Fatal(err)
		}
	}
}

func verify(t *testing.T, path string, anchors ...wire.Anchor) Report {
	t.Helper()
	r, err := Verify(context.Background(), path, testKey, anchors...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func wantClean(t *testing.T, path string, seq int64) Report {
	t.Helper()
	r := verify(t, path)
	if !r.OK || len(r.Problems) != 0 || r.Seq != seq {
		t.Fatalf("want clean up to %d: %+v", seq, r)
	}
	return r
}

func wantProblem(t *testing.T, path, text string, anchors ...wire.Anchor) {
	t.Helper()
	r := verify(t, path, anchors...)
	if r.OK || !strings.Contains(strings.Join(r.Problems, "\n"), text) {
		t.Errorf("want a problem with %q: %+v", text, r)
	}
}

// crash ends the log as kill -9 does: nothing is synced, sealed or cut any more.
func crash(l *Log) {
	l.mu.Lock()
	l.closed = true
	l.fsync = func(*os.File) error { return errors.New("dead") }
	l.mu.Unlock()
	close(l.stop)
	<-l.done
	l.f.Close()
	l.head.f.Close()
}

func TestVector(t *testing.T) {
	// The record and its HMAC come from the Python shim.
	e := Entry{Op: OpShimStart, Details: []Field{
		String("shim_version", "0.1.0"), String("p", "café<&>\u2028\t\x01\x7f\"\\/"),
	}, Result: Result{OK: true}}
	line, mac, err := newEncoder(testKey, "m-1", "0.1.0").encode(&e, 1712345678, 1, "")
	if err != nil {
		t.Fatal(err)
	}
	const want = "c01029fe66585c872b59ab1483167f70c547dfad8930419fcdcd1a23f43d9bac"
	if mac != want {
		t.Errorf("hmac %s, want %s", mac, want)
	}
	const wantLine = `{"ts": 1712345678.0, "session_id": "-", "machine_id": "m-1", "shim_version": "0.1.0", "request_id": null, "op": "SHIM_START", ` +
		`"details": {"shim_version": "0.1.0", "p": "café<&>` + "\u2028" + `\t\u0001` + "\x7f" + `\"\\/"}, ` +
		`"result": {"ok": true, "exit_code": null, "duration_ms": 0, "error_code": null}, "seq": 1, "prev_hmac": null, "hmac": "` + want + "\"}\n"
	if string(line) != wantLine {
		t.Errorf("line\n%swant\n%s", line, wantLine)
	}
	r, err := parseRecord(line[:len(line)-1])
	if err != nil || sign(testKey, r.canonical) != want {
		t.Errorf("read back: %v, canonical %s", err, r.canonical)
	}
}

func TestFloatsAsPython(t *testing.T) {
	for _, c := range []struct {
		f    float64
		want string
	}{
		{0, "0.0"}, {1712345678, "1712345678.0"}, {1712345678.123456, "1712345678.123456"}, {0.1, "0.1"},
		{1e15, "1000000000000000.0"}, {1e16, "1e+16"}, {1.5e300, "1.5e+300"}, {1e-4, "0.0001"},
		{1e-5, "1e-05"}, {-2.5e-7, "-2.5e-07"}, {123456789012345680, "1.2345678901234568e+17"},
	} {
		if got := string(appendFloat(nil, c.f)); got != c.want {
			t.Errorf("%g: %s, want %s", c.f, got, c.want)
		}
	}
}

// TestEveryKindOfField: line and canonical form agree for whatever a record may
// hold, long and broken strings included.
func TestEveryKindOfField(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path)
	code := 3
	huge := strings.Repeat("é", 40<<10)
	entries := []Entry{
		{},
		{Op: "X", SessionID: huge, RequestID: huge, Result: Result{ExitCode: &code, Duration: 1500 * time.Millisecond, ErrorCode: wire.PathNotFound}},
		{Op: "Y", Details: []Field{
			String("z", "\xff\xfe"), String("a", huge), Int("n", -5), Float("f", 1e-7), Bool("b", true), Bool("c", false), Null("u"),
			Strings("l", []string{"x", "", huge, "after"}), Strings("none", nil),
			Object("o", String("z", huge), String("a", "1"), Object("p")), StringOrNull("sn", nil), IntOrNull("in", &code),
		}},
		{Op: "Z", Details: []Field{String("z", strings.Repeat("x", 200<<10)), String("y", huge), String("x", huge), String("w", huge), String("v", huge), String("a", huge)}},
		{Op: "W", Details: []Field{Strings("argv", make([]string, 1<<20))}},
	}
	for _, e := range entries {
		if err := l.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	wantClean(t, path, int64(len(entries)))
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		if !json.Valid(line) || len(line) > maxRecord {
			t.Errorf("line of %d bytes is no record", len(line))
		}
	}
	if !bytes.Contains(raw, []byte(`"z": "\\xff\\xfe"`)) {
		t.Error("broken UTF-8 isn't told apart")
	}
}

func TestKeyStandingTwiceIsRefused(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "audit.log"))
	if err := l.Append(Entry{Op: "X", Details: []Field{String("a", "1"), Int("a", 2)}}); err == nil {
		t.Error("recorded")
	}
	add(t, l, 1)
}

func TestGoesOnAfterRestart(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	for i := range 3 {
		l := open(t, path)
		if got := l.Head().Seq; got != int64(5*i) {
			t.Fatalf("start %d: head %d", i, got)
		}
		add(t, l, 5)
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if err := l.Append(Entry{}); !errors.Is(err, ErrClosed) || wire.CodeOf(err) != wire.InternalError {
			t.Errorf("append after close: %v", err)
		}
	}
	r := wantClean(t, path, 15)
	if r.Records != 15 || len(r.Files) != 1 || len(r.Notes) != 0 {
		t.Errorf("%+v", r)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
}

// TestAppendSync: when it returns, log and then seal are on the disk; many
// callers share syncs.
func TestAppendSync(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, func(o *Options) { o.SyncEvery = time.Hour })
	var mu sync.Mutex
	syncs := 0
	l.mu.Lock()
	l.fsync = func(f *os.File) error {
		mu.Lock()
		syncs++
		mu.Unlock()
		return datasync(f)
	}
	l.mu.Unlock()
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			if err := l.AppendSync(t.Context(), Entry{Op: fmt.Sprint(i)}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	l.mu.Lock()
	if l.synced.Seq != 64 {
		t.Errorf("synced up to %d", l.synced.Seq)
	}
	l.mu.Unlock()
	mu.Lock()
	if syncs == 0 || syncs > 64 {
		t.Errorf("%d syncs for 64 records", syncs)
	}
	mu.Unlock()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if h, _, err := readHead(path, testKey); err != nil || h.seq != 64 || l.Head().Seq != 64 {
		t.Errorf("sealed %+v, head %+v, %v", h, l.Head(), err)
	}
	wantClean(t, path, 64)
}

func TestAppendSyncEndsWithItsContext(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "audit.log"), func(o *Options) { o.SyncEvery = time.Hour })
	release := make(chan struct{})
	l.mu.Lock()
	l.fsync = func(*os.File) error { <-release; return nil }
	l.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.AppendSync(ctx, Entry{}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	close(release)
}

// TestSyncedInTime: nobody waits, and yet the record is on the disk soon.
func TestSyncedInTime(t *testing.T) {
	l := open(t, filepath.Join(t.TempDir(), "audit.log"), func(o *Options) { o.SyncEvery = time.Millisecond })
	l.mu.Lock()
	round := l.round
	l.mu.Unlock()
	add(t, l, 1)
	select {
	case <-round:
	case <-time.After(time.Minute):
		t.Fatal("never synced")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.synced.Seq != 1 {
		t.Errorf("synced up to %d", l.synced.Seq)
	}
}

// TestKilled: what was appended before kill -9 is there, and the chain goes on.
func TestKilled(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	for i := range 5 {
		l := open(t, path, func(o *Options) { o.SyncEvery = time.Hour })
		if got := l.Head().Seq; got != int64(7*i) {
			t.Fatalf("start %d: head %d", i, got)
		}
		add(t, l, 7)
		crash(l)
		wantClean(t, path, int64(7*i+7))
	}
}

// TestTornTail cuts the file anywhere in its last two records, as a power cut
// may, with the seal before them.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	l := open(t, path, func(o *Options) { o.SyncEvery = time.Hour })
	if err := l.AppendSync(t.Context(), Entry{Op: "FIRST"}); err != nil {
		t.Fatal(err)
	}
	waitSealed(t, l, 1)
	sealedSize := int(l.Size())
	add(t, l, 2)
	crash(l)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, err := os.ReadFile(filepath.Join(dir, "audit.head"))
	if err != nil {
		t.Fatal(err)
	}
	for cut := sealedSize; cut < len(whole); cut += 19 {
		dir := t.TempDir()
		path := filepath.Join(dir, "audit.log")
		must(t, os.WriteFile(path, whole[:cut], 0o600))
		must(t, os.WriteFile(filepath.Join(dir, "audit.head"), head, 0o600))
		kept := int64(bytes.Count(whole[:cut], []byte("\n")))
		torn := whole[cut-1] != '\n'
		if torn && cut%5 == 0 { // it waits for the rest of the line
			wantProblem(t, path, "torn")
		}
		l := open(t, path)
		add(t, l, 1)
		must(t, l.Close())
		seq := kept + 1
		if torn {
			seq++ // AUDIT_RECOVERED
		}
		r := wantClean(t, path, seq)
		if torn != (len(r.Notes) == 1) {
			t.Errorf("cut at %d: notes %v", cut, r.Notes)
		}
		saved, err := os.ReadFile(fmt.Sprintf("%s.torn-%d", path, kept))
		if torn && (err != nil || !bytes.HasSuffix(whole[:cut], saved) || len(saved) == 0) {
			t.Errorf("cut at %d: saved %q, %v", cut, saved, err)
		}
	}
}

// childVar makes the test binary append to the log it names until it is killed,
// telling every record that Append took.
const childVar = "FARHAND_AUDIT_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childVar); path != "" {
		l, err := Open(Options{Path: path, Key: testKey, SyncEvery: time.Millisecond, MaxBytes: 20_000})
		for err == nil {
			var seq int64
			if seq, err = l.append(&Entry{Op: "X", Details: []Field{String("pad", strings.Repeat("x", 3000))}}); err == nil {
				_, err = fmt.Println(seq)
			}
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// TestProcessKilled: kill -9 at random moments under load, rotations included,
// loses no record that was taken, and never breaks the chain.
func TestProcessKilled(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	rng := rand.New(rand.NewPCG(1, 2)) // the same moments in every run
	last := int64(0)
	for round := range 12 {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), childVar+"="+path)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		lines := bufio.NewScanner(out)
		for range 1 + rng.IntN(60) {
			if !lines.Scan() {
				t.Fatal("the child ended by itself")
			}
		}
		must(t, cmd.Process.Kill())
		for lines.Scan() {
			seq, err := strconv.ParseInt(lines.Text(), 10, 64)
			if err == nil { // of the last line, part may be missing
				last = max(last, seq)
			}
		}
		cmd.Wait() // killed, so it fails
		l := open(t, path)
		must(t, l.Close())
		r := verify(t, path)
		if !r.OK || r.Seq < last {
			t.Fatalf("round %d: record %d was taken: %+v", round, last, r)
		}
		last = r.Seq
	}
}

// TestZerosAfterPowerCut: some file systems leave a tail of NULs.
func TestZerosAfterPowerCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path)
	add(t, l, 3)
	must(t, l.Close())
	appendTo(t, path, string(make([]byte, 5000))+"\n"+string(make([]byte, 3)))
	l = open(t, path)
	add(t, l, 1)
	must(t, l.Close())
	wantClean(t, path, 5)
}

func TestTampering(t *testing.T) {
	edit := func(from, to string) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			raw, err := os.ReadFile(path)
			must(t, err)
			if !bytes.Contains(raw, []byte(from)) {
				t.Fatalf("no %q", from)
			}
			must(t, os.WriteFile(path, bytes.Replace(raw, []byte(from), []byte(to), 1), 0o600))
		}
	}
	lines := func(change func([][]byte) [][]byte) func(*testing.T, string) {
		return func(t *testing.T, path string) {
			raw, err := os.ReadFile(path)
			must(t, err)
			var all [][]byte
			for line := range bytes.Lines(raw) {
				all = append(all, line)
			}
			must(t, os.WriteFile(path, bytes.Join(change(all), nil), 0o600))
		}
	}
	for name, c := range map[string]struct {
		change  func(*testing.T, string)
		problem string
	}{
		"changed":      {edit(`"request_id": "r3"`, `"request_id": "r9"`), "hmac mismatch"},
		"shadowed":     {edit(`"request_id": "r3"`, `"request_id": "r9", "request_id": "r3"`), "stands twice"},
		"nested twice": {edit(`"path": "/home/pi/x"`, `"path": "/", "path": "/home/pi/x"`), "stands twice"},
		"not a record": {edit(`{"ts"`, `{"tz"`), "no ts"},
		"trailing":     {edit("\"}\n", "\"} {}\n"), "after the record"},
		"removed":      {lines(func(l [][]byte) [][]byte { return append(l[:4:4], l[5:]...) }), "record 5 is missing"},
		"several":      {lines(func(l [][]byte) [][]byte { return append(l[:4:4], l[7:]...) }), "records 5 to 7 are missing"},
		"beginning":    {lines(func(l [][]byte) [][]byte { return l[2:] }), "records 1 to 2 are missing"},
		"end":          {lines(func(l [][]byte) [][]byte { return l[:8] }), "its end was cut off"},
		"everything":   {lines(func([][]byte) [][]byte { return nil }), "its end was cut off"},
		"swapped":      {lines(func(l [][]byte) [][]byte { l[3], l[4] = l[4], l[3]; return l }), "follows record"},
		"repeated":     {lines(func(l [][]byte) [][]byte { return append(l, l[9]) }), "record 10 follows record 10"},
		"no head":      {func(t *testing.T, path string) { must(t, os.Remove(headPath(path))) }, "missing"},
		"bad head":     {func(t *testing.T, path string) { must(t, os.WriteFile(headPath(path), []byte("{}"), 0o600)) }, "seal"},
		"forged head": {func(t *testing.T, path string) {
			h := head{seq: 3, mac: strings.Repeat("0", 64), from: 1}
			must(t, os.WriteFile(headPath(path), h.slot(bytes.Repeat([]byte("b"), 32)), 0o600))
		}, "seal"},
		"torn": {func(t *testing.T, path string) { appendTo(t, path, `{"ts": 1`) }, "torn"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			l := open(t, path)
			add(t, l, 10)
			must(t, l.Close())
			wantClean(t, path, 10)
			c.change(t, path)
			wantProblem(t, path, c.problem)
		})
	}
}

// TestGapStays: a log whose end was cut goes on at the next start, and never
// looks clean again.
func TestGapStays(t *testing.T) {
	for name, cut := range map[string]func(t *testing.T, path string){
		"end": func(t *testing.T, path string) {
			raw, err := os.ReadFile(path)
			must(t, err)
			must(t, os.Truncate(path, int64(bytes.Index(raw, []byte("\n"))+1)))
		},
		"all":  func(t *testing.T, path string) { must(t, os.Truncate(path, 0)) },
		"file": func(t *testing.T, path string) { must(t, os.Remove(path)) },
		"head": func(t *testing.T, path string) { must(t, os.Remove(headPath(path))) },
		"seal": func(t *testing.T, path string) { must(t, os.WriteFile(headPath(path), []byte("x"), 0o600)) },
		"last changed": func(t *testing.T, path string) {
			raw, err := os.ReadFile(path)
			must(t, err)
			i := bytes.LastIndex(raw, []byte("/home/pi/x"))
			raw[i+1] = 'H'
			must(t, os.WriteFile(path, raw, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			l := open(t, path)
			add(t, l, 5)
			must(t, l.Close())
			anchor := l.Head()
			cut(t, path)
			for range 2 {
				l = open(t, path)
				add(t, l, 2)
				must(t, l.Close())
				wantProblem(t, path, OpGap)
			}
			if l.Head().Seq <= anchor.Seq {
				t.Errorf("numbers used twice: %+v after %+v", l.Head(), anchor)
			}
		})
	}
}

func TestOtherKeyIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path)
	add(t, l, 5)
	must(t, l.Close())
	before, err := os.ReadFile(path)
	must(t, err)
	if _, err := Open(Options{Path: path, Key: bytes.Repeat([]byte("b"), KeySize)}); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("opened: %v", err)
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Error("changed")
	}
	if _, err := Open(Options{Path: path, Key: testKey[:16]}); err == nil {
		t.Error("short key taken")
	}
}

func TestAnchors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path)
	add(t, l, 5)
	five := written(l)
	add(t, l, 3)
	must(t, l.Close())
	backup, err := os.ReadFile(path)
	must(t, err)
	backupHead, err := os.ReadFile(headPath(path))
	must(t, err)
	if r := verify(t, path, five, l.Head(), wire.Anchor{}); !r.OK {
		t.Errorf("%+v", r)
	}
	wantProblem(t, path, "anchored", wire.Anchor{Seq: 5, HMAC: strings.Repeat("0", 64)})

	// The disk is rolled back, head and all, and the log grows anew.
	l = open(t, path)
	add(t, l, 4)
	must(t, l.Close())
	late := l.Head()
	must(t, os.WriteFile(path, backup, 0o600))
	must(t, os.WriteFile(headPath(path), backupHead, 0o600))
	wantClean(t, path, 8)
	wantProblem(t, path, "rolled back", late)
	l = open(t, path)
	add(t, l, 10)
	must(t, l.Close())
	wantProblem(t, path, "isn't the one that was anchored", late)
}

// TestDiskFull: nothing is recorded, the caller learns it with the right code,
// and the log goes on by itself when there is room.
func TestDiskFull(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path)
	add(t, l, 2)
	l.mu.Lock()
	l.write = func(f *os.File, b []byte) (int, error) {
		n, err := f.Write(b[:len(b)/2])
		return n, errors.Join(err, syscall.ENOSPC)
	}
	l.mu.Unlock()
	for range 3 {
		err := l.Append(Entry{Op: "LOST"})
		if wire.CodeOf(err) != wire.DiskFull || !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("%v", err)
		}
		if e := wire.AsError(err); e.Details["reason"] != "audit_unavailable" || strings.Contains(e.Message, path) {
			t.Errorf("the far side gets %+v", e)
		}
	}
	l.mu.Lock()
	l.write = (*os.File).Write
	l.mu.Unlock()
	add(t, l, 2)
	must(t, l.Close())
	if r := wantClean(t, path, 4); len(r.Notes) != 0 {
		t.Errorf("%+v", r)
	}
}

// TestFailedSync: after it nothing is taken for recorded until it is on the disk.
func TestFailedSync(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, func(o *Options) { o.SyncEvery = time.Hour })
	must(t, l.AppendSync(t.Context(), Entry{Op: "A"}))
	broken := func(*os.File) error { return syscall.EIO }
	l.mu.Lock()
	l.fsync = broken
	l.mu.Unlock()
	if err := l.AppendSync(t.Context(), Entry{Op: "B"}); !errors.Is(err, syscall.EIO) {
		t.Fatalf("%v", err)
	}
	if err := l.Append(Entry{Op: "C"}); !errors.Is(err, syscall.EIO) || l.Err() == nil {
		t.Fatalf("%v, %v", err, l.Err())
	}
	l.mu.Lock()
	l.fsync = datasync
	l.mu.Unlock()
	must(t, l.AppendSync(t.Context(), Entry{Op: "D"}))
	if err := l.Err(); err != nil {
		t.Error(err)
	}
	must(t, l.Close())
	wantClean(t, path, 3)
}

// TestSealNeverAhead: head and seal are only of what the disk has.
func TestSealNeverAhead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, func(o *Options) { o.SyncEvery = time.Hour })
	must(t, l.AppendSync(t.Context(), Entry{Op: "A"}))
	waitSealed(t, l, 1)
	l.mu.Lock()
	l.fsync = func(*os.File) error { return syscall.EIO }
	l.mu.Unlock()
	if err := l.AppendSync(t.Context(), Entry{Op: "B"}); err == nil {
		t.Fatal("synced")
	}
	if h, _, err := readHead(path, testKey); err != nil || h.seq != 1 || l.Head().Seq != 1 {
		t.Errorf("sealed %+v, head %+v, %v", h, l.Head(), err)
	}
}

func TestConcurrentAppends(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, func(o *Options) { o.SyncEvery = time.Millisecond; o.MaxBytes = 20_000 })
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { add(t, l, 100) })
	}
	stop := make(chan struct{})
	var beside sync.WaitGroup
	beside.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			// Beside the writer there is never a problem to see.
			if r, err := Verify(context.Background(), path, testKey); err != nil || !r.OK {
				t.Errorf("%+v, %v", r, err)
				return
			}
		}
	})
	wg.Wait()
	close(stop)
	beside.Wait()
	must(t, l.Close())
	r := verify(t, path)
	if !r.OK || r.Records < 800 || len(r.Files) < 5 {
		t.Errorf("%+v", r)
	}
}

// written is the newest record, on the disk or not.
func written(l *Log) wire.Anchor {
	l.mu.Lock()
	defer l.mu.Unlock()
	return wire.Anchor{Seq: l.seq, HMAC: l.mac}
}

func sealed(l *Log) int64 {
	l.headMu.Lock()
	defer l.headMu.Unlock()
	return l.head.last.seq
}

func waitSealed(t *testing.T, l *Log, seq int64) {
	t.Helper()
	deadline := time.After(time.Minute)
	for sealed(l) < seq {
		l.mu.Lock()
		round := l.round
		l.mu.Unlock()
		signal(l.urgent)
		select {
		case <-round:
		case <-deadline:
			t.Fatalf("sealed only %d", sealed(l))
		}
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	must(t, err)
	_, err = f.WriteString(text)
	must(t, err)
	must(t, f.Close())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func BenchmarkAppend(b *testing.B) {
	l, err := Open(Options{Path: filepath.Join(b.TempDir(), "audit.log"), Key: testKey, MachineID: "machine-1", ShimVersion: "0.1.0"})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	e := Entry{SessionID: "0123456789abcdef", RequestID: "fedcba9876543210", Op: "FILE_STAT", Result: Result{OK: true},
		Details: []Field{String("path", "/data/work/project/file.txt"), Bool("follow_symlinks", true)}}
	b.ReportAllocs()
	for b.Loop() {
		if err := l.Append(e); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncode(b *testing.B) {
	c := newEncoder(testKey, "machine-1", "0.1.0")
	e := Entry{SessionID: "0123456789abcdef", RequestID: "fedcba9876543210", Op: "FILE_STAT", Result: Result{OK: true},
		Details: []Field{String("path", "/data/work/project/file.txt"), Bool("follow_symlinks", true)}}
	b.ReportAllocs()
	for b.Loop() {
		c.encode(&e, 1712345678.123456, 12345, "c01029fe66585c872b59ab1483167f70c547dfad8930419fcdcd1a23f43d9bac")
	}
}
