package forward

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"farhand/wire"
)

func TestParseAllow(t *testing.T) {
	for _, text := range []string{
		"127.0.0.1:80", "[::1]:80", "printer.local:80", "a_b-c:1-65535", "10.0.0.0/8:*", "[fd00::]/8:443", "localhost:22", "0.0.0.0/0:80", "host.:80",
	} {
		if _, err := ParseAllow([]string{text}); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range []string{
		"", ":", "80", "host", "host:", ":80", "host:0", "host:65536", "host:x", "host:9-8", "host:1-", "::1:80", "[127.0.0.1]:80", "[host]:80",
		"10.0.0.1/8:80", "10.0.0.0/33:80", "10.0.0.0/-1:80", "host/8:80", "999.1.1.1:80", "1.2.3:80", "a..b:80", "*:80", "*.local:80", "a b:80",
		"[fe80::1%eth0]:80", strings.Repeat("a", 64) + ":80", "http://host:80", "host:80,other:80",
	} {
		if a, err := ParseAllow([]string{text}); err == nil {
			t.Errorf("%q is taken as %+v", text, a)
		}
	}
}

// names is a name server.
type names map[string][]string

func (n names) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, a := range n[host] {
		out = append(out, netip.MustParseAddr(a))
	}
	if out == nil {
		return nil, errors.New("no such host")
	}
	return out, nil
}

func TestTargets(t *testing.T) {
	allow, err := ParseAllow([]string{"127.0.0.1:80", "10.1.0.0/16:8000-8010", "nas.lan:445", "evil.example:80", "localhost:22", "own.lan:80", "[fd00::]/8:*"})
	if err != nil {
		t.Fatal(err)
	}
	server := names{
		"nas.lan": {"192.168.1.2", "fe80::1"}, "evil.example": {"127.0.0.1", "127.0.0.2", "169.254.169.254", "0.0.0.0", "::1", "::ffff:127.0.0.3", "224.0.0.1", "255.255.255.255"},
		"worse.example": {"127.0.0.2"}, "inside.lan": {"10.1.2.3", "8.8.8.8"}, "own.lan": {"192.168.1.9"},
	}
	own := func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.168.1.9")} }
	for _, c := range []struct {
		host string
		port int
		code wire.Code // empty: allowed
		at   []string
	}{
		{"127.0.0.1", 80, "", []string{"127.0.0.1"}},
		{"::ffff:127.0.0.1", 80, "", []string{"127.0.0.1"}},
		{"[fd12::1]", 9, "", []string{"fd12::1"}},
		{"10.1.255.255", 8010, "", []string{"10.1.255.255"}},
		{"LocalHost", 22, "", []string{"127.0.0.1", "::1"}},
		{"NAS.lan.", 445, "", []string{"192.168.1.2"}},
		{"inside.lan", 8000, "", []string{"10.1.2.3"}},  // its name isn't named, its network is
		{"evil.example", 80, "", []string{"127.0.0.1"}}, // which is named itself; the others aren't
		{"127.0.0.1", 81, wire.TargetNotAllowed, nil},
		{"127.0.0.2", 80, wire.TargetNotAllowed, nil},
		{"127.1", 80, wire.InvalidArgument, nil},
		{"2130706433", 80, wire.InvalidArgument, nil},
		{"0x7f000001", 80, wire.TargetUnreachable, nil}, // a name that nobody has
		{"10.2.0.1", 8000, wire.TargetNotAllowed, nil},
		{"nas.lan", 446, wire.TargetNotAllowed, nil},
		{"worse.example", 80, wire.TargetNotAllowed, nil},
		{"own.lan", 80, wire.TargetNotAllowed, nil},
		{"fe80::1%lo", 80, wire.TargetNotAllowed, nil},
		{"nobody.lan", 80, wire.TargetUnreachable, nil},
		{"a b", 80, wire.InvalidArgument, nil},
		{"", 80, wire.InvalidArgument, nil},
		{"127.0.0.1", 0, wire.InvalidArgument, nil},
		{"127.0.0.1", 65536, wire.InvalidArgument, nil},
		{"127.0.0.1", -80, wire.InvalidArgument, nil},
	} {
		target, err := allow.target(wire.ForwardOpen{Host: c.host, Port: c.port})
		var found []netip.Addr
		if err == nil {
			found, err = allow.addresses(t.Context(), target, server, own)
		}
		var at []string
		for _, a := range found {
			at = append(at, a.String())
		}
		if (err == nil) != (c.code == "") || err != nil && wire.CodeOf(err) != c.code || !slices.Equal(at, c.at) {
			t.Errorf("%s:%d: %v, %v", c.host, c.port, at, err)
		}
	}
	if _, err := (Allow{}).target(wire.ForwardOpen{Host: "127.0.0.1", Port: 80}); !errors.Is(err, wire.TargetNotAllowed) {
		t.Errorf("nothing is allowed, and %v", err)
	}
}

func FuzzAllow(f *testing.F) {
	f.Add("127.0.0.1:80", "127.0.0.1", 80)
	f.Add("[fd00::]/8:1-2", "fd00::1%a", 2)
	f.Add("a.b:*", "A.b.", 1)
	f.Fuzz(func(t *testing.T, entry, host string, port int) {
		a, err := ParseAllow([]string{entry})
		if err != nil {
			return
		}
		target, err := a.target(wire.ForwardOpen{Host: host, Port: port})
		if err != nil {
			return
		}
		if target.name == "" && !a.address(target.ip, target.port) || target.name != "" && !validName(target.name) {
			t.Errorf("%q lets %q port %d through as %+v", entry, host, port, target)
		}
	})
}

// TestAway: with something private, nothing leads to this machine, whatever the list
// says and whatever it is called.
func TestAway(t *testing.T) {
	allow, err := ParseAllow([]string{"127.0.0.1:*", "localhost:*", "0.0.0.0/0:*", "[::]/0:*", "here.example:*", "there.example:*"})
	if err != nil {
		t.Fatal(err)
	}
	own := func() []netip.Addr { return []netip.Addr{netip.MustParseAddr("192.0.2.7")} }
	names := fakeNames{"here.example": {"198.51.100.1", "192.0.2.7"}, "there.example": {"198.51.100.1"}, "map.example": {"::ffff:127.0.0.1"}}
	for host, blocked := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "::1": true, "0.0.0.0": true, "::": true, "::ffff:127.0.0.1": true, "localhost": true,
		"192.0.2.7": true, "here.example": true, "map.example": true, "198.51.100.1": false, "there.example": false,
	} {
		a := allow.Away()
		target, err := a.target(wire.ForwardOpen{Host: host, Port: 80})
		if err == nil {
			_, err = a.addresses(t.Context(), target, names, own)
		}
		if blocked != (wire.CodeOf(err) == wire.PrivacyModeBlocked) || !blocked && err != nil {
			t.Errorf("%s: %v", host, err)
		}
		if target, err := allow.target(wire.ForwardOpen{Host: host, Port: 80}); err == nil {
			if _, err := allow.addresses(t.Context(), target, names, own); errors.Is(err, wire.PrivacyModeBlocked) {
				t.Errorf("%s without anything private: %v", host, err)
			}
		}
	}
	at := func(s string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(s)) }
	if !sameHost(at("10.1.2.3:5000"), at("10.1.2.3:80")) || sameHost(at("10.1.2.3:5000"), at("10.1.2.4:80")) {
		t.Error("a connection to this machine isn't told from another")
	}
}

type fakeNames map[string][]string

func (f fakeNames) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	var out []netip.Addr
	for _, s := range f[host] {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}
