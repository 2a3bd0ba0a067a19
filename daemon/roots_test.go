package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"farhand/config"
)

// rooted is what openRoots makes of roots below dir, whose state lies in
// dir/state.
func rooted(dir string, names ...string) (*services, error) {
	var roots []string
	for _, name := range names {
		roots = append(roots, filepath.Join(dir, name))
	}
	c := config.Config{StateDir: filepath.Join(dir, "state"), Roots: roots}
	d := &services{config: c, log: slog.New(slog.DiscardHandler)}
	return d, d.openRoots(context.Background(), Options{Config: c, Log: d.log})
}

// place makes a directory with state, good and deep/er.
func place(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"state/inner", "good", "deep/er"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// What became of a root since the configuration was written never keeps the
// others from being offered.
func TestARootThatIsNoneAnyMore(t *testing.T) {
	dir := place(t)
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "file"), nil, 0o644), os.Symlink("loop", filepath.Join(dir, "loop"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"missing", "missing/deep", "file", "file/deep", "loop"} {
		d, err := rooted(dir, name, "good")
		if err != nil || !slices.Equal(d.config.Roots, []string{filepath.Join(dir, "good")}) || len(d.notRoots) != 1 || !strings.Contains(d.notRoots[0], filepath.Join(dir, strings.TrimSuffix(name, "/deep"))) {
			t.Errorf("%s: %v, %q, %q", name, err, d.config.Roots, d.notRoots)
		}
	}
	if d, err := rooted(dir, "missing"); err != nil || d.config.Roots == nil || len(d.config.Roots) != 0 {
		t.Errorf("none is left: %v, %#v: a nil list would allow all", err, d.config.Roots)
	}
}

// What the owner wrote is refused where it can never be right, also through a
// link of the owner's own.
func TestARootThatMayNeverBeOne(t *testing.T) {
	dir := place(t)
	if err := os.Symlink("state", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"state", "state/inner", "state/missing", "link", "link/inner", "../../../../../../../../proc"} {
		var wrong *ConfigError
		if _, err := rooted(dir, name, "good"); !errors.As(err, &wrong) {
			t.Errorf("%s: %v, want a *ConfigError", name, err)
		}
	}
}

// A link is the owner's word only if the owner made it.
func TestStrangersLink(t *testing.T) {
	dir := place(t)
	link := filepath.Join(dir, "deep", "link")
	if err := os.Symlink("../good", link); err != nil {
		t.Fatal(err)
	}
	me := uint32(os.Geteuid())
	for _, c := range []struct {
		path string
		user uint32
		want string
	}{
		{link, me, ""},
		{link, me + 1, link},
		{filepath.Join(link, "more"), me + 1, link},
		{filepath.Join(dir, "deep", "er"), me + 1, ""},
		{filepath.Join(dir, "missing"), me + 1, ""},
	} {
		if got := strangersLink(c.path, c.user); got != c.want {
			t.Errorf("strangersLink(%s, %d) = %q, want %q", c.path, c.user, got, c.want)
		}
	}
}
