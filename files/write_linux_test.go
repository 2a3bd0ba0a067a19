package files

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/internal/testenv"
	"farhand/wire"
)

func TestWrite(t *testing.T) {
	b := newBench(t)
	b.must(b.write("new.txt", "one"))
	b.has("new.txt", "one")
	mask := unix.Umask(0)
	unix.Umask(mask)
	if s, _ := b.stat("new.txt"); *s.Mode != octal(uint32(0o666&^mask)) {
		t.Errorf("a new file's mode is %s under umask %04o", *s.Mode, mask)
	}
	before := b.ino("new.txt")
	b.must(b.write(b.in("new.txt"), "two"))
	b.has("new.txt", "two")
	if b.ino("new.txt") == before {
		t.Error("the content was replaced in place, not at once")
	}
	b.must(b.write("new.txt", ""))
	b.has("new.txt", "")

	b.mkdir("d")
	want(t, b.write("d", "x"), wire.InternalError, "is_a_directory")
	want(t, b.write(".", "x"), wire.InternalError, "is_a_directory")
	want(t, b.write("no/such/f", "x"), wire.PathNotFound)
	want(t, b.write("new.txt/f", "x"), wire.PathNotFound, "not_a_directory")
	want(t, b.writeDeep("new.txt/f", "x"), wire.PathNotFound, "not_a_directory")
	trace, err := b.Write(b.ctx, wire.FileWrite{Path: "large", Content: []byte("12345")}, 4)
	want(t, err, wire.FileTooLarge)
	if d := wire.AsError(err).Details; d["op"] != "FILE_WRITE" || d["attempted_bytes"] != int64(5) || d["max_file_size_bytes"] != int64(4) {
		t.Errorf("details %v", d)
	}
	if trace.Path != b.in("large") {
		t.Errorf("trace %+v", trace)
	}
	b.gone("large", "no")
	b.noTemps()
}

func TestWriteParents(t *testing.T) {
	b := newBench(t)
	b.must(b.writeDeep("x/y/z.txt", "deep"))
	b.has("x/y/z.txt", "deep")
	b.must(b.writeDeep("x/new/../w.txt", "beside")) // "new" need not be made
	b.has("x/w.txt", "beside")
	b.gone("x/new")
	b.link("x/later", "dangling")
	b.must(b.writeDeep("dangling/f", "through"))
	b.has("x/later/f", "through")

	// What fails leaves no directories either.
	_, err := b.Write(b.ctx, wire.FileWrite{Path: "p/q/" + strings.Repeat("n", 300), CreateParents: true}, big)
	want(t, err, wire.PathInvalidChars)
	b.gone("p")
}

// TestWriteHoles are the ways out that the reference implementation leaves open.
func TestWriteHoles(t *testing.T) {
	b := newBench(t)
	b.link("../outside/new", "dangling")
	b.link(b.out+"/new", "dangling2")
	b.link("dangling", "chained")
	b.link(b.out, "dir")
	b.link("../outside/missing", "missingdir")
	for _, path := range []string{
		"dangling", "dangling2", "chained", "dir/new", "dir/a/b", "missingdir/new",
		"new/../../outside/x", "new/../../outside/a/b", b.dir + "/new/../../evil/x", "new/../../../x",
		"dir/../outside/x", "../root2/x", "../outside/x", b.out + "/x", "/x",
	} {
		want(t, b.write(path, "x"), wire.PathOutsideAllowedRoot)
		want(t, b.writeDeep(path, "x"), wire.PathOutsideAllowedRoot)
	}
	b.gone("new", b.base+"/evil")
	b.untouched()

	b.link("inside", "good") // dangling, but into the root
	b.must(b.write("good", "x"))
	b.has("inside", "x")
	if fi, err := os.Lstat(b.in("good")); err != nil || fi.Mode()&os.ModeSymlink == 0 {
		t.Errorf("the link was replaced: %v, %v", fi, err)
	}
	b.link(b.dir+"/elsewhere/deep", "good2")
	want(t, b.write("good2", "x"), wire.PathNotFound)
	b.must(b.writeDeep("good2", "x"))
	b.has("elsewhere/deep", "x")
}

