package kernel

import (
	"bytes"
	"context"
	"debug/elf"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Module is a kernel module, unpacked.
type Module struct {
	Name string // as lsmod says it, with underscores: "gpio_sim"
	Path string // in the folder given to Load
}

// Load unpacks the modules of those names and what they depend on into dir, and
// returns them in an order in which they can be loaded. A name may be written
// with - or _. A dependency that isn't a file is built into the kernel; a name
// that was asked for has to be one.
func (k Kernel) Load(ctx context.Context, dir string, names ...string) ([]Module, error) {
	files, err := k.files()
	if err != nil {
		return nil, err
	}
	l := loader{files: files, dir: dir, state: make(map[string]bool)}
	for _, name := range names {
		if files[canonical(name)] == "" {
			return nil, fmt.Errorf("kernel %s has no module %s", k.Release, name)
		}
		if err := l.add(ctx, canonical(name)); err != nil {
			return nil, err
		}
	}
	return l.order, nil
}

// canonical is a module's name as the kernel has it.
func canonical(name string) string { return strings.ReplaceAll(name, "-", "_") }

// files maps the names of modules to their files.
func (k Kernel) files() (map[string]string, error) {
	files := make(map[string]string)
	err := filepath.WalkDir(k.Modules, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _, ok := strings.Cut(d.Name(), ".ko")
		if ok && d.Type().IsRegular() {
			files[canonical(name)] = path
		}
		return nil
	})
	return files, err
}

type loader struct {
	files map[string]string
	dir   string
	state map[string]bool // what was begun
	order []Module
}

// add puts what name depends on, then name, at the end of the order.
// Dependencies of modules have no cycles: the kernel couldn't load them.
func (l *loader) add(ctx context.Context, name string) error {
	from := l.files[name]
	if from == "" || l.state[name] {
		return nil
	}
	l.state[name] = true
	to := filepath.Join(l.dir, name+".ko")
	if err := unpackModule(ctx, from, to); err != nil {
		return err
	}
	depends, err := dependencies(to)
	if err != nil {
		return err
	}
	for _, d := range depends {
		if err := l.add(ctx, canonical(d)); err != nil {
			return err
		}
	}
	l.order = append(l.order, Module{Name: name, Path: to})
	return nil
}

// unpackModule makes a plain module of one that Debian compresses by xz. The
// kernel could unpack it as well, but much more slowly under emulation.
func unpackModule(ctx context.Context, from, to string) error {
	if strings.HasSuffix(from, ".ko") {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return os.WriteFile(to, data, 0o644)
	}
	if !strings.HasSuffix(from, ".ko.xz") {
		return fmt.Errorf("%s: modules are compressed by something that the lab can't read", from)
	}
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	defer f.Close()
	cmd := exec.CommandContext(ctx, "xz", "-dc", from)
	var errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = f, &errs
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("unpacking %s (needs xz-utils): %w: %s", from, err, strings.TrimSpace(errs.String()))
	}
	return f.Close()
}

// dependencies reads what a module says itself in its section .modinfo, strings
// key=value with NULs between them, as depmod does. (Debian's packages carry no
// modules.dep: it is made when they are installed.)
func dependencies(path string) ([]string, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("%s: not a kernel module", path)
	}
	data, err := section.Data()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return depends(data), nil
}

func depends(modinfo []byte) []string {
	for _, item := range bytes.Split(modinfo, []byte{0}) {
		if list, ok := bytes.CutPrefix(item, []byte("depends=")); ok && len(list) > 0 {
			return strings.Split(string(list), ",")
		}
	}
	return nil
}
