package machine

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"farhand/internal/qemu"
	"farhand/internal/qemu/qemutest"
	"farhand/lab/proto"
)

func TestRequests(t *testing.T) {
	conn, asked := qemutest.Emulator(t,
		`{"return": {}}`,
		`{"error": {"class": "GenericError", "desc": "Device 'ftdi' is in use"}}`,
		`{"event": "DEVICE_DELETED", "data": {"device": "adapter"}}`+"\n"+`{"return": {}}`,
		`{"error": {"class": "DeviceNotFound", "desc": "Device 'adapter' not found"}}`,
	)
	q, err := qemu.NewMonitor(conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer q.Close()
	guest, host := net.Pipe()
	served := make(chan struct{})
	go func() { answer(t.Context(), host, q); close(served) }()
	in := bufio.NewReader(guest)
	say := func(line, want string) {
		t.Helper()
		if _, err := fmt.Fprintln(guest, line); err != nil {
			t.Fatal(err)
		}
		got, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		var a proto.Answer
		if err := json.Unmarshal([]byte(got), &a); err != nil || !strings.Contains(a.Error, want) || (want == "") != (a.Error == "") {
			t.Errorf("%s answers %s, want %q", line, got, want)
		}
	}
	say(`{"do": "plug-ftdi", "serial": "X1"}`, "") // tried again, because its line was in use
	say(`{"do": "unplug-ftdi"}`, "not found")
	say(`{"do": "fly"}`, "unknown request")
	say(`{`, "JSON")
	guest.Close()
	<-served
	var all []string
	for a := range asked {
		all = append(all, a)
	}
	if got := strings.Join(all, "\n"); !strings.Contains(got, `"serial":"X1"`) || !strings.Contains(got, "device_del") {
		t.Errorf("the emulator was asked\n%s", got)
	}
}
