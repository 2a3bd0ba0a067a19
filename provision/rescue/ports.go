package rescue

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Ports that the rescue network needs: names, addresses (systemd-networkd hands
// them out) and the page.
const (
	portDNS  = 53
	portDHCP = 67
	portHTTP = 80
)

// PortsFree says which process holds a port that the rescue network needs at
// Address, and nil if none does (field case 85: nothing else tells why a phone
// that has joined gets no address, or no page). root is the directory below
// which proc is. What systemd-networkd holds is its part of the work.
func PortsFree(root string) error {
	var problems []string
	for _, need := range []struct {
		proto string
		port  uint16
		ours  string
	}{{"udp", portDNS, ""}, {"udp", portDHCP, "systemd-network"}, {"tcp", portHTTP, ""}} {
		holder, held := Holder(root, need.proto, Address(), need.port)
		if held && (need.ours == "" || holder.Name != need.ours) {
			problems = append(problems, fmt.Sprintf("%s holds %s port %d", holder, strings.ToUpper(need.proto), need.port))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(strings.Join(problems, "; "))
}

// Check is PortsFree of this machine, for Config.
func Check(context.Context) error { return PortsFree("/") }

// Process is one that holds a port. Both are zero if it can't be found out.
type Process struct {
	PID  int
	Name string
}

func (p Process) String() string {
	if p.PID == 0 {
		return "another program"
	}
	return fmt.Sprintf("%s (pid %d)", p.Name, p.PID)
}

// Holder finds the process that has a socket of the given protocol (tcp or udp)
// bound to a port of addr, or of every address.
func Holder(root, proto string, addr netip.Addr, port uint16) (Process, bool) {
	for _, table := range []string{proto, proto + "6"} {
		f, err := os.Open(filepath.Join(root, "proc/net", table))
		if err != nil {
			continue // without IPv6 there is no such table
		}
		inode, found := findSocket(f, proto == "tcp", addr, port)
		f.Close()
		if found {
			return owner(root, inode), true
		}
	}
	return Process{}, false
}

// tcpListen is TCP_LISTEN of the kernel's net/tcp_states.h, as /proc/net/tcp
// prints it.
const tcpListen = "0A"

// findSocket looks in a table of /proc/net (proc_net_tcp.rst of the kernel's
// documentation; udp is alike) for a socket that is bound to addr and port, or
// to the port of every address.
func findSocket(table io.Reader, listening bool, addr netip.Addr, port uint16) (inode uint64, found bool) {
	lines := bufio.NewScanner(table)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		// sl local_address rem_address st tx:rx tr:when retrnsmt uid timeout inode
		if len(f) < 10 || listening && f[3] != tcpListen {
			continue
		}
		at, ok := parseLocal(f[1])
		if !ok || at.Port() != port || at.Addr() != addr && !at.Addr().IsUnspecified() {
			continue
		}
		if inode, err := strconv.ParseUint(f[9], 10, 64); err == nil {
			return inode, true
		}
	}
	return 0, false
}

// parseLocal reads an address of /proc/net: 32-bit words in hex, each in the
// machine's order of bytes, and the port in hex.
func parseLocal(s string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(s, ":")
	if !ok {
		return netip.AddrPort{}, false
	}
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, false
	}
	raw, err := hex.DecodeString(host)
	if err != nil || len(raw) != 4 && len(raw) != 16 {
		return netip.AddrPort{}, false
	}
	// All machines that Farhand runs on are little-endian.
	for i := 0; i < len(raw); i += 4 {
		raw[i], raw[i+1], raw[i+2], raw[i+3] = raw[i+3], raw[i+2], raw[i+1], raw[i]
	}
	a, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(a.Unmap(), uint16(number)), ok
}

// owner finds the process with a descriptor of the socket.
func owner(root string, inode uint64) Process {
	want := fmt.Sprintf("socket:[%d]", inode)
	links, err := filepath.Glob(filepath.Join(root, "proc/[0-9]*/fd/*"))
	if err != nil {
		return Process{}
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err != nil || to != want {
			continue
		}
		dir := filepath.Dir(filepath.Dir(link))
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err != nil {
			continue
		}
		name, err := os.ReadFile(filepath.Join(dir, "comm"))
		if err != nil {
			continue // it has just ended
		}
		return Process{PID: pid, Name: strings.TrimSpace(string(name))}
	}
	return Process{}
}
