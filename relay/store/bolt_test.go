package store_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"farhand/internal/leak"
	"farhand/relay/store"
	"farhand/relay/store/storetest"
)

// writerEnv makes the test binary the writer that TestKill kills.
const writerEnv = "FARHAND_STORE_WRITER"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerEnv); path != "" {
		if err := writeForever(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func TestBolt(t *testing.T) {
	leak.Check(t)
	paths := map[store.Store]string{}
	open := func(t testing.TB, path string) store.Store {
		s, err := store.OpenBolt(path)
		if err != nil {
			t.Fatal(err)
		}
		paths[s] = path
		return s
	}
	storetest.Suite{
		Open: func(t testing.TB) store.Store {
			return open(t, filepath.Join(t.TempDir(), "sub", "relay.db"))
		},
		Reopen: func(t testing.TB, s store.Store) store.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return open(t, paths[s])
		},
	}.Run(t)
}

func TestLocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	s, err := store.OpenBolt(path)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Fatalf("the file is readable by others: %v %v", fi.Mode(), err)
	}
	if _, err := store.OpenBolt(path); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("second open: %v", err)
	}
}

// TestSweep: expired entries are told to watches and leave the file.
func TestSweep(t *testing.T) {
	path := filepath.Join(t.TempDir(), "relay.db")
	synctest.Test(t, func(t *testing.T) {
		s, err := store.OpenBolt(path)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx := t.Context()
		for i := range 3 {
			if _, err := s.Create(ctx, store.Key("w", fmt.Sprint(i)), nil, time.Now().Add(time.Hour)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Create(ctx, "w.stays", nil, time.Now().Add(3*time.Hour)); err != nil {
			t.Fatal(err)
		}
		events, err := s.Watch(ctx, "w.")
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for range 3 {
			if ev := <-events; !ev.Deleted || ev.Key == "w.stays" {
				t.Fatalf("%+v", ev)
			}
		}
		if d := time.Since(start); d < time.Hour || d > time.Hour+time.Minute {
			t.Fatalf("told after %v", d)
		}
		if n, err := s.Len(); err != nil || n != 1 {
			t.Fatalf("%d entries left in the file, %v", n, err)
		}
	})
}

// TestKill kills a writing process at random moments: every write that it
// acknowledged is there, none is torn, and revisions go on.
func TestKill(t *testing.T) {
	const rounds = 12
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	path := filepath.Join(t.TempDir(), "relay.db")
	var lastRevision uint64
	for round := range rounds {
		acked := killedWriter(t, path, 1+rnd.IntN(60))
		s, err := store.OpenBolt(path)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		entries, err := s.List(t.Context(), "n.")
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]uint64{}
		for _, e := range entries {
			n := binary.BigEndian.Uint64(e.Value)
			for i := 8; i < len(e.Value); i++ {
				if e.Value[i] != byte(n) {
					t.Fatalf("round %d: %s is torn at byte %d", round, e.Key, i)
				}
			}
			found[e.Key] = n
			lastRevision = max(lastRevision, e.Revision)
		}
		for key, n := range acked {
			if found[key] < n {
				t.Fatalf("round %d: %s was acknowledged at %d and is %d", round, key, n, found[key])
			}
		}
		rev, err := s.Create(t.Context(), store.Key("r", strconv.Itoa(round)), nil, time.Time{})
		if err != nil || rev <= lastRevision {
			t.Fatalf("round %d: revision %d after %d, %v", round, rev, lastRevision, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// killedWriter lets a writer acknowledge so many writes, kills it, and returns
// what it acknowledged: key to newest number.
func killedWriter(t *testing.T, path string, acks int) map[string]uint64 {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), writerEnv+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	acked := map[string]uint64{}
	lines := bufio.NewScanner(out)
	for n := 0; lines.Scan(); n++ {
		key, num, ok := strings.Cut(lines.Text(), " ")
		if v, err := strconv.ParseUint(num, 10, 64); ok && err == nil {
			acked[key] = max(acked[key], v)
		}
		if n == acks {
			cmd.Process.Kill()
		}
	}
	cmd.Wait()
	if len(acked) == 0 {
		t.Fatal("the writer wrote nothing")
	}
	return acked
}

// writeForever updates a few keys from several goroutines and prints each
// acknowledged write as one line.
func writeForever(path string) error {
	s, err := store.OpenBolt(path)
	if err != nil {
		return err
	}
	failed := make(chan error, 4)
	for w := range 4 {
		go func() { failed <- writeKey(s, store.Key("n", strconv.Itoa(w))) }()
	}
	return <-failed
}

func writeKey(s store.Store, key string) error {
	ctx, n, rev := context.Background(), uint64(0), uint64(0)
	if e, err := s.Get(ctx, key); err == nil {
		n, rev = binary.BigEndian.Uint64(e.Value), e.Revision
	}
	for {
		n++
		value := make([]byte, 8+n%5000)
		binary.BigEndian.PutUint64(value, n)
		for i := 8; i < len(value); i++ {
			value[i] = byte(n)
		}
		var err error
		if rev == 0 {
			rev, err = s.Create(ctx, key, value, time.Time{})
		} else {
			rev, err = s.Update(ctx, key, value, time.Time{}, rev)
		}
		if err != nil {
			return err
		}
		if _, err := fmt.Printf("%s %d\n", key, n); err != nil {
			return err
		}
	}
}

func TestToken(t *testing.T) {
	seen := map[string]string{}
	for _, s := range []string{"a", "A", "a-b_c=", "a.b", "", "=", "=YQ", "ä", "a b", "..", "pi:1", strings.Repeat("x", 128)} {
		tok := store.Token(s)
		if err := store.CheckKey(tok); err != nil {
			t.Errorf("Token(%q) = %q: %v", s, tok, err)
		}
		if other, ok := seen[tok]; ok {
			t.Errorf("%q and %q share the token %q", s, other, tok)
		}
		seen[tok] = s
	}
	if store.Token("abc-1") != "abc-1" {
		t.Error("a token doesn't stay itself")
	}
}

func BenchmarkUpdate(b *testing.B) {
	s, err := store.OpenBolt(filepath.Join(b.TempDir(), "relay.db"))
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	value := make([]byte, 300)
	b.RunParallel(func(pb *testing.PB) {
		key := store.Key("k", strconv.Itoa(rand.Int()))
		rev, err := s.Create(b.Context(), key, value, time.Time{})
		for pb.Next() && err == nil {
			rev, err = s.Update(b.Context(), key, value, time.Time{}, rev)
		}
		if err != nil {
			b.Error(err)
		}
	})
}
