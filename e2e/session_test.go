package e2e

import (
	"strings"
	"testing"
)

// What a person does first: pair by the code, look round, run a command, stop.
func TestPairAndUse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.pair(everything)
	if got := b.owner.must("machines"); !strings.Contains(got, "bench") || !strings.Contains(got, "online") {
		t.Errorf("machines says\n%s", got)
	}
	if got := b.owner.must("exec", "--", "echo", "far away"); got != "far away\n" {
		t.Errorf("exec says %q", got)
	}
	if got := b.owner.must("audit", "verify"); !strings.HasPrefix(got, "ok") {
		t.Errorf("audit verify says %q", got)
	}
	b.daemon.stop()
	b.wholeAudit()
	all := b.records()
	if first, last := all[0].Op, all[len(all)-1].Op; first != "SHIM_START" || last != "SHIM_STOP" {
		t.Errorf("the log goes from %s to %s", first, last)
	}
	if got := b.owner.must("machines"); !strings.Contains(got, "offline") {
		t.Errorf("with the daemon gone, machines says\n%s", got)
	}
	b.relay.stop()
}
