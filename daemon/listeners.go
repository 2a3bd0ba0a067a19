package daemon

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

// listening is TCP_LISTEN of the kernel (include/net/tcp_states.h) as the tables
// below /proc/net show it.
const listening = "0A"

// servers are the users whose programs listen at a local address, and the one who has
// the other end of a connection from there (proc_pid_net(5): /proc/net/tcp and tcp6):
// who took it may listen no longer, and until somebody has taken it nobody has it.
func servers(at, from *net.TCPAddr) ([]int, error) {
	var users []int
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if os.IsNotExist(err) { // a kernel without IPv6
			continue
		}
		if err != nil {
			return nil, err
		}
		more, err := parseServers(f, at, from)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", table, err)
		}
		users = append(users, more...)
	}
	return users, nil
}

// parseServers reads a table. A line has a number, the local address, the remote
// one, the state, queues, timers, retransmissions and the user.
func parseServers(r io.Reader, at, from *net.TCPAddr) ([]int, error) {
	var users []int
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 8 || !strings.Contains(f[1], ":") || !strings.Contains(f[2], ":") {
			continue // the head
		}
		local, err := kernelAddress(f[1])
		if err != nil {
			return nil, err
		}
		remote, err := kernelAddress(f[2])
		if err != nil {
			return nil, err
		}
		switch {
		case local.Port != at.Port:
			continue
		case f[3] == listening && (local.IP.IsUnspecified() || local.IP.Equal(at.IP)):
		case local.IP.Equal(at.IP) && remote.Port == from.Port && remote.IP.Equal(from.IP):
		default:
			continue
		}
		uid, err := strconv.Atoi(f[7])
		if err != nil {
			return nil, fmt.Errorf("%q is no user", f[7])
		}
		users = append(users, uid)
	}
	return users, lines.Err()
}

// kernelAddress is an address in words of four bytes each, in the machine's order,
// and a port, as the kernel prints them. All machines that this runs on are
// little-endian.
func kernelAddress(text string) (*net.TCPAddr, error) {
	address, port, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(address)
	if err != nil || len(b) != net.IPv4len && len(b) != net.IPv6len {
		return nil, fmt.Errorf("%q is no address", text)
	}
	n, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return nil, fmt.Errorf("%q is no port", port)
	}
	for i := 0; i < len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
	return &net.TCPAddr{IP: b, Port: int(n)}, nil
}
