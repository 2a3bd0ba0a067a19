package helper

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"farhand/internal/leak"
	"farhand/internal/testenv"
	"farhand/shell"
	"farhand/shell/shelltest"
	"farhand/wire"
)

// serve runs a helper in this process and returns its socket and its server.
func serve(t *testing.T, c Config) (socket string, s *Server) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "exec.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	if c.Runner == nil {
		runner, err := shell.NewLocal(shell.LocalConfig{Cgroup: "none"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { runner.Close() })
		c.Runner = runner
	}
	if c.UIDs == nil {
		c.UIDs = []int{os.Getuid()}
	}
	s = NewServer(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(time.Minute):
			t.Error("the helper doesn't end")
		}
	})
	return socket, s
}

func TestConformance(t *testing.T) {
	shelltest.Suite{Open: func(t *testing.T) shell.Runner {
		leak.Check(t)
		socket, _ := serve(t, Config{Environ: []string{"HOME=/home/op", "USER=op", "FARHAND_TEST_MARK=own", "NOTIFY_SOCKET=/x"}})
		return NewClient(socket)
	}}.Run(t)
}

// begin starts a program in a directory and returns it with the read end of its
// stdout.
func begin(t *testing.T, c *Client, dir string, argv ...string) (shell.Process, *os.File) {
	t.Helper()
	p, r, err := try(t, c, shell.Spec{Argv: argv, Path: shell.DefaultPath}, dir)
	if err != nil {
		t.Fatal(err)
	}
	return p, r
}

func try(t *testing.T, c *Client, spec shell.Spec, dir string) (shell.Process, *os.File, error) {
	t.Helper()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	defer w.Close()
	spec.Dir, spec.Stdout, spec.Stderr = d, w, w
	p, err := c.Start(t.Context(), spec)
	return p, r, err
}

func read(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Who a command belongs to is the helper's matter, unless the request says so.
func TestEnvironmentOfTheUser(t *testing.T) {
	socket, _ := serve(t, Config{Environ: []string{"HOME=/home/op", "USER=op", "LOGNAME=op", "SHELL=/bin/rc", "SECRET=1"}})
	p, out, err := try(t, NewClient(socket), shell.Spec{Argv: []string{"env"}, Path: shell.DefaultPath, Env: []string{"A=b", "HOME=/asked"}}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Fields(read(t, out))
	want := []string{"A=b", "HOME=/asked", "USER=op", "LOGNAME=op", "SHELL=/bin/rc"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%q, want %q", got, want)
	}
	if _, err := p.Reap(); err != nil {
		t.Error(err)
	}
}

func TestInfo(t *testing.T) {
	want := Info{Version: "1.2", PID: 7, UID: 901, User: "operator", Exact: true}
	socket, _ := serve(t, Config{Info: want})
	got, err := NewClient(socket).Info(t.Context())
	if err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
}

// ended waits for the end of a stream that only a program keeps open.
func endsSoon(t *testing.T, what string, r *os.File) {
	t.Helper()
	if err := r.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// When the daemon dies, so does what it had started: the kernel closes its
// connections.
func TestDaemonDies(t *testing.T) {
	leak.Check(t)
	socket, _ := serve(t, Config{})
	p, out := begin(t, NewClient(socket), t.TempDir(), "sh", "-c", "trap '' TERM; setsid sleep 300 & sleep 300")
	p.(*process).conn.Close()
	endsSoon(t, "commands of a daemon that is gone", out)
	if _, err := p.Reap(); !errors.Is(err, shell.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
}

// What a command has left in the background isn't the command any more.
func TestDaemonDiesBackgroundStays(t *testing.T) {
	socket, _ := serve(t, Config{})
	p, out := begin(t, NewClient(socket), t.TempDir(), "sh", "-c", "sleep 300 >/dev/null 2>&1 & echo $!")
	pid, err := strconv.Atoi(strings.TrimSpace(read(t, out)))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(pid, syscall.SIGKILL)
	<-p.Exited()
	p.(*process).conn.Close()
	if _, err := p.Reap(); !errors.Is(err, shell.ErrLost) {
		t.Errorf("%v", err)
	}
	// The helper has let go of the connection once it serves the next.
	if _, err := NewClient(socket).Info(t.Context()); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(pid, 0); err != nil {
		t.Errorf("the process in the background: %v", err)
	}
}

func TestHelperStops(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "exec.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	runner, err := shell.NewLocal(shell.LocalConfig{Cgroup: "none"})
	if err != nil {
		t.Fatal(err)
	}
	defer runner.Close()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- NewServer(Config{UIDs: []int{os.Getuid()}, Runner: runner}).Serve(ctx, l)
	}()
	p, out := begin(t, NewClient(socket), t.TempDir(), "sleep", "300")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	endsSoon(t, "commands of a helper that stops", out)
	<-p.Exited()
	if _, err := p.Reap(); !errors.Is(err, shell.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
	p.Kill(time.Second) // harmless now
	if _, _, err := try(t, NewClient(socket), shell.Spec{Argv: []string{"true"}}, t.TempDir()); !unreachable(err) {
		t.Errorf("%v", err)
	}
}

func unreachable(err error) bool {
	e, ok := errors.AsType[*wire.Error](err)
	return ok && e.Details["reason"] == "exec_helper_unreachable"
}

// helperEnv makes the test's own binary a helper with this socket.
const helperEnv = "SHELL_HELPER_TEST_SOCKET"

func TestMain(m *testing.M) {
	if socket := os.Getenv(helperEnv); socket != "" {
		os.Exit(beHelper(socket))
	}
	if dir := os.Getenv(visitorEnv); dir != "" {
		os.Exit(beVisitor(dir, os.Getenv(visitorEnv+"_SOCKET")))
	}
	os.Exit(m.Run())
}

func beHelper(socket string) int {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		return 1
	}
	runner, err := shell.NewLocal(shell.LocalConfig{})
	if err != nil {
		return 1
	}
	if err := NewServer(Config{UIDs: []int{os.Getuid()}, Runner: runner}).Serve(context.Background(), l); err != nil {
		return 1
	}
	return 0
}

// startHelper starts a helper as a process of its own.
func startHelper(t *testing.T, socket string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), helperEnv+"="+socket)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may be gone
		_ = cmd.Wait()
	})
	ready := time.NewTicker(10 * time.Millisecond)
	defer ready.Stop()
	for range 1000 {
		if _, err := NewClient(socket).Info(t.Context()); err == nil {
			return cmd
		}
		<-ready.C
	}
	t.Fatal("the helper doesn't answer")
	return nil
}

