package files

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// TestResolve goes through the ways to name a file. Each case's path is asked
// for with FILE_STAT; want is the canonical path below the root ("" the root
// itself), and what doesn't exist says so in a "!" before it.
func TestResolve(t *testing.T) {
	b := newBench(t)
	b.put("a.txt", "a")
	b.put("d/e/f.txt", "f")
	b.put("root/a.txt", "a name like the root's own")
	b.mkdir(b.dir + "2") // a look-alike sibling
	b.put(b.dir+"2/x", secret)
	defer os.RemoveAll(b.dir + "2")

	b.link("a.txt", "rel")
	b.link(b.dir+"/d", "abs")
	b.link("../root/d", "outback")
	b.link(b.dir+"/../root/./d//e", "messy")
	b.link("../../root/a.txt", "d/up")
	b.link("abs/e/../../a.txt", "many")
	b.link(".", "dot")
	b.link("..", "d/dotdot")
	b.link("loop2", "loop1")
	b.link("loop1", "loop2")
	b.link("nowhere/x", "dangling")
	b.link(b.out, "escape")
	b.link(b.out+"/secret", "escapefile")
	b.link("../outside/new", "escapenew")
	b.link("/proc/self/root", "magic")
	b.link("/proc/self/cwd", "cwd")
	b.link("/", "slash")
	b.link("..", "up")
	b.link(b.dir+"2", "lookalike")
	b.link("c01", "c00")
	for i := 1; i < MaxLinks; i++ {
		b.link(fmt.Sprintf("c%02d", i+1), fmt.Sprintf("c%02d", i))
	}
	b.put(fmt.Sprintf("c%02d", MaxLinks), "the end of 40 links")
	b.link("c00", "cc")

	const outside = "outside"
	cases := []struct{ path, want string }{
		{"a.txt", "a.txt"},
		{"./a.txt", "a.txt"},
		{".//./a.txt/", "a.txt"},
		{".", ""},
		{"/", outside},
		{b.dir, ""},
		{b.dir + "/", ""},
		{b.dir + "/a.txt", "a.txt"},
		{b.dir + "//d/./e/f.txt", "d/e/f.txt"},
		{"/.." + b.dir + "/a.txt", "a.txt"},
		{b.dir + "/../root/a.txt", "a.txt"},
		{b.dir + "/../../" + b.base[strings.LastIndexByte(b.base, '/')+1:] + "/root/a.txt", "a.txt"},
		{b.out + "/../root/a.txt", "a.txt"},
		{b.base + "/nothing/../root/a.txt", "a.txt"},
		{b.base + "/outside/secret/../../root/a.txt", "a.txt"},
		{"root/a.txt", "root/a.txt"},
		{"d/../a.txt", "a.txt"},
		{"d/e/../../d/e/f.txt", "d/e/f.txt"},
		{"d/..", ""},
		{"d/e/..", "d"},
		{"d/.", "d"},
		{"../root/a.txt", "a.txt"},
		{"rel", "a.txt"},
		{"abs/e/f.txt", "d/e/f.txt"},
		{"outback/e/f.txt", "d/e/f.txt"},
		{"messy/f.txt", "d/e/f.txt"},
		{"d/up", "a.txt"},
		{"many", "a.txt"},
		{"dot/dot/dot/a.txt", "a.txt"},
		{"dot", ""},
		{"d/dotdot", ""},
		{"d/dotdot/a.txt", "a.txt"},
		{"abs/../a.txt", "a.txt"}, // ".." of a link's target
		{"c00", fmt.Sprintf("c%02d", MaxLinks)},
		{"up/root/a.txt", "a.txt"},
		{"slash" + b.dir + "/a.txt", "a.txt"},

		{"missing", "!missing"},
		{"missing/x/y", "!missing/x/y"},
		{"missing/../a.txt", "a.txt"},
		{"missing/x/../../a.txt", "a.txt"},
		{"missing/x/..", "!missing"},
		{"missing/..", ""},
		{"a.txt/x", "!a.txt/x"},
		{"a.txt/../d", "d"},
		{"dangling", "!nowhere/x"},
		{"loop1", "!loop1"},
		{"cc", fmt.Sprintf("!c%02d", MaxLinks-1)}, // 41 links

		{"..", outside},
		{"../outside/secret", outside},
		{"d/../../outside/secret", outside},
		{"missing/../../outside/secret", outside},
		{b.out + "/secret", outside},
		{b.dir + "2/x", outside},
		{"../root2/x", outside},
		{"lookalike/x", outside},
		{"escape", outside},
		{"escape/secret", outside},
		{"escape/missing", outside},
		{"escape/../outside/secret", outside},
		{"escapefile", outside},
		{"escapenew", outside},
		{"magic/etc/passwd", outside},
		{"magic", outside},
		{"cwd", outside},
		{"slash/etc/passwd", outside},
		{"up", outside},
		{"up/outside/secret", outside},
		{"/etc/passwd", outside},
		{"/nothing/at/all", outside},
		{"/proc/self/cwd", outside},
		{"/proc/self/root" + b.dir + "/a.txt", outside},
		{"/dev/null", outside},
	}
	for _, c := range cases {
		got, err := b.stat(c.path)
		if c.want == outside {
			want(t, err, wire.PathOutsideAllowedRoot)
			if err == nil {
				t.Errorf("%s: got %+v", c.path, *got.Path)
				continue
			}
			details := wire.AsError(err).Details
			if details["path"] != c.path || details["requested_path"] != c.path || details["allowed_root"] != b.dir {
				t.Errorf("%s: details %v", c.path, details)
			}
			if strings.Contains(err.Error(), b.out) && !strings.Contains(c.path, b.out) {
				t.Errorf("%s: the message tells where it leads: %v", c.path, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		tail, missing := strings.CutPrefix(c.want, "!")
		path := strings.TrimSuffix(b.dir+"/"+tail, "/")
		if got.Exists == missing || *got.Path != path {
			t.Errorf("%s: exists %t, path %s; want %t, %s", c.path, got.Exists, *got.Path, !missing, path)
		}
	}
}

func TestResolveBadText(t *testing.T) {
	b := newBench(t)
	_, err := b.stat("a\x00b")
	want(t, err, wire.PathInvalidChars)
	_, err = b.stat(strings.Repeat("x/", wire.MaxPath/2) + "y")
	want(t, err, wire.PathInvalidChars, "too_long")
	_, err = b.stat(strings.Repeat("n", 256))
	want(t, err, wire.PathInvalidChars)
	_, err = b.stat("~nobody/x")
	want(t, err, wire.PathInvalidChars)
	_, err = b.stat("")
	want(t, err, wire.InternalError, "invalid_payload")

	// 4096 characters are allowed, and so is what takes more bytes than PATH_MAX.
	if s, err := b.stat(strings.Repeat("x/", wire.MaxPath/2)); err != nil || s.Exists {
		t.Errorf("4096 characters: %+v, %v", s, err)
	}
	if s, err := b.stat(strings.Repeat("üü/", 1300)); err != nil || s.Exists {
		t.Errorf("6500 bytes: %+v, %v", s, err)
	}
}

func TestHome(t *testing.T) {
	b := newBench(t)
	b.put("home/me/notes.txt", "n")
	t.Setenv("HOME", b.dir+"/home/me")
	r := b.openRoot(b.dir, nil)
	for _, path := range []string{"~/notes.txt", "~//notes.txt", "~/../me/notes.txt"} {
		s, _, err := r.Stat(b.ctx, wire.FileStat{Path: path})
		if err != nil || *s.Path != b.dir+"/home/me/notes.txt" {
			t.Errorf("%s: %v, %v", path, s.Path, err)
		}
	}
	if s, _, err := r.Stat(b.ctx, wire.FileStat{Path: "~"}); err != nil || *s.Path != b.dir+"/home/me" {
		t.Errorf("~: %v, %v", s.Path, err)
	}
	t.Setenv("HOME", b.out)
	r = b.openRoot(b.dir, nil)
	_, _, err := r.Stat(b.ctx, wire.FileStat{Path: "~/secret"})
	want(t, err, wire.PathOutsideAllowedRoot)
	t.Setenv("HOME", "")
	r = b.openRoot(b.dir, nil)
	_, _, err = r.Stat(b.ctx, wire.FileStat{Path: "~"})
	want(t, err, wire.PathInvalidChars)
}

// TestRootByAnotherName opens the root through links, and asks for its files by
// names that aren't canonical.
func TestRootByAnotherName(t *testing.T) {
	b := newBench(t)
	b.put("a.txt", "a")
	other := t.TempDir()
	b.must(os.Symlink(b.base, other+"/parent"))
	b.must(os.Symlink(other+"/parent/root", other+"/direct"))
	r := b.openRoot(other+"/parent/root", nil)
	if r.Path() != b.dir {
		t.Errorf("path %s, want %s", r.Path(), b.dir)
	}
	for _, path := range []string{other + "/parent/root/a.txt", other + "/direct/a.txt", other + "/direct/../root/a.txt"} {
		s, _, err := r.Stat(b.ctx, wire.FileStat{Path: path})
		if err != nil || !s.Exists || *s.Path != b.dir+"/a.txt" {
			t.Errorf("%s: %+v, %v", path, s, err)
		}
	}
	_, _, err := r.Stat(b.ctx, wire.FileStat{Path: other + "/parent/outside/secret"})
	want(t, err, wire.PathOutsideAllowedRoot)
}

// TestSlash has the whole file system as its root.
func TestSlash(t *testing.T) {
	b := newBench(t)
	b.put("a.txt", "a")
	b.link(b.dir+"/a.txt", "abs")
	r := b.openRoot("/", b.never)
	for _, path := range []string{b.dir + "/abs", "/.." + b.dir + "/a.txt", strings.TrimPrefix(b.dir, "/") + "/a.txt"} {
		s, _, err := r.Stat(b.ctx, wire.FileStat{Path: path})
		if err != nil || !s.Exists || *s.Path != b.dir+"/a.txt" {
			t.Errorf("%s: %+v, %v", path, s, err)
		}
	}
	for _, path := range []string{"/proc/self/environ", "/proc", "/dev/null", "/dev", "/sys", "/run/x", "../proc/1/status"} {
		_, _, err := r.Stat(b.ctx, wire.FileStat{Path: path})
		want(t, err, wire.PathOutsideAllowedRoot, "protected")
	}
	s, _, err := r.Stat(b.ctx, wire.FileStat{Path: "/"})
	if err != nil || *s.Path != "/" || !*s.IsDir {
		t.Errorf("/: %+v, %v", s, err)
	}
	list, _, err := r.List(b.ctx, wire.FileList{Path: "/"})
	b.must(err)
	for _, e := range list.Entries {
		switch e.Path {
		case "/proc", "/sys", "/dev", "/run":
			t.Errorf("%s is listed", e.Path)
		case "/" + e.Name:
		default:
			t.Errorf("path %s of %s", e.Path, e.Name)
		}
	}
	_, err = r.Delete(b.ctx, wire.FileDelete{Path: "/", Recursive: true})
	want(t, err, wire.PathOutsideAllowedRoot, "is_root")
}

// TestUndecodableNames reaches names that are not UTF-8 by how they are shown.
func TestUndecodableNames(t *testing.T) {
	b := newBench(t)
	b.put("caf\xe9/men\xfc.txt", "latin-1")
	list, _, err := b.List(b.ctx, wire.FileList{Path: ".", Recursive: true})
	b.must(err)
	if len(list.Entries) != 2 {
		t.Fatalf("entries %+v", list.Entries)
	}
	path := list.Entries[1].Path
	if path != b.dir+"/caf\uFFFD/men\uFFFD.txt" {
		t.Errorf("shown as %q", path)
	}
	if got, err := b.read(path); err != nil || got != "latin-1" {
		t.Errorf("read %q: %q, %v", path, got, err)
	}
	b.must(b.write(path, "changed"))
	b.has("caf\xe9/men\xfc.txt", "changed")

	b.put("caf\xe8/other", "x") // now the name is ambiguous
	_, err = b.read(path)
	want(t, err, wire.PathNotFound)
	want(t, b.delete("caf\uFFFD2", false), wire.PathNotFound)
}

// TestManySteps bounds what one path can cost.
func TestManySteps(t *testing.T) {
	b := newBench(t)
	deep := strings.Repeat("a/", 900)
	b.must(b.writeDeep(deep+"f", "deep"))
	if got, err := b.read(deep + "f"); err != nil || got != "deep" {
		t.Errorf("900 levels: %q, %v", got, err)
	}
	if s, err := b.stat(deep + strings.Repeat("../", 700) + "a"); err != nil || !s.Exists {
		t.Errorf("up again: %+v, %v", s, err)
	}
	if s, err := b.stat(strings.Repeat("a/../", 800) + "a"); err != nil || !s.Exists {
		t.Errorf("to and fro: %+v, %v", s, err)
	}
	// The worst: far down, and again and again a step up and down.
	_, err := b.stat(deep + strings.Repeat("../a/", 400))
	want(t, err, wire.PathInvalidChars, "too_long")
	_, err = b.stat("/" + strings.Repeat("usr/../", 500) + b.dir[1:])
	b.must(err)
	b.must(b.delete("a", true))
	b.gone("a")
}

func TestRootGone(t *testing.T) {
	b := newBench(t)
	b.must(os.Remove(b.dir))
	_, err := b.stat("a.txt")
	want(t, err, wire.PathOutsideAllowedRoot, "root_gone")
	want(t, b.write("a.txt", "x"), wire.PathOutsideAllowedRoot, "root_gone")
	b.gone("")
}

func TestClosed(t *testing.T) {
	b := newBench(t)
	b.must(b.Close())
	b.must(b.Close())
	_, err := b.stat("a.txt")
	want(t, err, wire.InternalError, "closed")
}

func TestOpenRefuses(t *testing.T) {
	b := newBench(t)
	_, err := Open(b.dir+"/missing", nil, nil)
	want(t, err, wire.PathNotFound)
	b.put("file", "")
	_, err = Open(b.dir+"/file", nil, nil)
	want(t, err, wire.PathNotFound, "not_a_directory")
	_, err = Open("a\x00b", nil, nil)
	want(t, err, wire.PathInvalidChars)
	b.mkdir("caf\xe9")
	_, err = Open(b.dir+"/caf\xe9", nil, nil)
	want(t, err, wire.PathInvalidChars)
}

func TestOpenDir(t *testing.T) {
	b := newBench(t)
	b.put("d/f", "x")
	b.link("d", "l")
	b.link(b.out, "escape")
	for path, canonical := range map[string]string{"": b.dir, ".": b.dir, "d": b.dir + "/d", "l": b.dir + "/d"} {
		dir, got, err := b.OpenDir(b.ctx, path)
		if err != nil {
			t.Errorf("%q: %v", path, err)
			continue
		}
		var st, byName unix.Stat_t
		b.must(unix.Fstat(int(dir.Fd()), &st))
		b.must(unix.Stat(canonical, &byName))
		if got != canonical || st.Ino != byName.Ino {
			t.Errorf("%q: %s, inode %d", path, got, st.Ino)
		}
		b.must(dir.Close())
	}
	_, _, err := b.OpenDir(b.ctx, "escape")
	want(t, err, wire.PathOutsideAllowedRoot)
	_, _, err = b.OpenDir(b.ctx, "d/f")
	want(t, err, wire.InternalError, "not_a_directory")
	_, _, err = b.OpenDir(b.ctx, "missing")
	want(t, err, wire.PathNotFound)
}

// FuzzResolve asks for any path in a tree full of links: nothing outside the
// root is ever found, and what is found is what its canonical path names.
func FuzzResolve(f *testing.F) {
	for _, seed := range []string{
		"a", "d/../a", "esc/secret", "abs/x", "../root/a", "loop", "dot/dotdot/..", "~/x", "/proc/self/root",
		"missing/../../outside/secret", "d/up/outside/secret", "a\uFFFDb", "\x00", "//", "...",
	} {
		f.Add(seed)
	}
	b := newBench(f)
	b.put("a", "a")
	b.put("d/x", "x")
	b.link(b.out, "esc")
	b.link("../..", "d/up")
	b.link(b.dir+"/d", "abs")
	b.link("loop", "loop")
	b.link(".", "dot")
	b.link("..", "dotdot")
	var out unix.Stat_t
	b.must(unix.Stat(b.out+"/secret", &out))
	b.ctx = f.Context()
	f.Fuzz(func(t *testing.T, path string) {
		for _, follow := range []bool{true, false} {
			p, err := b.resolve(t.Context(), asked{key: "path", path: path}, follow)
			if err != nil {
				continue
			}
			canonical := p.path(b.Root)
			if canonical != b.dir && !strings.HasPrefix(canonical, b.dir+"/") {
				t.Errorf("%q leads to %q", path, canonical)
			}
			if p.exists {
				var st unix.Stat_t
				if err := unix.Lstat(canonical, &st); err != nil || identOf(&st) != identOf(&p.st) {
					t.Errorf("%q isn't %q: %v", path, canonical, err)
				}
				if st.Ino == out.Ino {
					t.Errorf("%q reached the outside", path)
				}
			}
			p.close()
		}
	})
}

func FuzzDirents(f *testing.F) {
	f.Add([]byte{})
	f.Add(append(make([]byte, 16), 24, 0, 8, 'a', 0, 0, 0, 0))
	f.Add(append(make([]byte, 16), 255, 255, 8, 'a'))
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		_ = parseDirents(b, func(d dirent) error {
			if d.name == "" || d.name == "." || d.name == ".." || strings.ContainsAny(d.name, "/\x00") {
				t.Errorf("name %q", d.name)
			}
			total += len(d.name)
			return nil
		})
		if total > len(b) {
			t.Errorf("%d bytes of names in %d", total, len(b))
		}
	})
}
