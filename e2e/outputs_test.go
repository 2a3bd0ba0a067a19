package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"farhand/gpio"
	"farhand/wire"
)

// manager is a service manager that keeps descriptors, sd_notify(3). It looks
// at the ledger in the moment in which the daemon says that it is ready.
type manager struct {
	path  string
	look  func() string
	mu    sync.Mutex
	files map[string]*os.File // what it keeps, if it is to keep anything; nil: it says so alone
	said  []string            // READY=1, FDSTORE name, FDSTOREREMOVE name, in order
	ready string              // the ledger then
}

func (b *bench) manager(name string) *manager {
	b.t.Helper()
	m := &manager{path: filepath.Join(b.dir, name), look: func() string {
		text, _ := os.ReadFile(filepath.Join(b.stateDir(), "gpio-sim.json")) // none: empty
		return string(text)
	}}
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: m.path, Net: "unixgram"})
	if err != nil {
		b.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf, rights := make([]byte, 64<<10), make([]byte, 1024)
		for {
			n, k, _, _, err := conn.ReadMsgUnix(buf, rights)
			if err != nil {
				return
			}
			m.take(string(buf[:n]), rights[:k])
		}
	}()
	b.t.Cleanup(func() {
		conn.Close()
		<-done
		for name := range m.files {
			m.drop(name)
		}
	})
	return m
}

func (m *manager) take(message string, rights []byte) {
	ready := m.look()
	m.mu.Lock()
	defer m.mu.Unlock()
	name := ""
	for line := range strings.Lines(message) {
		if v, ok := strings.CutPrefix(strings.TrimSpace(line), "FDNAME="); ok {
			name = v
		}
	}
	switch first, _, _ := strings.Cut(message, "\n"); first {
	case "READY=1":
		m.said, m.ready = append(m.said, "READY"), ready
	case "FDSTORE=1":
		n := 0
		messages, _ := syscall.ParseSocketControlMessage(rights)
		for _, c := range messages {
			fds, _ := syscall.ParseUnixRights(&c)
			for _, fd := range fds {
				n++
				if m.files == nil {
					syscall.Close(fd)
					continue
				}
				m.drop(name)
				m.files[name] = os.NewFile(uintptr(fd), name)
			}
		}
		m.said = append(m.said, fmt.Sprintf("+%d %s", n, name))
	case "FDSTOREREMOVE=1":
		m.said = append(m.said, "- "+name)
		m.drop(name)
	}
}

// drop closes what is kept under a name. Called with mu.
func (m *manager) drop(name string) {
	if f := m.files[name]; f != nil {
		f.Close()
		delete(m.files, name)
	}
}

// startDaemon starts the daemon with what is kept, as a service manager does: the
// descriptors stay with it.
func (m *manager) startDaemon(b *bench) {
	b.t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	names := slices.Sorted(maps.Keys(m.files))
	env := fmt.Sprintf("LISTEN_FDS=%d LISTEN_FDNAMES=%s", len(names), strings.Join(names, ":"))
	cmd := exec.Command("sh", "-c", "export LISTEN_PID=$$ "+env+"; exec "+program("farhandd")+" run --config "+b.toml())
	for _, name := range names {
		cmd.ExtraFiles = append(cmd.ExtraFiles, m.files[name])
	}
	b.daemon = launch(b.t, "daemon", cmd, b.env("NOTIFY_SOCKET="+m.path))
}

// kept are the names of the descriptors that it keeps now.
func (m *manager) kept() (names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.said {
		what, name, _ := strings.Cut(s, " ")
		names = slices.DeleteFunc(names, func(n string) bool { return n == name })
		if strings.HasPrefix(what, "+") {
			names = append(names, name)
		}
	}
	return names
}

// keeps waits until it keeps so many, and no message is under way.
func (m *manager) keeps(t *testing.T, n int) (names []string) {
	t.Helper()
	conn, err := net.Dial("unixgram", m.path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	mark := fmt.Sprintf("mark-%d", rand.Int64())
	if _, err := conn.Write([]byte("FDSTOREREMOVE=1\nFDNAME=" + mark)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mark", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !slices.Contains(m.said, "- "+mark) {
			return errors.New("not yet")
		}
		return nil
	})
	if names = m.kept(); len(names) != n {
		t.Errorf("the manager keeps %q, want %d; it was told %q", names, n, m.said)
	}
	return names
}

