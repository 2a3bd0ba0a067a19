// Package apt asks Debian's archive for packages by apt itself, which checks
// signatures against Debian's archive keyring, with directories of its own: so
// nothing of the machine's apt changes, no root is needed, and packages of
// another architecture and release can be had. The archive is the one that the
// machine's own sources name.
package apt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// keyring is where Debian's package debian-archive-keyring has the keys that
// the archive is signed with.
const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

// Config says what is asked for.
type Config struct {
	Dir          string   // where apt keeps its state; it must exist
	Architecture string   // "arm64"
	Suites       []string // "trixie-backports"; a suite that ends in -security is taken from the security archive, if the machine has one
	Components   []string // empty: main
}

// Apt is an apt with a state of its own. Its methods are for one goroutine.
type Apt struct{ c Config }

// Package is what the archive has of a name.
type Package struct {
	Name    string
	Version string
	File    string // the name of its file
	Size    int64  // of the file, bytes
	SHA256  string // of the file, lower-case hex; empty if apt didn't say
}

// Open reads what the archive has now.
func Open(ctx context.Context, c Config) (*Apt, error) {
	dir, err := filepath.Abs(c.Dir) // apt takes a relative one for one of its own
	if err != nil {
		return nil, err
	}
	c.Dir = dir
	a := &Apt{c}
	// Without release information it answers on a machine, too, whose lists were
	// never updated.
	out, err := run(ctx, "", "apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI)|$(RELEASE)|$(SIGNED_BY)", "Identifier: Packages")
	if err != nil {
		return nil, err
	}
	list, err := sources(out, c, exists(keyring))
	if err != nil {
		return nil, err
	}
	for _, d := range []string{"state/lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	for name, text := range map[string]string{"status": "", "sources.list": list} {
		if err := os.WriteFile(filepath.Join(c.Dir, name), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	_, err = a.run(ctx, "", "apt-get", "-q", "update")
	return a, err
}

// Names are the packages whose names begin with prefix.
func (a *Apt) Names(ctx context.Context, prefix string) ([]string, error) {
	out, err := a.run(ctx, "", "apt-cache", "pkgnames", prefix)
	return strings.Fields(out), err
}

// Resolve is what has to be installed, on a system that has nothing, to have
// these packages, without what is only recommended. A name may have a suite:
// "firmware/trixie-backports".
func (a *Apt) Resolve(ctx context.Context, names ...string) ([]Package, error) {
	out, err := a.run(ctx, "", "apt-get", append([]string{"-y", "--print-uris", "install"}, names...)...)
	if err != nil {
		return nil, err
	}
	return printed(out)
}

// Candidates is what the archive has of these names alone, without what they
// depend on.
func (a *Apt) Candidates(ctx context.Context, names ...string) ([]Package, error) {
	out, err := a.run(ctx, "", "apt-get", append([]string{"--print-uris", "download"}, names...)...)
	if err != nil {
		return nil, err
	}
	return printed(out)
}

// Download puts the files of packages into a folder, under the names that
// Package.File says. Files that are there already are not fetched again; who
// doesn't trust the folder checks Package.SHA256.
func (a *Apt) Download(ctx context.Context, dir string, packages ...Package) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var names []string
	for _, p := range packages {
		if !exists(filepath.Join(dir, p.File)) {
			names = append(names, p.Name+"="+p.Version)
		}
	}
	if len(names) == 0 {
		return nil
	}
	part, err := os.MkdirTemp(dir, "part-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(part)
	if _, err := a.run(ctx, part, "apt-get", append([]string{"-q", "download"}, names...)...); err != nil {
		return err
	}
	files, err := os.ReadDir(part)
	if err != nil {
		return err
	}
	if len(files) != len(names) {
		return fmt.Errorf("apt-get download left %d files for %d packages", len(files), len(names))
	}
	for _, f := range files {
		if err := os.Rename(filepath.Join(part, f.Name()), filepath.Join(dir, f.Name())); err != nil {
			return err
		}
	}
	return nil
}

// uriLine is a line of apt-get --print-uris: 'URI' FILE SIZE HASH.
var uriLine = regexp.MustCompile(`^'[^']*' (\S+_\S+_\S+\.deb) (\d+)(?: (\S+))?`)

func printed(out string) ([]Package, error) {
	var all []Package
	for line := range strings.Lines(out) {
		m := uriLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		name, rest, _ := strings.Cut(m[1], "_")
		version, _, _ := strings.Cut(rest, "_")
		size, err := strconv.ParseInt(m[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("the size of %s: %w", m[1], err)
		}
		p := Package{Name: name, Version: strings.ReplaceAll(version, "%3a", ":"), File: m[1], Size: size}
		p.SHA256, _ = strings.CutPrefix(m[3], "SHA256:")
		if strings.Contains(p.SHA256, ":") { // another hash
			p.SHA256 = ""
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, errors.New("apt names no files for what was asked of it")
	}
	return all, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// run keeps apt to its directory. Proxies and the like of the machine's own
// configuration go on to hold.
func (a *Apt) run(ctx context.Context, dir, name string, args ...string) (string, error) {
	return run(ctx, dir, name, append([]string{
		"-o", "Dir::Etc::sourcelist=" + filepath.Join(a.c.Dir, "sources.list"),
		"-o", "Dir::Etc::sourceparts=-",
		"-o", "Dir::Etc::preferences=/dev/null",
		"-o", "Dir::Etc::preferencesparts=/dev/null",
		"-o", "Dir::State=" + filepath.Join(a.c.Dir, "state"),
		"-o", "Dir::State::status=" + filepath.Join(a.c.Dir, "status"),
		"-o", "Dir::Cache=" + filepath.Join(a.c.Dir, "cache"),
		"-o", "APT::Architecture=" + a.c.Architecture,
		"-o", "APT::Architectures=" + a.c.Architecture,
		"-o", "APT::Install-Recommends=false",
		// Root's apt would download as a user that can't enter the directory.
		"-o", "APT::Sandbox::User=",
		"-o", "Acquire::Languages=none",
		"-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false",
		"-o", "Acquire::Retries=3",
	}, args...)...)
}

func run(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return "", fmt.Errorf("%w: Debian packages are fetched by apt", err)
	} else if err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(errs.String()))
	}
	return out.String(), nil
}

// Verify compares a file with what the archive says of it.
func Verify(file string, p Package) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	n, err := io.Copy(h, f)
	switch {
	case err != nil:
		return err
	case n != p.Size, p.SHA256 != "" && hex.EncodeToString(h.Sum(nil)) != p.SHA256:
		return fmt.Errorf("%s isn't what the archive has: remove it and try again", file)
	}
	return nil
}
