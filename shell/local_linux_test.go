package shell

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"farhand/internal/leak"
	"farhand/internal/testenv"

	"golang.org/x/sys/unix"
)

func TestParseStat(t *testing.T) {
	for _, c := range []struct {
		stat string
		want proc
		ok   bool
	}{
		{"21 (sleep) S 7 21 20 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 12345 5 6 7\n", proc{21, 7, 20, 'S', 123450 * time.Millisecond}, true},
		{"21 (a) Z 1 (b) ) Z 7 21 20 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 100 5\n", proc{21, 7, 20, 'Z', time.Second}, true},
		{"21 (\n) R 7 21 20 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 100", proc{21, 7, 20, 'R', time.Second}, true},
		{"21 (sleep) S 7 21 20", proc{}, false},
		{"21 sleep S 7 21 20 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 12345 5", proc{}, false},
		{"x (sleep) S 7 21 20 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 12345 5", proc{}, false},
		{"", proc{}, false},
	} {
		if got, ok := parseStat([]byte(c.stat)); got != c.want || ok != c.ok {
			t.Errorf("%q: %+v, %v", c.stat, got, ok)
		}
	}
	self, ok := readProc(os.Getpid())
	if !ok || self.ppid != os.Getppid() || self.dead() || self.born <= 0 || self.born > sinceBoot() {
		t.Errorf("this process: %+v, %v", self, ok)
	}
}

func TestOwnCgroup(t *testing.T) {
	const (
		unified = "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid  = "30 20 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		bound   = "30 20 0:26 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup rw\n"
	)
	for _, c := range []struct{ self, mounts, want string }{
		{"0::/system.slice/farhandd.service\n", unified, "/sys/fs/cgroup/system.slice/farhandd.service"},
		{"1:cpu:/x\n0::/a\n", hybrid, "/sys/fs/cgroup/unified/a"},
		{"0::/\n", unified, "/sys/fs/cgroup"},
		{"0::/docker/x/inner\n", bound, "/sys/fs/cgroup/inner"},
		{"0::/docker/x\n", bound, "/sys/fs/cgroup"},
		{"0::/docker/xy\n", bound, ""},
		{"0::/../outside\n", unified, ""},
		{"1:cpu:/x\n", unified, ""},
		{"0::/a\n", "", ""},
		{"", unified, ""},
	} {
		if got, ok := ownCgroup(c.self, c.mounts); got != c.want || ok != (c.want != "") {
			t.Errorf("%q in %q: %q, %v; want %q", c.self, c.mounts, got, ok, c.want)
		}
	}
}

// What only looks like a delegated cgroup isn't used.
func TestDelegatedCgroup(t *testing.T) {
	root := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(root, name)
		os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if dir, ok := delegatedCgroup(root); ok {
		t.Errorf("found %s without /proc", dir)
	}
	write("proc/self/cgroup", "0::/unit\n")
	write("proc/self/mountinfo", "30 20 0:26 / /cg rw - cgroup2 cgroup2 rw\n")
	write("cg/unit/cgroup.procs", "")
	if dir, ok := delegatedCgroup(root); ok {
		t.Errorf("took %s, which is no cgroup at all", dir)
	}
	if _, err := NewLocal(LocalConfig{Cgroup: filepath.Join(root, "cg/unit")}); err == nil {
		t.Error("took a plain directory for a cgroup")
	}
}

