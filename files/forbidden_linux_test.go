package files

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// stateBench is a root above a state directory and a configuration file.
func stateBench(t *testing.T) *bench {
	b := newBench(t)
	b.put("home/.state/tokens.json", secret)
	b.put("home/.config/farhandd.toml", secret)
	b.put("home/.config/other.toml", "harmless")
	b.put("home/notes.txt", "n")
	never, err := NewForbidden(b.dir+"/home/.state", b.dir+"/home/.config/farhandd.toml", b.dir+"/no/such/boot", "")
	b.must(err)
	b.Root = b.openRoot(b.dir, never)
	return b
}

func TestForbidden(t *testing.T) {
	b := stateBench(t)
	b.link("home/.state", "innocent")
	b.link(b.dir+"/home/.config/farhandd.toml", "conf")
	b.must(os.Link(b.in("home/.config/farhandd.toml"), b.in("hardlink")))
	b.must(os.Rename(b.in("home/.state"), b.in("home/renamed")))
	b.mkdir("home/.state") // and what comes to have that name

	closed := []string{
		"home/renamed", "home/renamed/tokens.json", "home/renamed/missing", "home/.state", "home/.state/new",
		"innocent", "innocent/tokens.json", "home/notes.txt/../.state/x", "home/.config/farhandd.toml", "conf", "hardlink",
		"home/.config/farhandd.toml/x",
	}
	for _, path := range closed {
		_, err := b.stat(path)
		want(t, err, wire.PathOutsideAllowedRoot, "protected")
		_, err = b.read(path)
		want(t, err, wire.PathOutsideAllowedRoot, "protected")
		want(t, b.writeDeep(path, "x"), wire.PathOutsideAllowedRoot, "protected")
		_, _, err = b.OpenDir(b.ctx, path)
		want(t, err, wire.PathOutsideAllowedRoot, "protected")
		_, _, err = b.List(b.ctx, wire.FileList{Path: path})
		want(t, err, wire.PathOutsideAllowedRoot, "protected")
		if path != "innocent" && path != "conf" { // a move replaces the link itself
			want(t, b.move("home/notes.txt", path, true), wire.PathOutsideAllowedRoot, "protected")
		}
	}
	for _, path := range []string{"home/renamed", "home/.config/farhandd.toml", "hardlink"} {
		want(t, b.delete(path, true), wire.PathOutsideAllowedRoot, "protected")
		want(t, b.move(path, "stolen", false), wire.PathOutsideAllowedRoot, "protected")
	}
	b.gone("stolen")
	b.must(b.delete("innocent", false)) // the link is nobody's secret
	if got, err := b.read("home/.config/other.toml"); err != nil || got != "harmless" {
		t.Errorf("beside it: %q, %v", got, err)
	}
	b.has("home/renamed/tokens.json", secret)
	b.has("home/.config/farhandd.toml", secret)

	list, _, err := b.List(b.ctx, wire.FileList{Path: ".", Recursive: true, IncludeHidden: true})
	b.must(err)
	for _, e := range list.Entries {
		switch e.Name {
		case "tokens.json", "renamed", ".state", "farhandd.toml", "hardlink":
			t.Errorf("%s is listed", e.Path)
		case "conf":
			if e.IsFile || !e.IsSymlink {
				t.Errorf("the list tells what a closed target is: %+v", e)
			}
		}
	}
}

// TestForbiddenFileReplaced edits the configuration as editors do, with a new inode.
func TestForbiddenFileReplaced(t *testing.T) {
	b := stateBench(t)
	b.put("home/.config/new", secret)
	b.must(os.Rename(b.in("home/.config/new"), b.in("home/.config/farhandd.toml")))
	_, err := b.read("home/.config/farhandd.toml")
	want(t, err, wire.PathOutsideAllowedRoot, "protected")
	b.must(os.Remove(b.in("home/.config/farhandd.toml")))
	want(t, b.write("home/.config/farhandd.toml", "shell.enabled = true"), wire.PathOutsideAllowedRoot, "protected")
	b.gone("home/.config/farhandd.toml")
}

