package files

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

func TestMove(t *testing.T) {
	b := newBench(t)
	b.put("a", "a")
	b.put("d/f", "f")
	trace, err := b.Move(b.ctx, wire.FileMove{Src: "a", Dst: b.in("d/a2")})
	if err != nil || trace.Src != b.in("a") || trace.Dst != b.in("d/a2") {
		t.Errorf("%+v, %v", trace, err)
	}
	b.gone("a")
	b.has("d/a2", "a")
	b.must(b.move("d", "e", false))
	b.has("e/f", "f")

	err = b.move("a", "b", false)
	want(t, err, wire.PathNotFound)
	if d := wire.AsError(err).Details; d["src"] != "a" || d["dst"] != nil {
		t.Errorf("details %v", d)
	}
	for _, dst := range []string{"no/such", "e/f/x"} {
		err = b.move("e/f", dst, true)
		want(t, err, wire.PathNotFound)
		if d := wire.AsError(err).Details; d["dst"] != dst || d["src"] != nil {
			t.Errorf("details %v", d)
		}
	}
	b.put("other", "other")
	err = b.move("e/f", "other", false)
	want(t, err, wire.PathExists)
	if d := wire.AsError(err).Details; d["dst"] != "other" {
		t.Errorf("details %v", d)
	}
	b.has("other", "other")
	b.has("e/f", "f")

	want(t, b.move("../outside/secret", "x", false), wire.PathOutsideAllowedRoot)
	err = b.move("other", "../outside/x", false)
	want(t, err, wire.PathOutsideAllowedRoot)
	if d := wire.AsError(err).Details; d["dst"] != "../outside/x" {
		t.Errorf("details %v", d)
	}
	want(t, b.move("e", "e/f2", false), wire.InternalError, "into_itself")
	want(t, b.move("e", "e/f", true), wire.InternalError, "into_itself")
	b.untouched()
}

func TestMoveOverwrite(t *testing.T) {
	b := newBench(t)
	reset := func() {
		b.must(os.RemoveAll(b.in("x")))
		b.put("x/file", "file")
		b.put("x/file2", "file2")
		b.put("x/full/a/b", "full")
		b.put("x/full2/c/d", "full2")
		b.mkdir("x/empty")
	}
	cases := []struct{ src, dst, at, content string }{
		{"file", "file2", "file2", "file"},
		{"file", "empty", "empty", "file"},
		{"file", "full", "full", "file"},
		{"full", "empty", "empty/a/b", "full"},
		{"full", "file", "file/a/b", "full"},
		{"full", "full2", "full2/a/b", "full"},
		{"full2/c", "full", "full/d", "full2"},
	}
	for _, c := range cases {
		reset()
		want(t, b.move("x/"+c.src, "x/"+c.dst, false), wire.PathExists)
		if err := b.move("x/"+c.src, "x/"+c.dst, true); err != nil {
			t.Errorf("%s over %s: %v", c.src, c.dst, err)
			continue
		}
		b.has("x/"+c.at, c.content)
		b.gone("x/" + c.src)
		b.noTemps()
	}
	reset()
	want(t, b.move("x/full/a", "x/full", true), wire.PathNotEmpty)
	b.has("x/full/a/b", "full")

	// The same without the kernel's exchange.
	reset()
	from, err := b.resolve(b.ctx, asked{key: "src", path: "x/full"}, false)
	b.must(err)
	defer from.close()
	to, err := b.resolve(b.ctx, asked{key: "dst", path: "x/full2"}, false)
	b.must(err)
	defer to.close()
	m := &moving{root: b.Root, ctx: b.ctx, from: &from, to: &to, overwrite: true}
	b.must(m.exchangeSlowly())
	b.has("x/full2/a/b", "full")
	b.gone("x/full")
	b.noTemps()
}

func TestMoveOntoItself(t *testing.T) {
	b := newBench(t)
	b.put("f", "f")
	b.put("d/g", "g")
	b.link("d", "l")
	for _, overwrite := range []bool{false, true} {
		b.must(b.move("f", "f", overwrite))
		b.must(b.move("f", b.dir+"/d/../f", overwrite))
		b.must(b.move("d/g", "l/g", overwrite))
		b.must(b.move("d", "d", overwrite))
	}
	b.has("f", "f")
	b.has("d/g", "g")

	b.must(os.Link(b.in("f"), b.in("hard")))
	want(t, b.move("f", "hard", false), wire.PathExists)
	b.has("f", "f")
	b.must(b.move("f", "hard", true))
	b.gone("f")
	b.has("hard", "f")
}

