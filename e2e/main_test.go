package e2e

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"farhand/internal/testenv"
)

// bin is where the programs are; set once by TestMain.
var bin string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	bin = os.Getenv("FARHAND_TEST_BIN")
	if bin == "" {
		if bin, err = os.MkdirTemp("", "farhand-e2e-bin-"); err != nil {
			return 1, err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(bin)) }()
		if err := build(bin); err != nil {
			return 1, err
		}
	}
	if bin, err = filepath.Abs(bin); err != nil {
		return 1, err
	}
	for _, name := range []string{"farhand", "farhandd", "farhand-relay"} {
		if _, err := os.Stat(program(name)); err != nil {
			return 1, fmt.Errorf("FARHAND_TEST_BIN: %w; make build makes it", err)
		}
	}
	// Most tests wait for pauses between attempts most of the time, so more of
	// them than there are processors run at once, unless the caller says how many.
	flag.Parse()
	if p := flag.Lookup("test.parallel"); p.Value.String() == p.DefValue {
		if err := flag.Set("test.parallel", "8"); err != nil {
			return 1, err
		}
	}
	testenv.Hangups()
	code = m.Run()
	if left := children(); len(left) > 0 {
		return 1, fmt.Errorf("processes were left behind: %s", strings.Join(left, ", "))
	}
	return code, nil
}

func program(name string) string { return filepath.Join(bin, name) }

// build makes the programs as they ship.
func build(dir string) error {
	cmd := exec.Command("go", "build", "-o", dir+"/", "./cmd/farhand", "./cmd/farhandd", "./cmd/farhand-relay")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}

// children are the processes that we started and didn't wait for.
func children() []string {
	var found []string
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // it has ended
		}
		// pid (comm) state ppid, proc_pid_stat(5)
		head, tail, _ := strings.Cut(string(b), ") ")
		fields := strings.Fields(tail)
		if len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			found = append(found, head+")")
		}
	}
	return found
}
