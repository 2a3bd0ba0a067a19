package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"farhand/files"
	"farhand/wire"
)

// openRoots makes the default root on the first run and finds out which roots
// can be offered.
func (d *services) openRoots(_ context.Context, o Options) error {
	var err error
	if d.forbidden, err = forbiddenPaths(o.Config, d.stateDisk); err != nil {
		return fmt.Errorf("protected paths: %w", err)
	}
	if o.Config.DefaultRoot {
		for _, root := range o.Config.Roots {
			if err := os.MkdirAll(root, 0o755); err != nil {
				return &ConfigError{fmt.Errorf("make the default root: %w", err)}
			}
		}
	}
	offered := []string{}
	for _, root := range o.Config.Roots {
		canonical, err := usableRoot(root, d.forbidden)
		if _, wrong := errors.AsType[*ConfigError](err); wrong {
			return err
		}
		if err != nil {
			d.log.Error("a root is not offered", "root", root, "error", err)
			d.notRoots = append(d.notRoots, err.Error())
			continue
		}
		offered = append(offered, canonical)
	}
	d.config.Roots = offered
	return nil
}

// usableRoot is where a root of the configuration really lies. A *ConfigError
// says that it may never be one. Any other error is about what stands there now,
// which a command may have put there: that must not keep the machine from coming
// back, so such a root is left out.
func usableRoot(root string, forbidden *files.Forbidden) (string, error) {
	if link := strangersLink(root, 0, uint32(os.Geteuid())); link != "" {
		return "", fmt.Errorf("%s: %s is a link that neither root nor the daemon's user made; put the directory back and restart", root, link)
	}
	canonical, err := filepath.EvalSymlinks(root)
	place, missing := canonical, err
	for at := root; err != nil && at != "/"; { // what isn't there is judged by what it would lie in
		at = filepath.Dir(at)
		place, err = filepath.EvalSymlinks(at)
	}
	if err == nil {
		err = forbidden.CheckRoot(place)
	}
	switch {
	case errors.Is(err, wire.PathOutsideAllowedRoot):
		return "", &ConfigError{fmt.Errorf("roots: %s: %w; choose a directory outside of it", root, err)}
	case missing != nil:
		return "", fmt.Errorf("%s: %w; make the directory and restart, or take it out of roots", root, missing)
	case err != nil:
		return "", fmt.Errorf("%s: %w; put the directory back and restart, or take it out of roots", root, err)
	}
	return canonical, nil
}

// strangersLink is the first symbolic link on the way to path that belongs to
// none of the users; empty if there is none. Whoever may replace a directory by a
// link would otherwise choose what is offered in its place.
func strangersLink(path string, users ...uint32) string {
	at := "/"
	for name := range strings.SplitSeq(path, "/") {
		at = filepath.Join(at, name)
		info, err := os.Lstat(at)
		if err != nil {
			return ""
		}
		if info.Mode()&os.ModeSymlink == 0 {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || !slices.Contains(users, st.Uid) {
			return at
		}
	}
	return ""
}
