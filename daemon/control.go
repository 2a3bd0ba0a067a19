package daemon

import (
	"context"
	"maps"

	"farhand/audit"
	"farhand/device"
	"farhand/identity"
	"farhand/shim"
	"farhand/wire"
)

// controlMethods are what the control socket serves beyond browsing and
// sessions, which are the shim's own.
func (d *daemon) controlMethods() shim.Table {
	t := shim.Table{
		wire.THardwareListRequest: {Handle: shim.Unary(d.listHardware)},
		wire.TAuditVerifyRequest:  {Handle: shim.Unary(d.verifyAudit)},
		wire.TMachineListRequest:  {Handle: shim.Unary(d.describe)},
	}
	maps.Copy(t, d.streamMethods())
	maps.Copy(t, d.settingsMethods())
	return t
}

// listHardware reads the devices anew and lists those of the granted families
// that no ceiling forbids.
func (d *services) listHardware(ctx context.Context, c *shim.Call, r wire.HardwareListRequest) (any, error) {
	answer := wire.HardwareListResponse{Devices: []wire.HardwareDevice{}}
	if d.registry == nil {
		return answer, nil
	}
	if err := d.registry.Refresh(ctx); err != nil {
		return nil, err
	}
	var sub *device.Subscription
	if r.Watch { // from before the list, or what happens in between would go unsaid
		sub = d.registry.Subscribe()
	}
	visible := d.visible(c, r.Type)
	for _, x := range d.registry.List() {
		if !visible(x) {
			continue
		}
		if len(answer.Devices) == maxListed {
			answer.Truncated = true
			break
		}
		answer.Devices = append(answer.Devices, x)
	}
	if r.Watch {
		var err error
		if answer.Stream, err = d.watchHardware(c, r, sub, answer.Devices); err != nil {
			return nil, err
		}
	}
	return answer, nil
}

// describe says what this machine is, as HELLO does.
func (d *services) describe(ctx context.Context, c *shim.Call, _ wire.MachineListRequest) (any, error) {
	arch, err := identity.Arch()
	if err != nil {
		return nil, err
	}
	s := wire.MachineSnapshot{
		MachineID: d.identity.MachineID, Hostname: d.displayName(), Platform: identity.Platform(), Arch: arch,
		Capabilities: d.capabilities(ctx), HardwareDevices: []wire.HardwareDevice{},
	}
	if d.registry == nil {
		return s, nil
	}
	visible := d.visible(c, nil)
	for _, x := range d.registry.List() {
		if visible(x) && len(s.HardwareDevices) < maxListed {
			s.HardwareDevices = append(s.HardwareDevices, x)
		}
	}
	return s, nil
}

// maxListed bounds a list; at some 500 bytes a device it stays far below a
// frame.
const maxListed = 4096

// verifyAudit checks the whole chain.
func (d *services) verifyAudit(ctx context.Context, _ *shim.Call, _ wire.AuditVerifyRequest) (any, error) {
	report, err := audit.Verify(ctx, AuditPath(d.config.StateDir), d.auditKey)
	if err != nil {
		return nil, err
	}
	problems := report.Problems
	if problems == nil {
		problems = []string{}
	}
	return wire.AuditVerifyResponse{OK: report.OK, Seq: report.Seq, HMAC: report.HMAC, Problems: problems}, nil
}

func allLeases(device.LeaseInfo) bool { return true }
