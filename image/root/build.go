package root

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"farhand/image/spec"
	"farhand/internal/apt"
)

// Options say what goes into the root.
type Options struct {
	Machine  Machine
	Tree     string // where it is made: a folder that isn't there yet
	Cache    string // where packages are kept between builds
	Version  string // of the image
	Epoch    time.Time
	Daemon   string   // the farhandd to put in
	Packages []string // beyond what the image needs
	Files    []spec.File
	Relay    string // what cards use that don't name another; may be empty
	Boot     string // where vmlinuz and Machine.Boot go
	Log      io.Writer
}

// Machine is what a root is made for, as far as that makes a difference to it.
type Machine struct {
	Architecture string   // Debian's name: arm64 or amd64
	Unpacked     []string // packages that are taken as they are, without what they depend on
	// Boot are files and folders of packages that belong on a boot partition, and
	// what they are called there. KERNEL stands for the kernel's release.
	Boot map[string]string
	// Modules are beginnings of the names, below kernel/, of modules that such
	// machines use and a Raspberry Pi doesn't.
	Modules []string
	// Firmware says whether a file of lib/firmware stays.
	Firmware func(name string) bool
}

// Result is what was made.
type Result struct {
	Kernel   string        // its release
	Packages []apt.Package // all whose files are in the tree, by name
}

// Build makes the tree. It must run as root, since files belong to others.
func Build(ctx context.Context, o Options) (Result, error) {
	r, err := fetch(ctx, o)
	if err != nil {
		return Result{}, err
	}
	if err := os.Mkdir(o.Tree, 0o755); err != nil {
		return Result{}, err
	}
	asked := slices.DeleteFunc(slices.Clone(r.Packages), func(p apt.Package) bool { return !slices.Contains(o.Packages, p.Name) })
	ours := slices.DeleteFunc(slices.Clone(r.Packages), func(p apt.Package) bool { return slices.Contains(o.Packages, p.Name) })
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"unpacking", func() error { return unpackAll(ctx, o, ours) }},
		{"modules", func() error { return trimModules(ctx, o.Tree, r.Kernel, o.Machine.Modules) }},
		{"firmware", func() error { return trimFirmware(o.Tree, o.Machine.Firmware) }},
		// Whoever asks for a package wants all of it, firmware of other radios say.
		{"packages asked for", func() error { return unpackAll(ctx, o, asked) }},
		{"configuring", func() error { return configure(o.Tree, o) }},
		{"the daemon", func() error { return copyFile(o.Daemon, filepath.Join(o.Tree, "usr/bin/farhandd"), 0o755) }},
		{"extra files", func() error { return addFiles(o) }},
		{"boot files", func() error { return takeOut(o, r.Kernel) }},
		{"checking", func() error { return Check(o.Tree) }},
		{"times", func() error { return settle(o.Tree, o.Epoch) }},
	} {
		start := time.Now()
		if err := step.do(); err != nil {
			return Result{}, fmt.Errorf("%s: %w", step.what, err)
		}
		fmt.Fprintf(o.Log, "root: %s, %.1f s\n", step.what, time.Since(start).Seconds())
	}
	return r, nil
}

// fetch finds out what belongs into the image and puts it into the cache.
func fetch(ctx context.Context, o Options) (Result, error) {
	arch := o.Machine.Architecture
	state := filepath.Join(o.Cache, "apt-"+arch)
	if err := os.MkdirAll(state, 0o755); err != nil {
		return Result{}, err
	}
	a, err := apt.Open(ctx, apt.Config{Dir: state, Architecture: arch, Suites: Suites(), Components: Components()})
	if err != nil {
		return Result{}, err
	}
	release, err := newestKernel(ctx, a, arch)
	if err != nil {
		return Result{}, err
	}
	resolved, err := a.Resolve(ctx, append(userland(), o.Packages...)...)
	if err != nil {
		return Result{}, err
	}
	resolved = slices.DeleteFunc(resolved, func(p apt.Package) bool { return omitted(p.Name) && !slices.Contains(o.Packages, p.Name) })
	more, err := a.Candidates(ctx, append(kernel(release), o.Machine.Unpacked...)...)
	if err != nil {
		return Result{}, err
	}
	all := append(resolved, more...)
	slices.SortFunc(all, func(a, b apt.Package) int { return strings.Compare(a.Name, b.Name) })
	var size int64
	for _, p := range all {
		size += p.Size
	}
	fmt.Fprintf(o.Log, "root: Linux %s, %d packages, %d MB\n", release, len(all), size/1e6)
	return Result{Kernel: release, Packages: all}, a.Download(ctx, filepath.Join(o.Cache, "debs"), all...)
}

