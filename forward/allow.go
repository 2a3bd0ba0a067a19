package forward

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"farhand/wire"
)

// Allow is a list of targets. The zero value allows nothing.
type Allow struct {
	rules []rule
	away  bool
}

// Away is a without what leads to this machine itself.
func (a Allow) Away() Allow {
	a.away = true
	return a
}

// rule is one entry: a name, or addresses, and ports.
type rule struct {
	name     string // in lower case; empty: network
	network  netip.Prefix
	low, top uint16
}

// ParseAllow reads entries HOST:PORT. HOST is a name, an address or a network
// (10.0.0.0/8, [fd00::]/8; IPv6 in brackets), PORT a number, a range 8000-8010 or *.
func ParseAllow(entries []string) (Allow, error) {
	var a Allow
	for _, text := range entries {
		rules, err := parseRule(text)
		if err != nil {
			return Allow{}, fmt.Errorf("%q: %w", text, err)
		}
		a.rules = append(a.rules, rules...)
	}
	return a, nil
}

func parseRule(text string) ([]rule, error) {
	i := strings.LastIndexByte(text, ':')
	if i < 0 {
		return nil, fmt.Errorf("must be HOST:PORT")
	}
	host, port := text[:i], text[i+1:]
	r := rule{low: 1, top: 65535}
	if port != "*" {
		low, top, isRange := strings.Cut(port, "-")
		if !isRange {
			top = low
		}
		var err error
		if r.low, err = portNumber(low); err != nil {
			return nil, err
		}
		if r.top, err = portNumber(top); err != nil {
			return nil, err
		}
		if r.low > r.top {
			return nil, fmt.Errorf("the ports %s are none", port)
		}
	}
	bits := -1
	if address, length, ok := strings.Cut(host, "/"); ok {
		n, err := strconv.Atoi(length)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("/%s is no length of a network", length)
		}
		host, bits = address, n
	}
	bare, bracketed := host, false
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		bare, bracketed = host[1:len(host)-1], true
	}
	address, err := netip.ParseAddr(bare)
	switch {
	case err == nil && address.Zone() != "":
		return nil, fmt.Errorf("addresses have no zone here")
	case err == nil && address.Is6() != bracketed:
		return nil, fmt.Errorf("an IPv6 address stands in brackets, and nothing else")
	case err == nil:
		if bits < 0 {
			bits = address.BitLen()
		}
		if r.network, err = address.Prefix(bits); err != nil {
			return nil, fmt.Errorf("/%d is no length of such a network", bits)
		}
		if r.network.Addr() != address {
			return nil, fmt.Errorf("%s is no network: it would be %s", host, r.network)
		}
		return []rule{r}, nil
	case bracketed, bits >= 0, !validName(host):
		return nil, fmt.Errorf("%q is neither an address nor a name", host)
	}
	name := canonical(host)
	if name == "localhost" { // what that is, is no question for a resolver
		v4, v6 := r, r
		v4.network, v6.network = netip.MustParsePrefix("127.0.0.1/32"), netip.MustParsePrefix("::1/128")
		return []rule{v4, v6}, nil
	}
	r.name = name
	return []rule{r}, nil
}

func portNumber(text string) (uint16, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return 0, fmt.Errorf("%q is no port", text)
	}
	return uint16(n), nil
}

// validName says whether s may be a host's name: labels of letters, digits,
// hyphens and underscores. All digits and dots is an address that went wrong.
func validName(s string) bool {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > 253 || strings.Trim(s, "0123456789.") == "" {
		return false
	}
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for _, c := range []byte(label) {
			if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

func canonical(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// Empty says whether nothing is allowed.
func (a Allow) Empty() bool { return len(a.rules) == 0 }

// address says whether an entry names this address.
func (a Allow) address(ip netip.Addr, port uint16) bool {
	for _, r := range a.rules {
		if r.name == "" && port >= r.low && port <= r.top && r.network.Contains(ip) {
			return true
		}
	}
	return false
}

// host says whether an entry names this name.
func (a Allow) host(name string, port uint16) bool {
	for _, r := range a.rules {
		if r.name != "" && r.name == name && port >= r.low && port <= r.top {
			return true
		}
	}
	return false
}

// target is a request that was checked as far as it can be without asking anybody.
type target struct {
	name string     // to be resolved; empty: ip
	ip   netip.Addr // without a zone
	port uint16
}

func (t target) String() string {
	host := t.name
	if host == "" {
		host = t.ip.String()
	}
	return net.JoinHostPort(host, strconv.Itoa(int(t.port)))
}

// target checks a request.
func (a Allow) target(r wire.ForwardOpen) (target, error) {
	if r.Port < 1 || r.Port > 65535 {
		return target{}, invalid("port", "must be 1 to 65535, not %d", r.Port)
	}
	t := target{port: uint16(r.Port)}
	if ip, err := netip.ParseAddr(strings.Trim(r.Host, "[]")); err == nil {
		t.ip = ip.Unmap().WithZone("")
		if ip.Zone() != "" || !a.address(t.ip, t.port) {
			return target{}, notAllowed(t.String())
		}
		return t, nil
	}
	if !validName(r.Host) {
		return target{}, invalid("host", "is neither an address nor a name")
	}
	t.name = canonical(r.Host)
	return t, nil
}

// Resolver looks up the addresses of a name. It is a *net.Resolver.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// addresses are those at which a target may be connected to. A name that an entry
// names may have any address but those that mean this machine or its link (a name
// server is not to lead here): these, and all addresses of other names, need an
// entry of their own. Whoever connects uses the addresses that were checked, and
// doesn't ask again.
func (a Allow) addresses(ctx context.Context, t target, names Resolver, own func() []netip.Addr) ([]netip.Addr, error) {
	if t.name == "" {
		if a.away && here(t.ip, own) {
			return nil, ownAddress(t)
		}
		return []netip.Addr{t.ip}, nil
	}
	var found []netip.Addr
	if t.name == "localhost" {
		found = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}
	} else {
		var err error
		if found, err = names.LookupNetIP(ctx, "ip", t.name); err != nil {
			return nil, unreachable(t, "no such name, or no name server that answers", err)
		}
	}
	named := a.host(t.name, t.port)
	var allowed []netip.Addr
	for _, ip := range found {
		ip = ip.Unmap().WithZone("")
		if a.away && here(ip, own) {
			return nil, ownAddress(t)
		}
		if a.address(ip, t.port) || named && !near(ip, own) {
			allowed = append(allowed, ip)
		}
	}
	if len(allowed) == 0 {
		e := notAllowed(t.String())
		if named {
			e.With("hint", "its name is allowed, and leads to an address of this machine or its link: name that address in forward.allow, too")
		}
		return nil, e
	}
	return allowed, nil
}

// near says whether an address means this machine, or nothing beyond its link.
func near(ip netip.Addr, own func() []netip.Addr) bool {
	if ip.IsLoopback() || ip.IsUnspecified() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return true
	}
	return here(ip, own)
}

// here says whether an address is this machine's own.
func here(ip netip.Addr, own func() []netip.Addr) bool {
	return ip.IsLoopback() || ip.IsUnspecified() || slices.Contains(own(), ip)
}

func ownAddress(t target) *wire.Error {
	return wire.Errorf(wire.PrivacyModeBlocked, "%s is this machine, whose services may read what is private", t).
		With("reason", "own_address").With("target", t.String())
}

// ownAddresses are those of this machine's interfaces.
func ownAddresses() []netip.Addr {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out = append(out, ip.Unmap())
			}
		}
	}
	return out
}

func invalid(field, format string, args ...any) *wire.Error {
	return wire.Errorf(wire.InvalidArgument, "%s %s", field, fmt.Sprintf(format, args...)).With("field", field)
}

func notAllowed(target string) *wire.Error {
	return wire.Errorf(wire.TargetNotAllowed, "%s is no target that this machine forwards to", target).
		With("target", target).With("ceiling", "config").With("hint", "the machine's owner adds it to forward.allow in its configuration")
}

func unreachable(t target, why string, err error) *wire.Error {
	return wire.Errorf(wire.TargetUnreachable, "%s can't be connected to: %s", t, why).With("target", t.String()).With("cause", wire.Clean(err.Error(), 200))
}
