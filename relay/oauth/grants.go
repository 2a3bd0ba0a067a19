package oauth

import (
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"farhand/internal/fnmatch"
	"farhand/relay/access"
	"farhand/relay/store"
	"farhand/wire"
)

// grantsJSON is who may do what on a machine, as far as the relay knows: the
// device's own configuration shows in what it offers alone, and a session may
// have asked for less than its token allows.
type grantsJSON struct {
	ID       string            `json:"machine_id"`
	Name     string            `json:"name"`
	Online   bool              `json:"online"`
	Revision string            `json:"revision"` // of the approval
	Approved time.Time         `json:"approved_at"`
	Offered  wire.Capabilities `json:"offered"` // of these the owner decides
	Approval wire.Ceiling      `json:"approval"`
	// Effective is what comes out for the caller.
	Effective reachJSON    `json:"effective"`
	Tokens    []tokenGrant `json:"tokens"`
}

// tokenGrant is a token that covers the machine: its ceiling, and what comes out.
type tokenGrant struct {
	ID        string       `json:"id"`
	Name      string       `json:"name,omitempty"`
	Expires   *time.Time   `json:"expires_at"`
	Ceiling   wire.Ceiling `json:"ceiling"`
	Effective reachJSON    `json:"effective"`
}

// reachJSON is the meet of ceilings.
type reachJSON struct {
	Capabilities wire.Capabilities `json:"capabilities"`
	Roots        *[]string         `json:"roots,omitempty"` // absent: every root that the machine offers
	Devices      []deviceReach     `json:"devices"`         // of the machine's last HELLO
}

// deviceReach is what may be done with a device.
type deviceReach struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Allowed bool   `json:"allowed"`
	Ceiling string `json:"ceiling,omitempty"` // the first that refuses: config, approval, token
	// Bounds are lists of which each must have an entry that allows the line and
	// the operation; none: everything is allowed.
	Bounds [][]boundJSON `json:"bounds,omitempty"`
}

// boundJSON allows the operations on the lines; an absent list means all.
type boundJSON struct {
	Lines *[]string `json:"lines,omitempty"`
	Ops   *[]string `json:"ops,omitempty"`
}

// named is a ceiling with its name in details.ceiling.
type named struct {
	name string
	*wire.Ceiling
}

// apiGrants is GET /api/machines/{machine}/grants. A token sees itself alone, and
// the devices that it reaches.
func (s *Server) apiGrants(r *http.Request, who caller) (any, error) {
	m, err := s.resolve(r, who)
	if err != nil {
		return nil, err
	}
	h := m.Hello
	if fresh := s.sockets().Hello(m.Owner, m.ID); fresh != nil {
		h = fresh
	}
	if h == nil {
		h = &wire.Hello{Capabilities: known} // it was never seen: what it may offer
	}
	if who.Ceiling != nil {
		mine := *h
		mine.HardwareDevices = reached(h.HardwareDevices, who.Ceiling)
		h = &mine
	}
	approval := named{"approval", &m.Approval}
	effective := []named{approval}
	if who.Ceiling != nil {
		effective = append(effective, named{"token", who.Ceiling})
	}
	out := grantsJSON{ID: m.ID, Name: m.Name, Online: s.sockets().Online(m.Owner, m.ID), Revision: revision(m.ApprovedAt),
		Approved: m.ApprovedAt, Offered: wire.Capabilities{}, Approval: m.Approval, Effective: reach(h, effective...), Tokens: []tokenGrant{}}
	for _, c := range h.Capabilities {
		if c.Approvable() {
			out.Offered = append(out.Offered, c)
		}
	}
	tokens, err := list[operator](r.Context(), s.store, store.Prefix("o", who.Owner, kindToken))
	if err != nil {
		return nil, err
	}
	agents, err := s.agentsOf(r.Context(), who.Owner)
	if err != nil {
		return nil, err
	}
	for _, a := range agents {
		c := a.operator()
		if !c.MayUse(m.ID) || !who.Login && c.Holder != who.Holder {
			continue
		}
		out.Tokens = append(out.Tokens, tokenGrant{
			ID: c.Holder, Name: a.Name, Expires: timeOrNull(a.Ends), Ceiling: *c.Ceiling, Effective: reach(h, approval, named{"token", c.Ceiling}),
		})
	}
	for _, t := range tokens {
		covers := access.Operator{Machines: t.Machines}
		if !covers.MayUse(m.ID) || !who.Login && holder(kindToken, t.ID) != who.Holder {
			continue
		}
		g := tokenGrant{ID: holder(kindToken, t.ID), Name: t.Name, Expires: timeOrNull(t.Expires)}
		if t.Ceiling != nil {
			g.Ceiling = *t.Ceiling
		}
		g.Effective = reach(h, approval, named{"token", &g.Ceiling})
		out.Tokens = append(out.Tokens, g)
	}
	return out, nil
}

func (g grantsJSON) etag() string { return strconv.Quote(g.Revision) }

// revision names a state of an approval: each change has a later time.
func revision(approved time.Time) string { return strconv.FormatInt(approved.UnixNano(), 36) }

// expected is the revision that a change of an approval is for: empty if any.
func expected(r *http.Request) string {
	tag := strings.TrimSpace(r.Header.Get("If-Match"))
	if tag == "*" {
		return ""
	}
	return strings.Trim(strings.TrimPrefix(tag, "W/"), `"`)
}

// reach is the meet of ceilings on a machine.
func reach(h *wire.Hello, ceilings ...named) reachJSON {
	out := reachJSON{Capabilities: wire.Capabilities{}, Devices: []deviceReach{}}
	for _, c := range h.Capabilities {
		if c.Approvable() && refusing(c, ceilings) == "" {
			out.Capabilities = append(out.Capabilities, c)
		}
	}
	for _, c := range ceilings {
		if c.Roots != nil {
			both := meetRoots(out.Roots, *c.Roots)
			out.Roots = &both
		}
	}
	for _, d := range h.HardwareDevices {
		out.Devices = append(out.Devices, reachDevice(h, d, ceilings))
	}
	return out
}

// refusing is the first ceiling that doesn't hold c, or empty.
func refusing(c wire.Capability, ceilings []named) string {
	for _, u := range ceilings {
		if u.Capabilities != nil && !slices.Contains(*u.Capabilities, c) {
			return u.name
		}
	}
	return ""
}

func reachDevice(h *wire.Hello, d wire.HardwareDevice, ceilings []named) deviceReach {
	out := deviceReach{ID: d.ID, Type: d.Type}
	family := wire.HardwareCapability(d.Type)
	if !h.Capabilities.Has(family) {
		out.Ceiling = "config"
		return out
	}
	if out.Ceiling = refusing(family, ceilings); out.Ceiling != "" {
		return out
	}
	for _, u := range ceilings {
		if u.Devices == nil {
			continue
		}
		bounds := []boundJSON{}
		all := false
		for _, g := range *u.Devices {
			if fnmatch.Match(g.Pattern, d.ID) {
				bounds = append(bounds, boundJSON{g.Lines, g.Ops})
				all = all || g.Lines == nil && g.Ops == nil
			}
		}
		if len(bounds) == 0 {
			return deviceReach{ID: d.ID, Type: d.Type, Ceiling: u.name}
		}
		if !all {
			out.Bounds = append(out.Bounds, bounds)
		}
	}
	out.Allowed = true
	return out
}

// meetRoots are the directories that lie in both lists; a is nil for everything.
func meetRoots(a *[]string, b []string) []string {
	if a == nil {
		return append([]string{}, b...)
	}
	out := []string{}
	add := func(from, in []string) {
		for _, p := range from {
			if slices.ContainsFunc(in, func(root string) bool { return below(p, root) }) && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	add(*a, b)
	add(b, *a)
	return out
}

// below says whether the directory p is root or lies in it.
func below(p, root string) bool {
	root = path.Clean(root)
	return p == root || root == "/" || strings.HasPrefix(p, root+"/")
}
