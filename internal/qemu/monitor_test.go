package qemu

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"farhand/internal/qemu/qemutest"
)

func TestMonitor(t *testing.T) {
	conn, asked := qemutest.Emulator(t,
		`{"return": {}}`,
		`{"event": "RESUME"}`+"\n"+`{"return": {"status": "running"}}`,
		`{"error": {"class": "DeviceNotFound", "desc": "Device 'x' not found"}}`,
	)
	var events []string
	m, err := NewMonitor(conn, func(e Event) { events = append(events, e.Name) })
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var status struct{ Status string }
	if err := m.Do(t.Context(), "query-status", nil, &status); err != nil || status.Status != "running" {
		t.Errorf("the status is %q, %v", status.Status, err)
	}
	if err := m.Do(t.Context(), "device_del", map[string]string{"id": "x"}, nil); err == nil || !strings.Contains(err.Error(), "not found") {
		t.Errorf("a refusal is told as %v", err)
	}
	if err := m.Do(t.Context(), "quit", nil, nil); err == nil {
		t.Error("a monitor that ended answers")
	}
	var all []string
	for a := range asked {
		all = append(all, a)
	}
	if got := strings.Join(all, "\n"); !strings.Contains(got, `"arguments":{"id":"x"}`) || strings.Contains(all[1], "arguments") {
		t.Errorf("QEMU was asked\n%s", got)
	}
	m.Close()
	if len(events) != 1 || events[0] != "RESUME" {
		t.Errorf("the events were %q", events)
	}
}

func TestMonitorSilent(t *testing.T) {
	ours, theirs := net.Pipe()
	defer theirs.Close()
	go func() {
		fmt.Fprintln(theirs, `{"QMP": {}}`)
		in := bufio.NewScanner(theirs)
		in.Scan()
		fmt.Fprintln(theirs, `{"return": {}}`)
		in.Scan() // and never answers again
	}()
	m, err := NewMonitor(ours, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.Do(ctx, "query-status", nil, nil); err == nil {
		t.Error("a command was answered by nobody")
	}
}

func TestMonitorOfAnotherKind(t *testing.T) {
	ours, theirs := net.Pipe()
	defer ours.Close()
	go func() { fmt.Fprintln(theirs, `{"hello": 1}`); theirs.Close() }()
	if _, err := NewMonitor(ours, nil); err == nil {
		t.Error("anything is taken for QEMU's monitor")
	}
}

func TestTail(t *testing.T) {
	var b Tail
	for i := range 10000 {
		fmt.Fprintf(&b, "line %d\n", i)
	}
	if s := b.String(); len(s) > TailSize || !strings.HasSuffix(s, "line 9999") {
		t.Errorf("%d bytes are kept, ending with %q", len(s), s[len(s)-20:])
	}
}
