package cli

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

func (a *app) put() *cobra.Command {
	var f copyFlags
	cmd := &cobra.Command{
		Use:   "put FILE|DIRECTORY MACHINE:PATH",
		Short: "Copy a file or a directory to a machine",
		Long: `put copies a file of any size, a directory with everything below it, or standard
input for -, to a machine. If PATH is a directory, or empty, what is copied keeps its
name. Modes and times are kept, and the content is compared by its hash.

A file that is there is replaced in one step, so that nobody sees half of it. If put is
interrupted, the same put goes on where it ended, for a week. A lost link is waited for.

In a directory, files that are there already with the same size and time are left out.
Links are copied as links if they lead to something below the directory; others, and
what is no file, are left out and named. Nothing is removed.`,
		Example: "  farhand put report.txt pi:/data/work/\n  farhand put site/ pi:/data/work/www\n  date | farhand put - pi:/data/work/stamp",
		Args:    between(2, 2, "a FILE or DIRECTORY (or -) and MACHINE:PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return a.runPut(cmd.Context(), args[0], args[1], o)
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return nil, cobra.ShellCompDirectiveDefault // files here
			}
			return a.completeMachine(":")(cmd, args[1:], typed)
		},
	}
	f.add(cmd)
	return cmd
}

func (a *app) runPut(ctx context.Context, local, arg string, o client.PutOptions) error {
	t, err := remote(arg)
	if err != nil {
		return err
	}
	if local == "-" && (t.path == "" || strings.HasSuffix(t.path, "/")) {
		return usage("standard input has no name: give the whole path, %s:DIRECTORY/NAME", t.machine)
	}
	src, dir, err := a.localSource(local)
	if err != nil {
		return err
	}
	if dir != nil {
		defer dir.Close()
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
	dest, err := a.destination(ctx, s, t, local, o.CreateParents || dir != nil)
	if err != nil {
		return err
	}
	to := place{s.Info().MachineID, dest}
	if dir != nil {
		if err := takesTrees(s); err != nil {
			return err
		}
		return a.copyTree(ctx, client.LocalTree{Root: dir}, s.Ground(dest, o.Patience), filepath.Base(local), to, o)
	}
	return a.copyFile(ctx, filepath.Base(local), to, o, func(o client.PutOptions) (client.Sent, error) {
		return s.Put(ctx, dest, src, o)
	})
}

// localSource is a local file to be sent, or the directory.
func (a *app) localSource(name string) (client.Source, *os.Root, error) {
	if name == "-" {
		if a.env.Stdin == nil {
			return client.Source{}, nil, errors.New("there is no standard input")
		}
		return client.StreamSource(a.env.Stdin), nil, nil
	}
	info, err := os.Stat(name)
	if err != nil {
		return client.Source{}, nil, err
	}
	if info.IsDir() {
		dir, err := os.OpenRoot(name)
		return client.Source{}, dir, err
	}
	if !info.Mode().IsRegular() {
		return client.Source{}, nil, usage("%s is no file and no directory: farhand put - reads what is piped into it", name)
	}
	src, err := client.LocalSource(name)
	return src, nil, err
}

// destination adds the local name if the path is a directory.
func (a *app) destination(ctx context.Context, s *client.Session, t target, local string, parents bool) (string, error) {
	name := filepath.Base(local)
	if name == "." || name == ".." {
		if abs, err := filepath.Abs(local); err == nil {
			name = filepath.Base(abs)
		}
	}
	if t.path == "" {
		return name, nil
	}
	stat, err := s.Stat(ctx, t.path, true)
	if err != nil {
		return "", err
	}
	isDir := stat.Exists && stat.IsDir != nil && *stat.IsDir
	switch {
	case isDir && local == "-":
		return "", usage("%s is a directory: give the whole path", t.path)
	case isDir, strings.HasSuffix(t.path, "/") && parents:
		return strings.TrimRight(t.path, "/") + "/" + name, nil
	case strings.HasSuffix(t.path, "/"):
		return "", wire.Errorf(wire.PathNotFound, "there is no directory %s", t.path).With("path", t.path)
	}
	return t.path, nil
}
