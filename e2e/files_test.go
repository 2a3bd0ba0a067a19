package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"farhand/wire"
)

// ls, stat, cat, put, get, rm and mv, with files of every sort.
func TestFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	deep := filepath.Join(b.dir, "other", "deep")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	b.claimWithRoots("files", b.root(), filepath.Dir(deep), deep)
	far := func(name ...string) string { return filepath.Join(append([]string{b.root()}, name...)...) }
	here := func(name string) string { return filepath.Join(b.here(), name) }

	t.Run("there and back", func(t *testing.T) {
		for _, c := range []struct {
			name, content string
		}{
			{"plain.txt", "one\ntwo\n"}, {"empty", ""}, {"grüße 🙂 für dich.txt", "unicode\n"}, {"-dash", "a name like a flag"},
			{"quote'\"$(x).sh", "a name for a shell"}, {"line\nbreak", "a name with a line break"}, {"a:b", "a name like a machine's path"},
			{"binary", string([]byte{0, 255, 10, 13, 0xc3, 0x28})},
		} {
			b.write(here("source"), c.content)
			b.owner.must("put", "source", "bench:"+c.name)
			if got := string(b.read(far(c.name))); got != c.content {
				t.Errorf("%q holds %q there, want %q", c.name, got, c.content)
			}
			if got := b.owner.must("cat", "bench:"+c.name); got != c.content {
				t.Errorf("cat %q says %q", c.name, got)
			}
			b.owner.must("get", "bench:"+far(c.name), "copy")
			if got := string(b.read(here("copy"))); got != c.content {
				t.Errorf("get %q brings %q", c.name, got)
			}
			stat := parse[wire.FileStatResponse](t, b.owner.must("stat", "--json", ":"+c.name))
			if !stat.Exists || *stat.SizeBytes != int64(len(c.content)) || *stat.Path != far(c.name) || !*stat.IsFile {
				t.Errorf("stat %q says %+v", c.name, stat)
			}
		}
		list := parse[wire.FileListResponse](t, b.owner.must("ls", "--json"))
		var names []string
		for _, e := range list.Entries {
			names = append(names, e.Name)
		}
		want := []string{"-dash", "a:b", "binary", "empty", "grüße 🙂 für dich.txt", "line\nbreak", "plain.txt", "quote'\"$(x).sh"}
		if !slices.Equal(names, want) || list.Truncated {
			t.Errorf("ls lists %q, want %q", names, want)
		}
		if got := b.owner.must("ls", "--glob", "*.txt"); got != "grüße 🙂 für dich.txt\nplain.txt\n" {
			t.Errorf("ls --glob says %q", got)
		}
		if got := b.owner.must("cat", ":plain.txt", "bench:"+far("empty"), ":plain.txt"); got != "one\ntwo\none\ntwo\n" {
			t.Errorf("cat of three says %q", got)
		}
	})

	t.Run("streams", func(t *testing.T) {
		if r := b.owner.feed("from a pipe\n", "put", "-", ":piped"); r.code != 0 {
			t.Errorf("put - gives %+v", r)
		}
		if got := b.owner.must("get", ":piped", "-"); got != "from a pipe\n" {
			t.Errorf("get - says %q", got)
		}
		b.owner.must("get", ":piped")
		if got := string(b.read(here("piped"))); got != "from a pipe\n" {
			t.Errorf("get without a name brings %q", got)
		}
		b.owner.fails(2, "USAGE", "put", "-", "bench:")
	})

	t.Run("directories", func(t *testing.T) {
		b.write(here("leaf"), "leaf")
		b.owner.fails(1, wire.PathNotFound, "put", "leaf", ":new/tree/leaf")
		b.owner.must("put", "-p", "leaf", ":new/tree/leaf")
		b.owner.must("put", "leaf", ":new/tree")
		b.owner.must("put", "leaf", ":new")
		if got := b.owner.must("ls", "-R", ":new"); got != "new/leaf\nnew/tree\nnew/tree/leaf\n" {
			t.Errorf("ls -R says %q", got)
		}
		if got := b.owner.must("ls", "-l", ":new"); !strings.Contains(got, "file  4 ") || !strings.Contains(got, "dir") {
			t.Errorf("ls -l says\n%s", got)
		}
		b.owner.fails(1, wire.PathNotEmpty, "rm", ":new")
		b.owner.fails(1, wire.PathExists, "mv", ":new/leaf", ":new/tree/leaf")
		b.owner.must("mv", "--force", ":new/leaf", "new/tree/leaf")
		b.owner.must("mv", ":new/tree", ":moved")
		b.owner.must("rm", ":new")
		b.owner.must("rm", "-r", ":moved")
		b.owner.must("rm", "-f", ":moved")
		for _, name := range []string{"new", "moved"} {
			if _, err := os.Lstat(far(name)); !os.IsNotExist(err) {
				t.Errorf("%s is still there: %v", name, err)
			}
		}
	})

	t.Run("missing", func(t *testing.T) {
		for _, args := range [][]string{{"cat", ":no"}, {"get", ":no", "x"}, {"ls", ":no"}, {"rm", ":no"}, {"mv", ":no", ":yes"}} {
			e := b.owner.fails(1, wire.PathNotFound, args...)
			if !strings.Contains(fmt.Sprint(e.Details), "no") {
				t.Errorf("%q: details %v don't say which", args, e.Details)
			}
		}
		if r := b.owner.run("stat", ":no"); r.code != 1 || !strings.Contains(r.stderr, "PATH_NOT_FOUND") {
			t.Errorf("stat gives %+v", r)
		}
		r := b.owner.run("stat", "--json", ":no")
		if stat := parse[wire.FileStatResponse](t, r.stdout); r.code != 1 || stat.Exists {
			t.Errorf("stat --json gives %+v", r)
		}
		if _, err := os.Stat(here("x")); err == nil {
			t.Error("a get that failed left a file")
		}
		b.owner.fails(1, wire.PathInvalidChars, "cat", ":"+strings.Repeat("x/", 3000))
	})

	t.Run("large", func(t *testing.T) {
		big := make([]byte, 23<<20+17)
		random := rand.NewChaCha8([32]byte{1})
		random.Read(big)
		b.write(far("big"), string(big))
		b.owner.must("get", ":big", "big")
		if !bytes.Equal(b.read(here("big")), big) {
			t.Error("a file of 23 MiB comes back as another")
		}
		b.owner.must("put", "big", ":big2")
		if !bytes.Equal(b.read(far("big2")), big) {
			t.Error("a file of 23 MiB arrives as another")
		}
	})

	t.Run("roots", func(t *testing.T) {
		b.write(filepath.Join(deep, "x"), "deep")
		if got := b.owner.must("ls", "bench:"+deep); got != "x\n" {
			t.Errorf("ls of another root says %q", got)
		}
		if got := b.owner.must("cat", "bench:"+filepath.Join(deep, "x")); got != "deep" {
			t.Errorf("cat says %q", got)
		}
		b.owner.must("mv", "bench:"+filepath.Join(deep, "x"), filepath.Join(filepath.Dir(deep), "y"))
		for _, name := range []string{"/etc/passwd", b.dir, filepath.Join(b.stateDir(), "audit.key"), "/"} {
			e := b.owner.fails(1, wire.PathOutsideAllowedRoot, "cat", "bench:"+name)
			if e.Details["path"] != name {
				t.Errorf("%s: details %v", name, e.Details)
			}
		}
		// The longest root above a path is the session's.
		roots := make(map[string]bool)
		for _, s := range parse[struct {
			Sessions []struct{ Root string } `json:"sessions"`
		}](t, b.owner.must("sessions", "--json")).Sessions {
			roots[s.Root] = true
		}
		if len(roots) != 3 || !roots[deep] || !roots[filepath.Dir(deep)] || !roots[b.root()] {
			t.Errorf("the sessions are in %v", roots)
		}
	})

	t.Run("jail", func(t *testing.T) {
		for name, target := range map[string]string{
			"out": "/etc", "dangling": filepath.Join(b.dir, "made"), "in": "plain.txt", "around": far("..", "work", "plain.txt"), "loop": "loop",
		} {
			if err := os.Symlink(target, far(name)); err != nil {
				t.Fatal(err)
			}
		}
		b.write(here("leaf"), "leaf")
		for _, args := range [][]string{
			{"cat", ":../here/leaf"}, {"cat", ":out/passwd"}, {"ls", ":out"}, {"put", "leaf", ":dangling"}, {"get", ":dangling", "-"},
			{"put", "-p", "leaf", ":fresh/../../../escaped"}, {"rm", "-r", ":out/nothing"}, {"mv", ":plain.txt", ":out/p"}, {"mv", ":plain.txt", ":../p"},
			{"rm", ":../here/leaf"},
		} {
			b.owner.fails(1, wire.PathOutsideAllowedRoot, args...)
		}
		for _, name := range []string{"in", "around"} {
			if got := b.owner.must("cat", ":"+name); got != "one\ntwo\n" {
				t.Errorf("the link %s within the root says %q", name, got)
			}
		}
		if r := b.owner.run("cat", ":loop"); r.code != 1 {
			t.Errorf("a link to itself gives %+v", r)
		}
		b.owner.must("rm", ":out", ":dangling", ":in", ":around", ":loop")
		for _, name := range []string{filepath.Join(b.dir, "made"), filepath.Join(b.dir, "escaped"), filepath.Join(b.dir, "p")} {
			if _, err := os.Lstat(name); !os.IsNotExist(err) {
				t.Errorf("%s was made outside", name)
			}
		}
		if got := string(b.read(far("plain.txt"))); got != "one\ntwo\n" {
			t.Errorf("removing links changed what they lead to: %q", got)
		}
		if r := b.owner.run("rm", "-r", ":."); r.code != 1 {
			t.Errorf("removing the root itself gives %+v", r)
		}
		if _, err := os.Stat(b.root()); err != nil {
			t.Error(err)
		}
	})
	b.wholeAudit()
}

