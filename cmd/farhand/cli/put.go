package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

func (a *app) put() *cobra.Command {
	var parents bool
	cmd := &cobra.Command{
		Use:   "put FILE MACHINE:PATH",
		Short: "Copy a file to a machine",
		Long: `put copies one file, or standard input for -, to a machine. A file that is there is
replaced in one step, so that nobody sees half of it. If PATH is a directory, or
empty, the file keeps its name.`,
		Example: "  farhand put report.txt pi:/data/work/\n  date | farhand put - pi:/data/work/stamp",
		Args:    between(2, 2, "a FILE (or -) and MACHINE:PATH"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.runPut(cmd.Context(), args[0], args[1], parents)
		},
	}
	cmd.Flags().BoolVarP(&parents, "parents", "p", false, "make missing directories above it")
	return cmd
}

func (a *app) runPut(ctx context.Context, local, arg string, parents bool) error {
	t, err := remote(arg)
	if err != nil {
		return err
	}
	if local == "-" && (t.path == "" || strings.HasSuffix(t.path, "/")) {
		return usage("standard input has no name: give the whole path, %s:DIRECTORY/NAME", t.machine)
	}
	content, err := a.readLocal(local)
	if err != nil {
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
	dest, err := a.destination(ctx, s, t, local, parents)
	if err != nil {
		return err
	}
	bar := a.progress(ctx, filepath.Base(local))
	err = s.Write(ctx, dest, content, parents, bar.tell)
	bar.end()
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(transferred{s.Info().MachineID, dest, int64(len(content)), false})
	}
	return nil
}

// transferred is what put and get say with --json.
type transferred struct {
	Machine string `json:"machine_id"`
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"`
	Changed bool   `json:"changed"` // the file changed while it was read
}

// destination adds the local name if the path is a directory.
func (a *app) destination(ctx context.Context, s *client.Session, t target, local string, parents bool) (string, error) {
	name := filepath.Base(local)
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
		return "", wire.Errorf(wire.PathNotFound, "there is no directory %s; -p makes it", t.path).With("path", t.path)
	}
	return t.path, nil
}

// readLocal reads what is to be sent, and no more than one write can take.
func (a *app) readLocal(name string) ([]byte, error) {
	if name == "-" {
		return bounded(a.env.Stdin, "standard input")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory: put copies single files (tar c %s | farhand put - MACHINE:PATH)", name, name)
	case info.Size() > wire.MaxBinary:
		return nil, client.TooLarge(name, info.Size(), wire.MaxBinary)
	}
	return bounded(f, name)
}

func bounded(r io.Reader, name string) ([]byte, error) {
	if r == nil {
		return nil, errors.New("there is no standard input")
	}
	b, err := io.ReadAll(io.LimitReader(r, wire.MaxBinary+1))
	if err == nil && len(b) > wire.MaxBinary {
		err = wire.Errorf(wire.FileTooLarge, "%s has more than the %d bytes that one write takes", name, wire.MaxBinary).
			With("max_file_size_bytes", wire.MaxBinary)
	}
	return b, err
}
