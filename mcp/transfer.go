package mcp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"farhand/client"
	"farhand/wire"
)

func transferTools() []tool {
	return []tool{
		define("copy_file", "Copy a file between machines",
			"Copies a file of any size, or a directory with everything below it, from one machine to another, or on one machine. The content is compared by its hash; a file that is there is replaced in one step. The same call goes on where one was cut off. In a directory, files of the same size and time are left out; nothing is removed.",
			destroys, wire.Files, copyFile).idempotent(),
		define("download_file", "Copy a file from a machine to here",
			"Copies a file of any size, or a directory with everything below it, from a machine to this computer, into the directory that was opened for it. A file that is there is replaced in one step; the same call goes on where one was cut off. In a directory, files of the same size and time are left out.",
			destroys, wire.Files, downloadFile).idempotent().local(),
		define("upload_file", "Copy a file from here to a machine",
			"Copies a file of any size, or a directory with everything below it, from this computer to a machine, out of the directory that was opened for it. A file that is there is replaced in one step; the same call goes on where one was cut off. In a directory, files of the same size and time are left out.",
			destroys, wire.Files, uploadFile).idempotent().local(),
	}
}

type copyAsked struct {
	FromMachine   string `json:"from_machine,omitempty" jsonschema:"name of the machine to copy from (list_machines); may be left out while there is only one"`
	From          string `json:"from" jsonschema:"the file or directory there, absolute or relative to its first root" length:"1..4096"`
	ToMachine     string `json:"to_machine,omitempty" jsonschema:"name of the machine to copy to; may be left out while there is only one"`
	To            string `json:"to" jsonschema:"its whole new path there, absolute or relative to the first root; in a directory that is there it keeps its name" length:"1..4096"`
	CreateParents bool   `json:"create_parents,omitempty" jsonschema:"make the directories above it that are missing"`
}

type downloadAsked struct {
	onFile
	To            string `json:"to,omitempty" jsonschema:"where it goes, relative to the directory that was opened; default: its own name there" length:"0..4096"`
	CreateParents bool   `json:"create_parents,omitempty" jsonschema:"make the directories above it that are missing"`
}

type uploadAsked struct {
	onMachine
	From          string `json:"from" jsonschema:"the file or directory, relative to the directory that was opened" length:"1..4096"`
	To            string `json:"to" jsonschema:"its whole path on the machine, absolute or relative to the first root; in a directory that is there it keeps its name" length:"1..4096"`
	CreateParents bool   `json:"create_parents,omitempty" jsonschema:"make the directories above it that are missing"`
}

type copied struct {
	Path        string    `json:"path" jsonschema:"where it is now"`
	Bytes       int64     `json:"bytes"`
	Resumed     int64     `json:"resumed_bytes,omitempty" jsonschema:"of these, how many were there from a call that was cut off"`
	SHA256      string    `json:"sha256,omitempty" jsonschema:"of a file that was sent as a whole"`
	Files       int       `json:"files"`
	Directories int       `json:"directories,omitempty"`
	Links       int       `json:"links,omitempty"`
	Unchanged   int       `json:"unchanged,omitempty" jsonschema:"files that were there already"`
	LeftOut     []leftOut `json:"left_out,omitempty" jsonschema:"what can't be copied, the first 100"`
	more        int       // that were left out
}

type leftOut struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// maxLeftOut bounds what is told of what can't be copied.
const maxLeftOut = 100

func (d copied) text(what string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d bytes in %d files are at %s", what, d.Bytes, d.Files, d.Path)
	if d.Unchanged > 0 {
		fmt.Fprintf(&b, ", %d of them were there already", d.Unchanged)
	}
	if d.Resumed > 0 {
		fmt.Fprintf(&b, ", %d bytes were there from an earlier call", d.Resumed)
	}
	for _, l := range d.LeftOut {
		fmt.Fprintf(&b, "\nleft out %s: %s", l.Path, l.Why)
	}
	if d.more > 0 {
		fmt.Fprintf(&b, "\nand %d more", d.more)
	}
	return b.String()
}

// end is one end of a copy: what is there, and where it would go.
type end struct {
	tree   client.Tree // nil unless it is a directory
	ground client.Ground
	source func(context.Context) (client.Source, error)
	put    func(context.Context, client.Source, client.PutOptions) (client.Sent, error)
	path   string
}

// move copies from one end to the other.
func (c *call) move(ctx context.Context, from, to end, parents bool) (copied, error) {
	o := client.PutOptions{CreateParents: parents, Tell: func(done, total int64) { c.progress(ctx, float64(done), float64(max(total, 0)), "bytes copied") }}
	out := copied{Path: to.path}
	if from.tree == nil {
		src, err := from.source(ctx)
		if err != nil {
			return out, err
		}
		sent, err := to.put(ctx, src, o)
		out.Bytes, out.Resumed, out.SHA256, out.Files = sent.Bytes, sent.Resumed, sent.SHA256, 1
		return out, err
	}
	done, err := client.CopyTree(ctx, from.tree, to.ground, client.TreeOptions{PutOptions: o, Skipped: func(name, why string) {
		if len(out.LeftOut) < maxLeftOut {
			out.LeftOut = append(out.LeftOut, leftOut{name, why})
		} else {
			out.more++
		}
	}})
	out.Bytes, out.Files, out.Directories, out.Links, out.Unchanged = done.Bytes, done.Files, done.Dirs, done.Links, done.Same
	return out, err
}

// there is an end on a machine that something is copied from.
func (c *call) there(ctx context.Context, machine, name string) (end, error) {
	ses, err := c.at(ctx, machine, name)
	if err != nil {
		return end{}, err
	}
	st, err := ses.Stat(ctx, name, true)
	switch {
	case err != nil:
		return end{}, err
	case !st.Exists:
		return end{}, wire.Errorf(wire.PathNotFound, "%s doesn't exist", name).With("path", name)
	}
	e := end{path: name, source: func(ctx context.Context) (client.Source, error) { return ses.Source(ctx, name, 0) }}
	if value(st.IsDir) {
		if err := takesTrees(ses); err != nil {
			return end{}, err
		}
		e.tree = ses.Tree(name, 0)
	}
	return e, nil
}

// thither is an end on a machine that something is copied to, which keeps its name
// in a directory that is there.
func (c *call) thither(ctx context.Context, machine, dest, from string, tree bool) (end, error) {
	ses, err := c.at(ctx, machine, dest)
	if err != nil {
		return end{}, err
	}
	if tree {
		if err := takesTrees(ses); err != nil {
			return end{}, err
		}
	}
	st, err := ses.Stat(ctx, dest, true)
	if err != nil {
		return end{}, err
	}
	if st.Exists && value(st.IsDir) {
		name, err := nameOf(from)
		if err != nil {
			return end{}, err
		}
		dest = path.Join(dest, name)
	}
	return end{path: dest, ground: ses.Ground(dest, 0), put: func(ctx context.Context, src client.Source, o client.PutOptions) (client.Sent, error) {
		return ses.Put(ctx, dest, src, o)
	}}, nil
}

// takesTrees refuses directories of machines that know single files alone.
func takesTrees(ses *client.Session) error {
	if ses.Transfers() {
		return nil
	}
	return wire.Errorf(wire.FeatureNotSupported, "%s copies single files only: its daemon is older", ses.Info().MachineName).
		With("hint", "copy the files of the directory one by one")
}

// nameOf is what a copy is called in a directory.
func nameOf(p string) (string, error) {
	name := path.Base(path.Clean(p))
	if name == "." || name == ".." || name == "/" {
		return "", wire.Errorf(wire.InvalidArgument, "%s has no name of its own: copy what is in it, or name the directory", p).With("field", "from")
	}
	return name, nil
}