func TestMarkedCgroupIsTaken(t *testing.T) {
	base := testCgroup(t)
	err := unix.Setxattr(base, "user.delegate", []byte("1"), 0)
	testenv.Need(t, "cgroup2", err == nil, fmt.Sprint("can't mark a cgroup: ", err))
	root := t.TempDir()
	os.MkdirAll(filepath.Join(root, "proc/self"), 0o755)
	os.WriteFile(filepath.Join(root, "proc/self/cgroup"), []byte("0::/"+filepath.Base(base)+"\n"), 0o644)
	os.WriteFile(filepath.Join(root, "proc/self/mountinfo"), []byte("30 20 0:26 / /cg rw - cgroup2 cgroup2 rw\n"), 0o644)
	if err := os.Symlink(filepath.Dir(base), filepath.Join(root, "cg")); err != nil {
		t.Fatal(err)
	}
	dir, ok := delegatedCgroup(root)
	if want := filepath.Join(root, "cg", filepath.Base(base)); !ok || dir != want {
		t.Errorf("%q, %v; want %q", dir, ok, want)
	}
}

// A cgroup is used again once its command's processes are gone, not before.
func TestCgroupsAreReused(t *testing.T) {
	base := testCgroup(t)
	b := newBench(t, base, Config{})
	count := func() int {
		made, _ := filepath.Glob(filepath.Join(base, "command-*"))
		return len(made)
	}
	for range 20 {
		b.run(argv("true"))
	}
	if n := count(); n > 3 { // the kernel may take a moment to notice that one is empty
		t.Errorf("%d cgroups for 20 commands, one at a time", n)
	}
	b.run(line("sleep 300 >/dev/null 2>&1 & echo $! >pids"))
	pid := b.pids("pids", 1)[0]
	for range 20 {
		b.run(within(line("sleep 300"), 0.02))
		if r := b.run(argv("true")); r.ExitCode != 0 { // killed with the one before
			t.Fatalf("after a killed command: %+v", r)
		}
	}
	if n := count(); n > 8 { // what is dying may take a moment
		t.Errorf("%d cgroups after 20 killed commands", n)
	}
	if !alive(pid) {
		t.Error("a later command's end killed what an earlier one left in the background")
	}
	syscall.Kill(pid, syscall.SIGKILL)
	eventually(t, "background process gone", func() bool { return !alive(pid) })
}

// What can't even be killed doesn't hold up the answer, and is collected later.
func TestAbandonedLeader(t *testing.T) {
	leak.Check(t)
	runner, err := NewLocal(LocalConfig{Cgroup: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer runner.Close()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p, err := runner.Start(t.Context(), Spec{Argv: []string{"sleep", "0.2"}, Stdout: null, Stderr: null})
	if err != nil {
		t.Fatal(err)
	}
	pid := p.(*process).pid
	if got, err := p.Reap(); got.Signal != syscall.SIGKILL || err != nil {
		t.Errorf("status %+v, %v", got, err)
	}
	eventually(t, "leader collected", func() bool {
		_, exists := readProc(pid)
		return !exists
	})
	p.Kill(time.Second) // harmless now
	p.Terminate()
}

func TestLookup(t *testing.T) {
	root := t.TempDir()
	for name, mode := range map[string]fs.FileMode{"a/x": 0o755, "b/x": 0o755, "c/x": 0o644, "c/y": 0o644, "x": 0o755} {
		os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755)
		os.WriteFile(filepath.Join(root, name), nil, mode)
	}
	os.MkdirAll(filepath.Join(root, "d/x"), 0o755)
	dir, err := os.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	for _, c := range []struct {
		name, path, want string
		err              error
	}{
		{"x", "a:b", "a/x", nil},
		{"x", root + "/b/:a", root + "/b/x", nil},
		{"x", "c:d:none:x:b", "b/x", nil}, // not executable, a directory, missing, a file
		{"x", ":a", "./x", nil},
		{"x", "a:", "a/x", nil},
		{"y", "a:c", "", fs.ErrPermission},
		{"z", "a:c", "", fs.ErrNotExist},
		{"./b/x", "a", "./b/x", nil},
		{"c/x", "a", "", fs.ErrPermission},
		{"d/x", "a", "", fs.ErrPermission},
		{"x/x", "a", "", fs.ErrNotExist},
		{"", "a", "", fs.ErrNotExist},
	} {
		got, err := lookup(c.name, c.path, dir)
		if got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q in %q: %q, %v; want %q, %v", c.name, c.path, got, err, c.want, c.err)
		}
	}
}

