package cli

import (
	"context"
	"path"
	"slices"
	"strings"

	"farhand/client"
	"farhand/wire"
)

// target is a MACHINE:PATH of the command line. Both parts may be empty.
type target struct {
	machine string
	path    string
}

// parseTarget reads MACHINE:PATH. Ids may hold colons, so the machine goes up to
// the first ":/" if there is no slash before it, and else to the first colon.
func parseTarget(arg string) (target, bool) {
	if i := strings.Index(arg, ":/"); i >= 0 && !strings.Contains(arg[:i], "/") {
		return target{arg[:i], arg[i+1:]}, true
	}
	machine, path, ok := strings.Cut(arg, ":")
	if !ok || strings.Contains(machine, "/") {
		return target{}, false
	}
	return target{machine, path}, true
}

// remote reads an argument that has to be MACHINE:PATH.
func remote(arg string) (target, error) {
	t, ok := parseTarget(arg)
	if !ok {
		return t, usage("%q is not MACHINE:PATH (with a single machine, :PATH)", arg)
	}
	return t, nil
}

// eachFile does something with each of the files that MACHINE:PATH name, after all of
// them were understood.
func (a *app) eachFile(ctx context.Context, args []string, do func(s *client.Session, t target) error) error {
	targets := make([]target, len(args))
	for i, arg := range args {
		var err error
		if targets[i], err = remote(arg); err != nil {
			return err
		}
	}
	c, err := a.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	for _, t := range targets {
		s, err := a.at(ctx, c, t.machine, t.path)
		if err == nil {
			err = do(s, t)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// machine is the machine that a name, perhaps left out, stands for, as the relay
// takes it. Only a name left out has to be looked up here.
func (a *app) machine(ctx context.Context, c *client.Client, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	all, err := c.Machines(ctx)
	if err != nil {
		return "", err
	}
	switch len(all) {
	case 1:
		return all[0].ID, nil
	case 0:
		return "", wire.Errorf(wire.MachineNotAttached, "no machine is paired yet").With("machines", 0)
	}
	if i := slices.IndexFunc(all, func(m client.Machine) bool { return m.Default }); i >= 0 {
		return all[i].ID, nil
	}
	names := make([]string, len(all))
	for i, m := range all {
		names[i] = first(m.Name, m.ID)
	}
	return "", wire.Errorf(wire.MachineAmbiguous, "there are %d machines: name one", len(all)).With("candidates", names).With("default", false)
}

// at opens a session in which every path can be reached: in the longest root
// that the machine offers above all of them, or in its first root if they are
// relative.
func (a *app) at(ctx context.Context, c *client.Client, machine string, paths ...string) (*client.Session, error) {
	machine, err := a.machine(ctx, c, machine)
	if err != nil {
		return nil, err
	}
	absolute := slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return !strings.HasPrefix(p, "/") })
	root := ""
	if len(absolute) > 0 {
		roots, err := c.Roots(ctx, machine)
		if err != nil {
			return nil, err
		}
		if root, err = longestRoot(roots, absolute); err != nil {
			return nil, err
		}
	}
	return c.Open(ctx, client.Place{Machine: machine, Root: root})
}

// longestRoot picks the longest root that lies above every path. The device
// resolves the paths again, links and all; this is only the choice of a session.
func longestRoot(roots []client.Root, paths []string) (string, error) {
	best := ""
	for _, r := range roots {
		if len(r.Path) <= len(best) {
			continue
		}
		if !slices.ContainsFunc(paths, func(p string) bool { return !below(r.Path, p) }) {
			best = r.Path
		}
	}
	if best != "" {
		return best, nil
	}
	offered := make([]string, len(roots))
	for i, r := range roots {
		offered[i] = r.Path
	}
	return "", wire.Errorf(wire.PathOutsideAllowedRoot, "no directory that the machine offers lies above %s", strings.Join(paths, " and ")).
		With("path", paths[0]).With("roots", offered)
}

// below says whether p is root or lies in it.
func below(root, p string) bool {
	root, p = path.Clean(root), path.Clean(p)
	return p == root || root == "/" || strings.HasPrefix(p, root+"/")
}

// here is the path of a target, the root itself if there is none.
func (t target) here() string {
	if t.path == "" {
		return "."
	}
	return t.path
}
