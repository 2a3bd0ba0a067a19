package kernel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// keyring is where Debian's package debian-archive-keyring has the keys that
// the archive is signed with.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Fetch asks apt for the newest kernel of Suite and puts it into the cache,
// unless it is there already. Progress goes to log.
func Fetch(ctx context.Context, cache string, log io.Writer) (Kernel, error) {
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return Kernel{}, err
	}
	work, err := os.MkdirTemp(cache, "fetch-")
	if err != nil {
		return Kernel{}, err
	}
	defer os.RemoveAll(work)
	a := apt{dir: work, log: log}
	if err := a.prepare(ctx); err != nil {
		return Kernel{}, err
	}
	release, err := a.resolve(ctx)
	if err != nil {
		return Kernel{}, err
	}
	if k := at(cache, release); exists(k.Image) {
		return k, nil
	}
	fmt.Fprintf(log, "lab: fetching Linux %s\n", release)
	tree := filepath.Join(work, "tree")
	if err := a.unpack(ctx, tree, "linux-binary-"+release, "linux-modules-"+release); err != nil {
		return Kernel{}, err
	}
	if err := os.Rename(tree, filepath.Join(cache, release)); err != nil {
		// Another run of the lab may have been faster.
		if k := at(cache, release); exists(k.Image) {
			return k, nil
		}
		return Kernel{}, err
	}
	k := at(cache, release)
	if !exists(k.Image) {
		return Kernel{}, fmt.Errorf("linux-binary-%s has no %s", release, k.Image)
	}
	return k, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// apt is an apt with a state of its own below dir.
type apt struct {
	dir string
	log io.Writer
}

func (a apt) prepare(ctx context.Context) error {
	// Without release information it answers on a machine, too, whose lists were
	// never updated.
	out, err := a.output(ctx, "apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI)|$(RELEASE)|$(SIGNED_BY)", "Identifier: Packages")
	if err != nil {
		return err
	}
	from, err := mirror(out)
	if err != nil {
		return err
	}
	key := keyring
	if !exists(key) {
		if key = from.signedBy; key == "" {
			return fmt.Errorf("%s is missing, so the kernel's signature can't be checked: install debian-archive-keyring", keyring)
		}
	}
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(a.dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(a.dir, "status"), nil, 0o644); err != nil {
		return err
	}
	list := fmt.Sprintf("deb [arch=amd64 signed-by=%s] %s %s main\n", key, from.uri, Suite)
	if err := os.WriteFile(filepath.Join(a.dir, "sources.list"), []byte(list), 0o644); err != nil {
		return err
	}
	_, err = a.output(ctx, "apt-get", a.options("-q", "update")...)
	return err
}

func (a apt) resolve(ctx context.Context) (string, error) {
	out, err := a.output(ctx, "apt-cache", a.options("pkgnames", "linux-modules-")...)
	if err != nil {
		return "", err
	}
	var releases []string
	for name := range strings.Lines(out) {
		releases = append(releases, strings.TrimPrefix(strings.TrimSpace(name), "linux-modules-"))
	}
	r := newest(releases)
	if r == "" {
		return "", fmt.Errorf("%s has no kernel of %d.%d or later", Suite, oldest[0], oldest[1])
	}
	return r, nil
}

// unpack downloads packages and unpacks them into tree.
func (a apt) unpack(ctx context.Context, tree string, packages ...string) error {
	debs := filepath.Join(a.dir, "debs")
	for _, d := range []string{debs, tree} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	if _, err := a.outputIn(ctx, debs, "apt-get", a.options(append([]string{"-q", "download"}, packages...)...)...); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	if len(files) != len(packages) {
		return fmt.Errorf("apt-get download left %d files for %d packages", len(files), len(packages))
	}
	for _, f := range files {
		if _, err := a.output(ctx, "dpkg-deb", "-x", f, tree); err != nil {
			return err
		}
	}
	return nil
}

// options keeps apt to a.dir. Proxies and the like of the machine's own
// configuration go on to hold.
func (a apt) options(args ...string) []string {
	return append([]string{
		"-o", "Dir::Etc::sourcelist=" + filepath.Join(a.dir, "sources.list"),
		"-o", "Dir::Etc::sourceparts=-",
		"-o", "Dir::State=" + filepath.Join(a.dir, "state"),
		"-o", "Dir::State::status=" + filepath.Join(a.dir, "status"),
		"-o", "Dir::Cache=" + filepath.Join(a.dir, "cache"),
		"-o", "APT::Architecture=amd64",
		"-o", "APT::Architectures=amd64",
		// Root's apt would download as a user that can't enter the cache.
		"-o", "APT::Sandbox::User=",
		"-o", "Acquire::Languages=none",
		"-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"-o", "Acquire::Retries=3",
	}, args...)
}

func (a apt) output(ctx context.Context, name string, args ...string) (string, error) {
	return a.outputIn(ctx, "", name, args...)
}

func (a apt) outputIn(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%w: the lab's kernel is a Debian package, fetched by apt", err)
	} else if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}
