package daemon

import (
	"context"
	"strings"
	"time"

	"farhand/daemon/board"
	"farhand/daemon/present"
	"farhand/provision/request"
	"farhand/wire"
)

func (d *daemon) openPresenter(ctx context.Context) {
	d.presenter = present.New(ctx, present.Options{
		Helper: request.Client{Path: d.config.ProvisionSocket},
		Report: d.report,
		Log:    d.log,
	})
}

// namePatience bounds the question for the name.
const namePatience = 2 * time.Second

// report is what an appliance's screen shows, and whether the platform is
// reached. Only the Presenter's goroutine calls it.
func (d *daemon) report(ctx context.Context, facts request.Facts) present.Report {
	ctx, cancel := context.WithTimeout(ctx, namePatience)
	defer cancel()
	name, err := present.MDNSName(ctx, "")
	if err != nil {
		d.log.Debug("no name in the local network", "error", err)
	}
	n := network{MDNSName: name, Addresses: present.Addresses()}
	d.mu.Lock()
	d.network = n
	state, detail := d.state, d.detail
	d.mu.Unlock()

	if why := d.degraded; why != "" {
		detail = strings.TrimPrefix(detail+"; "+why, "; ")
	}
	r := present.Report{Status: request.Status{
		State: shown(state), Detail: detail, Name: d.displayName(),
		MDNSName: n.MDNSName, Addresses: n.Addresses, Relay: d.config.Platform.String(), ClockState: string(d.time.clock.State()),
	}}
	if state != StateOnline {
		lost, tried := d.contact.offline()
		r.Offline, r.Unknown = lost, !tried
		if !lost.IsZero() {
			r.Status.OfflineSince = &lost
			if state == StateConnecting {
				r.Status.State = "offline"
			}
		}
	}
	if w := facts.Wifi.State; w != request.WifiNone && w != request.WifiOff {
		r.Status.Wifi = w
	}
	if d.registry != nil {
		for _, x := range d.registry.List() {
			if x.Available {
				r.Status.Devices = append(r.Status.Devices, request.Device{ID: x.ID, Desc: x.Desc})
			}
		}
	}
	return r
}

// shown is a state in the screen's words.
func shown(s State) string {
	if s == StateOnline {
		return "connected"
	}
	return string(s)
}

// network is what the machine is called and reached by nearby.
type network struct {
	MDNSName  string
	Addresses []string
}

// power is what the firmware says of the supply, as far as this process may ask
// it, or an appliance's helper; false if nobody knows.
func (d *daemon) power() (board.Power, bool) {
	if power, known := d.board.Power(); known {
		return power, true
	}
	if facts, ok := d.presenter.Facts(); ok && facts.Throttled != nil {
		return board.Power(*facts.Throttled), true
	}
	return 0, false
}

// machineStatus is what the hardware says of itself, as far as this process may
// ask, and an appliance's helper where it knows more.
func (d *daemon) machineStatus() MachineStatus {
	boot := d.board.Boot()
	power, known := d.power()
	m := MachineStatus{ClockState: d.time.clock.State()}
	if facts, ok := d.presenter.Facts(); ok {
		if boot.Slot == "" {
			boot.Slot, boot.SlotSource = facts.Slot, facts.SlotSource
		}
		if boot.BuildTimestamp == nil {
			boot.BuildTimestamp = facts.Bootloader.BuildTimestamp
		}
		m.Wifi, m.Watchdog, m.Provisioned, m.Degraded = facts.Wifi.State, facts.Watchdog, facts.Report, facts.Degraded
		m.NewBoard = facts.Cloned
	}
	if m.Watchdog == nil {
		m.Watchdog = hardwareWatchdog("/sys")
	}
	if d.degraded != "" {
		m.Degraded = d.degraded
	}
	if known {
		m.Power = power.String()
		m.WeakPower = power.Weak()
	}
	m.setBoot(boot)
	m.NewBoard = m.NewBoard || d.identity.Changed
	d.mu.Lock()
	m.MDNSName, m.Addresses = d.network.MDNSName, d.network.Addresses
	online := d.state == StateOnline
	if d.diskBroken && m.Degraded == "" {
		m.Degraded = "the disk of " + d.config.StateDir + " is read-only: nothing can be recorded, so requests are refused; restart the machine, which checks the disk"
	}
	d.mu.Unlock()
	if lost, _ := d.contact.offline(); !online && !lost.IsZero() {
		m.OfflineSince = &lost
	}
	return m
}

// keepLooking keeps what STATUS tells of the machine, until ctx ends.
func (d *daemon) keepLooking(ctx context.Context) {
	tick := time.NewTicker(wire.StatusInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			d.lookAround()
		}
	}
}

// lookAround takes a new look at the machine. It may wait for the firmware, so
// STATUS has what the last look found.
func (d *daemon) lookAround() {
	m := d.machineStatus()
	facts := wire.MachineFacts{
		ClockState: string(m.ClockState), MDNSName: m.MDNSName, Addresses: m.Addresses, Wifi: m.Wifi,
		Power: m.Power, WeakPower: m.WeakPower, Slot: m.Slot, SlotSource: m.SlotSource, NotUpdatable: m.NotUpdatable,
		NewBoard: m.NewBoard, Degraded: m.Degraded,
	}
	if m.Bootloader != nil {
		facts.Bootloader = m.Bootloader.Unix()
	}
	if m.Watchdog != nil {
		facts.WatchdogS = m.Watchdog.EffectiveS
	}
	facts = facts.Cleaned()
	d.facts.Store(&facts)
}

// fullStatus is what GET /status answers. It reads files and asks the firmware and
// the local model's server, so the watchdog, which must not wait for either, uses
// status alone.
func (d *daemon) fullStatus(ctx context.Context) Status {
	s := d.status()
	s.Machine = d.machineStatus()
	s.Shell = d.shellStatus()
	s.Privacy = d.privacyStatus()
	if s.Privacy != nil && s.Privacy.Commands != "" {
		s.Warnings = append(s.Warnings, s.Privacy.Commands)
	}
	s.LLM = d.modelWords(ctx)
	if s.Machine.Degraded != "" {
		s.Warnings = append(s.Warnings, s.Machine.Degraded)
	}
	return s
}
