package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"farhand/daemon"
	"farhand/internal/testenv"
)

// nobody is who commands run as: a user that can do nothing.
const nobody = 65534

// With a helper, commands are another user's: they can't read what the daemon may,
// and they end with either program.
func TestExecHelper(t *testing.T) {
	t.Parallel()
	testenv.Need(t, "root", os.Getuid() == 0, "programs of another user are started")
	b := newBench(t)
	// The other user needs a way to the program, to the socket and to the files.
	public, err := os.MkdirTemp("", "fh-helper-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(public) })
	b.copyProgram("farhandd", public)
	for name, mode := range map[string]os.FileMode{public: 0o777, filepath.Join(public, "farhandd"): 0o755, b.dir: 0o755, b.root(): 0o777} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	socket := filepath.Join(public, "exec.sock")
	startHelper := func() *process {
		t.Helper()
		cmd := exec.Command(filepath.Join(public, "farhandd"), "exec-helper", "--for", "root", "--socket", socket)
		cmd.Dir = "/"
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return launch(t, "helper", cmd, []string{"PATH=/usr/bin:/bin", "HOME=/nonexistent", "USER=nobody", "NOTHING=leaks"})
	}
	helper := startHelper()
	b.tables = fmt.Sprintf("[shell]\nenabled = true\nhelper = %q\n[limits]\nmax_commands_per_minute = 100000\n", socket)
	b.claim("files,shell")
	sh := func(script string, flags ...string) result {
		t.Helper()
		return b.owner.run(append(append([]string{"exec"}, flags...), "--", "sh", "-c", script)...)
	}

	if r := sh("id -u; pwd; echo $HOME $USER $NOTHING; echo theirs >file; exit 3"); r.code != 3 ||
		r.stdout != fmt.Sprintf("%d\n%s\n/nonexistent nobody\n", nobody, b.root()) {
		t.Errorf("%+v", r)
	}
	if got := string(b.read(filepath.Join(b.root(), "file"))); got != "theirs\n" {
		t.Errorf("the file holds %q", got)
	}
	if r := sh("cat " + filepath.Join(b.stateDir(), "*") + " " + b.toml()); r.code == 0 || r.stdout != "" {
		t.Errorf("the daemon's keys can be read: %+v", r)
	}
	if r := sh("(setsid sleep 300 & echo $!); sleep 300", "--timeout", "500ms"); r.code != 255 || !strings.Contains(r.stderr, "COMMAND_TIMEOUT") {
		t.Errorf("%+v", r)
	} else if pid := strings.TrimSpace(r.stdout); exists(pid) {
		t.Errorf("process %s is still there", pid)
	}
	s := parse[daemon.Status](t, b.mustd("", "status", "--json"))
	if !s.Shell.Apart || s.Shell.Fault != "" || !strings.Contains(s.Shell.Words, "nobody (uid 65534), not as the daemon") {
		t.Errorf("%+v", s.Shell)
	}
	for _, w := range s.Warnings {
		if strings.Contains(w, "shell") {
			t.Errorf("warned of %q", w)
		}
	}
	if err := os.Chmod(b.root(), 0o700); err != nil {
		t.Fatal(err)
	}
	if r := sh("true"); r.code != 255 || !strings.Contains(r.stderr, "may not enter") {
		t.Errorf("a directory that the user may not enter: %+v", r)
	}
	if err := os.Chmod(b.root(), 0o777); err != nil {
		t.Fatal(err)
	}

	helper.kill()
	if r := sh("true"); r.code != 255 || !strings.Contains(r.stderr, "can't be reached") {
		t.Errorf("without the helper: %+v", r)
	}
	if s := parse[daemon.Status](t, b.mustd("", "status", "--json")); s.Shell.Fault == "" {
		t.Errorf("%+v", s.Shell)
	}
	if err := os.Remove(socket); err != nil {
		t.Fatal(err)
	}
	startHelper()
	eventually(t, "the next helper serves", func() error {
		if r := sh("true"); r.code != 0 {
			return errors.New(r.stderr)
		}
		return nil
	})
}

// exists says whether a process runs.
func exists(pid string) bool {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && !strings.Contains(string(b), ") Z ")
}
