package client

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"farhand/wire"
)

// Tree is a directory to copy from. Paths are below it, with slashes; "." is the
// directory itself.
type Tree interface {
	// Self is the mode and the time of the directory itself.
	Self(ctx context.Context) (wire.TransferEntry, error)
	Entries(ctx context.Context, dir string) ([]wire.TransferEntry, error)
	Source(ctx context.Context, file string) (Source, error)
}

// Ground is a directory to copy into.
type Ground interface {
	Entries(ctx context.Context, dir string) ([]wire.TransferEntry, error)
	// Dir makes a directory that its owner can write to.
	Dir(ctx context.Context, dir string, e wire.TransferEntry) error
	// Settle gives a directory its mode and time, once everything is in it.
	Settle(ctx context.Context, dir string, e wire.TransferEntry) error
	Link(ctx context.Context, name string, e wire.TransferEntry) error
	Put(ctx context.Context, name string, src Source, o PutOptions) (Sent, error)
}

// TreeOptions say how a tree is copied. The zero value is the usual way.
type TreeOptions struct {
	PutOptions     // of each file; Tell is told of all together, of total as far as it is known
	Parallel   int // files under way at once: 4 by default
	// Skipped is told of what can't be copied: a link that leads out of the tree, a
	// socket. One call at a time.
	Skipped func(name, why string)
}

// TreeCopied is the outcome of copying a tree.
type TreeCopied struct {
	Files, Dirs, Links int
	Bytes              int64 // of the files, also of those that were there
	Same               int   // files that were there already
	Skipped            int
}

// CopyTree copies everything below from. What is there in to and not in from
// stays. Files of the same size and time are taken for the same, so that copying
// again goes on where it ended. Links are copied as they are if they lead to
// something within the tree, and skipped otherwise: nothing is written through
// one. The first failure ends it; files that were finished by then stay.
func CopyTree(ctx context.Context, from Tree, to Ground, o TreeOptions) (TreeCopied, error) {
	if o.Parallel <= 0 {
		o.Parallel = 4
	}
	o.UnlessSame, o.CreateParents = true, false
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c := &treeCopy{ctx: ctx, fail: cancel, from: from, to: to, o: o, files: make(chan string)}
	for range o.Parallel {
		c.work.Go(c.copyFiles)
	}
	self, err := from.Self(ctx)
	if err == nil {
		err = to.Dir(ctx, ".", self)
	}
	if err == nil {
		c.dirs = append(c.dirs, treeDir{".", self})
		err = c.walk(".", 0)
	}
	close(c.files)
	c.work.Wait()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	for i := len(c.dirs) - 1; i >= 0 && err == nil; i-- { // those within others first
		err = to.Settle(ctx, c.dirs[i].name, c.dirs[i].entry)
	}
	return c.done, err
}

// maxTreeDepth bounds the levels of a tree; a path has at most half as many
// characters as names (PATH_MAX, 4096).
const maxTreeDepth = 1024

type treeCopy struct {
	ctx   context.Context
	fail  context.CancelCauseFunc
	from  Tree
	to    Ground
	o     TreeOptions
	work  sync.WaitGroup
	files chan string
	dirs  []treeDir

	mu      sync.Mutex
	done    TreeCopied
	known   int64            // bytes of the files found so far
	arrived int64            // of these, of files that are there
	moving  map[string]int64 // of those under way
}

type treeDir struct {
	name  string
	entry wire.TransferEntry
}

