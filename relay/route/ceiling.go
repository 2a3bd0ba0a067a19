package route

import (
	"reflect"
	"strings"

	"farhand/wire"
)

// The names of the ceilings in details.ceiling, in the order in which they are
// asked: the first that refuses is the one reported.
const (
	ceilingConfig   = "config" // what the device doesn't even offer
	ceilingApproval = "approval"
	ceilingToken    = "token"
	ceilingSession  = "session"
)

// ceilings are those that the relay knows; nil means no bound.
type ceilings struct {
	approval *wire.Ceiling
	token    *wire.Ceiling
	session  *wire.Ceiling
}

func (c ceilings) each(f func(name string, c *wire.Ceiling) *wire.Error) *wire.Error {
	for _, x := range []struct {
		name string
		c    *wire.Ceiling
	}{{ceilingApproval, c.approval}, {ceilingToken, c.token}, {ceilingSession, c.session}} {
		if x.c == nil {
			continue
		}
		if err := f(x.name, x.c); err != nil {
			return err
		}
	}
	return nil
}

// check says whether the ceilings allow what a method needs. Capabilities on
// which no owner decides pass.
func (c ceilings) check(need wire.Capability) *wire.Error {
	need = need.Owned()
	if need != wire.HardwareFamily && !need.Approvable() {
		return nil
	}
	return c.each(func(name string, c *wire.Ceiling) *wire.Error {
		if c.Capabilities == nil || has(*c.Capabilities, need) {
			return nil
		}
		return wire.Errorf(wire.CapabilityNotGranted, "%s is not allowed by the %s", need, described(name)).
			With("capability", need).With("required_capability", need).With("ceiling", name)
	})
}

// checkRoot says whether the ceilings allow a session rooted at path.
func (c ceilings) checkRoot(path string) *wire.Error {
	return c.each(func(name string, c *wire.Ceiling) *wire.Error {
		if c.Roots == nil {
			return nil
		}
		for _, root := range *c.Roots {
			if within(path, root) {
				return nil
			}
		}
		return wire.Errorf(wire.PathOutsideAllowedRoot, "the directory is not allowed by the %s", described(name)).
			With("path", path).With("ceiling", name)
	})
}

// strip leaves what the ceilings allow of offered. It is for devices that can't
// take the ceilings themselves.
func (c ceilings) strip(offered wire.Capabilities) wire.Capabilities {
	kept := wire.Capabilities{}
	for _, x := range offered {
		if c.check(x) == nil {
			kept = append(kept, x)
		}
	}
	return kept
}

func described(ceiling string) string {
	switch ceiling {
	case ceilingApproval:
		return "owner's approval of this machine"
	case ceilingToken:
		return "operator's token"
	default:
		return "session"
	}
}

// has says whether the set holds what a method needs; "" needs nothing and the
// hardware family any of its members.
func has(set wire.Capabilities, need wire.Capability) bool {
	switch need {
	case "":
		return true
	case wire.HardwareFamily:
		return set.AnyHardware()
	}
	return set.Has(need)
}

// within says whether the canonical path lies at or below root.
func within(path, root string) bool {
	if root != "/" {
		root = strings.TrimRight(root, "/")
	}
	return path == root || strings.HasPrefix(path, strings.TrimRight(root, "/")+"/")
}

// same says whether two ceilings mean the same.
func same(a, b *wire.Ceiling) bool {
	if a == nil || b == nil {
		return a == b
	}
	return sameList(a.Capabilities, b.Capabilities) && sameList(a.Devices, b.Devices) && sameList(a.Roots, b.Roots)
}

// sameList compares lists of which none (nil) and an empty one differ, but not
// how an empty one is held.
func sameList[T any](a, b *[]T) bool {
	if a == nil || b == nil {
		return a == b
	}
	return len(*a) == 0 && len(*b) == 0 || reflect.DeepEqual(*a, *b)
}