func TestHistory(t *testing.T) {
	h := newHistory()
	next := 1000
	begin := func() *interval {
		i := h.begin()
		h.forked(i, next)
		next += 1000
		return i
	}
	at := func(i *interval) proc { return proc{pid: i.leader + 1, born: i.from + 2*tick} }
	a := begin()
	if !h.onlyDuring(a, at(a)) || h.onlyDuring(a, proc{pid: 1001, born: a.from - time.Second}) {
		t.Error("alone")
	}
	b := begin()
	b.from += 10 * tick
	if !h.onlyDuring(a, at(a)) || h.onlyDuring(a, at(b)) || h.onlyDuring(b, at(b)) {
		t.Error("two running")
	}
	h.end(b)
	b.to = b.from + 10*tick
	if h.onlyDuring(a, at(b)) || !h.onlyDuring(a, proc{pid: 2002, born: b.to + 5*tick}) {
		t.Error("one ended")
	}
	h.end(a)
	begin()
	h.end(begin())
	h.forget(begin())
	h.end(h.running[0])
	if len(h.ended) > 4 || len(h.running) != 0 {
		t.Errorf("%d ended kept, %d running", len(h.ended), len(h.running))
	}
}

// Of two commands one after the other, each has its own processes, though starts
// are known by the tick alone.
func TestHistoryBackToBack(t *testing.T) {
	const now = time.Hour // just after a tick: what is born within the next one seems to be born now
	for _, wrap := range []int{0, 32760} {
		h := &history{pidMax: 32768}
		pid := func(n int) int { return (wrap+n)%32768 + 300*((wrap+n)/32768) }
		first := &interval{from: now - 10*tick, to: now + tick/4, leader: pid(10)}
		second := &interval{from: now + tick/2, leader: pid(20)}
		h.ended, h.running = []*interval{first}, []*interval{second}
		if !h.onlyDuring(second, proc{pid: pid(22), born: now}) {
			t.Error("the second's child isn't known as such")
		}
		if h.onlyDuring(second, proc{pid: pid(12), born: now}) {
			t.Error("the first's child is taken for the second's")
		}
		overlapping := &interval{from: now - 5*tick, leader: pid(5)}
		h.running = append(h.running, overlapping)
		if h.onlyDuring(second, proc{pid: pid(22), born: now}) || h.onlyDuring(overlapping, proc{pid: pid(12), born: now}) {
			t.Error("of two commands at once one is picked")
		}
		late := &interval{from: now + 3*tick/4, leader: pid(30)}
		h.running = []*interval{second, late}
		if !h.onlyDuring(second, proc{pid: pid(22), born: now}) || h.onlyDuring(second, proc{pid: pid(32), born: now}) {
			t.Error("a command that begins within the tick takes the other's child")
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("21 (sleep) S 7 21 20 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 12345 5 6 7\n"))
	f.Add([]byte("21 () ) S"))
	f.Fuzz(func(t *testing.T, stat []byte) { parseStat(stat) })
}

func FuzzOwnCgroup(f *testing.F) {
	f.Add("0::/a\n", "30 20 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	f.Fuzz(func(t *testing.T, self, mounts string) {
		if dir, ok := ownCgroup(self, mounts); ok && dir == "" {
			t.Error("found nothing")
		}
	})
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte("a\xff\xfeb\xe2\x82c\xed\xa0\x80\xf0\x9f\x98\x80"))
	f.Add([]byte("\xf4\x90\x80\x80\xe0\x80\xc0\x80"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got := decode(b)
		if !utf8.ValidString(got) || len(got) > 3*len(b) {
			t.Errorf("%q became %q", b, got)
		}
		if utf8.Valid(b) && got != string(b) {
			t.Errorf("valid %q became %q", b, got)
		}
	})
}