// newestKernel is the latest release of the kernel for an architecture.
func newestKernel(ctx context.Context, a *apt.Apt, architecture string) (string, error) {
	packages, err := a.Candidates(ctx, "linux-image-"+architecture+"/"+Release+"-backports")
	if err != nil {
		return "", err
	}
	names, err := a.Names(ctx, "linux-modules-")
	if err != nil {
		return "", err
	}
	// The metapackage's version begins with the kernel's: 7.3.4-1~bpo13+1.
	version, _, _ := strings.Cut(packages[0].Version, "-")
	for _, n := range names {
		release := strings.TrimPrefix(n, "linux-modules-")
		if strings.HasPrefix(release, version+"+") && strings.HasSuffix(release, "-"+architecture) && strings.Count(release, "-") == 1 {
			return release, nil
		}
	}
	return "", fmt.Errorf("%s-backports has no modules for Linux %s", Release, version)
}

// unpackAll unpacks packages into the tree: base-files first, whose links make a
// merged /usr.
func unpackAll(ctx context.Context, o Options, packages []apt.Package) error {
	packages = slices.Clone(packages)
	slices.SortStableFunc(packages, func(a, b apt.Package) int {
		return first(b) - first(a)
	})
	for _, dir := range []string{"bin", "sbin", "lib"} {
		if err := os.MkdirAll(filepath.Join(o.Tree, "usr", dir), 0o755); err != nil {
			return err
		}
		if err := os.Symlink("usr/"+dir, filepath.Join(o.Tree, dir)); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
	}
	for _, p := range packages {
		deb := filepath.Join(o.Cache, "debs", p.File)
		if err := apt.Verify(deb, p); err != nil {
			return err
		}
		if err := unpack(ctx, deb, o.Tree); err != nil {
			return err
		}
	}
	return nil
}

func first(p apt.Package) int {
	if p.Name == "base-files" {
		return 1
	}
	return 0
}

// takeOut moves what the boot partition holds out of the tree, and what nobody
// reads away.
func takeOut(o Options, release string) error {
	if err := os.MkdirAll(o.Boot, 0o755); err != nil {
		return err
	}
	modules := filepath.Join("usr/lib/modules", release)
	move := map[string]string{"usr/lib/modules/KERNEL/vmlinuz": "vmlinuz"}
	maps.Copy(move, o.Machine.Boot)
	for from, to := range move {
		from = strings.ReplaceAll(from, "KERNEL", release)
		if err := os.Rename(filepath.Join(o.Tree, from), filepath.Join(o.Boot, to)); err != nil {
			return err
		}
	}
	for _, name := range []string{"System.map", "modules.builtin.modinfo", "dtb"} {
		if err := os.RemoveAll(filepath.Join(o.Tree, modules, name)); err != nil {
			return err
		}
	}
	return nil
}

// addFiles puts in what the build's spec asks for.
func addFiles(o Options) error {
	if o.Relay != "" {
		at := filepath.Join(o.Tree, "usr/share/farhand/defaults.toml")
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(at, fmt.Appendf(nil, "relay = %q\n", o.Relay), 0o644); err != nil {
			return err
		}
	}
	for _, f := range o.Files {
		dir, err := inside(o.Tree, strings.TrimPrefix(filepath.Dir(f.Path), "/"))
		if err != nil {
			return err
		}
		if err := copyFile(f.From, filepath.Join(dir, filepath.Base(f.Path)), f.Mode); err != nil {
			return err
		}
	}
	return nil
}
