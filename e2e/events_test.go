package e2e

import (
	"encoding/json"
	"strings"
	"syscall"
	"testing"

	"farhand/client"
	"farhand/wire"
)

// What happens is told to whoever follows it, over the relay's restart too.
func TestEvents(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,hardware_gpio")
	kept := func(more ...string) []client.Event {
		t.Helper()
		var all []client.Event
		for line := range strings.Lines(b.owner.must(append([]string{"events", "--json"}, more...)...)) {
			all = append(all, parse[client.Event](t, line))
		}
		return all
	}
	types := func(all []client.Event) string {
		var names []string
		for _, e := range all {
			names = append(names, e.Type+e.Gap)
		}
		return strings.Join(names, " ")
	}
	before := kept()
	if got := types(before); got != "claim_created claim_used machine_online" {
		t.Fatalf("%s", got)
	}
	last := before[len(before)-1]
	if last.MachineID != b.machineID() || last.MachineName != "bench" || last.Device != nil {
		t.Errorf("%+v", last)
	}

	f := b.owner.start("events", "-f", "--json", "--after", last.Cursor)
	b.owner.must("grants", "bench", "--remove", "files")
	f.await(0, `"grants_changed"`)
	b.daemon.stop()
	f.await(0, `"machine_offline"`)

	// Devices that come and go while the machine is off are told when it is back.
	b.tables += "[hardware]\ndeny = [\"gpio:*\", \"i2c:*\"]\n"
	b.configure()
	b.startDaemon()
	f.await(0, `"device_removed".*"gpio:pinctrl-bcm2711"`)
	b.owner.must("token", "create", "--name", "t", "--machine", "bench", "--capability", "hardware_gpio")
	f.await(0, `"token_created"`)
	if strings.Contains(f.out.String(), `"gap"`) {
		t.Errorf("followed:\n%s", f.out)
	}
	if all := kept("--after", last.Cursor, "--machine", "bench"); types(all) != "grants_changed machine_offline machine_online device_removed device_removed" || strings.Contains(f.out.String(), "i2c:1") {
		t.Errorf("%s", types(all))
	}

	b.relay.kill()
	b.startRelay()
	b.relay.await(0, "relay serves")
	f.await(0, `"gap":"relay_restarted"`)
	b.daemon.await(0, `^Online`)
	f.await(strings.Count(f.out.String(), "\n")-1, `"machine_online"`)
	f.signal(syscall.SIGINT)
	if code := f.exit(); code != 0 {
		t.Errorf("after Ctrl-C it ends with %d", code)
	}
	if r := b.owner.run("events", "--after", last.Cursor); r.code != 0 || !strings.Contains(r.stderr, "started anew") {
		t.Errorf("%+v", r)
	}
	b.owner.fails(1, wire.InvalidArgument, "events", "--after", "nonsense")
}

// A token hears of what it may use, and of nothing any more once it is revoked.
func TestEventsOfATokenAreItsOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,hardware_gpio")
	made := parse[client.IssuedToken](t, b.owner.must("token", "create", "--json", "--name", "t", "--machine", "bench", "--capability", "hardware_gpio"))
	other := b.with(made.Token)
	f := other.start("events", "-f", "--json")
	f.await(0, `"machine_online"`)
	b.owner.must("grants", "bench", "--remove", "files")
	f.await(0, `"grants_changed"`)
	for line := range strings.Lines(f.out.String()) {
		var e client.Event
		if json.Unmarshal([]byte(line), &e) == nil && (e.Holder != "" || e.Subject != "" || e.Address != "" || e.MachineID == "") {
			t.Errorf("told: %s", line)
		}
	}
	b.owner.must("token", "revoke", made.ID)
	b.owner.must("grants", "bench", "--add", "files")
	if code := f.exit(); code == 0 || !strings.Contains(f.out.String(), "AUTH_FAILED") {
		t.Errorf("it ends with %d\n%s", code, f.out)
	}
}