func TestWriteKeeps(t *testing.T) {
	b := newBench(t)
	for _, mode := range []uint32{0o600, 0o640, 0o755, 0o444, 0o1644} {
		path := fmt.Sprintf("mode%04o", mode)
		b.put(path, "old")
		b.must(unix.Chmod(b.in(path), mode))
		if err := b.write(path, "new"); mode == 0o444 && os.Geteuid() != 0 {
			want(t, err, wire.PathNotAllowed)
			continue
		} else {
			b.must(err)
		}
		if s, _ := b.stat(path); *s.Mode != octal(mode) {
			t.Errorf("mode %04o became %s", mode, *s.Mode)
		}
	}
	b.put("attr", "old")
	if err := unix.Setxattr(b.in("attr"), "user.origin", []byte("sensor"), 0); err == nil {
		b.must(b.write("attr", "new"))
		got := make([]byte, 16)
		if n, err := unix.Getxattr(b.in("attr"), "user.origin", got); err != nil || string(got[:n]) != "sensor" {
			t.Errorf("attribute %q, %v", got[:max(n, 0)], err)
		}
	} else {
		t.Logf("no extended attributes on this file system: %v", err)
	}
}

// TestWriteAccessList neither loses a file's access list nor gives it the
// directory's default.
func TestWriteAccessList(t *testing.T) {
	b := newBench(t)
	b.mkdir("d")
	b.put("d/plain", "old")
	b.put("d/listed", "old")
	// Version 2; user::rw, user 12345: r, group::r, mask::rw, other::- (linux/posix_acl_xattr.h).
	acl := []byte{2, 0, 0, 0}
	for _, e := range [][3]uint32{{1, 6, ^uint32(0)}, {2, 4, 12345}, {4, 4, ^uint32(0)}, {0x10, 6, ^uint32(0)}, {0x20, 0, ^uint32(0)}} {
		acl = append(acl, byte(e[0]), 0, byte(e[1]), 0, byte(e[2]), byte(e[2]>>8), byte(e[2]>>16), byte(e[2]>>24))
	}
	err := unix.Setxattr(b.in("d"), "system.posix_acl_default", acl, 0)
	testenv.Need(t, "acl", err == nil, "this file system has no access lists")
	b.must(unix.Setxattr(b.in("d/listed"), accessList, acl, 0))

	b.must(b.write("d/plain", "new"))
	got := make([]byte, 64)
	if n, err := unix.Getxattr(b.in("d/plain"), accessList, got); err != unix.ENODATA {
		t.Errorf("a list came from the directory: %v, %v", got[:max(n, 0)], err)
	}
	b.must(b.write("d/listed", "new"))
	if n, err := unix.Getxattr(b.in("d/listed"), accessList, got); err != nil || string(got[:n]) != string(acl) {
		t.Errorf("the list is %v, %v, want %v", got[:max(n, 0)], err, acl)
	}
	b.must(b.write("d/fresh", "new")) // a new file does take the default
	if n, err := unix.Getxattr(b.in("d/fresh"), accessList, got); err != nil || n != len(acl) {
		t.Errorf("a new file's list is %v, %v", got[:max(n, 0)], err)
	}
}

func TestWriteHardLinks(t *testing.T) {
	b := newBench(t)
	b.put("one", "a long old content")
	b.must(os.Link(b.in("one"), b.in("two")))
	b.must(b.write("one", "new"))
	b.has("two", "new")
	b.must(b.write("two", "longer than before, again and again"))
	b.has("one", "longer than before, again and again")
	if b.ino("one") != b.ino("two") {
		t.Error("the names came apart")
	}
}

