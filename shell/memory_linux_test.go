package shell

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"farhand/internal/testenv"
)

// What the kernel is told, on files that stand for a cgroup's.
func TestGroupLimits(t *testing.T) {
	for _, c := range []struct {
		limits GroupLimits
		want   map[string]string
	}{
		{GroupLimits{}, map[string]string{"memory.max": "max", "memory.oom.group": "0", "pids.max": "max"}},
		{GroupLimits{Memory: 256 << 20, Processes: 100}, map[string]string{"memory.max": "268435456", "memory.oom.group": "1", "pids.max": "100"}},
	} {
		dir := t.TempDir()
		for name, content := range map[string]string{"memory.max": "max", "memory.oom.group": "0", "pids.max": "max"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.limits.apply(dir); err != nil {
			t.Fatal(err)
		}
		for name, want := range c.want {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			// A write to a plain file leaves what was longer.
			if got := string(b); !strings.HasPrefix(got, want) {
				t.Errorf("%+v: %s is %q, want %q", c.limits, name, got, want)
			}
		}
	}
	if err := (GroupLimits{Memory: 1}).apply(t.TempDir()); err == nil {
		t.Error("no such controller, and no error")
	}
}

func TestDefaultLimits(t *testing.T) {
	l := DefaultLimits()
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	var total int64
	if _, err := fmt.Sscanf(string(b), "MemTotal: %d kB", &total); err != nil {
		t.Fatal(err)
	}
	if half := total << 10 / 2; l.Memory != half || l.Processes <= 0 {
		t.Errorf("%+v, want half of the memory, %d", l, half)
	}
}

// A command that takes more memory than it may is killed whole, and the runner
// isn't.
func TestMemoryLimitHolds(t *testing.T) {
	base := testCgroup(t)
	b, err := os.ReadFile(filepath.Join(base, "cgroup.controllers"))
	if err != nil {
		t.Fatal(err)
	}
	testenv.Need(t, "cgroup2-memory", strings.Contains(string(b), "memory") && strings.Contains(string(b), "pids"), "the own cgroup has no memory controller to give: "+string(b))
	if err := takeControl(base); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := writeValue(filepath.Dir(base), "cgroup.procs", strconv.Itoa(os.Getpid())); err != nil {
			t.Error(err)
		}
		_ = os.Remove(filepath.Join(base, ownLeaf))
	})
	l, err := NewLocal(LocalConfig{Cgroup: base})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.cgroups.limits = GroupLimits{Memory: 32 << 20, Processes: 32}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	p, err := l.Start(t.Context(), Spec{Argv: []string{"sh", "-c", "head -c 200m /dev/zero | tail"}, Stdout: null, Stderr: null})
	if err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	if status, err := p.Reap(); err != nil || status == (Status{}) {
		t.Errorf("%+v, %v: it had all the memory that it wanted", status, err)
	}
}

// Commands of a protected daemon don't inherit its protection.
func TestCommandsAreNotProtected(t *testing.T) {
	l, err := NewLocal(LocalConfig{Cgroup: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	l.protected = true // as with a score below 0, which needs CAP_SYS_RESOURCE
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	p, err := l.Start(t.Context(), Spec{Argv: []string{sleep, "300"}, Stdout: w, Stderr: w})
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.(*process).pid))
	if err != nil || strings.TrimSpace(string(got)) != strconv.Itoa(childOOMScore) {
		t.Errorf("the command's oom_score_adj is %q (%v)", got, err)
	}
	p.Kill(0)
	if _, err := p.Reap(); err != nil {
		t.Error(err)
	}
}
