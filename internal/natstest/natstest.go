// Package natstest runs NATS servers for tests, as processes of their own: the
// programs under test meet what they meet in life, and none of ours links a
// server.
package natstest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// BinaryVar names the environment variable that says where a nats-server is, so
// that it isn't linked for every package that needs one.
const BinaryVar = "FARHAND_TEST_NATS_SERVER"

// patience bounds how long a server may take to start: minutes on a machine that
// compiles at the same time.
const patience = time.Minute

// binary builds the nats-server of go.mod's tool directive.
var binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(BinaryVar); path != "" {
		return filepath.Abs(path)
	}
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	cache, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOCACHE: %w", err)
	}
	// Tests of several packages do this at the same time, and run what they made:
	// so each makes its own and puts it there in one step.
	path := filepath.Join(strings.TrimSpace(string(cache)), "farhand-test", "nats-server")
	made := fmt.Sprint(path, ".", os.Getpid())
	cmd := exec.Command("go", "build", "-trimpath", "-o", made, "github.com/nats-io/nats-server/v2")
	cmd.Dir = filepath.Dir(strings.TrimSpace(string(module)))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building nats-server: %w\n%s", err, out)
	}
	if err := os.Rename(made, path); err != nil {
		return "", err
	}
	return path, nil
})

// Server is one running nats-server.
type Server struct {
	URL string

	t    testing.TB
	args []string
	dir  string
	cmd  *exec.Cmd
	log  bytes.Buffer
	done chan struct{}
}

// Start runs one server on loopback with JetStream, which syncs every write, and
// stops it with the test. extra lines go into its configuration.
func Start(t testing.TB, extra ...string) *Server {
	t.Helper()
	return start(t, "solo", freePort(t), extra)
}

// Cluster runs n servers that replicate.
func Cluster(t testing.TB, n int) []*Server {
	t.Helper()
	routes, ports := make([]string, n), make([]int, n)
	for i := range n {
		ports[i] = freePort(t)
		routes[i] = fmt.Sprintf("nats://127.0.0.1:%d", ports[i])
	}
	all := make([]*Server, n)
	for i := range n {
		all[i] = launch(t, fmt.Sprint("n", i), freePort(t), []string{fmt.Sprintf("cluster { name: test, listen: 127.0.0.1:%d, routes: [%s] }",
			ports[i], strings.Join(routes, ", "))})
	}
	for _, s := range all {
		s.await("Self is new JetStream cluster metadata leader", "JetStream cluster new metadata leader")
	}
	return all
}

func start(t testing.TB, name string, port int, extra []string) *Server {
	t.Helper()
	s := launch(t, name, port, extra)
	s.await("Server is ready")
	return s
}

func launch(t testing.TB, name string, port int, extra []string) *Server {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := filepath.Join(dir, "nats.conf")
	store, _ := json.Marshal(filepath.Join(dir, "js"))
	text := fmt.Sprintf("server_name: %s\nlisten: 127.0.0.1:%d\njetstream { store_dir: %s, sync_interval: always }\n%s\n",
		name, port, store, strings.Join(extra, "\n"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{URL: "nats://127.0.0.1:" + strconv.Itoa(port), t: t, dir: dir, args: []string{path, "-c", config, "-l", filepath.Join(dir, "log")}}
	s.Restart()
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("%s:\n%s%s", name, s.log.Bytes(), log[max(0, len(log)-8<<10):])
		}
	})
	return s
}

// Restart runs the server again, on its port and with what it kept.
func (s *Server) Restart() {
	s.t.Helper()
	s.Kill()
	if err := os.Remove(filepath.Join(s.dir, "log")); err != nil && !os.IsNotExist(err) {
		s.t.Fatal(err)
	}
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	dieWithUs(s.cmd)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) {
		_ = cmd.Wait()
		close(done)
	}(s.cmd, s.done)
}

// Ready waits until the server takes connections.
func (s *Server) Ready() {
	s.t.Helper()
	s.await("Server is ready")
}

// Kill ends the server without warning (SIGKILL). It may be called twice.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.done
	s.cmd = nil
}

// await waits for one of the texts in the server's log.
func (s *Server) await(texts ...string) {
	s.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
	for {
		log, _ := os.ReadFile(filepath.Join(s.dir, "log")) // not there at first
		for _, text := range texts {
			if bytes.Contains(log, []byte(text)) {
				return
			}
		}
		select {
		case <-tick.C:
		case <-s.done:
			s.t.Fatalf("nats-server ended: %s%s", s.log.Bytes(), log)
		case <-late:
			s.t.Fatalf("nats-server isn't ready: %s", log)
		}
	}
}

func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