// TestWriteOwner writes files of others, as root and as a member of their group.
func TestWriteOwner(t *testing.T) {
	b := newBench(t)
	testenv.Need(t, "root", os.Geteuid() == 0, "only root can give files away")
	const alice, bob, work = 12001, 12002, 12100
	check := func(path string, uid, gid uint32, mode string) {
		t.Helper()
		s, err := b.stat(path)
		if err != nil || *s.OwnerUID != uid || *s.OwnerGID != gid || *s.Mode != mode {
			t.Errorf("%s: %s, %v; want %d:%d %s", path, js(s), err, uid, gid, mode)
		}
	}
	b.put("hers", "old")
	b.must(os.Chown(b.in("hers"), alice, work))
	b.must(os.Chmod(b.in("hers"), 0o664))
	b.must(b.write("hers", "by root"))
	check("hers", alice, work, "0664")

	b.must(os.Chmod(b.base, 0o755))
	b.must(os.Chmod(b.dir, 0o755))
	shared := b.in("shared")
	b.mkdir("shared")
	b.must(os.Chown(shared, alice, work))
	b.must(unix.Chmod(shared, 0o2775))
	b.put("shared/hers", "old")
	b.must(os.Chown(b.in("shared/hers"), alice, work))
	b.must(os.Chmod(b.in("shared/hers"), 0o660))
	b.put("shared/bobs", "old")
	b.must(os.Chown(b.in("shared/bobs"), bob, work))
	b.put("closed/bobs", "old")
	b.must(os.Chown(b.in("closed/bobs"), bob, work))
	b.put("closed/hers", "old")
	b.must(os.Chown(b.in("closed/hers"), alice, alice))
	b.mkdir("sticky")
	b.must(os.Chmod(b.in("sticky"), os.ModeSticky|0o777))
	b.put("sticky/hers", "old")
	b.must(os.Chown(b.in("sticky/hers"), alice, work))
	b.must(os.Chmod(b.in("sticky/hers"), 0o664))
	hers := b.ino("shared/hers")
	asUser(t, bob, work, func() {
		b.must(b.write("shared/hers", "by bob, and longer"))
		b.must(b.write("shared/bobs", "by bob"))
		b.must(b.write("shared/new", "by bob"))
		b.must(b.write("closed/bobs", "by bob"))
		b.must(b.write("sticky/hers", "by bob"))
		want(t, b.write("closed/hers", "by bob"), wire.PathNotAllowed)
		want(t, b.write("closed/new", "by bob"), wire.PathNotAllowed)
		want(t, b.delete("closed/bobs", false), wire.PathNotAllowed)
		want(t, b.move("closed/bobs", "shared/bobs", true), wire.PathNotAllowed)
	})
	b.has("shared/hers", "by bob, and longer")
	check("shared/hers", alice, work, "0660")
	if b.ino("shared/hers") != hers {
		t.Error("her file has a new inode")
	}
	check("shared/bobs", bob, work, "0644")
	check("shared/new", bob, work, "0644")
	b.has("closed/bobs", "by bob")
	b.has("closed/hers", "old")
	b.has("sticky/hers", "by bob")
	check("sticky/hers", alice, work, "0664")
	b.noTemps()
}

// TestOverwriteFails puts the old content back.
func TestOverwriteFails(t *testing.T) {
	b := newBench(t)
	for _, content := range []string{"short", "much longer than what was there"} {
		b.put("f", "the old content")
		f, err := os.OpenFile(b.in("f"), os.O_RDWR, 0)
		b.must(err)
		err = overwriteBy(func(fd int, p []byte, off int64) error {
			return errors.Join(pwriteAll(fd, p[:len(p)/2], off), unix.ENOSPC)
		}, int(f.Fd()), 15, []byte(content))
		want(t, fault(asked{key: "path", path: "f"}, "write", err), wire.DiskFull)
		b.must(f.Close())
		b.has("f", "the old content")
	}
}

