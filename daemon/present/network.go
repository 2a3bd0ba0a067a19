package present

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"farhand/internal/sorted"
)

// Addresses are the IP addresses by which others in the network reach this
// machine: of interfaces that are up, without loopback and link-local ones, IPv4
// first.
func Addresses() []string {
	all, err := net.Interfaces()
	if err != nil {
		return nil
	}
	var out []netip.Addr
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // gone meanwhile
		}
		for _, a := range addrs {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil && prefix.Addr().IsGlobalUnicast() {
				out = append(out, prefix.Addr())
			}
		}
	}
	sorted.By(out, netip.Addr.Compare) // IPv4 first
	texts := make([]string, len(out))
	for i, a := range out {
		texts[i] = a.String()
	}
	return texts
}

// InNetwork says whether this machine has a default route: then it is in a
// network that leads somewhere. Its own rescue network gives it none.
func InNetwork() bool { return hasRoute("/") }

func hasRoute(root string) bool { return len(routes(root)) > 0 }

// Wireless says whether this machine is in a network, by Wi-Fi alone.
func Wireless() bool { return wireless("/") }

func wireless(root string) bool {
	names := routes(root)
	for _, name := range names {
		if _, err := os.Stat(filepath.Join(root, "sys/class/net", name, "phy80211")); err != nil {
			return false
		}
	}
	return len(names) > 0
}

// routes are the interfaces that a default route leads over.
func routes(root string) []string {
	return append(routes4(readLines(filepath.Join(root, "proc/self/net/route"))),
		routes6(readLines(filepath.Join(root, "proc/self/net/ipv6_route")))...)
}

func readLines(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Split(string(b), "\n")
}

// routes4 reads /proc/net/route: Iface, Destination, Gateway, Flags, … with the
// addresses in hex.
func routes4(lines []string) (names []string) {
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) > 7 && f[1] == "00000000" && f[7] == "00000000" && f[0] != "lo" {
			names = append(names, f[0])
		}
	}
	return names
}

// routes6 reads /proc/net/ipv6_route: destination, its prefix length, source,
// its prefix length, next hop, metric, two counters, flags, device. A kernel
// without any default route shows one on lo that rejects.
func routes6(lines []string) (names []string) {
	const nothing = "00000000000000000000000000000000"
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) > 9 && f[0] == nothing && f[1] == "00" && f[9] != "lo" {
			names = append(names, f[9])
		}
	}
	return names
}
