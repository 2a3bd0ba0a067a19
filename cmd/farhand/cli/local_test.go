package cli_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"farhand/client/clienttest"
	"farhand/cmd/farhand/cli"
	"farhand/internal/leak"
	"farhand/internal/testenv"
	"farhand/wire"
)

// run runs the command, signed in to r, and returns what it said.
func run(t *testing.T, ctx context.Context, r *clienttest.Relay, args ...string) (code int, out, err string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code = cli.Run(ctx, cli.Env{
		Args: args, Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, Home: t.TempDir(),
		Getenv: func(name string) string {
			return map[string]string{"FARHAND_URL": r.URL, "FARHAND_TOKEN": clienttest.OwnerToken}[name]
		},
	})
	return code, stdout.String(), stderr.String()
}

func TestGetIntoTheCurrentDirectory(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	t.Chdir(t.TempDir())
	if code, _, text := run(t, t.Context(), r, "get", "pi:/data/work/hello.txt"); code != 0 {
		t.Fatal(code, text)
	}
	if b, err := os.ReadFile("hello.txt"); err != nil || string(b) != "hello\n" {
		t.Fatalf("hello.txt is %q, %v", b, err)
	}
	// A name that would leave the directory is never made from the remote path.
	for _, arg := range []string{"pi:/data/work/..", "pi:..", "pi:."} {
		if code, _, text := run(t, t.Context(), r, "get", arg); code != 2 {
			t.Errorf("get %s: exit code %d: %s", arg, code, text)
		}
	}
}

// What is there is replaced as a whole or not at all, and a link to it stays a link.
func TestGetReplaces(t *testing.T) {
	testenv.Need(t, "unix", runtime.GOOS != "windows", "modes and links are those of Unix")
	leak.Check(t)
	r := clienttest.New(t)
	dir := t.TempDir()
	real, link := filepath.Join(dir, "real"), filepath.Join(dir, "link")
	if err := errors.Join(os.WriteFile(real, []byte("old"), 0o640), os.Symlink("real", link)); err != nil {
		t.Fatal(err)
	}
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type == wire.TFileRead {
				return "", nil, wire.Errorf(wire.InternalError, "the disk is broken")
			}
			return "", nil, clienttest.ErrPass
		}
	})
	if code, _, _ := run(t, t.Context(), r, "get", "pi:hello.txt", link); code != 1 {
		t.Fatal(code)
	}
	if b, _ := os.ReadFile(real); string(b) != "old" {
		t.Fatalf("a get that failed left %q", b)
	}
	r.Change(func() { r.Handle = nil })
	if code, _, text := run(t, t.Context(), r, "get", "pi:hello.txt", link); code != 0 {
		t.Fatal(code, text)
	}
	info, err := os.Lstat(link)
	if err != nil || info.Mode()&os.ModeSymlink == 0 {
		t.Fatalf("the link is %v, %v", info, err)
	}
	info, _ = os.Stat(real)
	if b, _ := os.ReadFile(real); string(b) != "hello\n" || info.Mode().Perm() != 0o644 {
		t.Fatalf("it is %q, %v", b, info.Mode())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".farhand-*")); len(left) > 0 {
		t.Fatalf("left behind: %v", left)
	}
}

func TestPutTooLarge(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	big := filepath.Join(t.TempDir(), "big")
	f, err := os.Create(big)
	if err == nil {
		err = errors.Join(f.Truncate(1<<40), f.Close()) // sparse
	}
	if err != nil {
		t.Fatal(err)
	}
	code, _, text := run(t, t.Context(), r, "put", big, "pi:big")
	if code != 1 || !strings.Contains(text, "FILE_TOO_LARGE") || !strings.Contains(text, "11.9 MiB a write") {
		t.Fatalf("exit code %d: %s", code, text)
	}
	if err := os.Truncate(big, 11<<20); err != nil {
		t.Fatal(err)
	}
	code, _, text = run(t, t.Context(), r, "put", big, "pi:big")
	if code != 1 || !strings.Contains(text, "the limit is 10.0 MiB; limits.max_file_size_bytes on the device") {
		t.Fatalf("exit code %d: %s", code, text)
	}
}

func TestInterrupted(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	asked := make(chan struct{})
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type == wire.TExecuteCommand {
				close(asked)
				return "", nil, nil
			}
			return "", nil, clienttest.ErrPass
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	code, _, text := run(t, ctx, r, "exec", "pi", "--", "sleep", "60")
	if code != 255 || !strings.Contains(text, "the command was told to end") {
		t.Fatalf("exit code %d: %s", code, text)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if code, _, _ := run(t, ctx, r, "machines"); code != 130 {
		t.Fatalf("exit code %d, want 130", code)
	}
}

// The configuration is for its user alone.
func TestConfigurationIsPrivate(t *testing.T) {
	testenv.Need(t, "unix", runtime.GOOS != "windows", "modes are those of Unix")
	leak.Check(t)
	r := clienttest.New(t)
	home := t.TempDir()
	config := filepath.Join(home, ".config", "farhand", "farhand.json")
	env := cli.Env{
		Args:  []string{"login", r.URL, "--name", clienttest.OwnerName, "--passphrase-file", "-"},
		Stdin: strings.NewReader(clienttest.Passphrase + "\n"), Stdout: io.Discard, Stderr: io.Discard, Home: home,
	}
	if code := cli.Run(t.Context(), env); code != 0 {
		t.Fatal(code)
	}
	info, err := os.Stat(config)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	var stderr bytes.Buffer
	env.Args, env.Stderr = []string{"machines"}, &stderr
	if err := os.Chmod(config, 0o644); err != nil {
		t.Fatal(err)
	}
	if code := cli.Run(t.Context(), env); code != 0 || !strings.Contains(stderr.String(), "Others may read the token") {
		t.Fatalf("%d: %s", code, stderr.String())
	}
	if err := os.WriteFile(config, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code := cli.Run(t.Context(), env); code != 1 || !strings.Contains(stderr.String(), "is damaged") {
		t.Fatalf("%d: %s", code, stderr.String())
	}
}

// A writer that fails is told: a full disk behind > must not look like success.
func TestBrokenOutput(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	for _, args := range [][]string{{"machines"}, {"machines", "--json"}, {"cat", "pi:hello.txt"}, {"ls", "pi:"}, {"version"}} {
		var stderr bytes.Buffer
		code := cli.Run(t.Context(), cli.Env{
			Args: args, Stdout: brokenWriter{}, Stderr: &stderr,
			Getenv: func(name string) string {
				return map[string]string{"FARHAND_URL": r.URL, "FARHAND_TOKEN": clienttest.OwnerToken}[name]
			},
		})
		if code != 1 || !strings.Contains(stderr.String(), "no space left") {
			t.Errorf("%v: exit code %d: %s", args, code, stderr.String())
		}
	}
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }
