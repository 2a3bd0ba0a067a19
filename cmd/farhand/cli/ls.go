package cli

import (
	"errors"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

type lsFlags struct {
	all, recursive, long bool
	glob                 string
}

func (a *app) ls() *cobra.Command {
	var f lsFlags
	cmd := &cobra.Command{
		Use:   "ls [MACHINE:PATH]",
		Short: "List a directory of a machine",
		Long: `ls lists a directory, at most 1000 entries. PATH is absolute, or relative to the
first directory that the machine offers; without one, that directory is listed.`,
		Example: "  farhand ls pi:\n  farhand ls -l pi:/data/work\n  farhand ls pi:/data/work -R --glob '*.csv'",
		Args:    between(0, 1, "one MACHINE:PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			t, err := listTarget(args)
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
			return a.runLs(cmd, s, t, f)
		},
		ValidArgsFunction: a.completeTargets,
	}
	flags := cmd.Flags()
	flags.BoolVarP(&f.all, "all", "a", false, "hidden entries too")
	flags.BoolVarP(&f.recursive, "recursive", "R", false, "directories with what is in them")
	flags.BoolVarP(&f.long, "long", "l", false, "with kind, size and time")
	flags.StringVar(&f.glob, "glob", "", "only names that fit this `PATTERN` (*, ?, [abc], [!abc])")
	return cmd
}

// listTarget also takes a bare MACHINE.
func listTarget(args []string) (target, error) {
	if len(args) == 0 {
		return target{}, nil
	}
	if !strings.ContainsAny(args[0], ":/") {
		return target{machine: args[0]}, nil
	}
	return remote(args[0])
}

func (a *app) runLs(cmd *cobra.Command, s *client.Session, t target, f lsFlags) error {
	ctx := cmd.Context()
	request := wire.FileList{Path: t.here(), Recursive: f.recursive, IncludeHidden: f.all}
	if f.glob != "" {
		request.Glob = &f.glob
	}
	list, err := s.List(ctx, request)
	if err != nil && !errors.Is(err, wire.PathNotFound) && !errors.Is(err, wire.CapabilityNotGranted) {
		// A file is listed as itself.
		if stat, failed := s.Stat(ctx, t.here(), true); failed == nil && stat.Exists && stat.IsFile != nil && *stat.IsFile {
			list, err = wire.FileListResponse{Entries: []wire.FileEntry{entryOf(t.path, stat)}}, nil
		}
	}
	if err != nil {
		return err
	}
	if a.json {
		list.Entries = append([]wire.FileEntry{}, list.Entries...)
		return a.printJSON(list)
	}
	if f.long {
		err = a.longList(list, f.recursive, s)
	} else {
		err = a.shortList(list, f.recursive, s)
	}
	if err == nil && list.Truncated {
		a.note("There are more; narrow the list with --glob.")
	}
	return err
}

func entryOf(p string, stat wire.FileStatResponse) wire.FileEntry {
	e := wire.FileEntry{Name: path.Base(p), Path: p, IsFile: true}
	if stat.SizeBytes != nil {
		e.SizeBytes = *stat.SizeBytes
	}
	if stat.MTime != nil {
		e.MTime = *stat.MTime
	}
	if stat.Path != nil {
		e.Path = *stat.Path
	}
	return e
}

// shortList prints a name a line, as it is for a program and safe for a terminal.
func (a *app) shortList(list wire.FileListResponse, recursive bool, s *client.Session) error {
	var b strings.Builder
	for _, e := range list.Entries {
		name := entryName(e, recursive, s)
		if a.style.outTTY {
			name = a.paintEntry(e)(clean(name))
		}
		b.WriteString(name + "\n")
	}
	_, err := a.env.Stdout.Write([]byte(b.String()))
	return err
}

// entryName is the name in a flat list and the path below the root in a
// recursive one.
func entryName(e wire.FileEntry, recursive bool, s *client.Session) string {
	if !recursive {
		return e.Name
	}
	return strings.TrimPrefix(strings.TrimPrefix(e.Path, s.Info().Root), "/")
}

func (a *app) paintEntry(e wire.FileEntry) func(string) string {
	switch {
	case e.IsDir:
		return a.style.out.blue
	case e.IsSymlink:
		return a.style.out.green
	}
	return func(s string) string { return s }
}

func (a *app) longList(list wire.FileListResponse, recursive bool, s *client.Session) error {
	t := table{head: []string{"KIND", "SIZE", "CHANGED", "NAME"}}
	for _, e := range list.Entries {
		length := "-"
		if e.IsFile {
			length = size(e.SizeBytes)
		}
		t.add(plain(entryKind(e)), plain(length), plain(clock(e.MTime)), cell{entryName(e, recursive, s), a.paintEntry(e)})
	}
	return t.write(a.env.Stdout, a.style.out, a.style.width())
}

func entryKind(e wire.FileEntry) string {
	switch {
	case e.IsSymlink:
		return "link"
	case e.IsDir:
		return "dir"
	case e.IsFile:
		return "file"
	}
	return "other"
}

// clock writes seconds since the epoch as UTC, which is what a machine far away
// and this one agree on.
func clock(seconds float64) string {
	return time.UnixMilli(int64(seconds * 1000)).UTC().Format("2006-01-02 15:04:05Z")
}

// unixMoment is such a time to the microsecond.
func unixMoment(seconds float64) string {
	t := time.UnixMicro(int64(seconds * 1e6))
	return moment(&t)
}
