package acts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"farhand/audit"
	"farhand/internal/leak"
	"farhand/wire"
)

func newBook(t *testing.T) *Book {
	t.Helper()
	leak.Check(t)
	b := Open(filepath.Join(t.TempDir(), "acts"), bytes.Repeat([]byte{7}, audit.KeySize), slog.New(slog.DiscardHandler))
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func put(t *testing.T, b *Book, a Act) {
	t.Helper()
	if err := b.Append(a); err != nil {
		t.Fatal(err)
	}
}

// Each owner has a log of its own: what is in it, and whether it is whole.
func TestOwners(t *testing.T) {
	b := newBook(t)
	put(t, b, Act{Owner: "ann", Holder: "token-1", Machine: "pi", Session: "s1", Op: "FILE_WRITE", Intent: true})
	put(t, b, Act{Owner: "ann", Holder: "token-1", Machine: "pi", Session: "s1", Op: "FILE_WRITE", Code: wire.DiskFull, Took: 20 * time.Millisecond})
	put(t, b, Act{Owner: "bob", Op: "LOGIN", More: []audit.Field{audit.String("address", "192.0.2.1")}})
	records, err := b.Tail("ann", 10)
	if err != nil || len(records) != 2 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	var r struct {
		Op      string         `json:"op"`
		Session string         `json:"session_id"`
		Details map[string]any `json:"details"`
		Result  struct {
			OK   bool   `json:"ok"`
			Code string `json:"error_code"`
		} `json:"result"`
	}
	if err := json.Unmarshal(records[1], &r); err != nil {
		t.Fatal(err)
	}
	if r.Op != "FILE_WRITE" || r.Session != "s1" || r.Details["holder"] != "token-1" || r.Details["machine_id"] != "pi" || r.Result.OK || r.Result.Code != "DISK_FULL" {
		t.Fatalf("%s", records[1])
	}
	if s := fmt.Sprintf("%s", records); strings.Contains(s, "LOGIN") {
		t.Fatalf("another owner's: %s", s)
	}
	for _, owner := range []string{"ann", "bob", "nobody"} {
		if report, err := b.Verify(t.Context(), owner); err != nil || !report.OK {
			t.Fatalf("%s: %+v, %v", owner, report, err)
		}
	}
	// A changed record shows to its owner, and to nobody else.
	path, _ := b.path("ann")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(text, []byte("token-1"), []byte("token-2"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if report, err := b.Verify(t.Context(), "ann"); err != nil || report.OK {
		t.Fatalf("a changed record: %+v, %v", report, err)
	}
	if report, err := b.Verify(t.Context(), "bob"); err != nil || !report.OK {
		t.Fatalf("somebody else's: %+v, %v", report, err)
	}
}

// An owner's id makes no path.
func TestNoPaths(t *testing.T) {
	b := newBook(t)
	for _, owner := range []string{"", "..", "a/b", ".", strings.Repeat("x", 65), "a\x00"} {
		_, err1 := b.Tail(owner, 1)
		_, err2 := b.Verify(t.Context(), owner)
		for _, err := range []error{b.Append(Act{Owner: owner, Op: "X"}), err1, err2} {
			if !errors.Is(err, ErrNoOwner) {
				t.Errorf("%q: %v", owner, err)
			}
		}
	}
}

// More owners than logs may be open, at the same time: nothing is lost.
func TestMany(t *testing.T) {
	b := newBook(t)
	const owners, each = maxOpen + 8, 3
	var all sync.WaitGroup
	for i := range owners {
		all.Go(func() {
			for range each {
				if err := b.Append(Act{Owner: fmt.Sprint("o", i), Op: "X"}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if len(b.open) > owners {
		t.Fatalf("%d logs are open", len(b.open))
	}
	for i := range owners {
		owner := fmt.Sprint("o", i)
		report, err := b.Verify(t.Context(), owner)
		records, _ := b.Tail(owner, 100)
		n := 0
		for _, r := range records {
			if bytes.Contains(r, []byte(`"op": "X"`)) || bytes.Contains(r, []byte(`"op":"X"`)) {
				n++
			}
		}
		if err != nil || !report.OK || n != each {
			t.Fatalf("%s: %d records, %+v, %v", owner, n, report, err)
		}
	}
}

// What is noted is written by the time the Book is closed, however much it is, and
// nothing is taken afterwards.
func TestNote(t *testing.T) {
	b := newBook(t)
	const n = maxNoted + 100
	for range n {
		b.Note(Act{Owner: "ann", Op: "X"})
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b.Note(Act{Owner: "ann", Op: "Y"})
	report, err := b.Verify(t.Context(), "ann")
	if err != nil || !report.OK || report.Records < n || report.Records > n+2 {
		t.Fatalf("%+v, %v", report, err)
	}
}
