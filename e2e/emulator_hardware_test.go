package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"farhand/serialio/serialsim"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// A platform that knows of one family of hardware and of nothing else that goes
// beyond the protocol.
func TestEmulatorSerialAlone(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.Extensions = wire.Capabilities{wire.HardwareSerial}
	b := c.loggedIn()
	p := b.on(c)
	s, _ := p.open("serial")
	other, _ := p.open("other")
	op := func(s *shimtest.Socket, device, op string, args map[string]any, more ...string) wire.Envelope {
		t.Helper()
		payload := map[string]any{"device": device, "op": op, "args": args}
		for _, flag := range more {
			payload[flag] = true
		}
		return s.Call(wire.THardwareOp, payload)
	}
	result := func(e wire.Envelope) map[string]any {
		t.Helper()
		v := emObject(t, e, wire.THardwareResult, "device", "generation", "result")
		if v["device"] != psu || v["generation"] != 1.0 {
			t.Errorf("HARDWARE_RESULT %s", e.Payload)
		}
		return v["result"].(map[string]any)
	}

	list := answer[wire.HardwareListResponse](t, s.Call(wire.THardwareListRequest, map[string]any{"type": nil}), wire.THardwareListResponse)
	if len(list.Devices) < 2 || slices.ContainsFunc(list.Devices, func(d wire.HardwareDevice) bool { return d.Type != "serial" }) {
		t.Errorf("the list is %+v", list.Devices)
	}
	answer[wire.HardwareListResponse](t, p.control.Call(wire.THardwareListRequest, nil), wire.THardwareListResponse)
	if none := answer[wire.HardwareListResponse](t, s.Call(wire.THardwareListRequest, map[string]any{"type": "gpio"}), wire.THardwareListResponse); len(none.Devices) != 0 {
		t.Errorf("of a family that isn't granted it lists %+v", none.Devices)
	}
	i := slices.IndexFunc(list.Devices, func(d wire.HardwareDevice) bool { return d.ID == psu })
	if i < 0 || !list.Devices[i].Available {
		t.Fatalf("no instrument in %+v", list.Devices)
	}

	got := result(op(s, psu, "SERIAL_TRANSACT", map[string]any{"data": "KklETj8K", "until": "Cg==", "timeout_seconds": 5, "mode": map[string]any{"baudrate": 9600}}))
	if got["stop_reason"] != "until" || got["timed_out"] != false || got["bytes_returned"] != float64(len(serialsim.Identity)+1) {
		t.Errorf("SERIAL_TRANSACT gives %v", got)
	}
	// Its port is another name of it.
	if got := result(op(s, list.Devices[i].Port, "SERIAL_WRITE", map[string]any{"data": "KklETj8K", "drain": true})); got["bytes_written"] != 6.0 {
		t.Errorf("SERIAL_WRITE gives %v", got)
	}
	if got := result(op(s, psu, "SERIAL_READ", map[string]any{"size": 3, "timeout_seconds": 5})); got["data"] != "RmFy" && got["bytes_returned"] != 3.0 {
		t.Errorf("SERIAL_READ gives %v", got)
	}
	got = result(op(s, psu, "SERIAL_READ", map[string]any{"size": 1000, "timeout_seconds": 0.05, "until": "AAAA"}))
	if got["stop_reason"] != "timeout" || got["timed_out"] != true {
		t.Errorf("SERIAL_READ of too little gives %v", got)
	}

	// A pty has no modem lines.
	emRefused(t, op(s, psu, "SERIAL_CONTROL", map[string]any{"dtr": true}), wire.FeatureNotSupported, nil)
	emRefused(t, op(s, psu, "GPIO_SET", nil), wire.FeatureNotSupported, map[string]any{"op": "GPIO_SET"})
	emRefused(t, op(s, "serial:nothing", "SERIAL_READ", nil), wire.HardwareNotFound, nil)
	emRefused(t, op(s, "gpio:pinctrl-bcm2711", "GPIO_SET", nil), wire.CapabilityNotGranted, map[string]any{"capability": "hardware_gpio", "required_capability": "hardware_gpio"})
	emRefused(t, p.control.Call(wire.THardwareOp, map[string]any{"device": psu, "op": "SERIAL_READ"}), wire.FeatureNotSupported, map[string]any{"op": "HARDWARE_OP"})
	for _, odd := range []map[string]any{{"data": "not base64!"}, {"data": "AA==", "mode": map[string]any{"parity": "perhaps"}}, {"data": 7}} {
		if e := op(s, psu, "SERIAL_WRITE", odd); e.Type != wire.TError {
			t.Errorf("SERIAL_WRITE %v is answered with %s", odd, e.Type)
		}
	}

	// Held by one session, it is busy for the other until it is given back.
	result(op(s, psu, "SERIAL_WRITE", map[string]any{"data": ""}, "hold"))
	emRefused(t, op(other, psu, "SERIAL_READ", nil), wire.HardwareBusy, nil)
	if got := result(op(other, psu, "RELEASE", nil)); got["released"] != false {
		t.Errorf("RELEASE by another gives %v", got)
	}
	if got := result(op(s, psu, "RELEASE", nil)); got["released"] != true {
		t.Errorf("RELEASE gives %v", got)
	}
	result(op(other, psu, "SERIAL_READ", map[string]any{"timeout_seconds": 0.01}))
	// And when the session ends.
	result(op(s, psu, "SERIAL_WRITE", map[string]any{"data": ""}, "hold"))
	p.control.Call(wire.TDetachSession, map[string]any{"session_id": "serial"})
	result(op(other, psu, "SERIAL_READ", map[string]any{"timeout_seconds": 0.01}))

	// The extensions that were not granted are not spoken.
	for _, request := range []wire.Type{wire.TGrantsUpdate, wire.TAuditVerifyRequest} {
		emRefused(t, p.control.Call(request, map[string]any{"grants": map[string]any{}}), wire.CapabilityNotGranted, nil)
	}
	for _, e := range drain(p.control.Status) {
		if strings.Contains(string(e.Payload), "audit_anchor") {
			t.Errorf("STATUS %s", e.Payload)
		}
	}
	log := string(b.read(b.stateDir() + "/audit.log"))
	if strings.Contains(log, "KklETj8K") || strings.Contains(log, "IDN") {
		t.Error("what was sent is on record")
	}
	var found bool
	for _, r := range b.chained() {
		found = found || r.Op == "HARDWARE_OP" && r.Details["op"] == "SERIAL_TRANSACT" && r.Details["device"] == psu && r.Details["bytes_out"] == 6.0 && r.Result.OK
	}
	if !found {
		t.Error("SERIAL_TRANSACT isn't on record")
	}
}

