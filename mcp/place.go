package mcp

import (
	"context"
	"path"
	"slices"
	"strings"

	"farhand/client"
	"farhand/wire"
)

// onMachine is the argument of nearly every tool.
type onMachine struct {
	Machine string `json:"machine,omitempty" jsonschema:"name of the machine (list_machines); may be left out while there is only one"`
}

// place names a session: a machine as it was asked for, and a root.
type place struct{ machine, root string }

// maxSessions bounds how many sessions a Server remembers. A device has 8 live at
// a time; forgetting one costs a round trip when it is used again.
const maxSessions = 64

// session opens a session, or takes the one that there is.
func (s *Server) session(ctx context.Context, machine, root string) (*client.Session, error) {
	machine, err := s.machine(ctx, machine)
	if err != nil {
		return nil, err
	}
	at := place{machine, root}
	s.mu.Lock()
	open := s.sessions[at]
	s.mu.Unlock()
	if open != nil {
		return open, nil
	}
	if open, err = s.client.Open(ctx, client.Place{Machine: machine, Root: root}); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) >= maxSessions {
		clear(s.sessions)
	}
	s.sessions[at] = open
	return open, nil
}

// machine is the machine that a name, perhaps left out, stands for.
func (s *Server) machine(ctx context.Context, name string) (string, error) {
	if name != "" {
		return name, nil
	}
	all, err := s.client.Machines(ctx)
	if err != nil {
		return "", err
	}
	switch len(all) {
	case 1:
		return all[0].ID, nil
	case 0:
		return "", wire.Errorf(wire.MachineNotAttached, "no machine is paired, or none that this connection may use")
	}
	names := make([]string, len(all))
	for i, m := range all {
		names[i] = m.Name
	}
	return "", wire.Errorf(wire.MachineAmbiguous, "there are %d machines", len(all)).With("candidates", names)
}

// at opens a session in which every path can be reached: in the longest root
// above all of them, or in the first root if they are relative.
func (s *Server) at(ctx context.Context, machine string, paths ...string) (*client.Session, error) {
	first, err := s.session(ctx, machine, "")
	if err != nil {
		return nil, err
	}
	absolute := slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return !path.IsAbs(p) })
	if len(absolute) == 0 {
		return first, nil
	}
	info := first.Info()
	best := ""
	offered := make([]string, len(info.Roots))
	for i, r := range info.Roots {
		offered[i] = r.Path
		if len(r.Path) > len(best) && !slices.ContainsFunc(absolute, func(p string) bool { return !below(r.Path, p) }) {
			best = r.Path
		}
	}
	switch best {
	case "":
		return nil, wire.Errorf(wire.PathOutsideAllowedRoot, "no directory that the machine offers lies above %s", strings.Join(paths, " and ")).
			With("path", paths[0]).With("roots", offered)
	case info.Root:
		return first, nil
	}
	return s.session(ctx, info.MachineID, best)
}

// below says whether p is root or lies in it. The device looks at it again, links
// and all; this is only the choice of a session.
func below(root, p string) bool {
	root, p = path.Clean(root), path.Clean(p)
	return p == root || root == "/" || strings.HasPrefix(p, root+"/")
}

// headerAlias is another name of the GPIO chip with a Raspberry Pi's header.
const headerAlias = "gpio:bcm"

// spot is a device of a machine, in a session.
type spot struct {
	*client.Session
	device string
}

// onDevice finds the device that is meant: the one named or, where none is, the
// only one of its family, the only one that can be used, or the header's chip.
func (s *Server) onDevice(ctx context.Context, machine, family, device string) (spot, error) {
	ses, err := s.session(ctx, machine, "")
	if err != nil || device != "" {
		return spot{ses, device}, err
	}
	list, err := s.client.Devices(ctx, ses.Info().MachineID, family)
	if err != nil {
		return spot{}, err
	}
	var ids, usable []string
	for _, d := range list.Devices {
		if slices.Contains(d.Aliases, headerAlias) {
			return spot{ses, d.ID}, nil
		}
		ids = append(ids, d.ID)
		if d.Available {
			usable = append(usable, d.ID)
		}
	}
	switch {
	case len(ids) == 0:
		return spot{}, wire.Errorf(wire.HardwareNotFound, "the machine shows no %s device", family).With("type", family)
	case len(ids) == 1:
		return spot{ses, ids[0]}, nil
	case len(usable) == 1:
		return spot{ses, usable[0]}, nil
	}
	return spot{}, wire.Errorf(wire.HardwareAmbiguous, "there are %d %s devices", len(ids), family).With("candidates", ids)
}
