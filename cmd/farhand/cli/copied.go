package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"farhand/client"
	"farhand/wire"
)

// copyFlags are those of put, get and cp.
type copyFlags struct {
	parents  bool
	patience string
}

func (f *copyFlags) add(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&f.parents, "parents", "p", false, "make missing directories above it")
	cmd.Flags().StringVar(&f.patience, "patience", "2m", "how long to wait for a link that was lost")
}

func (f *copyFlags) options() (client.PutOptions, error) {
	d, err := duration(f.patience)
	if err != nil || d < 0 {
		return client.PutOptions{}, usage("--patience %q is no duration, such as 30s or 2h", f.patience)
	}
	if d == 0 {
		d = -1
	}
	return client.PutOptions{CreateParents: f.parents, Patience: d}, nil
}

// transferred is what put, get and cp say of a file with --json.
type transferred struct {
	Machine string `json:"machine_id"`
	Path    string `json:"path"`
	Bytes   int64  `json:"bytes"`
	Resumed int64  `json:"resumed_bytes,omitempty"` // of these, from an earlier attempt
	SHA256  string `json:"sha256,omitempty"`        // if all of it was read here
	Changed bool   `json:"changed"`                 // the file changed while it was read
}

// treeTransferred is what they say of a directory.
type treeTransferred struct {
	place
	Files   int       `json:"files"`
	Dirs    int       `json:"directories"`
	Links   int       `json:"links"`
	Bytes   int64     `json:"bytes"`
	Same    int       `json:"unchanged"` // of the files, how many were there already
	Skipped []skipped `json:"skipped"`
}

// skipped is what can't be copied.
type skipped struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// copyFile copies a file with a bar and says what came of it.
func (a *app) copyFile(ctx context.Context, name string, to place, o client.PutOptions, put func(client.PutOptions) (client.Sent, error)) error {
	bar := a.progress(ctx, name)
	o.Tell = bar.tell
	sent, err := put(o)
	bar.end()
	if err != nil {
		return err
	}
	if sent.Resumed > 0 {
		a.note("went on where it had ended: %s of %s were there.", size(sent.Resumed), size(sent.Bytes))
	}
	return a.done(transferred{to.Machine, to.Path, sent.Bytes, sent.Resumed, sent.SHA256, false})
}

// takesTrees refuses directories of machines that know single files alone.
func takesTrees(s *client.Session) error {
	if s.Transfers() {
		return nil
	}
	return wire.Errorf(wire.FeatureNotSupported, "%s copies single files only: its farhandd is older than this command, or it is busy connecting", s.Info().MachineName).
		With("feature", string(wire.Transfer))
}

// copyTree copies a directory with a bar and says what came of it.
func (a *app) copyTree(ctx context.Context, from client.Tree, to client.Ground, name string, at place, o client.PutOptions) error {
	out := treeTransferred{place: at, Skipped: []skipped{}}
	bar := a.progress(ctx, name)
	o.Tell = bar.tell
	done, err := client.CopyTree(ctx, from, to, client.TreeOptions{PutOptions: o, Skipped: func(name, why string) {
		out.Skipped = append(out.Skipped, skipped{name, why})
	}})
	bar.end()
	for _, s := range out.Skipped {
		a.note("left out %s: %s.", clean(s.Path), clean(s.Why))
	}
	if err != nil {
		return err
	}
	out.Files, out.Dirs, out.Links, out.Bytes, out.Same = done.Files, done.Dirs, done.Links, done.Bytes, done.Same
	if a.json {
		return a.printJSON(out)
	}
	parts := []string{counted(done.Files, "file", "files") + " (" + size(done.Bytes) + ")"}
	if done.Dirs > 0 {
		parts = append(parts, counted(done.Dirs, "directory", "directories"))
	}
	if done.Links > 0 {
		parts = append(parts, counted(done.Links, "link", "links"))
	}
	if done.Same > 0 {
		parts = append(parts, fmt.Sprintf("%d unchanged", done.Same))
	}
	if done.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("%d left out", done.Skipped))
	}
	a.note("%s", strings.Join(parts, ", "))
	return nil
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
