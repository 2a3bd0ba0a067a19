package cli

import (
	"context"
	"errors"
	"path"

	"github.com/spf13/cobra"

	"farhand/client"
)

func (a *app) cp() *cobra.Command {
	var f copyFlags
	cmd := &cobra.Command{
		Use:   "cp MACHINE:PATH MACHINE:PATH",
		Short: "Copy a file or a directory from one machine to another",
		Long: `cp copies a file of any size, or a directory with everything below it, from one
machine to another, or on one machine. It goes through this command, and no copy of it
lies here. If the second PATH is a directory, or empty, what is copied keeps its name.

Everything else is as put and get have it: a file takes its place in one step, the same
cp goes on where one ended, and in a directory what is there already is left out.`,
		Example: "  farhand cp pi:/data/work/model.gguf oven:/data/work/\n  farhand cp pi:/data/work/recipes oven:/data/work/recipes",
		Args:    between(2, 2, "MACHINE:PATH twice"),
		RunE: func(cmd *cobra.Command, args []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			return a.runCp(cmd.Context(), args[0], args[1], o)
		},
		ValidArgsFunction: a.completeTargets,
	}
	f.add(cmd)
	return cmd
}

func (a *app) runCp(ctx context.Context, from, to string, o client.PutOptions) error {
	src, err := remote(from)
	if err != nil {
		return err
	}
	if src.path == "" {
		return usage("%q names no file; %s. is all of the root", from, from)
	}
	dst, err := remote(to)
	if err != nil {
		return err
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	s, err := a.at(ctx, c, src.machine, src.path)
	if err != nil {
		return err
	}
	d, err := a.at(ctx, c, dst.machine, dst.path)
	if err != nil {
		return err
	}
	stat, err := s.Stat(ctx, src.path, true)
	if err != nil {
		return err
	}
	name := path.Base(path.Clean(src.path))
	if name == "." || name == ".." || name == "/" {
		name = path.Base(path.Join(s.Info().Root, src.path))
	}
	tree := stat.IsDir != nil && *stat.IsDir
	dest, err := a.destination(ctx, d, dst, name, o.CreateParents || tree)
	if err != nil {
		return err
	}
	at := place{d.Info().MachineID, dest}
	if tree {
		if err := errors.Join(takesTrees(s), takesTrees(d)); err != nil {
			return err
		}
		return a.copyTree(ctx, s.Tree(src.path, o.Patience), d.Ground(dest, o.Patience), name, at, o)
	}
	file, err := s.Source(ctx, src.path, o.Patience)
	if err != nil {
		return err
	}
	return a.copyFile(ctx, name, at, o, func(o client.PutOptions) (client.Sent, error) {
		return d.Put(ctx, dest, file, o)
	})
}
