// Package kernel fetches the kernel that the lab boots: a Debian kernel of
// trixie-backports for amd64 with its modules, by apt itself, which checks
// signatures against Debian's archive keyring, with directories of its own, so
// that nothing of the machine's apt changes and no root is needed.
//
// What was fetched stays in a cache, one folder a version, and is used without
// asking again until a refresh is wanted.
package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// Kernel is one in the cache.
type Kernel struct {
	Release string // as uname -r says it: "7.3.4+deb13-amd64"
	Image   string // the file to boot
	Modules string // the folder with its modules, compressed as the package has them
}

// Suite is the archive's suite that has the kernel. gpio-sim is in Debian's
// kernels from 7.3 on, which no release has yet.
const Suite = "trixie-backports"

// oldest is the first version that has every module that the lab needs.
var oldest = []int{7, 3, 0}

// releasePattern is what a kernel's release looks like, as part of the name of
// the packages linux-binary-RELEASE and linux-modules-RELEASE.
var releasePattern = regexp.MustCompile(`^(\d+)\.(\d+)\.(\d+)\+deb\d+-amd64$`)

// version is the release's number, or nil if the lab can't use it.
func version(release string) []int {
	m := releasePattern.FindStringSubmatch(release)
	if m == nil {
		return nil
	}
	var v []int
	for _, s := range m[1:] {
		n, err := strconv.Atoi(s)
		if err != nil {
			return nil
		}
		v = append(v, n)
	}
	if slices.Compare(v, oldest) < 0 {
		return nil
	}
	return v
}

// newest is the latest release that the lab can use, or "".
func newest(releases []string) string {
	var best string
	for _, r := range releases {
		if v := version(r); v != nil && (best == "" || slices.Compare(v, version(best)) > 0) {
			best = r
		}
	}
	return best
}

// DefaultCache is ${XDG_CACHE_HOME:-~/.cache}/farhand-lab.
func DefaultCache() (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("where the kernel is kept: %w", err)
	}
	return filepath.Join(dir, "farhand-lab"), nil
}

// Cached is the newest kernel of the cache. It answers os.ErrNotExist if there
// is none.
func Cached(cache string) (Kernel, error) {
	entries, err := os.ReadDir(cache)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return Kernel{}, err
	}
	var releases []string
	for _, e := range entries {
		releases = append(releases, e.Name())
	}
	r := newest(releases)
	if r == "" {
		return Kernel{}, fmt.Errorf("no kernel in %s: %w", cache, os.ErrNotExist)
	}
	return at(cache, r), nil
}

func at(cache, release string) Kernel {
	dir := filepath.Join(cache, release, "usr", "lib", "modules", release)
	return Kernel{Release: release, Image: filepath.Join(dir, "vmlinuz"), Modules: filepath.Join(dir, "kernel")}
}