func (m *manager) awaitReady(t *testing.T) string {
	t.Helper()
	eventually(t, "READY=1", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if !slices.Contains(m.said, "READY") {
			return fmt.Errorf("%q", m.said)
		}
		return nil
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ready
}

// promised is what the ledger says about each line.
func promised(t *testing.T, ledger string) map[int]wire.GPIORelease {
	t.Helper()
	if ledger == "" {
		return nil
	}
	all := make(map[int]wire.GPIORelease)
	for _, e := range parse[struct {
		Version int          `json:"version"`
		Outputs []gpio.Entry `json:"outputs"`
	}](t, ledger).Outputs {
		if e.Device == chip {
			all[e.Line] = e.OnRelease
		}
	}
	return all
}

// What was promised for outputs is kept across a kill -9: it stands on the disk
// before the answer, and is done before the next start is ready. The service
// manager keeps the outputs that hold their level, and no others.
func TestOutputsOutliveTheDaemon(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	b.daemon.stop()
	m := b.manager("manager")
	b.startDaemon("NOTIFY_SOCKET=" + m.path)
	b.daemon.await(0, `^Online`)
	own := b.user("")
	own.do(chip, wire.OpGPIOSet, `{"line":17,"value":1,"on_release":"input"}`)
	own.do(chip, wire.OpGPIOSet, `{"line":23,"value":1,"on_release":0}`)
	own.do(chip, wire.OpGPIOSet, `{"line":22,"value":0,"on_release":1}`)
	own.do(chip, wire.OpGPIOPWM, `{"line":6,"frequency_hz":100,"duty":0.5}`)
	own.do(chip, wire.OpGPIOSet, `{"lines":{"5":1,"12":0}}`)
	own.do(chip, wire.OpGPIOGet, `{"line":13}`)
	kept := m.keeps(t, 1) // the one request of two lamps, and nothing that mustn't outlive the daemon
	want := map[int]wire.GPIORelease{5: "hold", 6: "0", 12: "hold", 17: "input", 22: "1", 23: "0"}
	if got := promised(t, b.ledger()); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("promised %v, want %v", got, want)
	}
	// One that changes its mind is taken out of the store, and put back.
	own.do(chip, wire.OpGPIOSet, `{"line":12,"value":0,"on_release":0}`)
	m.keeps(t, 0)
	own.do(chip, wire.OpGPIOSet, `{"line":12,"value":0,"on_release":"hold"}`)
	if got := m.keeps(t, 1); !slices.Equal(got, kept) {
		t.Errorf("the manager keeps %q, want %q", got, kept)
	}

	b.daemon.kill()
	m = b.manager("manager2")
	b.startDaemon("NOTIFY_SOCKET=" + m.path)
	// What the simulated board kept went with its process, so nothing is held any
	// more but what was driven anew.
	got := promised(t, m.awaitReady(t))
	if want := (map[int]wire.GPIORelease{6: "hold", 22: "hold", 23: "hold"}); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("when it was ready %v was promised, want %v", got, want)
	}
	b.daemon.await(0, `^Online`)
	own = b.user("")
	for line, level := range map[string]int{"17": 0, "23": 0, "24": 0, "22": 1, "6": 0} {
		if got := own.level(line); got != level {
			t.Errorf("line %s is at %d", line, got)
		}
	}
	m.keeps(t, 3)
	b.daemon.stop()
	b.wholeAudit()
}

// Descriptors that nobody knows any more are given back, and bad words of a
// manager keep nothing from starting.
func TestStrayDescriptors(t *testing.T) {
	t.Parallel()
	b := bareBench(t)
	for i, env := range []string{
		`LISTEN_FDS=2 LISTEN_FDNAMES=` + gpio.StorePrefix + `stray:` + gpio.StorePrefix + `other`,
		`LISTEN_FDS=-7 LISTEN_FDNAMES=x`, `LISTEN_FDS=99999999`, `LISTEN_FDS=many`, `LISTEN_FDS=2`,
	} {
		m := b.manager(fmt.Sprintf("manager%d", i))
		b.configure()
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", "export LISTEN_PID=$$ "+env+"; exec "+program("farhandd")+" run --config "+b.toml())
		cmd.ExtraFiles = []*os.File{r, w}
		p := launch(t, "daemon", cmd, b.env("NOTIFY_SOCKET="+m.path))
		r.Close()
		w.Close()
		m.awaitReady(t)
		if i == 0 {
			m.mu.Lock()
			for _, name := range []string{"stray", "other"} {
				if !slices.Contains(m.said, "- "+gpio.StorePrefix+name) {
					t.Errorf("a stray descriptor stays with the manager: %q", m.said)
				}
			}
			m.mu.Unlock()
		}
		p.stop()
	}
}

