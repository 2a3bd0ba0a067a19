package files

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/wire"
)

// TestSwapRace swaps directories for links out of the root as fast as it can,
// while everything that there is works on paths through them. Nothing outside
// may be seen, changed, made or removed.
func TestSwapRace(t *testing.T) {
	b := newBench(t)
	long := 3 * time.Second
	if testing.Short() {
		long = 300 * time.Millisecond
	}
	b.put(b.out+"/f", secret)
	b.put(b.out+"/deep/f", secret)
	b.put("d/f", "inside")
	b.put("d/deep/f", "inside")
	b.put("e/f", "inside")
	b.link(b.out, "link")
	b.link("../outside", "link2")
	b.put("file", "inside")
	b.link("../outside/secret", "filelink")

	stop := make(chan struct{})
	var swaps atomic.Int64
	var swappers sync.WaitGroup
	for _, pair := range [][2]string{{"d", "link"}, {"e", "link2"}, {"file", "filelink"}} {
		swappers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := unix.Renameat2(b.self.fd, pair[0], b.self.fd, pair[1], unix.RENAME_EXCHANGE); err == nil {
					swaps.Add(1)
				} else if err != unix.ENOENT { // somebody just moves it
					t.Errorf("swap: %v", err)
					return
				}
			}
		})
	}

	var done, refused atomic.Int64
	note := func(err error) {
		if err == nil {
			done.Add(1)
			return
		}
		switch wire.CodeOf(err) {
		case wire.PathOutsideAllowedRoot, wire.PathNotFound, wire.PathExists:
			refused.Add(1)
		case wire.InternalError:
			switch reason := wire.AsError(err).Details["reason"]; reason {
			case "not_a_directory", "changed_meanwhile", "is_a_directory":
				refused.Add(1)
			default:
				t.Errorf("reason %v: %v", reason, err)
			}
		default:
			t.Errorf("%v", err)
		}
	}
	deadline := time.Now().Add(long)
	round := func(i int) {
		for _, path := range []string{"d/f", "e/f", "d/deep/f", "file", "d/../d/f", b.dir + "/link2/f"} {
			got, err := b.read(path)
			note(err)
			if strings.Contains(got, secret) {
				t.Errorf("read %s: %q", path, got)
			}
			if s, err := b.stat(path); err == nil && s.Exists && *s.SizeBytes == int64(len(secret)) {
				t.Errorf("stat %s: %+v", path, js(s))
			}
		}
		note(b.write(fmt.Sprintf("d/new%d", i%8), "written"))
		note(b.writeDeep(fmt.Sprintf("e/a%d/b/new", i%8), "written"))
		note(b.write("d/f", "inside"))
		note(b.write("file", "inside"))
		note(b.delete(fmt.Sprintf("d/new%d", (i+4)%8), false))
		note(b.delete(fmt.Sprintf("e/a%d", (i+4)%8), true))
		note(b.delete("d/secret", false)) // only ever outside
		note(b.move("d/secret", "stolen", true))
		note(b.move(fmt.Sprintf("d/new%d", i%8), "e/moved", true))
		list, _, err := b.List(b.ctx, wire.FileList{Path: "d", Recursive: true})
		note(err)
		for _, e := range list.Entries {
			if e.Name == "secret" {
				t.Errorf("listed %s", e.Path)
			}
		}
		if dir, _, err := b.OpenDir(b.ctx, "d"); err == nil {
			var st unix.Stat_t
			if unix.Fstatat(int(dir.Fd()), "secret", &st, 0) == nil {
				t.Error("opened the outside as a directory")
			}
			dir.Close()
		}
	}
	var workers sync.WaitGroup
	rounds := atomic.Int64{}
	for w := range 2 {
		workers.Go(func() {
			for i := w; (time.Now().Before(deadline) || rounds.Load() < 100) && !t.Failed(); i++ {
				round(i)
				rounds.Add(1)
			}
		})
	}
	workers.Wait()
	close(stop)
	swappers.Wait()
	t.Logf("%d swaps, %d rounds: %d operations went through, %d were refused", swaps.Load(), rounds.Load(), done.Load(), refused.Load())
	if swaps.Load() == 0 || done.Load() == 0 || refused.Load() == 0 {
		t.Error("the race was none")
	}

	b.gone("stolen")
	b.has(b.out+"/f", secret)
	b.has(b.out+"/deep/f", secret)
	b.must(os.RemoveAll(b.out + "/deep"))
	b.must(os.Remove(b.out + "/f"))
	b.untouched()
	b.noTemps()
}