// walk makes directories and links and hands the files out.
func (c *treeCopy) walk(dir string, depth int) error {
	if depth > maxTreeDepth {
		return wire.Errorf(wire.PathInvalidChars, "the tree is deeper than %d levels", maxTreeDepth).With("path", dir)
	}
	entries, err := c.from.Entries(c.ctx, dir)
	if err != nil {
		return err
	}
	there, err := c.there(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if c.ctx.Err() != nil {
			return context.Cause(c.ctx)
		}
		name := path.Join(dir, e.Name)
		switch {
		case !utf8.ValidString(e.Name):
			c.skip(name, "its name is no UTF-8")
		case e.Kind == wire.TransferDirectory:
			if err := c.to.Dir(c.ctx, name, e); err != nil {
				return err
			}
			c.dirs = append(c.dirs, treeDir{name, e})
			c.count(func(d *TreeCopied) { d.Dirs++ })
			err = c.walk(name, depth+1)
		case e.Kind == wire.TransferLink && !within(dir, e.Target):
			c.skip(name, "the link leads out of what is copied, to "+e.Target)
		case e.Kind == wire.TransferLink:
			err = c.to.Link(c.ctx, name, e)
			c.count(func(d *TreeCopied) { d.Links++ })
		case e.Kind == wire.TransferFile && there[e.Name] == e:
			c.count(func(d *TreeCopied) { d.Files, d.Same, d.Bytes = d.Files+1, d.Same+1, d.Bytes+e.Size })
		case e.Kind == wire.TransferFile:
			c.expect(e.Size)
			select {
			case c.files <- name:
			case <-c.ctx.Done():
			}
		default:
			c.skip(name, "it is no file, directory or link")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// there is what the directory has already.
func (c *treeCopy) there(dir string) (map[string]wire.TransferEntry, error) {
	entries, err := c.to.Entries(c.ctx, dir)
	if err != nil {
		return nil, err
	}
	all := make(map[string]wire.TransferEntry, len(entries))
	for _, e := range entries {
		all[e.Name] = e
	}
	return all, nil
}

// within says whether a link in dir leads to something in the tree, whatever
// other links of that kind are in it: so it goes up at its beginning alone.
func within(dir, target string) bool {
	down := strings.TrimLeft(target, "./")
	return target != "" && !strings.HasPrefix(target, "/") && !strings.Contains(target, `\`) &&
		!slices.Contains(strings.Split(down, "/"), "..") && fs.ValidPath(path.Join(dir, target))
}

// copyFiles copies files until there are none.
func (c *treeCopy) copyFiles() {
	for name := range c.files {
		if c.ctx.Err() != nil {
			continue
		}
		if err := c.copyFile(name); err != nil {
			c.fail(err)
		}
	}
}

func (c *treeCopy) copyFile(name string) error {
	src, err := c.from.Source(c.ctx, name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	o := c.o.PutOptions
	if o.Tell != nil {
		o.Tell = func(done, _ int64) { c.tell(name, done) }
	}
	sent, err := c.to.Put(c.ctx, name, src, o)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.count(func(d *TreeCopied) {
		d.Files++
		d.Bytes += sent.Bytes
		if sent.Same {
			d.Same++
		}
		c.arrived += sent.Bytes
		delete(c.moving, name)
	})
	c.tell("", 0)
	return nil
}

func (c *treeCopy) count(f func(*TreeCopied)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.done)
}

func (c *treeCopy) expect(n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known += n
}

func (c *treeCopy) skip(name, why string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done.Skipped++
	if c.o.Skipped != nil {
		c.o.Skipped(name, why)
	}
}

// tell tells how far all files together are.
func (c *treeCopy) tell(name string, done int64) {
	if c.o.Tell == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if name != "" {
		if c.moving == nil {
			c.moving = make(map[string]int64)
		}
		c.moving[name] = done
	}
	sum := c.arrived
	for _, n := range c.moving {
		sum += n
	}
	c.o.Tell(sum, max(sum, c.known))
}

// Tree is a directory of the machine, to copy from. patience is how long a lost
// link is waited for, as in PutOptions.
func (s *Session) Tree(dir string, patience time.Duration) Tree { return remoteTree{s, dir, patience} }

// Ground is a directory of the machine, to copy into. It need not be there yet.
func (s *Session) Ground(dir string, patience time.Duration) Ground {
	return remoteTree{s, dir, patience}
}

// remoteTree is a directory of a machine.
type remoteTree struct {
	s    *Session
	dir  string
	most time.Duration
}

func (t remoteTree) at(name string) string {
	if name == "." {
		return t.dir
	}
	return strings.TrimSuffix(t.dir, "/") + "/" + name
}

// try repeats what may be repeated while a link is lost.
func (t remoteTree) try(ctx context.Context, f func() error) error {
	patience := newPatience(t.most)
	for {
		err := f()
		if err == nil {
			return nil
		}
		if err := patience.wait(ctx, err); err != nil {
			return err
		}
	}
}

func (t remoteTree) Self(ctx context.Context) (wire.TransferEntry, error) {
	var stat wire.FileStatResponse
	err := t.try(ctx, func() (err error) { stat, err = t.s.Stat(ctx, t.dir, true); return err })
	switch {
	case err != nil:
		return wire.TransferEntry{}, err
	case !stat.Exists:
		return wire.TransferEntry{}, wire.Errorf(wire.PathNotFound, "%s does not exist", t.dir).With("path", t.dir)
	case stat.IsDir == nil || !*stat.IsDir || stat.Mode == nil || stat.MTime == nil:
		return wire.TransferEntry{}, wire.Errorf(wire.InternalError, "%s is not a directory", t.dir).With("path", t.dir).With("reason", "not_a_directory")
	}
	return wire.TransferEntry{Kind: wire.TransferDirectory, Mode: *stat.Mode, MTimeNS: microseconds(*stat.MTime).UnixNano()}, nil
}

func (t remoteTree) Entries(ctx context.Context, dir string) (all []wire.TransferEntry, err error) {
	err = t.try(ctx, func() (err error) { all, err = t.s.Entries(ctx, t.at(dir)); return err })
	return all, err
}

func (t remoteTree) Source(ctx context.Context, file string) (Source, error) {
	return t.s.Source(ctx, t.at(file), t.most)
}

func (t remoteTree) make(ctx context.Context, m wire.TransferMake) error {
	return t.try(ctx, func() error { return t.s.Make(ctx, m) })
}

func (t remoteTree) Dir(ctx context.Context, dir string, e wire.TransferEntry) error {
	mode, err := parseMode(e.Mode)
	if err != nil {
		return err
	}
	return t.make(ctx, wire.TransferMake{Path: t.at(dir), Kind: wire.TransferDirectory, Mode: octal(mode | 0o700), CreateParents: dir == "."})
}

func (t remoteTree) Settle(ctx context.Context, dir string, e wire.TransferEntry) error {
	return t.make(ctx, wire.TransferMake{Path: t.at(dir), Kind: wire.TransferDirectory, Mode: &e.Mode, MTimeNS: &e.MTimeNS})
}

func (t remoteTree) Link(ctx context.Context, name string, e wire.TransferEntry) error {
	return t.make(ctx, wire.TransferMake{Path: t.at(name), Kind: wire.TransferLink, Target: e.Target, MTimeNS: &e.MTimeNS})
}

func (t remoteTree) Put(ctx context.Context, name string, src Source, o PutOptions) (Sent, error) {
	return t.s.Put(ctx, t.at(name), src, o)
}

// parseMode reads permission bits in octal digits.
func parseMode(text string) (fs.FileMode, error) {
	mode, err := strconv.ParseUint(text, 8, 32)
	if err != nil {
		return 0, fmt.Errorf("mode %.16q: %w", text, err)
	}
	return fs.FileMode(mode).Perm(), nil
}

// LocalTree is a directory of this machine, to copy from or into. No link in it
// leads out of it, whoever makes one meanwhile.
type LocalTree struct{ Root *os.Root }

// Self implements Tree.
func (t LocalTree) Self(context.Context) (wire.TransferEntry, error) {
	info, err := t.Root.Stat(".")
	if err != nil {
		return wire.TransferEntry{}, err
	}
	return wire.TransferEntry{Kind: wire.TransferDirectory, Mode: *octal(info.Mode()), MTimeNS: info.ModTime().UnixNano()}, nil
}

// Entries implements Tree.
func (t LocalTree) Entries(_ context.Context, dir string) ([]wire.TransferEntry, error) {
	f, err := t.Root.Open(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	list, err := f.ReadDir(-1)
	if err != nil {
		return nil, err
	}
	var all []wire.TransferEntry
	for _, d := range list {
		if d.Type().IsRegular() && strings.HasPrefix(d.Name(), partPrefix) {
			continue
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		e := wire.TransferEntry{Name: d.Name(), Kind: wire.TransferOther, Size: info.Size(), Mode: *octal(info.Mode()), MTimeNS: info.ModTime().UnixNano()}
		switch {
		case info.Mode().IsRegular():
			e.Kind = wire.TransferFile
		case info.IsDir():
			e.Kind = wire.TransferDirectory
		case info.Mode()&fs.ModeSymlink != 0:
			e.Kind = wire.TransferLink
			if e.Target, err = t.Root.Readlink(path.Join(dir, d.Name())); err != nil {
				return nil, err
			}
		}
		all = append(all, e)
	}
	return all, nil
}

// Source implements Tree.
func (t LocalTree) Source(_ context.Context, file string) (Source, error) {
	return localSource(t.Root.Name()+"/"+file, func() (*os.File, error) { return t.Root.Open(file) })
}

// Dir implements Ground.
func (t LocalTree) Dir(_ context.Context, dir string, e wire.TransferEntry) error {
	mode, err := parseMode(e.Mode)
	if err != nil {
		return err
	}
	if err := t.Root.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := t.Root.Stat(dir)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return wire.Errorf(wire.PathExists, "%s exists and is no directory", dir).With("path", dir)
	}
	return t.Root.Chmod(dir, mode|0o700)
}

// Settle implements Ground.
func (t LocalTree) Settle(_ context.Context, dir string, e wire.TransferEntry) error {
	mode, err := parseMode(e.Mode)
	if err != nil {
		return err
	}
	if err := t.Root.Chmod(dir, mode); err != nil {
		return err
	}
	return t.Root.Chtimes(dir, time.Time{}, time.Unix(0, e.MTimeNS))
}

// Link implements Ground.
func (t LocalTree) Link(_ context.Context, name string, e wire.TransferEntry) error {
	if info, err := t.Root.Lstat(name); err == nil {
		if info.Mode()&fs.ModeSymlink == 0 {
			return wire.Errorf(wire.PathExists, "%s exists and is no link", name).With("path", name)
		}
		if target, err := t.Root.Readlink(name); err == nil && target == e.Target {
			return nil
		}
		if err := t.Root.Remove(name); err != nil {
			return err
		}
	}
	return t.Root.Symlink(e.Target, name)
}

// Put implements Ground.
func (t LocalTree) Put(ctx context.Context, name string, src Source, o PutOptions) (Sent, error) {
	return PutLocal(ctx, t.Root, name, src, o)
}