// A ledger that is damaged, in whatever way, is put aside and told of; the
// daemon starts.
func TestDamagedLedger(t *testing.T) {
	t.Parallel()
	b := bareBench(t)
	b.configure()
	if err := os.Mkdir(b.stateDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	good := `{"version":1,"outputs":[{"device":"` + chip + `","line":17,"on_release":0}]}`
	damage := []string{"", good[:1], good[:len(good)/2], good[:len(good)-1], good + good, "\x00\xff\x00", "null", "[]", "7",
		strings.Replace(good, `"version":1`, `"version":2`, 1), strings.Replace(good, `:0}`, `:"perhaps"}`, 1),
		strings.Replace(good, `17`, `-1`, 1), strings.Replace(good, `17`, `1e99`, 1), strings.Repeat("[", 1<<20), strings.Repeat(" ", 5<<20)}
	for i, text := range damage {
		for _, name := range []string{"gpio.json", "gpio-sim.json"} {
			b.write(filepath.Join(b.stateDir(), name), text)
		}
		m := b.manager(fmt.Sprintf("manager%d", i))
		b.startDaemon("NOTIFY_SOCKET=" + m.path)
		m.awaitReady(t)
		b.daemon.stop()
		if n := strings.Count(b.daemon.out.String(), "what became of the outputs of an earlier start is not known"); n != 2 {
			t.Errorf("%.60q: it is told %d times", text, n)
		}
		for _, name := range []string{"gpio.json", "gpio-sim.json"} {
			if kept, err := os.ReadFile(filepath.Join(b.stateDir(), name+".bad")); err != nil || string(kept) != text {
				t.Errorf("%.60q: %s isn't put aside: %v", text, name, err)
			}
		}
	}
	// Lines that there aren't, lines of another's and a chip that is gone are no damage.
	b.write(filepath.Join(b.stateDir(), "gpio-sim.json"), `{"version":1,"outputs":[
		{"device":"`+chip+`","line":99999,"on_release":1},{"device":"`+chip+`","line":42,"on_release":0},{"device":"gpio:gone","line":1,"on_release":"hold"},
		{"device":"`+chip+`","line":23,"on_release":1,"pwm":"../../etc","channel":1},{"device":"`+chip+`","line":24,"on_release":0,"fd":"farhand-gpio-x","bit":3}]}`)
	m := b.manager("odd")
	b.startDaemon("NOTIFY_SOCKET=" + m.path)
	if got := promised(t, m.awaitReady(t)); fmt.Sprint(got) != "map[24:hold]" {
		t.Errorf("of odd entries %v is left", got)
	}
	b.daemon.stop()
	if !strings.Contains(b.ledger(), "gpio:gone") {
		t.Error("what a chip that isn't there is owed was forgotten")
	}
}

// A daemon that is killed while outputs change: each start is ready, and what is
// promised is never half of something.
func TestKilledAtWork(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	t.Cleanup(func() { b.relay.signal(syscall.SIGCONT) }) // whatever fails, it can be stopped
	rng := rand.New(rand.NewPCG(1, uint64(number(t, "FARHAND_TEST_SEED", 1))))
	for range 5 {
		own := b.user("")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		began := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				for _, op := range []struct{ op, args string }{
					{wire.OpGPIOSet, fmt.Sprintf(`{"lines":{"17":%d,"23":%d},"on_release":%d}`, i%2, i%3%2, i%2)},
					{wire.OpGPIOSet, fmt.Sprintf(`{"line":5,"value":%d,"on_release":"input"}`, i%2)},
					{wire.OpRelease, `{}`},
				} {
					_, err := own.Hardware(ctx, wire.HardwareOp{Device: chip, Op: op.op, Args: json.RawMessage(op.args)}, nil)
					if ctx.Err() != nil {
						return
					}
					if err != nil && !passing(err) {
						t.Errorf("%s %s: %v", op.op, op.args, err)
					}
					if i == 3 && op.op == wire.OpRelease {
						close(began)
					}
				}
			}
		}()
		<-began
		pause := time.NewTimer(time.Duration(rng.IntN(40_000)) * time.Microsecond)
		<-pause.C
		b.daemon.kill()
		before := promised(t, b.ledger())
		stop()
		<-done
		// What the relay still has it asks of the next daemon; not before that one's
		// start has been looked at.
		b.relay.signal(syscall.SIGSTOP)
		m := b.manager(fmt.Sprintf("manager-%d", rng.Int64()))
		b.startDaemon("NOTIFY_SOCKET=" + m.path)
		after := promised(t, m.awaitReady(t))
		b.relay.signal(syscall.SIGCONT)
		b.daemon.await(0, `^Online`)
		for line, what := range after {
			if what != wire.GPIOHold || before[line] == wire.GPIOInput {
				t.Errorf("line %d is still to become %s; before it was %s", line, what, before[line])
			}
		}
		if strings.Contains(b.daemon.out.String(), "is not known") {
			t.Errorf("the ledger was damaged:\n%s", b.daemon.out.tail(2000))
		}
		eventually(t, "a session that works again", func() error {
			_, err := own.try(chip, wire.OpRelease, `{}`)
			return err
		})
		if err := own.Close(t.Context()); err != nil && !errors.Is(err, wire.SessionNotFound) {
			t.Log(err) // the relay may have forgotten it
		}
	}
	b.wholeAudit()
}
