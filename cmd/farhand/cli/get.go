package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

func (a *app) get() *cobra.Command {
	var f copyFlags
	cmd := &cobra.Command{
		Use:   "get MACHINE:PATH [FILE|DIRECTORY]",
		Short: "Copy a file or a directory from a machine",
		Long: `get copies a file of any size, or a directory with everything below it. FILE is a
file, a directory in which the copy keeps its name, or - for standard output; without
it, the copy lands here under its own name. Modes and times are kept, and the content
is compared by its hash.

A file that is there is replaced only when all of the new one has come. If get is
interrupted, the same get goes on where it ended, for a week. A lost link is waited for.

In a directory, files that are there already with the same size and time are left out.
Links are copied as links if they lead to something below the directory; others, and
what is no file, are left out and named. Nothing is removed.`,
		Example: "  farhand get pi:/data/work/report.txt\n  farhand get pi:/data/work/logs\n  farhand get pi:/data/work/backup.tar - | tar t",
		Args:    between(1, 2, "MACHINE:PATH and perhaps a FILE or DIRECTORY (or -)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			local := ""
			if len(args) == 2 {
				local = args[1]
			}
			return a.runGet(cmd.Context(), args[0], local, o)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveDefault // files here
			}
			return a.completeTargets(cmd, args, typed)
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) runGet(ctx context.Context, arg, local string, o client.PutOptions) error {
	t, err := remote(arg)
	if err != nil {
		return err
	}
	if t.path == "" {
		return usage("%q names no file; %s. and a DIRECTORY are all of the root", arg, arg)
	}
	if local, err = localName(t.path, local); err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := a.at(ctx, c, t.machine, t.path)
	if err != nil {
		return err
	}
	stat, err := s.Stat(ctx, t.path, true)
	if err != nil {
		return err
	}
	tree := stat.IsDir != nil && *stat.IsDir
	if tree && local == "-" {
		return usage("%s is a directory, which can't go to standard output", t.path)
	}
	at := place{s.Info().MachineID, t.path}
	if tree {
		if err := takesTrees(s); err != nil {
			return err
		}
		dir, err := localGround(local, o.CreateParents)
		if err != nil {
			return err
		}
		defer dir.Close()
		return a.copyTree(ctx, s.Tree(t.path, o.Patience), client.LocalTree{Root: dir}, path.Base(t.path), at, o)
	}
	src, err := s.Source(ctx, t.path, o.Patience)
	if err != nil {
		return err
	}
	if local == "-" || special(local) {
		bar := a.progress(ctx, path.Base(t.path))
		n, err := a.pour(ctx, src, local, bar.tell)
		bar.end()
		if err != nil || local == "-" {
			return err
		}
		return a.done(transferred{Machine: at.Machine, Path: at.Path, Bytes: n})
	}
	if local, err = linked(local); err != nil {
		return err
	}
	if o.CreateParents {
		if err := os.MkdirAll(filepath.Dir(local), 0o777); err != nil {
			return err
		}
	}
	dir, err := os.OpenRoot(filepath.Dir(local))
	if err != nil {
		return missingAbove(err)
	}
	defer dir.Close()
	return a.copyFile(ctx, path.Base(t.path), at, o, func(o client.PutOptions) (client.Sent, error) {
		return client.PutLocal(ctx, dir, filepath.Base(local), src, o)
	})
}

// localGround is the directory that a directory is copied into.
func localGround(name string, parents bool) (*os.Root, error) {
	make := os.Mkdir
	if parents {
		make = os.MkdirAll
	}
	if err := make(name, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, missingAbove(err)
	}
	return os.OpenRoot(name)
}

// missingAbove says what to do about a directory here that isn't there.
func missingAbove(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w; -p makes missing directories", err)
	}
	return err
}

// localName is where a file goes. The name in remote comes from the command
// line, not from the machine.
func localName(remote, local string) (string, error) {
	if local == "-" {
		return local, nil
	}
	base := path.Base(remote)
	if base == "." || base == ".." || base == "/" || strings.ContainsRune(base, filepath.Separator) {
		if local == "" {
			return "", usage("%q has no name to keep: name the local file", remote)
		}
	}
	if local == "" {
		return base, nil
	}
	if info, err := os.Stat(local); err == nil && info.IsDir() {
		return filepath.Join(local, base), nil
	}
	return local, nil
}

// special says whether a name stands for something that is written as it is: a
// terminal, a pipe.
func special(name string) bool {
	info, err := os.Stat(name)
	return err == nil && !info.Mode().IsRegular() && !info.IsDir()
}

// linked is where a link leads: it stays one.
func linked(name string) (string, error) {
	info, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return name, nil
	case err != nil:
		return "", err
	case info.IsDir():
		return "", fmt.Errorf("%s is a directory", name)
	}
	return filepath.EvalSymlinks(name)
}

// pour writes a file as it comes to standard output, or to what is no file.
func (a *app) pour(ctx context.Context, src client.Source, name string, tell client.Progress) (n int64, err error) {
	to := a.env.Stdout
	if name != "-" {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		to = f
	}
	r, err := src.Open(ctx, 0)
	if err != nil {
		return 0, err
	}
	defer r.Close()
	n, err = io.Copy(writerFunc(func(b []byte) (int, error) {
		k, err := to.Write(b)
		n += int64(k)
		tell(n, src.Size)
		return k, err
	}), r)
	if err == nil && n != src.Size {
		err = wire.Errorf(wire.SourceChanged, "the file changed while it was read")
	}
	return n, err
}

// writerFunc is an io.Writer.
type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }
