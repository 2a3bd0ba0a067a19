package cli

import (
	"context"
	"crypto/rand"
	"encoding/hex"
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
)

func (a *app) get() *cobra.Command {
	return &cobra.Command{
		Use:   "get MACHINE:PATH [FILE]",
		Short: "Copy a file from a machine",
		Long: `get copies one file of any size. FILE is a file, a directory in which it keeps its
name, or - for standard output; without it, the file lands here under its own name.
A file that is there is replaced only when all of the new one has come.`,
		Example: "  farhand get pi:/data/work/report.txt\n  farhand get pi:/data/work/backup.tar - | tar t",
		Args:    between(1, 2, "MACHINE:PATH and perhaps a FILE (or -)"),
		RunE: func(cmd *cobra.Command, args []string) error {
			local := ""
			if len(args) == 2 {
				local = args[1]
			}
			return a.runGet(cmd.Context(), args[0], local)
		},
		ValidArgsFunction: a.completeMachine(":"),
	}
}

func (a *app) runGet(ctx context.Context, arg, local string) error {
	t, err := remote(arg)
	if err != nil {
		return err
	}
	if t.path == "" || strings.HasSuffix(t.path, "/") {
		return usage("%q names no file", arg)
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
	bar := a.progress(ctx, path.Base(t.path))
	var done client.Copied
	err = a.into(local, func(w io.Writer) error {
		done, err = s.ReadAll(ctx, t.path, w, bar.tell)
		return err
	})
	bar.end()
	if err != nil {
		return err
	}
	if done.Changed {
		a.note("%s changed while it was read: what came may mix its states.", clean(t.path))
	}
	if a.json && local != "-" {
		return a.printJSON(transferred{s.Info().MachineID, t.path, done.Bytes, done.Changed})
	}
	return nil
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

// into writes a local file by way of a new one beside it, which takes its place
// when write has succeeded. What is no regular file (a terminal, a pipe) is
// written as it is.
func (a *app) into(name string, write func(io.Writer) error) (err error) {
	if name == "-" {
		return write(a.env.Stdout)
	}
	mode := fs.FileMode(0o666) // less the umask
	info, statErr := os.Stat(name)
	switch {
	case errors.Is(statErr, fs.ErrNotExist):
	case statErr != nil:
		return statErr
	case info.IsDir():
		return fmt.Errorf("%s is a directory", name)
	case !info.Mode().IsRegular():
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	default:
		mode = info.Mode().Perm()
		if name, err = filepath.EvalSymlinks(name); err != nil { // a link stays one
			return err
		}
	}
	var random [6]byte
	rand.Read(random[:])
	temp := filepath.Join(filepath.Dir(name), ".farhand-get-"+hex.EncodeToString(random[:]))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			os.Remove(temp)
		}
	}()
	err = write(f)
	if err == nil && statErr == nil {
		err = f.Chmod(mode)
	}
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp, name)
	}
	return err
}
