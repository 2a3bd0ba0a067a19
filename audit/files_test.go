package audit

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"farhand/internal/leak"
)

// clock is a time that tests set.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

var day = time.Date(2026, 3, 29, 1, 2, 3, 456789000, time.UTC)

func rotated(t *testing.T, path string) []segment {
	t.Helper()
	all, err := rotatedFiles(path)
	must(t, err)
	return all
}

func TestRotationBySize(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	c := &clock{day}
	l := open(t, path, func(o *Options) { o.MaxBytes = 2000; o.Now = c.Now })
	add(t, l, 30)
	must(t, l.Close())
	r := wantClean(t, path, l.Head().Seq)
	if len(r.Files) < 4 || r.Files[0] != "audit.log.20260329-010203" || r.Files[1] != "audit.log.20260329-010203-1" || r.Files[len(r.Files)-1] != "audit.log" {
		t.Errorf("files %v", r.Files)
	}
	if r.Records != 30+int64(len(r.Files))-1 {
		t.Errorf("%d records in %d files", r.Records, len(r.Files))
	}
	for _, s := range rotated(t, path) {
		if s.size < 2000 || s.size > 3000 {
			t.Errorf("%s has %d bytes", s.path, s.size)
		}
	}
	first, err := os.ReadFile(path)
	must(t, err)
	var link struct {
		Op      string
		Details struct {
			PreviousFile string `json:"previous_file"`
			PreviousSeq  int64  `json:"previous_seq"`
			PreviousHMAC string `json:"previous_hmac"`
		}
		Seq  int64
		Prev string `json:"prev_hmac"`
	}
	line, _, _ := bytes.Cut(first, []byte("\n"))
	must(t, json.Unmarshal(line, &link))
	if link.Op != OpRotated || link.Details.PreviousFile != r.Files[len(r.Files)-2] || link.Details.PreviousSeq != link.Seq-1 || link.Details.PreviousHMAC != link.Prev {
		t.Errorf("%+v", link)
	}
	// Restarting goes on in the last file.
	l = open(t, path, func(o *Options) { o.Now = c.Now })
	add(t, l, 1)
	must(t, l.Close())
	wantClean(t, path, r.Seq+1)
}

func TestRotationByAge(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	c := &clock{day}
	age := func(o *Options) { o.Now = c.Now; o.MaxAge = 24 * time.Hour }
	l := open(t, path, age)
	add(t, l, 1)
	c.now = day.Add(23 * time.Hour)
	add(t, l, 1)
	must(t, l.Close())
	l = open(t, path, age) // the age of the file outlives a restart
	c.now = day.Add(24 * time.Hour)
	add(t, l, 1)
	c.now = day.Add(-time.Hour) // a clock that was set back
	add(t, l, 1)
	must(t, l.Close())
	if r := wantClean(t, path, 5); len(r.Files) != 2 {
		t.Errorf("%v", r.Files)
	}
}

// TestOrderIsOfRecordsNotNames: a board without a clock starts in 1970 again.
func TestOrderIsOfRecordsNotNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	c := &clock{day}
	l := open(t, path, func(o *Options) { o.Now = c.Now; o.MaxBytes = 1 })
	for _, now := range []time.Time{day, time.Unix(5, 0), day.Add(time.Hour), time.Unix(3, 0), day} {
		c.now = now
		add(t, l, 1)
	}
	must(t, l.Close())
	r := wantClean(t, path, l.Head().Seq)
	l = open(t, path, func(o *Options) { o.Now = c.Now })
	add(t, l, 1)
	must(t, l.Close())
	wantClean(t, path, r.Seq+1)
}

func TestRemovedFileIsFound(t *testing.T) {
	for _, which := range []int{0, 1, 2} {
		path := filepath.Join(t.TempDir(), "audit.log")
		l := open(t, path, func(o *Options) { o.MaxBytes = 1000 })
		add(t, l, 12)
		must(t, l.Close())
		all := rotated(t, path)
		if len(all) < 3 {
			t.Fatalf("%d files", len(all))
		}
		must(t, os.Remove(all[which].path))
		wantProblem(t, path, "missing")
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, func(o *Options) { o.MaxBytes = 1000 })
	add(t, l, 12)
	must(t, l.Close())
	must(t, os.Remove(path))
	wantProblem(t, path, "cut off")
}