// TestMoveLinks moves and replaces links themselves.
func TestMoveLinks(t *testing.T) {
	b := newBench(t)
	b.put("f", "f")
	b.put("g", "g")
	b.link("f", "tof")
	b.link(b.out+"/secret", "escape")
	b.link("../outside/new", "dangling")
	b.link("d", "todir")
	b.put("d/x", "x")
	is := func(path, target string) {
		t.Helper()
		if got, err := os.Readlink(b.in(path)); err != nil || got != target {
			t.Errorf("%s -> %q, %v; want %q", path, got, err, target)
		}
	}
	b.must(b.move("tof", "tof2", false))
	is("tof2", "f")
	b.has("f", "f")
	b.must(b.move("escape", "d/escape", false))
	is("d/escape", b.out+"/secret")
	want(t, b.move("g", "dangling", false), wire.PathExists)
	b.must(b.move("g", "dangling", true))
	b.has("dangling", "g")
	b.must(b.move("f", "d/escape", true))
	b.has("d/escape", "f")
	b.put("h", "h")
	b.must(b.move("h", "todir", true)) // the link, not into the directory
	b.has("todir", "h")
	b.has("d/x", "x")
	b.link(b.out, "out")
	want(t, b.move("todir", "out/x", true), wire.PathOutsideAllowedRoot)
	want(t, b.move("out/secret", "stolen", true), wire.PathOutsideAllowedRoot)
	b.untouched()
}

// TestMoveReserved takes the way of file systems without RENAME_NOREPLACE.
func TestMoveReserved(t *testing.T) {
	b := newBench(t)
	b.put("f", "f")
	b.put("taken", "taken")
	b.put("d/g", "g")
	b.link("nowhere", "l")
	fd := b.self.fd
	for _, name := range []string{"f", "d", "l"} {
		if err := moveReserved(fd, name, fd, "taken"); err != unix.EEXIST {
			t.Errorf("%s over a file: %v", name, err)
		}
		b.must(moveReserved(fd, name, fd, name+"2"))
		b.gone(name)
	}
	b.has("f2", "f")
	b.has("d2/g", "g")
	b.has("taken", "taken")
	if target, err := os.Readlink(b.in("l2")); err != nil || target != "nowhere" {
		t.Errorf("link %q, %v", target, err)
	}
	// A failure takes the reservation back.
	if err := moveReserved(fd, "d2", fd, "d2/in"); err == nil {
		t.Error("moved into itself")
	}
	b.gone("d2/in")
}

// copyTree lays out what a copy has to keep.
func (b *bench) copyTree(dir string) {
	b.put(dir+"/f", "content")
	b.must(unix.Chmod(b.in(dir+"/f"), 0o640))
	b.must(os.Link(b.in(dir+"/f"), b.in(dir+"/hard")))
	b.put(dir+"/sub/g", "g")
	b.must(os.Link(b.in(dir+"/f"), b.in(dir+"/sub/hard2")))
	b.link("../f", dir+"/sub/link")
	b.link(b.out+"/secret", dir+"/escape")
	b.must(unix.Mkfifo(b.in(dir+"/fifo"), 0o600))
	b.must(os.WriteFile(b.in(dir+"/sparse"), nil, 0o644))
	b.must(os.Truncate(b.in(dir+"/sparse"), 64<<20))
	past := []unix.Timespec{{Sec: 1000000000}, {Sec: 1000000001, Nsec: 5}}
	b.must(unix.UtimesNanoAt(unix.AT_FDCWD, b.in(dir+"/f"), past, 0))
	b.must(unix.Chmod(b.in(dir+"/sub"), 0o750))
	b.must(unix.UtimesNanoAt(unix.AT_FDCWD, b.in(dir+"/sub"), past, 0))
}

func (b *bench) copied(dir string) {
	b.t.Helper()
	b.has(dir+"/f", "content")
	b.has(dir+"/sub/g", "g")
	if b.ino(dir+"/f") != b.ino(dir+"/hard") || b.ino(dir+"/f") != b.ino(dir+"/sub/hard2") {
		b.t.Error("hard links came apart")
	}
	for path, target := range map[string]string{"/sub/link": "../f", "/escape": b.out + "/secret"} {
		if got, err := os.Readlink(b.in(dir + path)); err != nil || got != target {
			b.t.Errorf("%s -> %q, %v", path, got, err)
		}
	}
	for path, mode := range map[string]uint32{"/f": unix.S_IFREG | 0o640, "/sub": unix.S_IFDIR | 0o750, "/fifo": unix.S_IFIFO | 0o600} {
		var st unix.Stat_t
		if err := unix.Lstat(b.in(dir+path), &st); err != nil || st.Mode != mode {
			b.t.Errorf("%s: mode %o, %v", path, st.Mode, err)
		}
		if path != "/fifo" && (st.Mtim != unix.Timespec{Sec: 1000000001, Nsec: 5}) {
			b.t.Errorf("%s: time %v", path, st.Mtim)
		}
	}
	var st unix.Stat_t
	if err := unix.Stat(b.in(dir+"/sparse"), &st); err != nil || st.Size != 64<<20 || st.Blocks > 1<<11 {
		b.t.Errorf("sparse: %d bytes in %d blocks, %v", st.Size, st.Blocks, err)
	}
}