// TestDiskFull fills a real disk.
func TestDiskFull(t *testing.T) {
	b := newBench(t)
	withMounts(t, func() {
		mount(t, "tmpfs", b.dir, "tmpfs", "size=256k,nr_inodes=16", 0)
		b.Root = b.openRoot(b.dir, b.never)
		b.put("one", "old")
		b.put("two", "old")
		b.must(os.Link(b.in("two"), b.in("three")))
		full := strings.Repeat("x", 300<<10)
		want(t, b.write("new", full), wire.DiskFull)
		want(t, b.writeDeep("p/q/new", full), wire.DiskFull)
		want(t, b.write("one", full), wire.DiskFull) // replaced
		want(t, b.write("two", full), wire.DiskFull) // in place
		b.has("one", "old")
		b.has("three", "old")
		b.gone("new", "p")
		b.noTemps()
		for i := range 16 { // until the inodes are used up
			if err := b.write(fmt.Sprintf("n%d", i), ""); err != nil {
				want(t, err, wire.DiskFull)
				break
			} else if i == 15 {
				t.Error("16 inodes took 16 more files")
			}
		}
		b.must(b.delete("n0", false)) // deleting works on a full disk

		mount(t, "", b.dir, "", "", unix.MS_REMOUNT|unix.MS_RDONLY)
		want(t, b.write("one", "x"), wire.ReadOnlyDisk)
		want(t, b.write("fresh", "x"), wire.ReadOnlyDisk)
		want(t, b.delete("one", false), wire.ReadOnlyDisk)
		want(t, b.move("one", "other", false), wire.ReadOnlyDisk)
	})
}

// TestReservedRoom: what a disk keeps for the daemon's own state isn't taken by what
// it writes for others, though it could.
func TestReservedRoom(t *testing.T) {
	b := newBench(t)
	disk := filepath.Join(t.TempDir(), "disk")
	b.must(os.WriteFile(disk, nil, 0o600))
	b.must(os.Truncate(disk, 16<<20))
	out, err := exec.Command("mke2fs", "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-m", "30", disk).CombinedOutput()
	if err == nil {
		out, err = exec.Command("mount", "-o", "loop", disk, b.dir).CombinedOutput()
	}
	testenv.Need(t, "mount", err == nil, fmt.Sprintf("an ext4 on a loop device: %v: %s", err, out))
	t.Cleanup(func() { exec.Command("umount", "-l", b.dir).Run() })
	b.Root = b.openRoot(b.dir, b.never)
	b.put("old", strings.Repeat("o", 1<<20))
	b.must(os.Link(b.in("old"), b.in("linked")))
	piece := strings.Repeat("x", 1<<20)
	last := 0
	for i := range 16 {
		if err = b.write(fmt.Sprintf("f%d", i), piece); err != nil {
			break
		}
		last = i
	}
	want(t, err, wire.DiskFull)
	if last < 5 || last > 11 { // of 16 MiB a third is reserved
		t.Errorf("full after %d MiB", last+1)
	}
	var fs unix.Statfs_t
	b.must(unix.Statfs(b.dir, &fs))
	if free := int64(fs.Bfree) * fs.Bsize; free < 4<<20 {
		t.Errorf("%d bytes are left", free)
	}
	b.put("ballast", strings.Repeat("b", int(int64(fs.Bavail)*fs.Bsize))) // as anybody does
	want(t, b.write("f0", "x"), wire.DiskFull)
	want(t, b.writeDeep("p/q/new", "x"), wire.DiskFull)
	b.gone("p")
	b.must(b.write("empty", ""))
	b.must(b.write("linked", strings.Repeat("n", 1<<20))) // in place
	b.has("old", strings.Repeat("n", 1<<20))
	b.must(b.delete("f0", false))
	b.must(b.write("f0", "x"))
	b.noTemps()
}

// TestWriteMountedFile writes a file that is a mount point, as containers have them.
func TestWriteMountedFile(t *testing.T) {
	b := newBench(t)
	b.put("real", "old")
	b.put("mounted", "hidden")
	withMounts(t, func() {
		b.Root = b.openRoot(b.dir, b.never)
		mount(t, b.in("real"), b.in("mounted"), "", "", unix.MS_BIND)
		b.must(b.write("mounted", "new"))
		b.has("real", "new")
		want(t, b.delete("mounted", false), wire.InternalError, "busy")
	})
	b.noTemps()
}

