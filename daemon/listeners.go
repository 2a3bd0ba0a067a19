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

// listeners are the users whose programs listen at a local address (proc_pid_net(5):
// /proc/net/tcp and tcp6).
func listeners(at *net.TCPAddr) ([]int, error) {
	var users []int
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		f, err := os.Open(table)
		if os.IsNotExist(err) { // a kernel without IPv6
			continue
		}
		if err != nil {
			return nil, err
		}
		more, err := parseListeners(f, at)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", table, err)
		}
		users = append(users, more...)
	}
	return users, nil
}

// parseListeners reads a table. A line has a number, the local address, the remote
// one, the state, queues, timers, retransmissions and the user.
func parseListeners(r io.Reader, at *net.TCPAddr) ([]int, error) {
	var users []int
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 8 || f[3] != listening {
			continue
		}
		address, port, _ := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(port, 16, 16)
		if err != nil {
			return nil, fmt.Errorf("%q is no port", port)
		}
		if int(n) != at.Port {
			continue
		}
		ip, err := kernelAddress(address)
		if err != nil {
			return nil, err
		}
		if !ip.IsUnspecified() && !ip.Equal(at.IP) {
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
// as the kernel prints them. All machines that this runs on are little-endian.
func kernelAddress(text string) (net.IP, error) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != net.IPv4len && len(b) != net.IPv6len {
		return nil, fmt.Errorf("%q is no address", text)
	}
	for i := 0; i < len(b); i += 4 {
		slices.Reverse(b[i : i+4])
	}
	return b, nil
}
