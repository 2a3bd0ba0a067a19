// Package suite finds the packages that have tests for the kernel lab and
// builds their test binaries.
package suite

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Required are the suites without which a run of the whole lab is a failure,
// even if their tests were to vanish.
var Required = []string{"bus", "gpio", "lab/guest", "lab/soak", "octoprint", "serialio", "usb"}

// Apart are the suites that run in a guest beside that of the others, because
// they take long and mostly wait.
var Apart = []string{"lab/soak"}

// Suite is a package with lab tests.
type Suite struct {
	Name string // its path below the module: "gpio"
	Dir  string // its folder
}

// testFunc is how a lab test begins.
var testFunc = regexp.MustCompile(`(?m)^func TestLab[A-Z0-9_(]`)

// Find returns the packages below root that have a file *lab*_test.go with a
// TestLab function, sorted by name.
func Find(root string) ([]Suite, error) {
	found := make(map[string]Suite)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, "_test.go") || !strings.Contains(name, "lab") {
			return nil
		}
		src, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !testFunc.Match(src) {
			return nil
		}
		dir := filepath.Dir(path)
		rel, err := filepath.Rel(root, dir)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		found[rel] = Suite{Name: rel, Dir: dir}
		return nil
	})
	if err != nil {
		return nil, err
	}
	var all []Suite
	for _, s := range found {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Suite) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// Select returns the suites that a list as "gpio,lab" names, by their names or
// by a folder that they are in. An empty list means all, with every required
// one among them. A name that no suite answers to is an error.
func Select(all []Suite, list string) ([]Suite, error) {
	if list == "" {
		for _, r := range Required {
			if !slices.ContainsFunc(all, func(s Suite) bool { return s.Name == r }) {
				return nil, fmt.Errorf("suite %s has no TestLab function any more, and the lab has to run it", r)
			}
		}
		return all, nil
	}
	var chosen []Suite
	for name := range strings.SplitSeq(list, ",") {
		name = strings.Trim(strings.TrimSpace(name), "/")
		some := false
		for _, s := range all {
			if s.Name == name || strings.HasPrefix(s.Name, name+"/") {
				some = true
				if !slices.Contains(chosen, s) {
					chosen = append(chosen, s)
				}
			}
		}
		if !some {
			return nil, fmt.Errorf("no suite %q: a suite is a package with a TestLab function in a file *lab*_test.go", name)
		}
	}
	return chosen, nil
}

// Build makes the suite's test binary for the guest.
func (s Suite) Build(ctx context.Context, to string) error {
	return build(ctx, s.Dir, "test", "-c", "-trimpath", "-ldflags=-s -w", "-o", to, ".")
}

// BuildProgram makes a program of this module for the guest.
func BuildProgram(ctx context.Context, dir, to string) error {
	return build(ctx, dir, "build", "-trimpath", "-ldflags=-s -w", "-o", to, ".")
}

func build(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go %s in %s: %w\n%s", args[0], dir, err, firstLines(out, 20))
	}
	return nil
}

func firstLines(out []byte, n int) string {
	var b strings.Builder
	for sc := bufio.NewScanner(bytes.NewReader(out)); n > 0 && sc.Scan(); n-- {
		b.WriteString("\t" + sc.Text() + "\n")
	}
	return b.String()
}