// A helper that ends between the request and its answer may have started the
// program: nobody is told that it hasn't.
func TestHelperEndsBeforeItAnswers(t *testing.T) {
	leak.Check(t)
	socket := filepath.Join(t.TempDir(), "exec.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		defer l.Close()
		conn, err := l.Accept()
		if err == nil {
			_, _, err = readMessage(conn, maxMessage)
			conn.Close()
		}
		done <- err
	}()
	d, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s := shell.New(shell.Config{Runner: NewClient(socket), Environ: []string{"PATH=" + shell.DefaultPath}})
	line := "true"
	_, _, err = s.Execute(t.Context(), wire.ExecuteCommand{Command: &line}, shell.Place{Dir: d, Path: d.Name()}, shell.Limits{})
	if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.InternalError || e.Details["reason"] != "command_lost" {
		t.Errorf("%v, want command_lost", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A helper that is killed takes its commands' connections with it: whoever waits
// is told, and the next helper at the same socket serves at once.
func TestHelperIsKilled(t *testing.T) {
	leak.Check(t)
	socket := filepath.Join(t.TempDir(), "exec.sock")
	helper := startHelper(t, socket)
	client := NewClient(socket)
	s := shell.New(shell.Config{Runner: client, Environ: []string{"PATH=" + shell.DefaultPath}})
	dir := t.TempDir()
	d, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	result := make(chan error, 1)
	line := "echo $$ >pid; exec sleep 300"
	go func() {
		_, _, err := s.Execute(t.Context(), wire.ExecuteCommand{Command: &line}, shell.Place{Dir: d, Path: dir}, shell.Limits{})
		result <- err
	}()
	pid := 0
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for pid == 0 {
		<-look.C
		b, _ := os.ReadFile(filepath.Join(dir, "pid"))
		if n := bytes.IndexByte(b, '\n'); n > 0 {
			for _, c := range b[:n] {
				pid = 10*pid + int(c-'0')
			}
		}
	}
	defer syscall.Kill(pid, syscall.SIGKILL) // the service manager's work, where there is one
	if err := helper.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-result:
		if e, ok := errors.AsType[*wire.Error](err); !ok || e.Code != wire.InternalError || e.Details["reason"] != "command_lost" {
			t.Errorf("%v, want command_lost", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("nobody told that the helper is gone")
	}
	_ = helper.Wait()
	line = "true"
	if _, _, err := s.Execute(t.Context(), wire.ExecuteCommand{Command: &line}, shell.Place{Dir: d, Path: dir}, shell.Limits{}); !unreachable(err) {
		t.Errorf("%v, want exec_helper_unreachable", err)
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	startHelper(t, socket)
	if _, _, err := s.Execute(t.Context(), wire.ExecuteCommand{Command: &line}, shell.Place{Dir: d, Path: dir}, shell.Limits{}); err != nil {
		t.Errorf("the next helper: %v", err)
	}
}

// A helper that hangs holds nobody up for longer than the answers' patience.
func TestHelperHangs(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "exec.sock")
	helper := startHelper(t, socket)
	p, _ := begin(t, NewClient(socket), t.TempDir(), "sleep", "300")
	if err := helper.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	p.Terminate()
	p.Kill(10 * time.Millisecond)
	if _, err := p.Reap(); !errors.Is(err, shell.ErrLost) {
		t.Errorf("%v, want ErrLost", err)
	}
	if d := time.Since(began); d > 3*answerPatience {
		t.Errorf("it took %s", d)
	}
	if err := helper.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
}

func TestOthersAreRefused(t *testing.T) {
	var log bytes.Buffer
	socket, s := serve(t, Config{UIDs: []int{os.Getuid() + 4711}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	c := NewClient(socket)
	if _, _, err := try(t, c, shell.Spec{Argv: []string{"true"}}, t.TempDir()); !unreachable(err) {
		t.Errorf("%v", err)
	}
	if _, err := c.Info(t.Context()); err == nil {
		t.Error("a stranger is told who the helper is")
	}
	if err := s.Alive(t.Context()); err != nil { // and the log is written
		t.Error(err)
	}
	if !strings.Contains(log.String(), "refused to run commands for another user") {
		t.Errorf("%s", log.String())
	}
}

func TestNoMoreThanItMay(t *testing.T) {
	socket, _ := serve(t, Config{MaxCommands: 1})
	c := NewClient(socket)
	p, _ := begin(t, c, t.TempDir(), "sleep", "300")
	if _, _, err := try(t, c, shell.Spec{Argv: []string{"true"}}, t.TempDir()); wire.CodeOf(err) != wire.ShimOverloaded {
		t.Errorf("%v, want SHIM_OVERLOADED", err)
	}
	p.Kill(time.Second)
	if _, err := p.Reap(); err != nil {
		t.Error(err)
	}
}

// stuck is a runner whose Start never returns before its context ends.
type stuck struct{ shell.Runner }

func (stuck) Start(ctx context.Context, _ shell.Spec) (shell.Process, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestStartIsGivenUp(t *testing.T) {
	leak.Check(t)
	socket, _ := serve(t, Config{Runner: stuck{}})
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := NewClient(socket).Start(ctx, shell.Spec{Argv: []string{"true"}, Stdout: null, Stderr: null}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// The accept loop answers while it goes round, and not when it has ended.
func TestAlive(t *testing.T) {
	_, s := serve(t, Config{})
	for range 3 {
		if err := s.Alive(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := NewServer(Config{}).Alive(ctx); err == nil {
		t.Error("a helper that doesn't serve is alive")
	}
}

// raw sends bytes with descriptors and reads what comes back.
func raw(t *testing.T, socket string, b []byte, files ...int) []byte {
	t.Helper()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := send(conn, b, files); err != nil {
		t.Fatal(err)
	}
	if err := conn.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(conn) // a reset is an answer, too
	return answer
}

func TestNonsense(t *testing.T) {
	leak.Check(t)
	socket, s := serve(t, Config{})
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	fd := int(null.Fd())
	body := func(r request) []byte {
		b, err := r.encode()
		if err != nil {
			t.Fatal(err)
		}
		return message(start, b)
	}
	all := byte(withDir | withStdout | withStderr)
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := open()
	for name, c := range map[string]struct {
		b     []byte
		files []int
	}{
		"nothing":              {[]byte{1}, nil},
		"no length":            {[]byte{0, 0, 0, 0, 'S'}, nil},
		"too long":             {[]byte{255, 255, 255, 255, 'S'}, nil},
		"announced, not sent":  {append(binary.LittleEndian.AppendUint32(nil, 100), 'S'), []int{fd}},
		"another kind":         {message('Z', nil), []int{fd}},
		"descriptors missing":  {body(request{flags: all, argv: []string{"true"}}), []int{fd}},
		"more than announced":  {body(request{flags: withStdout, argv: []string{"true"}}), []int{fd, fd, fd, fd}},
		"far too many":         {body(request{flags: all, argv: []string{"true"}}), []int{fd, fd, fd, fd, fd, fd, fd, fd}},
		"directory isn't one":  {body(request{flags: all, argv: []string{"true"}}), []int{fd, fd, fd}},
		"no outputs":           {body(request{argv: []string{"true"}}), nil},
		"two messages at once": {append(body(request{argv: []string{"true"}}), message(reap, nil)...), nil},
	} {
		if answer := raw(t, socket, c.b, c.files...); len(answer) > 0 && kind(answer[4]) != failed {
			t.Errorf("%s: answered %q", name, answer)
		}
	}
	if err := s.Alive(t.Context()); err != nil {
		t.Error(err)
	}
	// The helper closes its end before it lets go of the last descriptor.
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for n := 0; open() > before; n++ {
		if n > 5000 {
			t.Fatalf("%d descriptors are open, %d before", open(), before)
		}
		<-tick.C
	}
}

// visitorEnv makes the test's own binary a daemon in a mount namespace, as
// systemd's ProtectSystem= gives it one.
const visitorEnv = "SHELL_HELPER_TEST_VISITOR"

func beVisitor(dir, socket string) int {
	// A mount of its own in this namespace alone.
	if unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "") != nil || unix.Mount(dir, dir, "", unix.MS_BIND, "") != nil {
		return 3
	}
	d, err := os.Open(filepath.Join(dir, "sub"))
	if err != nil {
		return 1
	}
	p, err := NewClient(socket).Start(context.Background(), shell.Spec{
		Argv: []string{"/bin/pwd", "-P"}, Dir: d, Stdout: os.Stdout, Stderr: os.Stderr,
	})
	if err != nil {
		return 1
	}
	<-p.Exited()
	status, err := p.Reap()
	if err != nil {
		return 1
	}
	return status.Code
}

// A command knows where it is although the daemon sees the directory through
// mounts of its own.
func TestAnotherMountNamespace(t *testing.T) {
	socket, _ := serve(t, Config{})
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), visitorEnv+"="+dir, visitorEnv+"_SOCKET="+socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	testenv.Need(t, "mount", !errors.Is(err, syscall.EPERM) && cmd.ProcessState != nil && cmd.ProcessState.ExitCode() != 3, "mount namespaces are for root")
	if err != nil || strings.TrimSpace(string(out)) != filepath.Join(dir, "sub") {
		t.Errorf("pwd says %q (%v)", out, err)
	}
}

func BenchmarkTrue(b *testing.B) {
	socket := filepath.Join(b.TempDir(), "exec.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socket, Net: "unix"})
	if err != nil {
		b.Fatal(err)
	}
	runner, err := shell.NewLocal(shell.LocalConfig{Cgroup: "none"})
	if err != nil {
		b.Fatal(err)
	}
	defer runner.Close()
	go NewServer(Config{UIDs: []int{os.Getuid()}, Runner: runner}).Serve(b.Context(), l)
	dir := b.TempDir()
	d, err := os.Open(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	s := shell.New(shell.Config{Runner: NewClient(socket), PerMinute: 1 << 20})
	for b.Loop() {
		if _, _, err := s.Execute(b.Context(), wire.ExecuteCommand{Argv: []string{"/bin/true"}}, shell.Place{Dir: d, Path: dir}, shell.Limits{}); err != nil {
			b.Fatal(err)
		}
	}
}

// A program goes on when the daemon that started it lets go of it, and another that
// has a copy of the connection learns of its end, also if that came in between.
func TestAdopt(t *testing.T) {
	leak.Check(t)
	socket, _ := serve(t, Config{})
	c := NewClient(socket)
	gate := filepath.Join(t.TempDir(), "gate")
	if err := unix.Mkfifo(gate, 0o600); err != nil {
		t.Fatal(err)
	}
	leave := func(p shell.Process) *os.File {
		t.Helper()
		var kept *os.File
		err := p.(shell.Portable).Descriptor(func(fd uintptr) error {
			n, err := unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
			kept = os.NewFile(uintptr(n), "kept")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		p.(shell.Portable).Leave()
		return kept
	}
	adopt := func(f *os.File) shell.Process {
		t.Helper()
		p, err := c.Adopt(f)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	reaped := func(p shell.Process, want int) {
		t.Helper()
		if !within(p.Exited(), 20*time.Second) {
			t.Fatal("its end isn't told")
		}
		if st, err := p.Reap(); err != nil || st.Code != want {
			t.Errorf("%+v, %v, want %d", st, err, want)
		}
	}
	p, _ := begin(t, c, "/", "sh", "-c", "read x <"+gate+"; exit 6")
	p = adopt(leave(p))
	p = adopt(leave(p)) // and once more
	if err := os.WriteFile(gate, []byte("go\n"), 0); err != nil {
		t.Fatal(err)
	}
	reaped(p, 6)

	p, _ = begin(t, c, "/", "sh", "-c", "exit 7")
	if !within(p.Exited(), 20*time.Second) {
		t.Fatal("no end")
	}
	reaped(adopt(leave(p)), 7)

	// The last one to let go ends it.
	p, r := begin(t, c, "/", "sleep", "1000")
	leave(p).Close()
	endsSoon(t, "what nobody has any more", r)

	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Adopt(null); err == nil {
		t.Error("adopted what is no program")
	}
}
