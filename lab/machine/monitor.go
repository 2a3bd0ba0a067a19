package machine

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"farhand/lab/proto"
)

// monitor speaks QMP, QEMU's control protocol (its docs/interop/qmp-spec): one
// JSON object a line. It is for one goroutine.
type monitor struct {
	conn net.Conn
	in   *json.Decoder
}

// reply is any line of QMP: an answer has Return or Error, an event has Event.
type reply struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Desc string `json:"desc"`
	} `json:"error"`
	Event string `json:"event"`
}

const monitorTime = 20 * time.Second

func newMonitor(conn net.Conn) (*monitor, error) {
	q := &monitor{conn: conn, in: json.NewDecoder(conn)}
	if err := conn.SetDeadline(time.Now().Add(monitorTime)); err != nil {
		return nil, err
	}
	var greeting struct {
		QMP json.RawMessage `json:"QMP"`
	}
	if err := q.in.Decode(&greeting); err != nil {
		return nil, fmt.Errorf("QEMU's monitor: %w", err)
	}
	if greeting.QMP == nil {
		return nil, errors.New("what answers is not QEMU's monitor")
	}
	return q, q.do("qmp_capabilities", nil)
}

// do executes one command.
func (q *monitor) do(command string, args map[string]any) error {
	if err := q.conn.SetDeadline(time.Now().Add(monitorTime)); err != nil {
		return err
	}
	err := json.NewEncoder(q.conn).Encode(struct {
		Execute   string         `json:"execute"`
		Arguments map[string]any `json:"arguments,omitempty"`
	}{command, args})
	if err != nil {
		return fmt.Errorf("QEMU's monitor: %w", err)
	}
	for {
		var r reply
		switch err := q.in.Decode(&r); {
		case err != nil:
			return fmt.Errorf("QEMU's monitor: %w", err)
		case r.Error != nil:
			return fmt.Errorf("QEMU refuses %s: %s", command, r.Error.Desc)
		case r.Return != nil:
			return nil
		} // an event: nobody asked
	}
}

// adapterID is the device's id in QEMU.
const adapterID = "adapter"

func (q *monitor) handle(r proto.Request) error {
	switch r.Do {
	case proto.PlugFTDI:
		args := map[string]any{"driver": "usb-serial", "id": adapterID, "bus": "usb.0", "chardev": adapter}
		if r.Serial != "" {
			args["serial"] = r.Serial
		}
		return q.plug(args)
	case proto.UnplugFTDI:
		return q.do("device_del", map[string]any{"id": adapterID})
	default:
		return fmt.Errorf("unknown request %q", r.Do)
	}
}

// plug adds a device. What was just removed may not have let go of its line
// yet.
func (q *monitor) plug(args map[string]any) error {
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := q.do("device_add", args)
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}

// answer carries out what the guest's tests ask, until conn ends.
func answer(conn net.Conn, q *monitor) {
	out := json.NewEncoder(conn)
	for in := bufio.NewScanner(conn); in.Scan(); {
		var r proto.Request
		err := json.Unmarshal(in.Bytes(), &r)
		if err == nil {
			err = q.handle(r)
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
