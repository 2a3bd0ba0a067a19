package present

import (
	"bufio"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/godbus/dbus/v5"
	"github.com/godbus/dbus/v5/prop"

	"farhand/internal/testenv"
)

// bus starts a bus of its own for the test and returns its address.
func bus(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("dbus-daemon")
	testenv.Need(t, "dbus", err == nil, "apt-get install dbus-daemon")
	socket := filepath.Join(t.TempDir(), "bus")
	cmd := exec.CommandContext(t.Context(), path, "--session", "--nofork", "--nopidfile", "--print-address", "--address=unix:path="+socket)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// TestMDNSName: field case 81, the name is told as it was really claimed, with
// the number that a conflict gave it.
func TestMDNSName(t *testing.T) {
	address := bus(t)
	if name, err := MDNSName(t.Context(), address); err == nil {
		t.Errorf("without systemd-resolved: %q", name)
	}
	resolved, err := dbus.Connect(address)
	if err != nil {
		t.Fatal(err)
	}
	defer resolved.Close()
	properties, err := prop.Export(resolved, "/org/freedesktop/resolve1", prop.Map{
		"org.freedesktop.resolve1.Manager": {"LLMNRHostname": {Value: "farhand-a1b2c3", Emit: prop.EmitTrue}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := resolved.RequestName("org.freedesktop.resolve1", dbus.NameFlagDoNotQueue); err != nil {
		t.Fatal(err)
	}
	if name, err := MDNSName(t.Context(), address); err != nil || name != "farhand-a1b2c3.local" {
		t.Errorf("%q, %v", name, err)
	}
	properties.SetMust("org.freedesktop.resolve1.Manager", "LLMNRHostname", "farhand-a1b2c32")
	if name, err := MDNSName(t.Context(), address); err != nil || name != "farhand-a1b2c32.local" {
		t.Errorf("after a conflict: %q, %v", name, err)
	}
}

func TestNoBus(t *testing.T) {
	if name, err := MDNSName(t.Context(), "unix:path="+filepath.Join(t.TempDir(), "none")); err == nil {
		t.Errorf("without a bus: %q", name)
	}
}
