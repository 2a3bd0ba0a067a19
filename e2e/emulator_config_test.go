package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"farhand/wire"
)

// Everything by environment and flags, without a file of ours.
func TestEmulatorConfiguration(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := bareBench(t)
	env := b.env("FARHAND_PLATFORM_URL="+strings.Replace(c.url, "http", "ws", 1), "FARHAND_STATE_DIR="+b.stateDir(), `FARHAND_ROOTS=["`+b.root()+`"]`,
		"FARHAND_SHELL_ENABLED=true", "FARHAND_LIMITS_MAX_CONCURRENT=3", "FARHAND_MACHINE_ID=from-env", "FARHAND_HARDWARE_ENABLED=false")
	tokens := filepath.Join(b.dir, "given.json")
	b.write(tokens, c.file())
	farhandd := func(args ...string) result {
		t.Helper()
		return runProgram(t, env, "", b.here(), append([]string{program("farhandd")}, args...)...)
	}
	if r := farhandd("login", "--tokens", tokens); r.code != 0 {
		t.Fatalf("login gives %+v", r)
	}
	// A key's own spelling is a flag's, too.
	p := start(t, "daemon", env, program("farhandd"), "run", "--machine_id", "from-flag", "--limits.max_concurrent=2")
	s := c.Next()
	if s.Hello.MachineID != "from-flag" || len(s.Hello.HardwareDevices) != 0 || s.Hello.Capabilities.Has(wire.HardwareSerial) || !s.Hello.Capabilities.Has(wire.Shell) {
		t.Errorf("HELLO is %+v", s.Hello)
	}
	if e := s.Call(wire.TDirectoryListRequest, nil); e.PendingCapacity == nil || *e.PendingCapacity != 2 {
		t.Errorf("the answer has %v, want the lower limit of both sides", e.PendingCapacity)
	}
	if r := farhandd("status"); r.code != 0 || !strings.Contains(r.stdout, "from-flag") {
		t.Errorf("status gives %+v", r)
	}
	p.stop()

	// $STATE_DIRECTORY and $RUNTIME_DIRECTORY, as a service has them.
	run := filepath.Join(b.dir, "run")
	if err := os.Mkdir(run, 0o700); err != nil {
		t.Fatal(err)
	}
	env = b.env("FARHAND_PLATFORM_URL="+c.url, "STATE_DIRECTORY="+b.stateDir(), "RUNTIME_DIRECTORY="+run)
	p = start(t, "daemon", env, program("farhandd"), "run")
	c.Next()
	if _, err := os.Stat(filepath.Join(run, "farhandd.sock")); err != nil {
		t.Error(err)
	}
	if r := farhandd("status", "--json"); r.code != 0 || !strings.Contains(r.stdout, b.stateDir()) {
		t.Errorf("status gives %+v", r)
	}
	if info, err := os.Stat(filepath.Join(b.dir, "home", "farhand")); err != nil || !info.IsDir() {
		t.Errorf("the default root isn't there: %v", err)
	}
	p.stop()
}

// What the configuration leaves off isn't offered, and the refusal says who says
// so.
func TestEmulatorShellOff(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.bench()
	b.tables = ""
	b.configure()
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon()
	s, _ := b.on(c).open("off")
	emRefused(t, s.Call(wire.TExecuteCommand, map[string]any{"command": "true"}), wire.CapabilityNotGranted,
		map[string]any{"ceiling": "config", "capability": "shell", "required_capability": "shell", "granted_capabilities": "[files]"})
}