// The daemon's own files stay out of reach, whatever the roots say.
func TestOwnFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claimWithRoots("files,shell", b.dir)
	b.write(filepath.Join(b.here(), "leaf"), "leaf")
	for _, args := range [][]string{
		{"cat", ":state/audit.key"}, {"cat", ":state/tokens.json"}, {"cat", ":farhandd.toml"}, {"ls", ":state"}, {"stat", ":state/audit.log"},
		{"put", "here/leaf", ":farhandd.toml"}, {"put", "here/leaf", ":state/leaf"}, {"rm", ":farhandd.toml"}, {"rm", "-r", ":state"},
		{"mv", ":state", ":elsewhere"}, {"mv", ":farhandd.toml", ":elsewhere"}, {"mv", "-f", ":work", ":state"}, {"cat", ":work/../state/audit.key"},
	} {
		o := b.owner
		if args[0] == "put" {
			args[1] = filepath.Join(b.dir, args[1])
		}
		o.fails(1, wire.PathOutsideAllowedRoot, args...)
	}
	b.owner.fails(255, wire.PathOutsideAllowedRoot, "exec", "--cwd", "state", "--", "true")
	if err := os.Symlink(b.stateDir(), filepath.Join(b.root(), "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(b.toml(), filepath.Join(b.root(), "hard")); err != nil {
		t.Fatal(err)
	}
	b.owner.fails(1, wire.PathOutsideAllowedRoot, "cat", ":work/link/audit.key")
	b.owner.fails(1, wire.PathOutsideAllowedRoot, "cat", ":work/hard")
	b.owner.must("put", "leaf", ":work/leaf")
	if r := b.owner.run("rm", "-r", ":."); r.code == 0 {
		t.Error("the root above them was removed")
	}
	b.read(filepath.Join(b.stateDir(), "tokens.json"))
	b.wholeAudit()

	// As a root they are refused at the start.
	other := filepath.Join(b.dir, "state2")
	for _, root := range []string{other, filepath.Join(other, "sim"), "/proc/self", "/dev", "/run", "/sys"} {
		if r := b.farhandd("", "--roots", root, "--state-dir", other, "run"); r.code != 78 {
			t.Errorf("with the root %s the daemon gives %+v, want 78", root, r)
		}
	}
}