func copyFile(ctx context.Context, c *call, in copyAsked) (copied, string, error) {
	from, err := c.there(ctx, in.FromMachine, in.From)
	if err != nil {
		return copied{}, "", err
	}
	to, err := c.thither(ctx, in.ToMachine, in.To, in.From, from.tree != nil)
	if err != nil {
		return copied{}, "", err
	}
	out, err := c.move(ctx, from, to, in.CreateParents)
	return out, out.text("copied"), err
}

func downloadFile(ctx context.Context, c *call, in downloadAsked) (copied, string, error) {
	from, err := c.there(ctx, in.Machine, in.Path)
	if err != nil {
		return copied{}, "", err
	}
	dest := in.To
	if dest == "" || dest == "." {
		if dest, err = nameOf(in.Path); err != nil {
			return copied{}, "", err
		}
	} else if info, err := c.localRoot.Stat(dest); err == nil && info.IsDir() {
		name, err := nameOf(in.Path)
		if err != nil {
			return copied{}, "", err
		}
		dest = filepath.Join(dest, name)
	}
	to := end{path: dest, put: func(ctx context.Context, src client.Source, o client.PutOptions) (client.Sent, error) {
		return client.PutLocal(ctx, c.localRoot, dest, src, o)
	}}
	if from.tree != nil {
		dir, err := c.makeLocal(dest, in.CreateParents)
		if err != nil {
			return copied{}, "", here(err, dest)
		}
		defer dir.Close()
		to.ground = client.LocalTree{Root: dir}
	}
	out, err := c.move(ctx, from, to, in.CreateParents)
	return out, out.text("downloaded"), here(err, dest)
}

func uploadFile(ctx context.Context, c *call, in uploadAsked) (copied, string, error) {
	info, err := c.localRoot.Stat(in.From)
	if err != nil {
		return copied{}, "", here(err, in.From)
	}
	from := end{path: in.From, source: func(ctx context.Context) (client.Source, error) {
		return client.LocalTree{Root: c.localRoot}.Source(ctx, in.From)
	}}
	if info.IsDir() {
		dir, err := c.localRoot.OpenRoot(in.From)
		if err != nil {
			return copied{}, "", here(err, in.From)
		}
		defer dir.Close()
		from.tree = client.LocalTree{Root: dir}
	}
	to, err := c.thither(ctx, in.Machine, in.To, filepath.ToSlash(in.From), from.tree != nil)
	if err != nil {
		return copied{}, "", err
	}
	out, err := c.move(ctx, from, to, in.CreateParents)
	return out, out.text("uploaded"), here(err, in.From)
}

// makeLocal makes a directory here, and opens it.
func (c *call) makeLocal(name string, parents bool) (*os.Root, error) {
	make := c.localRoot.Mkdir
	if parents {
		make = c.localRoot.MkdirAll
	}
	if err := make(name, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return c.localRoot.OpenRoot(name)
}

// here is an error of this computer's files as it is told: with a code, and not
// with what this computer calls the directory.
func here(err error, name string) error {
	var known *wire.Error
	var failed *fs.PathError
	switch {
	case err == nil || errors.As(err, &known) || !errors.As(err, &failed):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return wire.Errorf(wire.PathNotFound, "here, in the directory that was opened, there is no %s", name).With("hint", "the user knows what is in the directory of --local-root")
	case errors.Is(err, fs.ErrPermission):
		return wire.Errorf(wire.PathNotAllowed, "this computer doesn't allow it: %v", failed.Err)
	}
	// os.Root's own error for a path that leads out has no name.
	if strings.Contains(failed.Err.Error(), "escapes") {
		return wire.Errorf(wire.PathOutsideAllowedRoot, "%s leads out of the directory that was opened here", name).With("hint", "name it relative to that directory, without ..")
	}
	return wire.Errorf(wire.InternalError, "on this computer: %v", failed.Err)
}
