package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"farhand/wire"
)

func (a *app) stat() *cobra.Command {
	var noFollow bool
	cmd := &cobra.Command{
		Use:     "stat MACHINE:PATH",
		Short:   "Describe a file of a machine",
		Long:    "stat describes a file or directory. It gives 1 if there is none.",
		Example: "  farhand stat pi:/data/work/report.txt",
		Args:    between(1, 1, "one MACHINE:PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := remote(args[0])
			if err != nil {
				return err
			}
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			s, err := a.at(cmd.Context(), c, t.machine, t.path)
			if err != nil {
				return err
			}
			stat, err := s.Stat(cmd.Context(), t.here(), !noFollow)
			if err != nil {
				return err
			}
			return a.printStat(t, stat)
		},
		ValidArgsFunction: a.completeTargets,
	}
	cmd.Flags().BoolVar(&noFollow, "no-follow", false, "describe a link itself, not what it leads to")
	return cmd
}

func (a *app) printStat(t target, s wire.FileStatResponse) error {
	if a.json {
		if err := a.printJSON(s); err != nil {
			return err
		}
		if !s.Exists {
			return exitStatus(exitFailed)
		}
		return nil
	}
	if !s.Exists {
		return wire.Errorf(wire.PathNotFound, "%s does not exist", t.here()).With("path", t.path)
	}
	var rows table
	row := func(what, value string) { rows.add(plain(what), plain(value)) }
	if s.Path != nil {
		row("path", *s.Path)
	}
	row("kind", statKind(s))
	if s.SizeBytes != nil {
		row("size", fmt.Sprintf("%d bytes", *s.SizeBytes))
	}
	if s.Mode != nil {
		row("mode", *s.Mode)
	}
	if s.OwnerUID != nil && s.OwnerGID != nil {
		row("owner", fmt.Sprintf("uid %d, gid %d", *s.OwnerUID, *s.OwnerGID))
	}
	if s.MTime != nil {
		row("changed", clock(*s.MTime))
	}
	if s.MIMEType != nil {
		row("type", *s.MIMEType)
	}
	return rows.write(a.env.Stdout, a.style.out, a.style.width())
}

func statKind(s wire.FileStatResponse) string {
	is := func(b *bool) bool { return b != nil && *b }
	kind := "other"
	switch {
	case is(s.IsFile):
		kind = "file"
	case is(s.IsDir):
		kind = "directory"
	}
	if is(s.IsSymlink) {
		if kind == "other" {
			return "link"
		}
		kind += ", by a link"
	}
	return kind
}
