package files

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/internal/leak"
	"farhand/internal/testenv"
	"farhand/wire"
)

// big is a limit that no test meets by accident.
const big = 10 << 20

// bench is a root with something outside it that must stay what it is.
type bench struct {
	t    testing.TB
	ctx  context.Context
	base string // canonical parent of everything
	dir  string // the root's path
	out  string // a directory beside it, holding secret
	*Root
}

const secret = "outside: never to be seen"

func newBench(t testing.TB) *bench {
	t.Helper()
	leak.Check(t)
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, ctx: t.Context(), base: base, dir: base + "/root", out: base + "/outside"}
	b.mkdir(b.dir)
	b.mkdir(b.out)
	b.put(b.out+"/secret", secret)
	never, err := NewForbidden()
	if err != nil {
		t.Fatal(err)
	}
	b.Root = b.openRoot(b.dir, never)
	return b
}

func (b *bench) openRoot(path string, never *Forbidden) *Root {
	b.t.Helper()
	r, err := Open(path, never, nil)
	if err != nil {
		b.t.Fatalf("open %s: %v", path, err)
	}
	b.t.Cleanup(func() {
		if err := r.Close(); err != nil {
			b.t.Errorf("close: %v", err)
		}
	})
	return r
}

// in makes a path in the root absolute.
func (b *bench) in(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return b.dir + "/" + path
}

func (b *bench) must(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) mkdir(path string) {
	b.t.Helper()
	b.must(os.MkdirAll(b.in(path), 0o755))
}

func (b *bench) put(path, content string) {
	b.t.Helper()
	b.must(os.MkdirAll(filepath.Dir(b.in(path)), 0o755))
	b.must(os.WriteFile(b.in(path), []byte(content), 0o644))
}

func (b *bench) link(target, path string) {
	b.t.Helper()
	b.must(os.Symlink(target, b.in(path)))
}

// has checks what a file holds, by the operating system's own means.
func (b *bench) has(path, content string) {
	b.t.Helper()
	got, err := os.ReadFile(b.in(path))
	if err != nil || string(got) != content {
		b.t.Errorf("%s holds %q (%v), want %q", path, got, err, content)
	}
}

func (b *bench) gone(paths ...string) {
	b.t.Helper()
	for _, path := range paths {
		if _, err := os.Lstat(b.in(path)); !os.IsNotExist(err) {
			b.t.Errorf("%s is there (%v)", path, err)
		}
	}
}

// untouched checks that nothing outside the root changed.
func (b *bench) untouched() {
	b.t.Helper()
	for dir, want := range map[string][]string{b.base: {"outside", "root"}, b.out: {"secret"}} {
		entries, err := os.ReadDir(dir)
		b.must(err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		if len(names) != len(want) {
			b.t.Errorf("%s holds %v, want %v", dir, names, want)
		}
	}
	b.has(b.out+"/secret", secret)
}

// noTemps checks that no unfinished file is left in the tree.
func (b *bench) noTemps() {
	b.t.Helper()
	b.must(filepath.WalkDir(b.dir, func(path string, _ os.DirEntry, err error) error {
		if isTempName(filepath.Base(path)) {
			b.t.Errorf("left behind: %s", path)
		}
		return err
	}))
}

func (b *bench) read(path string) (string, error) {
	c, _, err := b.Read(b.ctx, wire.FileRead{Path: path}, big)
	if err != nil {
		return "", err
	}
	return string(c.Content), nil
}

func (b *bench) write(path, content string) error {
	_, err := b.Write(b.ctx, wire.FileWrite{Path: path, Content: []byte(content)}, big)
	return err
}

func (b *bench) writeDeep(path, content string) error {
	_, err := b.Write(b.ctx, wire.FileWrite{Path: path, Content: []byte(content), CreateParents: true}, big)
	return err
}

func (b *bench) stat(path string) (wire.FileStatResponse, error) {
	s, _, err := b.Stat(b.ctx, wire.FileStat{Path: path})
	return s, err
}

func (b *bench) lstat(path string) (wire.FileStatResponse, error) {
	no := false
	s, _, err := b.Stat(b.ctx, wire.FileStat{Path: path, FollowSymlinks: &no})
	return s, err
}

func (b *bench) delete(path string, recursive bool) error {
	_, err := b.Delete(b.ctx, wire.FileDelete{Path: path, Recursive: recursive})
	return err
}

func (b *bench) move(src, dst string, overwrite bool) error {
	_, err := b.Move(b.ctx, wire.FileMove{Src: src, Dst: dst, Overwrite: overwrite})
	return err
}

// want checks an error's code and, if given, its details.reason.
func want(t testing.TB, err error, code wire.Code, reason ...string) {
	t.Helper()
	if got := wire.CodeOf(err); got != code {
		t.Errorf("code %q (%v), want %q", got, err, code)
		return
	}
	if len(reason) > 0 {
		if got := wire.AsError(err).Details["reason"]; got != reason[0] {
			t.Errorf("details.reason %v (%v), want %q", got, err, reason[0])
		}
	}
}

// ino is a file's inode number.
func (b *bench) ino(path string) uint64 {
	b.t.Helper()
	var st unix.Stat_t
	b.must(unix.Lstat(b.in(path), &st))
	return st.Ino
}

// asUser runs f on a thread whose file system rights are those of uid and gid
// alone. That takes root.
func asUser(t *testing.T, uid, gid int, f func()) {
	t.Helper()
	testenv.Need(t, "root", os.Geteuid() == 0, "another user's rights can only be taken on by root")
	onThread(func() {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
			t.Errorf("setgroups: %v", errno)
			return
		}
		if _, err := unix.SetfsgidRetGid(gid); err != nil {
			t.Errorf("setfsgid: %v", err)
			return
		}
		if _, err := unix.SetfsuidRetUid(uid); err != nil {
			t.Errorf("setfsuid: %v", err)
			return
		}
		f()
	})
}

// withMounts runs f on a thread with mounts of its own.
func withMounts(t *testing.T, f func()) {
	t.Helper()
	testenv.Need(t, "mount", os.Geteuid() == 0, "file systems can only be mounted by root")
	refused := error(nil)
	onThread(func() {
		if refused = unix.Unshare(unix.CLONE_NEWNS); refused != nil {
			return
		}
		if refused = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); refused != nil {
			return
		}
		f()
	})
	testenv.Need(t, "mount", refused == nil, "mounts of our own are refused here")
}

// onThread runs f on a thread that ends with it.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked
		f()
	}()
	<-done
}

func mount(t testing.TB, source, target, kind, options string, flags uintptr) {
	t.Helper()
	if err := unix.Mount(source, target, kind, flags, options); err != nil {
		t.Errorf("mount %s: %v", target, err)
		runtime.Goexit()
	}
}

func farFuture() time.Time { return time.Now().Add(time.Hour) }