func drain(frames chan wire.Envelope) (all []wire.Envelope) {
	for {
		select {
		case e := <-frames:
			all = append(all, e)
		default:
			return all
		}
	}
}

// A platform that grants everything: the ceilings of HELLO_ACK, what changes
// them, and the state of the log.
func TestEmulatorGrants(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	c.Extensions = wire.Capabilities{wire.HardwareSerial, wire.HardwareGPIO, wire.Grants, wire.AuditAnchor}
	ceiling := func(caps []string, pattern string, roots ...string) map[string]any {
		m := map[string]any{}
		if caps != nil {
			m["capabilities"] = caps
		}
		if pattern != "" {
			m["devices"] = []map[string]any{{"pattern": pattern}}
		}
		if roots != nil {
			m["roots"] = roots
		}
		return m
	}
	grants := func(approval, token, session any) map[string]any {
		return map[string]any{"owner": "o", "holder": "h", "approval": approval, "token": token, "session": session}
	}
	b := c.bench()
	b.tables = strings.Replace(b.tables, "[shell]\n", "[hardware]\ndeny = [\"serial:ttyS*\"]\n[shell]\n", 1)
	b.configure()
	first := grants(ceiling([]string{"files", "shell", "hardware_serial"}, ""), ceiling(nil, "serial:sim-s*"), nil)
	c.Ack = func(s *shimtest.Socket, ack map[string]any) bool {
		ack["grants"] = first
		return true
	}
	b.mustd(c.file(), "login", "--tokens", "-")
	b.startDaemon()
	p := b.on(c)
	s, _ := p.open("granted")
	read := func(device string) wire.Envelope {
		return s.Call(wire.THardwareOp, map[string]any{"device": device, "op": "SERIAL_READ", "args": map[string]any{"timeout_seconds": 0.01}})
	}
	answer[wire.HardwareResult](t, read(psu), wire.THardwareResult)
	emRefused(t, read(echo), wire.HardwareNotGranted, map[string]any{"ceiling": "token"})
	emRefused(t, read("gpio:pinctrl-bcm2711"), wire.CapabilityNotGranted, map[string]any{"ceiling": "approval"})
	if list := answer[wire.HardwareListResponse](t, s.Call(wire.THardwareListRequest, nil), wire.THardwareListResponse); len(list.Devices) != 1 || list.Devices[0].ID != psu {
		t.Errorf("the list is %+v", list.Devices)
	}

	// Less, while a command runs and a device is held.
	held := s.Call(wire.THardwareOp, map[string]any{"device": psu, "op": "SERIAL_WRITE", "args": map[string]any{"data": ""}, "hold": true})
	answer[wire.HardwareResult](t, held, wire.THardwareResult)
	running := s.Request(wire.TExecuteCommand, map[string]any{"argv": []string{"sleep", "300"}})
	update := func(s *shimtest.Socket, set map[string]any) {
		t.Helper()
		emObject(t, s.Call(wire.TGrantsUpdate, map[string]any{"grants": set}), wire.TAck, "ok")
	}
	update(s, grants(ceiling([]string{"files"}, ""), nil, ceiling(nil, "", b.root())))
	emRefused(t, s.Wait(running), wire.CapabilityNotGranted, map[string]any{"ceiling": "approval"})
	emRefused(t, read(psu), wire.CapabilityNotGranted, map[string]any{"ceiling": "approval"})
	emRefused(t, s.Call(wire.TExecuteCommand, map[string]any{"argv": []string{"true"}}), wire.CapabilityNotGranted, map[string]any{"ceiling": "approval", "capability": "shell"})
	answer[wire.FileStatResponse](t, s.Call(wire.TFileStat, map[string]any{"path": b.root()}), wire.TFileStatResponse)
	// A root of the session alone, an empty list is none.
	update(s, grants(nil, nil, ceiling(nil, "", "/elsewhere")))
	emRefused(t, s.Call(wire.TFileStat, map[string]any{"path": b.root()}), wire.PathOutsideAllowedRoot, map[string]any{"ceiling": "session"})
	update(s, grants(nil, ceiling([]string{}, ""), nil))
	emRefused(t, s.Call(wire.TFileStat, map[string]any{"path": b.root()}), wire.CapabilityNotGranted, map[string]any{"ceiling": "token"})
	update(s, grants(nil, nil, nil))
	answer[wire.HardwareResult](t, read(echo), wire.THardwareResult)
	answer[wire.HardwareResult](t, read(psu), wire.THardwareResult) // the lease went with the grant
	for _, bad := range []any{7, map[string]any{"grants": 7}, map[string]any{}, map[string]any{"grants": map[string]any{"approval": 7}}} {
		if e := s.Call(wire.TGrantsUpdate, bad); e.Type != wire.TError {
			t.Errorf("GRANTS_UPDATE %v is answered with %s", bad, e.Type)
		}
	}
	// The control socket has ceilings of its own.
	update(p.control, grants(ceiling(nil, "", "/elsewhere"), nil, nil))
	if list := answer[wire.DirectoryListResponse](t, p.control.Call(wire.TDirectoryListRequest, nil), wire.TDirectoryListResponse); len(list.Entries) != 0 {
		t.Errorf("roots that lead nowhere are offered: %+v", list.Entries)
	}

	report := emObject(t, p.control.Call(wire.TAuditVerifyRequest, nil), wire.TAuditVerifyResponse, "ok", "seq", "hmac", "problems")
	all := b.chained()
	if report["ok"] != true || report["seq"].(float64) < float64(len(all)-1) || len(fmt.Sprint(report["hmac"])) != 64 || report["problems"] == nil {
		t.Errorf("AUDIT_VERIFY_RESPONSE %v with %d records", report, len(all))
	}
	if !slices.ContainsFunc(all, func(r record) bool { return r.Op == "GRANTS_CHANGED" && r.SessionID == "granted" }) {
		t.Error("GRANTS_UPDATE isn't on record")
	}
}

// Without a granted family no hardware request passes, and no ceiling is blamed
// for what the platform alone didn't grant.
func TestEmulatorNoHardware(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	b := c.loggedIn()
	s, _ := b.on(c).open("plain")
	for _, request := range []wire.Type{wire.THardwareListRequest, wire.THardwareOp} {
		e := emRefused(t, s.Call(request, map[string]any{"device": psu, "op": "SERIAL_READ"}), wire.CapabilityNotGranted, map[string]any{"required_capability": "hardware_*"})
		if _, blamed := e.Details["ceiling"]; blamed {
			t.Errorf("%s: %+v", request, e)
		}
	}
}