// TestRotationCutShort leaves the disk as it is at every step of a rotation.
func TestRotationCutShort(t *testing.T) {
	for name, step := range map[string]func(t *testing.T, path string){
		"prepared": func(t *testing.T, path string) {
			must(t, os.WriteFile(path+nextSuffix, []byte(`{"ts": 1`), 0o600))
		},
		"linked": func(t *testing.T, path string) {
			must(t, os.WriteFile(path+nextSuffix, []byte("{}\n"), 0o600))
			must(t, os.Link(path, path+".20260329-010203"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "audit.log")
			l := open(t, path)
			add(t, l, 3)
			must(t, l.Close())
			step(t, path)
			wantClean(t, path, 3)
			l = open(t, path)
			add(t, l, 1)
			must(t, l.Close())
			if r := wantClean(t, path, 4); len(r.Files) != 1 {
				t.Errorf("%v", r.Files)
			}
		})
	}
	t.Run("renamed", func(t *testing.T) { // without hard links
		path := filepath.Join(t.TempDir(), "audit.log")
		l := open(t, path, func(o *Options) { o.MaxBytes = 1500 })
		for len(rotated(t, path)) == 0 {
			add(t, l, 1)
		}
		must(t, l.Close())
		seq := l.Head().Seq
		must(t, os.Rename(path, path+nextSuffix))
		l = open(t, path)
		add(t, l, 1)
		must(t, l.Close())
		wantClean(t, path, seq+1)
	})
}

// TestRotationFails: records are kept in the old file.
func TestRotationFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	c := &clock{day}
	l := open(t, path, func(o *Options) { o.MaxBytes = 1000; o.Now = c.Now })
	must(t, os.Mkdir(path+nextSuffix, 0o700))
	must(t, os.WriteFile(filepath.Join(path+nextSuffix, "x"), nil, 0o600))
	add(t, l, 10)
	must(t, os.RemoveAll(path+nextSuffix))
	add(t, l, 1) // not tried again yet
	if n := len(rotated(t, path)); n != 0 {
		t.Errorf("%d files", n)
	}
	c.now = c.now.Add(rotateRetry)
	add(t, l, 1)
	if n := len(rotated(t, path)); n != 1 {
		t.Errorf("%d files", n)
	}
	must(t, l.Close())
	wantClean(t, path, 13)
}

func TestPrune(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, func(o *Options) { o.MaxBytes = 1000; o.MaxTotal = 3500 })
	add(t, l, 60)
	must(t, l.Close())
	r := wantClean(t, path, l.Head().Seq)
	if len(r.Files) > 5 || len(r.Notes) == 0 {
		t.Errorf("files %v, notes %v", r.Files, r.Notes)
	}
	// What is left is still guarded, the oldest file too.
	must(t, os.Remove(rotated(t, path)[0].path))
	wantProblem(t, path, "missing")
}

func TestTail(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	if got, err := Tail(path, 5); err != nil || len(got) != 0 {
		t.Errorf("without a log: %v, %v", got, err)
	}
	l := open(t, path, func(o *Options) { o.MaxBytes = 1000 })
	add(t, l, 12)
	for n := range 30 {
		got, err := Tail(path, n)
		must(t, err)
		if want := min(n, int(written(l).Seq)); len(got) != want {
			t.Fatalf("%d of %d", len(got), want)
		}
		for i, line := range got {
			r, err := parseRecord(line)
			if want := written(l).Seq - int64(len(got)-1-i); err != nil || r.seq != want {
				t.Fatalf("record %d, want %d: %v", r.seq, want, err)
			}
		}
	}
	appendTo(t, path, `{"ts": 1`)
	if got, err := Tail(path, 1); err != nil || len(got) != 1 || !strings.Contains(string(got[0]), written(l).HMAC) {
		t.Errorf("with a torn line: %s, %v", got, err)
	}
}

