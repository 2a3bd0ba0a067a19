package rescue

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"farhand/internal/testenv"
)

// Field case 85: a real socket is traced to this very process.
func TestHolder(t *testing.T) {
	testenv.Need(t, "proc", runtime.GOOS == "linux", "it reads /proc")
	tcp, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", ":0") // every address, of both families
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	loopback := netip.MustParseAddr("127.0.0.1")
	for proto, addr := range map[string]net.Addr{"tcp": tcp.Addr(), "udp": udp.LocalAddr()} {
		port := netip.MustParseAddrPort(addr.String()).Port()
		p, held := Holder("/", proto, loopback, port)
		if !held || p.PID != os.Getpid() || p.Name == "" {
			t.Errorf("%s: %v, %t; this is pid %d", proto, p, held, os.Getpid())
		}
	}
	port := netip.MustParseAddrPort(tcp.Addr().String()).Port()
	if p, held := Holder("/", "tcp", Address(), port); held {
		t.Errorf("a socket on another address is %v", p)
	}
}

// hexAddr is an address as /proc/net has it.
func hexAddr(a string, port int) string {
	b := netip.MustParseAddr(a).AsSlice()
	var s strings.Builder
	for i := 0; i < len(b); i += 4 {
		fmt.Fprintf(&s, "%08X", binary.LittleEndian.Uint32(b[i:]))
	}
	return fmt.Sprintf("%s:%04X", s.String(), port)
}

func TestPortsFree(t *testing.T) {
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	process := func(pid int, name string, inode int) {
		t.Helper()
		put(fmt.Sprintf("proc/%d/comm", pid), name+"\n")
		dir := filepath.Join(root, fmt.Sprintf("proc/%d/fd", pid))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(fmt.Sprintf("socket:[%d]", inode), filepath.Join(dir, "5")); err != nil {
			t.Fatal(err)
		}
	}
	row := func(local, state string, inode int) string {
		return fmt.Sprintf("   0: %s 00000000:0000 %s 00000000:00000000 00:00000000 00000000     0        0 %d 2 x 0\n", local, state, inode)
	}
	const header = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

	if err := PortsFree(root); err != nil {
		t.Errorf("an empty machine: %v", err)
	}
	// What is no obstacle: resolved's stub on its own address, networkd's DHCP
	// server, and a connection (not a listener) from port 80.
	put("proc/net/udp", header+row(hexAddr("127.0.0.53", 53), "07", 100)+row(hexAddr("0.0.0.0", 67), "07", 101))
	put("proc/net/tcp", header+row(hexAddr("10.42.0.1", 80), "01", 102))
	process(300, "systemd-resolve", 100)
	process(301, "systemd-network", 101)
	if err := PortsFree(root); err != nil {
		t.Errorf("what belongs to the system: %v", err)
	}
	put("proc/net/udp", header+row(hexAddr("0.0.0.0", 53), "07", 200)+row(hexAddr("10.42.0.1", 67), "07", 999))
	put("proc/net/tcp6", header+row(hexAddr("::", 80), "0A", 201))
	process(400, "dnsmasq", 200)
	process(401, "lighttpd", 201)
	err := PortsFree(root)
	for _, want := range []string{"dnsmasq (pid 400) holds UDP port 53", "another program holds UDP port 67", "lighttpd (pid 401) holds TCP port 80"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

func FuzzSockets(f *testing.F) {
	f.Add("sl\n 0: 0100007F:0035 0:0 0A 0 0 0 0 0 77\n")
	f.Add("0: : : : : : : : : :\n")
	f.Fuzz(func(t *testing.T, table string) {
		inode, found := findSocket(strings.NewReader(table), true, netip.MustParseAddr("127.0.0.1"), 53)
		if found && !strings.Contains(table, fmt.Sprint(inode)) {
			t.Errorf("inode %d is not in the table", inode)
		}
	})
}
