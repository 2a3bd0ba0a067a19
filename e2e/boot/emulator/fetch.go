package emulator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// keyring is where the package debian-archive-keyring has the keys of Debian's
// archive.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// backports are the suites that are asked beside a machine's own, by the name of
// its release. Later ones have a new enough QEMU themselves.
var backports = map[string]string{"bookworm": "bookworm-backports"}

// fetch downloads QEMU and whatever this machine lacks for it, and unpacks both
// into tree.
func fetch(ctx context.Context, cache, tree string, log io.Writer) error {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	a := apt{dir: work}
	release, err := a.prepare(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(log, "boot-test: fetching QEMU from %s\n", release)
	if _, err := output(ctx, "apt-get", a.options("-q", "update")...); err != nil {
		return err
	}
	if _, err := output(ctx, "apt-get", a.options("-q", "-y", "--no-install-recommends", "--download-only", "-t", release, "install", "qemu-system-arm")...); err != nil {
		return err
	}
	debs, err := filepath.Glob(filepath.Join(work, "cache/archives/*.deb"))
	if err != nil {
		return err
	}
	next := filepath.Join(work, "tree")
	if err := os.Mkdir(next, 0o755); err != nil {
		return err
	}
	for _, deb := range debs {
		if _, err := output(ctx, "dpkg-deb", "-x", deb, next); err != nil {
			return err
		}
	}
	if err := os.Rename(next, tree); err != nil && !errors.Is(err, os.ErrExist) {
		return err // another run may have been faster
	}
	return nil
}

// apt has a state of its own below dir, but for what the machine has installed.
type apt struct{ dir string }

var codename = regexp.MustCompile(`^(bookworm|trixie|forky|duke)$`)

// prepare writes the sources: Debian's archive as this machine's apt knows it,
// with the backports. It returns the suite that QEMU comes from.
func (a apt) prepare(ctx context.Context) (string, error) {
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, d), 0o755); err != nil {
			return "", err
		}
	}
	out, err := output(ctx, "apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI)|$(RELEASE)|$(SIGNED_BY)", "Identifier: Packages")
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "|")
		if len(f) != 3 || !codename.MatchString(f[1]) || strings.ContainsAny(f[0]+f[2], " \t[]#") {
			continue
		}
		key := keyring
		if _, err := os.Stat(key); err != nil {
			if key = f[2]; !strings.HasPrefix(key, "/") {
				return "", fmt.Errorf("%s is missing, so signatures can't be checked: install debian-archive-keyring", keyring)
			}
		}
		suites, from := []string{f[1]}, f[1]
		if b := backports[f[1]]; b != "" {
			suites, from = append(suites, b), b
		}
		var list strings.Builder
		for _, s := range suites {
			fmt.Fprintf(&list, "deb [signed-by=%s] %s %s main\n", key, f[0], s)
		}
		return from, os.WriteFile(filepath.Join(a.dir, "sources.list"), []byte(list.String()), 0o644)
	}
	return "", errors.New("apt's sources on this machine name no Debian release; install a QEMU (qemu-system-aarch64) of version 9 or later")
}

func (a apt) options(args ...string) []string {
	return append([]string{
		"-o", "Dir::Etc::sourcelist=" + filepath.Join(a.dir, "sources.list"),
		"-o", "Dir::Etc::sourceparts=-",
		"-o", "Dir::State::lists=" + filepath.Join(a.dir, "state/lists"),
		"-o", "Dir::State::extended_states=" + filepath.Join(a.dir, "state/extended"),
		"-o", "Dir::Cache=" + filepath.Join(a.dir, "cache"),
		"-o", "Debug::NoLocking=true", // only files of ours are written
		// Root's apt would download as a user that can't enter the folder.
		"-o", "APT::Sandbox::User=",
		"-o", "Acquire::Languages=none",
		"-o", "Acquire::Retries=3",
	}, args...)
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}
