package kernel

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"farhand/internal/apt"
)

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
	archive, err := apt.Open(ctx, apt.Config{Dir: work, Architecture: "amd64", Suites: []string{Suite}})
	if err != nil {
		return Kernel{}, err
	}
	release, err := resolve(ctx, archive)
	if err != nil {
		return Kernel{}, err
	}
	if k := at(cache, release); exists(k.Image) {
		return k, nil
	}
	fmt.Fprintf(log, "lab: fetching Linux %s\n", release)
	tree := filepath.Join(work, "tree")
	if err := unpack(ctx, archive, work, tree, "linux-binary-"+release, "linux-modules-"+release); err != nil {
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

func resolve(ctx context.Context, archive *apt.Apt) (string, error) {
	names, err := archive.Names(ctx, "linux-modules-")
	if err != nil {
		return "", err
	}
	var releases []string
	for _, name := range names {
		releases = append(releases, strings.TrimPrefix(name, "linux-modules-"))
	}
	r := newest(releases)
	if r == "" {
		return "", fmt.Errorf("%s has no kernel of %d.%d or later", Suite, oldest[0], oldest[1])
	}
	return r, nil
}

// unpack downloads packages and unpacks them into tree.
func unpack(ctx context.Context, archive *apt.Apt, work, tree string, names ...string) error {
	packages, err := archive.Candidates(ctx, names...)
	if err != nil {
		return err
	}
	debs := filepath.Join(work, "debs")
	if err := archive.Download(ctx, debs, packages...); err != nil {
		return err
	}
	if err := os.MkdirAll(tree, 0o755); err != nil {
		return err
	}
	for _, p := range packages {
		cmd := exec.CommandContext(ctx, "dpkg-deb", "-x", filepath.Join(debs, p.File), tree)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("dpkg-deb -x %s: %w: %s", p.File, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