func TestExport(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, func(o *Options) { o.MaxBytes = 1000 })
	add(t, l, 12)
	must(t, l.Close())
	appendTo(t, path, `{"ts": 1`) // being written: left out
	var out bytes.Buffer
	must(t, Export(t.Context(), &out, path, testKey))
	z, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	must(t, err)
	content := map[string][]byte{}
	for _, f := range z.File {
		r, err := f.Open()
		must(t, err)
		content[f.Name], err = io.ReadAll(r)
		must(t, err)
	}
	mac := hmac.New(sha256.New, testKey)
	mac.Write(content["manifest.json"])
	if got := string(content["manifest.sig"]); got != hex.EncodeToString(mac.Sum(nil)) {
		t.Errorf("signature %s", got)
	}
	var m manifest
	must(t, json.Unmarshal(content["manifest.json"], &m))
	if len(m.Files) != len(content)-2 || len(m.Files) < 4 || m.KeyUsername != "audit_key" {
		t.Errorf("%+v", m)
	}
	// Unpacked it is a log that verifies.
	dir := t.TempDir()
	for _, f := range m.Files {
		sum := sha256.Sum256(content[f.Name])
		if hex.EncodeToString(sum[:]) != f.SHA256 || int64(len(content[f.Name])) != f.Size {
			t.Errorf("%+v doesn't fit its file", f)
		}
		must(t, os.WriteFile(filepath.Join(dir, f.Name), content[f.Name], 0o600))
	}
	wantClean(t, filepath.Join(dir, "audit.log"), l.Head().Seq)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Export(ctx, io.Discard, path, testKey); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if err := Export(t.Context(), io.Discard, filepath.Join(dir, "none.log"), testKey); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestVerifyWithoutLog(t *testing.T) {
	if _, err := Verify(t.Context(), filepath.Join(t.TempDir(), "audit.log"), testKey); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestVerifyStops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path)
	add(t, l, 1)
	must(t, l.Close())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, path, testKey); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestReportIsBounded: with another key every record is a problem.
func TestReportIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path)
	add(t, l, 3*maxProblems)
	must(t, l.Close())
	r, err := Verify(t.Context(), path, bytes.Repeat([]byte("b"), KeySize))
	must(t, err)
	if r.OK || len(r.Problems) != maxProblems+1 {
		t.Errorf("%d problems", len(r.Problems))
	}
}

// TestLongLines: in a damaged file a line may have any length.
func TestLongLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path)
	add(t, l, 2)
	must(t, l.Close())
	appendTo(t, path, strings.Repeat("x", 3*maxRecord)+"\n")
	wantProblem(t, path, "longer than")
	l = open(t, path)
	add(t, l, 1)
	must(t, l.Close())
	wantClean(t, path, 4)
	if fi, err := os.Stat(path + ".torn-2"); err != nil || fi.Size() != 3*maxRecord+1 {
		t.Errorf("set aside: %v", err)
	}
}

func TestKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.key")
	if _, err := ReadKey(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	key, err := LoadKey(path)
	must(t, err)
	if again, err := LoadKey(path); err != nil || !bytes.Equal(again, key) || len(key) != KeySize {
		t.Errorf("%x, %v", again, err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", fi.Mode(), err)
	}
	must(t, os.Chmod(path, 0o640))
	if _, err := LoadKey(path); err == nil || !strings.Contains(err.Error(), "0640") {
		t.Errorf("mode 0640: %v", err)
	}
	for name, content := range map[string]string{
		"empty": "", "short": strings.Repeat("k", 31), "long": strings.Repeat("k", 33), "not hex": strings.Repeat("x", 64), "huge": strings.Repeat("a", 1<<20),
	} {
		path := filepath.Join(t.TempDir(), "audit.key")
		must(t, os.WriteFile(path, []byte(content), 0o600))
		if _, err := LoadKey(path); err == nil {
			t.Errorf("%s: taken", name)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != content {
			t.Errorf("%s: replaced", name)
		}
	}
	must(t, os.Chmod(path, 0o600))
	must(t, os.WriteFile(path, fmt.Appendf(nil, "%x\n", key), 0o600))
	if got, err := LoadKey(path); err != nil || !bytes.Equal(got, key) {
		t.Errorf("in hex: %x, %v", got, err)
	}
}

// TestHeadSurvivesTornWrite: one slot may be anything.
func TestHeadSurvivesTornWrite(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path)
	add(t, l, 1)
	must(t, l.Close())
	l = open(t, path)
	add(t, l, 1)
	must(t, l.Close())
	f, err := os.OpenFile(headPath(path), os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	_, slot, err := readHead(path, testKey)
	must(t, err)
	_, err = f.WriteAt(make([]byte, 100), int64(slot)*slotDistance)
	must(t, err)
	if h, _, err := readHead(path, testKey); err != nil || h.seq >= 2 {
		t.Errorf("%+v, %v", h, err)
	}
	l = open(t, path)
	add(t, l, 1)
	must(t, l.Close())
	wantClean(t, path, 3)
}

// TestHeadFails: records go on, and Err says what is wrong.
func TestHeadFails(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l := open(t, path, func(o *Options) { o.SyncEvery = time.Hour })
	l.headMu.Lock()
	l.head.f.Close()
	l.headMu.Unlock()
	must(t, l.AppendSync(t.Context(), Entry{Op: "A"}))
	if err := l.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
	if r := verify(t, path); !r.OK || r.Seq != 1 {
		t.Errorf("%+v", r)
	}
}

func FuzzParseRecord(f *testing.F) {
	e := Entry{Op: "X", Details: []Field{String("p", "é\u2028\t"), Float("f", 1e-7), Strings("l", []string{"a"}), Object("o", Null("n"))}}
	line, _, err := newEncoder(testKey, "m-1", "0.1.0").encode(&e, 1712345678.5, 7, strings.Repeat("0", 64))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(bytes.TrimSpace(line))
	f.Add([]byte(`{"ts": 1}`))
	f.Add([]byte(`{"a":[[[[1,{"b":"\ud800"}]]]]}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		r, err := parseRecord(line)
		if err != nil {
			return
		}
		if !json.Valid(line) || !json.Valid(r.canonical) {
			t.Fatalf("took %q for a record", line)
		}
		// The canonical form with its HMAC back in is the same record.
		again, err := parseRecord(append([]byte(`{"hmac":"`+r.mac+`",`), r.canonical[1:]...))
		if err != nil || !bytes.Equal(again.canonical, r.canonical) || again.seq != r.seq {
			t.Fatalf("%q read again: %v", r.canonical, err)
		}
	})
}

func FuzzOpen(f *testing.F) {
	var whole []byte
	c := newEncoder(testKey, "m-1", "0.1.0")
	prev := ""
	for seq := int64(1); seq <= 3; seq++ {
		line, mac, err := c.encode(&Entry{Op: "X"}, 1, seq, prev)
		if err != nil {
			f.Fatal(err)
		}
		whole, prev = append(whole, line...), mac
	}
	f.Add(whole, true)
	f.Add(whole[:len(whole)-9], false)
	f.Add([]byte("\n\n\x00"), true)
	f.Fuzz(func(t *testing.T, content []byte, sealed bool) {
		path := filepath.Join(t.TempDir(), "audit.log")
		must(t, os.WriteFile(path, content, 0o600))
		if sealed {
			must(t, os.WriteFile(headPath(path), head{seq: 3, mac: prev, from: 1}.slot(testKey), 0o600))
		}
		l, err := Open(Options{Path: path, Key: testKey})
		if err != nil {
			if sealed {
				t.Fatalf("not opened under our own seal: %v", err)
			}
			return
		}
		add(t, l, 1)
		must(t, l.Close())
		r := verify(t, path)
		if r.Seq != l.Head().Seq {
			t.Fatalf("%+v", r)
		}
		for _, p := range r.Problems {
			if strings.Contains(p, "torn") {
				t.Fatalf("%+v", r)
			}
		}
	})
}