// TestAtomic reads a file while it is replaced: never a mixture, never a gap.
func TestAtomic(t *testing.T) {
	b := newBench(t)
	whole := func(c byte) string { return strings.Repeat(string(c), 64<<10) }
	b.must(b.write("f", whole('a')))
	stop := make(chan struct{})
	var writers sync.WaitGroup
	writers.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			if err := b.write("f", whole('a'+byte(i%26))); err != nil {
				t.Errorf("write: %v", err)
				return
			}
		}
	})
	for range 300 {
		got, err := b.read("f")
		if err != nil || len(got) != 64<<10 || got != whole(got[0]) {
			t.Errorf("read %d bytes, %v", len(got), err)
			break
		}
	}
	close(stop)
	writers.Wait()
	b.noTemps()
}

// TestNoReplaceRace has many move to one name: one of them wins, nothing is lost.
func TestNoReplaceRace(t *testing.T) {
	b := newBench(t)
	const n = 16
	for i := range n {
		b.put(fmt.Sprintf("f%02d", i), fmt.Sprint(i))
	}
	var won atomic.Int64
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			switch err := b.move(fmt.Sprintf("f%02d", i), "one", false); wire.CodeOf(err) {
			case "":
				won.Add(1)
			case wire.PathExists:
			default:
				t.Error(err)
			}
		})
	}
	all.Wait()
	names, _ := b.names(wire.FileList{Path: "."})
	if won.Load() != 1 || len(names) != n {
		t.Errorf("%d won, %q are left", won.Load(), names)
	}
}

// TestSwappedAtTheLastMoment gives each step a link where it was told that there
// is a directory or a file.
func TestSwappedAtTheLastMoment(t *testing.T) {
	b := newBench(t)
	b.link(b.out, "d")
	b.link(b.out+"/secret", "f")
	fd, err := openDir(b.self.fd, ".")
	b.must(err)
	top := handle{fd: fd, id: b.self.id, owned: true}
	defer top.close()

	l := newListing(b.ctx, b.Root, wire.FileList{Recursive: true})
	if err := l.enter(&top, item{key: "d/", name: "d", enter: true}, b.dir+"/", nil, view{}, 0); err != nil || len(l.answer.Entries) != 0 {
		t.Errorf("listed %+v, %v", l.answer.Entries, err)
	}
	x := &removal{root: b.Root, ctx: b.ctx, count: new(int)}
	if err := x.tree(&top, "d"); err != errRaced {
		t.Errorf("removed: %v", err)
	}
	s := &sweep{root: b.Root, ctx: b.ctx, before: farFuture()}
	s.entry(&top, "d", s.before)
	if _, err := top.down("d"); err == nil {
		t.Error("entered")
	}
	var st unix.Stat_t
	b.must(unix.Stat(b.out+"/secret", &st))
	for _, flags := range []int{unix.O_RDONLY, unix.O_RDWR, unix.O_PATH} {
		if _, err := b.reopen(&place{dir: top, name: "f", st: st}, flags); err != errRaced {
			t.Errorf("opened with flags %x: %v", flags, err)
		}
	}
	c := &copying{root: b.Root, ctx: b.ctx, links: map[ident]string{}}
	if err := c.file(&top, "f", &st, &top, "copy"); err == nil {
		t.Error("copied")
	}
	if err := (&Root{}).createBelow(top, []string{"d", "x"}, nil); err != errRaced {
		t.Errorf("made: %v", err)
	}
	b.gone("copy")
	b.untouched()
}