// TestWriteRunning replaces a program while it runs.
func TestWriteRunning(t *testing.T) {
	b := newBench(t)
	self, err := os.ReadFile("/proc/self/exe")
	b.must(err)
	b.must(os.WriteFile(b.in("prog"), self, 0o755))
	stdin, hold, err := os.Pipe()
	b.must(err)
	defer hold.Close()
	p, err := os.StartProcess(b.in("prog"), []string{"prog", "-test.run=^TestUntilTold$"}, &os.ProcAttr{
		Env: append(os.Environ(), "FARHAND_FILES_PROGRAM=1"), Files: []*os.File{stdin, nil, nil},
	})
	b.must(stdin.Close())
	b.must(err)
	if f, err := os.OpenFile(b.in("prog"), os.O_WRONLY, 0); err == nil {
		f.Close()
		t.Log("this kernel lets running programs be written")
	}
	defer func() {
		b.must(hold.Close())
		if _, err := p.Wait(); err != nil {
			t.Error(err)
		}
	}()
	b.must(b.write("prog", "new"))
	b.has("prog", "new")
	if s, _ := b.stat("prog"); *s.Mode != "0755" {
		t.Errorf("mode %s", *s.Mode)
	}
}

// TestUntilTold is the program of TestWriteRunning: it runs until its input ends.
func TestUntilTold(t *testing.T) {
	if os.Getenv("FARHAND_FILES_PROGRAM") != "" {
		if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
			t.Error(err)
		}
	}
}

// TestNamedTemp takes the way of file systems that have no nameless files.
func TestNamedTemp(t *testing.T) {
	b := newBench(t)
	p, err := b.resolve(b.ctx, asked{key: "path", path: "f"}, true)
	b.must(err)
	defer p.close()
	b.must(createTemp(p.dir.fd, "f", []byte("new"), true))
	b.has("f", "new")
	if err := createTemp(p.dir.fd, "f", []byte("again"), true); err != unix.EEXIST {
		t.Errorf("over a file: %v", err)
	}
	b.has("f", "new")
	b.noTemps()
	p2, err := b.resolve(b.ctx, asked{key: "path", path: "f"}, true)
	b.must(err)
	defer p2.close()
	old, err := b.reopen(&p2, unix.O_RDWR)
	b.must(err)
	defer unix.Close(old)
	b.must(b.replaceInode(asked{}, &p2, old, []byte("replaced"), true))
	b.has("f", "replaced")
	b.noTemps()
}

func TestSweep(t *testing.T) {
	b := newBench(t)
	stale, fresh, locked, tree := tempName(), tempName(), tempName(), tempName()
	b.put("d/"+stale, "x")
	b.put("d/"+fresh, "x")
	b.put(locked, "x")
	b.put(tree+"/sub/f", "x")
	b.put("d/"+tempPrefix+"mine", "not ours")
	b.link(b.out, "escape")
	f, err := os.Open(b.in(locked))
	b.must(err)
	defer f.Close()
	b.must(unix.Flock(int(f.Fd()), unix.LOCK_EX))

	n, err := b.Sweep(b.ctx)
	if err != nil || n != 0 {
		t.Errorf("removed %d that are new, %v", n, err)
	}
	b.has("d/"+fresh, "x")
	fd, err := openDir(b.self.fd, ".")
	b.must(err)
	top := handle{fd: fd, id: b.self.id, owned: true}
	defer top.close()
	s := &sweep{root: b.Root, ctx: b.ctx, before: farFuture()}
	b.must(s.dir(&top, 0))
	if s.count != 3 {
		t.Errorf("removed %d, want 3", s.count)
	}
	b.gone("d/"+stale, tree)
	b.has(locked, "x")
	b.has("d/"+tempPrefix+"mine", "not ours")
	b.untouched()
}
