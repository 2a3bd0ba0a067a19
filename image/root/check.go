package root

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Check reads the tree for what a package's script or a package that was left
// out would have brought: libraries that programs ask for.
func Check(tree string) error {
	libraries := make(map[string]bool)
	type needs struct {
		file string
		libs []string
	}
	var all []needs
	err := filepath.WalkDir(tree, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(tree, name)
		if d.Type()&os.ModeSymlink != 0 {
			if strings.Contains(rel, ".so") {
				libraries[filepath.Base(rel)] = true
			}
			return nil
		}
		if !d.Type().IsRegular() || strings.HasPrefix(rel, "usr/lib/modules/") || strings.HasPrefix(rel, "usr/lib/firmware/") {
			return nil
		}
		f, err := elf.Open(name)
		var notELF *elf.FormatError
		if errors.As(err, &notELF) {
			return nil
		} else if err != nil {
			return nil // too short to be one
		}
		defer f.Close()
		libraries[filepath.Base(rel)] = true
		libs, err := f.ImportedLibraries()
		if err == nil && len(libs) > 0 {
			all = append(all, needs{rel, libs})
		}
		return nil
	})
	if err != nil {
		return err
	}
	var missing []string
	for _, n := range all {
		for _, l := range n.libs {
			if !libraries[l] {
				missing = append(missing, fmt.Sprintf("%s needs %s", n.file, l))
			}
		}
	}
	if len(missing) > 0 {
		slices.Sort(missing)
		return fmt.Errorf("libraries are missing: %s", strings.Join(missing, "; "))
	}
	for _, name := range []string{"usr/sbin/init", "usr/bin/farhandd", "usr/bin/bash", "usr/sbin/e2fsck", "usr/sbin/mke2fs", "etc/ssl/certs/ca-certificates.crt"} {
		if _, err := os.Stat(filepath.Join(tree, name)); err != nil {
			return fmt.Errorf("the root lacks %s", name)
		}
	}
	return nil
}