// TestForbiddenHolders neither deletes nor moves away what holds something closed.
func TestForbiddenHolders(t *testing.T) {
	b := stateBench(t)
	b.put("other/f", "f")
	for _, path := range []string{"home", "home/.config"} {
		want(t, b.delete(path, true), wire.PathOutsideAllowedRoot, "protected")
		want(t, b.move(path, "away", false), wire.PathOutsideAllowedRoot, "protected")
		want(t, b.move("other", path, true), wire.PathOutsideAllowedRoot, "protected")
	}
	b.has("home/notes.txt", "n") // nothing was begun
	b.has("home/.state/tokens.json", secret)
	b.has("other/f", "f")

	// Below a directory that came to hold it later, it stays alone.
	b.must(os.Rename(b.in("home"), b.in("other/home")))
	want(t, b.delete("other", true), wire.PathOutsideAllowedRoot, "protected")
	b.has("other/home/.state/tokens.json", secret)
	b.has("other/home/.config/farhandd.toml", secret)
	b.has("other/home/notes.txt", "n")
	want(t, b.move("other", "away", false), "") // that is no harm

	b.must(os.Rename(b.in("away/home/.config/farhandd.toml"), b.in("away/moved.toml")))
	b.must(os.Rename(b.in("away/home/.state"), b.in(".state")))
	b.must(os.RemoveAll(b.in("away/home")))
	want(t, b.delete("away", true), wire.PathOutsideAllowedRoot, "protected")
	b.has("away/moved.toml", secret)
}

func TestCheckRoot(t *testing.T) {
	b := stateBench(t)
	b.link("home/.state", "alias")
	b.mkdir("home/.state/below")
	for _, path := range []string{
		"/proc", "/proc/self", "/sys/kernel", "/dev", "/dev/shm", "/run",
		b.dir + "/home/.state", b.dir + "/home/.state/below", b.dir + "/alias", b.dir + "/home/.config/../.state",
	} {
		if _, err := os.Stat(path); err != nil {
			continue // not on this machine
		}
		want(t, b.never.CheckRoot(path), wire.PathOutsideAllowedRoot, "protected")
		_, err := Open(path, b.never, nil)
		want(t, err, wire.PathOutsideAllowedRoot, "protected")
	}
	for _, path := range []string{"/", b.dir, b.dir + "/home", b.out} {
		if err := b.never.CheckRoot(path); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Open("/proc/self", nil, nil); wire.CodeOf(err) != wire.PathOutsideAllowedRoot {
		t.Errorf("procfs without a Forbidden: %v", err)
	}
	if _, err := NewForbidden("/"); err == nil {
		t.Error("/ can be closed")
	}
}

// TestForbiddenMounts binds what is closed to other places.
func TestForbiddenMounts(t *testing.T) {
	b := stateBench(t)
	for _, dir := range []string{"proc", "newproc", "dev", "fd", "state", "disk"} {
		b.mkdir(dir)
	}
	withMounts(t, func() {
		b.Root = b.openRoot(b.dir, b.never) // a descriptor belongs to its mounts
		mount(t, "/proc", b.in("proc"), "", "", unix.MS_BIND)
		mount(t, "proc", b.in("newproc"), "proc", "", 0)
		mount(t, "/dev", b.in("dev"), "", "", unix.MS_BIND)
		mount(t, "/proc/self/fd", b.in("fd"), "", "", unix.MS_BIND)
		mount(t, b.in("home/.state"), b.in("state"), "", "", unix.MS_BIND)
		mount(t, "tmpfs", b.in("disk"), "tmpfs", "size=1m", 0)
		b.put("null", "")
		mount(t, "/dev/null", b.in("null"), "", "", unix.MS_BIND)
		for _, path := range []string{"null", "proc/self/environ", "newproc/version", "dev/null", "fd/0", "fd", "state", "state/tokens.json"} {
			_, err := b.stat(path)
			want(t, err, wire.PathOutsideAllowedRoot, "protected")
		}
		b.must(b.write("disk/f", "an ordinary mount"))
		if got, err := b.read("disk/f"); err != nil || got != "an ordinary mount" {
			t.Errorf("disk/f: %q, %v", got, err)
		}
		want(t, b.delete("disk", true), wire.InternalError, "busy")
		b.has("disk/f", "an ordinary mount")
		list, _, err := b.List(b.ctx, wire.FileList{Path: "."})
		if err != nil {
			t.Error(err)
		}
		for _, e := range list.Entries {
			switch e.Name {
			case "proc", "newproc", "dev", "fd", "state":
				t.Errorf("%s is listed", e.Name)
			}
		}
	})
}
