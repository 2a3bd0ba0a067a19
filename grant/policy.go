package grant

import (
	"path/filepath"
	"slices"
	"strings"

	"farhand/internal/fnmatch"
	"farhand/wire"
)

// Policy is the meet of four ceilings: this machine's configuration, what the
// owner approved for it, what the operator's token carries, and what the session
// asked for. A ceiling that is absent allows all. Every refusal says which
// ceiling refused, the first in this order, in details.ceiling.
//
// The zero Policy allows all. A Policy is not changed after it was made, so it
// is safe for concurrent use.
type Policy struct {
	Config wire.Ceiling
	Set    wire.GrantSet
}

// The names of the ceilings in details.ceiling.
const (
	CeilingConfig   = "config"
	CeilingApproval = "approval"
	CeilingToken    = "token"
	CeilingSession  = "session"
)

// refusing is the name of the first ceiling that allows refuses, or empty.
func (p *Policy) refusing(allows func(*wire.Ceiling) bool) string {
	for _, c := range [...]struct {
		name    string
		ceiling *wire.Ceiling
	}{
		{CeilingConfig, &p.Config},
		{CeilingApproval, p.Set.Approval},
		{CeilingToken, p.Set.Token},
		{CeilingSession, p.Set.Session},
	} {
		if c.ceiling != nil && !allows(c.ceiling) {
			return c.name
		}
	}
	return ""
}

// Capability is nil if all ceilings hold c, else CAPABILITY_NOT_GRANTED. It is
// to be asked about approvable capabilities only: no ceiling names the others.
func (p *Policy) Capability(c wire.Capability) error {
	name := p.refusing(func(u *wire.Ceiling) bool {
		return u.Capabilities == nil || slices.Contains(*u.Capabilities, c)
	})
	if name == "" {
		return nil
	}
	return wire.Errorf(wire.CapabilityNotGranted, "%s is not allowed by the %s", c, describe(name)).
		With("capability", string(c)).With("required_capability", string(c)).With("ceiling", name)
}

// Device is nil if all ceilings allow op on the device with this canonical id,
// else HARDWARE_NOT_GRANTED. An empty op asks whether the device may be seen
// at all. RELEASE only gives something back, so it is always allowed.
func (p *Policy) Device(id, op string) error {
	if op == wire.OpRelease {
		return nil
	}
	name := p.refusing(func(u *wire.Ceiling) bool {
		return u.Devices == nil || slices.ContainsFunc(*u.Devices, func(d wire.DeviceGrant) bool { return covers(d, id, op) })
	})
	if name == "" {
		return nil
	}
	err := wire.Errorf(wire.HardwareNotGranted, "device %s is not allowed by the %s", id, describe(name)).
		With("device", id).With("ceiling", name)
	return refuseOp(err, op)
}

// Line is Device for one line of a device (or another part of it), by all names
// that a grant may call it: its patterns are Python fnmatch globs as those of
// devices. A grant that names no lines allows all.
func (p *Policy) Line(id, op string, names []string) error {
	if op == wire.OpRelease || len(names) == 0 {
		return p.Device(id, op)
	}
	name := p.refusing(func(u *wire.Ceiling) bool {
		return u.Devices == nil || slices.ContainsFunc(*u.Devices, func(d wire.DeviceGrant) bool {
			return covers(d, id, op) && (d.Lines == nil || slices.ContainsFunc(*d.Lines, func(pattern string) bool {
				return slices.ContainsFunc(names, func(name string) bool { return fnmatch.Match(pattern, name) })
			}))
		})
	})
	if name == "" {
		return nil
	}
	err := wire.Errorf(wire.HardwareNotGranted, "line %s of %s is not allowed by the %s", names[0], id, describe(name)).
		With("device", id).With("line", names[0]).With("ceiling", name)
	return refuseOp(err, op)
}

func covers(d wire.DeviceGrant, id, op string) bool {
	return fnmatch.Match(d.Pattern, id) && (op == "" || d.Ops == nil || slices.ContainsFunc(*d.Ops, func(pattern string) bool { return fnmatch.Match(pattern, op) }))
}

func refuseOp(err *wire.Error, op string) error {
	if op != "" {
		err.Message = op + " on " + err.Message
		err.With("op", op)
	}
	return err
}

// Root is nil if all ceilings allow the directory: it is one of their roots or
// lies below one. Otherwise it is PATH_OUTSIDE_ALLOWED_ROOT. The path has to be
// canonical, as a binding's is.
func (p *Policy) Root(path string) error {
	path = filepath.Clean(path)
	name := p.refusing(func(u *wire.Ceiling) bool {
		return u.Roots == nil || slices.ContainsFunc(*u.Roots, func(root string) bool { return under(path, root) })
	})
	if name == "" {
		return nil
	}
	return wire.Errorf(wire.PathOutsideAllowedRoot, "directory %s is not allowed by the %s", path, describe(name)).
		With("path", path).With("requested_path", path).With("ceiling", name)
}

// under says whether the clean path is root or lies below it. A root that isn't
// absolute stands for nothing.
func under(path, root string) bool {
	if !filepath.IsAbs(root) {
		return false
	}
	root = filepath.Clean(root)
	if path == root {
		return true
	}
	if !strings.HasSuffix(root, string(filepath.Separator)) { // "/" alone does
		root += string(filepath.Separator)
	}
	return strings.HasPrefix(path, root)
}

func describe(ceiling string) string {
	switch ceiling {
	case CeilingConfig:
		return "configuration of the machine"
	case CeilingApproval:
		return "owner's approval of the machine"
	case CeilingToken:
		return "operator's token"
	default:
		return "session's own ceiling"
	}
}