// TestMoveAcross moves between two file systems in the root.
func TestMoveAcross(t *testing.T) {
	b := newBench(t)
	b.mkdir("disk")
	withMounts(t, func() {
		mount(t, "tmpfs", b.in("disk"), "tmpfs", "size=8m", 0)
		b.Root = b.openRoot(b.dir, b.never)
		b.copyTree("tree")
		b.must(b.move("tree", "disk/tree", false))
		b.copied("disk/tree")
		b.gone("tree")
		b.must(b.move("disk/tree", "back", false))
		b.copied("back")
		b.gone("disk/tree")

		b.put("disk/f", "on the disk")
		want(t, b.move("back/f", "disk/f", false), wire.PathExists)
		b.has("disk/f", "on the disk")
		b.must(b.move("back/f", "disk/f", true))
		b.has("disk/f", "content")
		b.put("disk/full/x", "x")
		b.put("full/y", "y")
		want(t, b.move("full", "disk/full", false), wire.PathExists)
		b.must(b.move("full", "disk/full", true))
		b.has("disk/full/y", "y")
		b.gone("full", "disk/full/x")
		b.link("nowhere", "l")
		b.must(b.move("l", "disk/l", false))
		if got, err := os.Readlink(b.in("disk/l")); err != nil || got != "nowhere" {
			t.Errorf("link %q, %v", got, err)
		}

		b.put("huge/first", "first")
		b.put("huge/second", strings.Repeat("x", 9<<20))
		want(t, b.move("huge", "disk/huge", false), wire.DiskFull)
		b.has("huge/first", "first")
		b.gone("disk/huge")
		b.noTemps()
	})
	b.untouched()
}

// across moves as if src and dst were on two file systems.
func (b *bench) across(ctx context.Context, src, dst string) error {
	from, err := b.resolve(b.ctx, asked{key: "src", path: src}, false)
	b.must(err)
	defer from.close()
	to, err := b.resolve(b.ctx, asked{key: "dst", path: dst}, false)
	b.must(err)
	defer to.close()
	m := &moving{root: b.Root, ctx: ctx, src: asked{key: "src", path: src}, dst: asked{key: "dst", path: dst}, from: &from, to: &to}
	return m.copyOver()
}

// TestCopyChanged loses nothing that is written while it copies.
func TestCopyChanged(t *testing.T) {
	b := newBench(t)
	b.put("f", "before")
	change := func() error { return os.WriteFile(b.in("f"), []byte("after, and longer"), 0o644) }
	err := b.across(&cancelAt{Context: b.ctx, at: 3, do: change}, "f", "g")
	want(t, err, wire.InternalError, "source_left")
	b.has("f", "after, and longer")

	b.put("h", "before")
	change = func() error {
		b.put("i", "another")
		return os.Rename(b.in("i"), b.in("h"))
	}
	want(t, b.across(&cancelAt{Context: b.ctx, at: 3, do: change}, "h", "j"), wire.InternalError, "source_left")
	b.has("h", "another")
	b.has("j", "before")
	b.noTemps()
}

// TestCopyForbidden copies nothing that files can never reach.
func TestCopyForbidden(t *testing.T) {
	b := stateBench(t)
	b.put("tree/a", "a")
	b.must(os.Rename(b.in("home/.state"), b.in("tree/state")))
	want(t, b.across(b.ctx, "tree", "copy"), wire.PathOutsideAllowedRoot, "protected")
	b.has("tree/state/tokens.json", secret)
	b.gone("copy")
	b.noTemps()
}

// TestCopyRefuses copies nothing if it can't copy all.
func TestCopyRefuses(t *testing.T) {
	b := newBench(t)
	b.copyTree("tree")
	stop := errors.New("stopped half way")
	err := b.across(&cancelAt{Context: b.ctx, at: 6, do: func() error { return stop }}, "tree", "copy")
	if wire.CodeOf(err) != wire.InternalError {
		t.Errorf("cancelled: %v", err)
	}
	b.gone("copy")
	b.copied("tree")
	b.noTemps()

	b.must(b.across(b.ctx, "tree", "copy"))
	b.copied("copy")
	b.gone("tree")

	deep := "copy/" + strings.Repeat("d/", maxCopyDepth+1) + "f"
	b.must(b.writeDeep(deep, "x"))
	want(t, b.across(b.ctx, "copy", "other"), wire.InternalError, "too_deep")
	b.has("copy/f", "content")
	b.gone("other")
	b.noTemps()
}
