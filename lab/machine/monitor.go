package machine

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"time"

	"farhand/internal/qemu"
	"farhand/lab/proto"
)

// adapterID is the device's id in QEMU.
const adapterID = "adapter"

// handle carries out one request of the guest's tests.
func handle(ctx context.Context, q *qemu.Monitor, r proto.Request) error {
	switch r.Do {
	case proto.PlugFTDI:
		args := map[string]any{"driver": "usb-serial", "id": adapterID, "bus": "usb.0", "chardev": adapter}
		if r.Serial != "" {
			args["serial"] = r.Serial
		}
		return plug(ctx, q, args)
	case proto.UnplugFTDI:
		return q.Do(ctx, "device_del", map[string]any{"id": adapterID}, nil)
	default:
		return fmt.Errorf("unknown request %q", r.Do)
	}
}

// plug adds a device. What was just removed may not have let go of its line
// yet.
func plug(ctx context.Context, q *qemu.Monitor, args map[string]any) error {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := q.Do(ctx, "device_add", args, nil)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// answer carries out what the guest's tests ask, until conn ends.
func answer(ctx context.Context, conn net.Conn, q *qemu.Monitor) {
	out := json.NewEncoder(conn)
	for in := bufio.NewScanner(conn); in.Scan(); {
		var r proto.Request
		err := json.Unmarshal(in.Bytes(), &r)
		if err == nil {
			err = handle(ctx, q, r)
		}
		var a proto.Answer
		if err != nil {
			a.Error = err.Error()
		}
		if out.Encode(a) != nil {
			return // the guest is gone
		}
	}
}
