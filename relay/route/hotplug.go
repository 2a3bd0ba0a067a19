package route

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"

	"github.com/google/uuid"

	"farhand/relay/events"
	"farhand/wire"
)

// The devices of an owner's machines are watched from the first time on that
// somebody follows the owner's events: by a stream on each control socket, which
// the relay itself receives. Until then a machine costs nothing more, and what
// changed about its devices is told when it connects.

// watchSigns is after how many sweeps (seconds) a device is told that the relay
// still receives: it gives a stream up after 300 s.
const watchSigns = 100

// watchTries is how often another instance is told what to watch, if it must.
const watchTries = 3

// watch has the devices of an owner's machines watched from now on, at all
// instances. The caller has entered.
func (s *Server) watch(owner string) {
	s.watchHere(owner)
	if s.places == nil {
		return
	}
	for _, id := range s.places.node.Peers() {
		if id != s.places.node.ID() {
			s.spawn(func() { s.tellWatching(id, owner) })
		}
	}
}

// tellWatching has another instance watch the devices of an owner's machines.
func (s *Server) tellWatching(instance, owner string) {
	var err error
	for range watchTries { // one that has just come may not serve yet
		ctx, cancel := context.WithTimeout(s.ctx, hopTime)
		_, err = s.hop(ctx, http.MethodPost, instance, "/cluster/watch?"+url.Values{"owner": {owner}}.Encode())
		cancel()
		if err == nil || s.ctx.Err() != nil || !s.places.node.Alive(instance) {
			return
		}
	}
	s.log.Warn("another instance wasn't told that devices are watched", "instance", instance, "error", err)
}

// tellWhatIsWatched has an instance that has come watch what is watched here.
func (s *Server) tellWhatIsWatched(instance string) {
	if !s.enter() {
		return
	}
	defer s.leave()
	s.mu.Lock()
	owners := slices.Collect(maps.Keys(s.watched))
	s.mu.Unlock()
	s.spawn(func() {
		for _, owner := range owners {
			s.tellWatching(instance, owner)
		}
	})
}

// watchHere has them watched at this instance. The caller has entered.
func (s *Server) watchHere(owner string) {
	s.mu.Lock()
	first := !s.watched[owner]
	s.watched[owner] = true
	s.mu.Unlock()
	if !first {
		return
	}
	for _, m := range s.machinesOf(func(key machineKey) bool { return key.owner == owner }) {
		if d := m.online(); d != nil {
			s.spawn(func() { m.watchDevices(d) })
		}
	}
}

func (s *Server) isWatched(owner string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watched[owner]
}

func (s *Server) machinesOf(which func(machineKey) bool) []*machine {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*machine
	for key, m := range s.machines {
		if which(key) {
			all = append(all, m)
		}
	}
	return all
}

// tellWatched tells the devices that their streams are still received.
func (s *Server) tellWatched() {
	for _, m := range s.machinesOf(func(key machineKey) bool { return s.watched[key.owner] }) {
		m.mu.Lock()
		d, stream := m.control, m.stream
		m.mu.Unlock()
		if d != nil && stream != "" && d.watching.Load() {
			d.credit(stream, 0)
		}
	}
}

// watchDevices opens the stream on a control socket.
func (m *machine) watchDevices(d *device) {
	if !d.granted.Has(wire.Streams) || !d.granted.AnyHardware() || !d.watching.CompareAndSwap(false, true) {
		return
	}
	s := m.srv
	before, err := m.read(s.ctx)
	var list wire.HardwareListResponse
	if err == nil {
		var body []byte
		if body, err = m.call(s.ctx, wire.THardwareListRequest, wire.HardwareListRequest{Watch: true}, s.timing.control); err == nil {
			err = wire.Decode(body, &list)
		}
	}
	if err != nil {
		s.log.Warn("devices not watched", append(d.describe(), "error", err)...)
		return
	}
	m.devicesSince(before, list.Devices, list.Truncated)
	earlier := d.goOn(list.Stream)
	if earlier != "" { // on a connection before; the device keeps it for a while
		_, _ = m.call(s.ctx, wire.TStreamClose, wire.StreamClose{Stream: earlier}, s.timing.control)
	}
}

// credit lets a device send so much more of the stream that the relay receives.
func (d *device) credit(stream string, bytes int) {
	_ = d.sock.send(encode(wire.Message{Type: wire.TStreamCredit, ID: uuid.NewString(), Payload: wire.StreamCredit{Stream: stream, Bytes: bytes}}))
}

// maxEarly bounds what waits for a list to be dealt with, in frames. That takes a
// moment, in which a device sends one or two.
const maxEarly = 32

// goOn takes what comes on the stream from now on, once it has taken what came
// already, and gives the stream that was there before.
func (d *device) goOn(stream string) (earlier string) {
	m := d.machine
	for {
		m.mu.Lock()
		early := m.early
		m.early = nil
		if len(early) == 0 {
			earlier, m.stream = m.stream, stream
			m.mu.Unlock()
			return earlier
		}
		m.mu.Unlock()
		for _, data := range early {
			if data.Stream == stream {
				d.changed(data)
			}
		}
	}
}

// hotplug takes a frame of the stream.
func (d *device) hotplug(payload []byte) {
	var data wire.StreamData
	if wire.Decode(payload, &data) != nil {
		return
	}
	m := d.machine
	m.mu.Lock()
	waits := m.stream != data.Stream
	if waits && len(m.early) < maxEarly {
		m.early = append(m.early, data)
	}
	m.mu.Unlock()
	if !waits {
		d.changed(data)
	}
}

// changed publishes what changed among the devices of a machine.
func (d *device) changed(data wire.StreamData) {
	n := 0
	for _, raw := range data.Records {
		n += len(raw)
		var e wire.HardwareEvent
		if json.Unmarshal(raw, &e) == nil {
			d.machine.deviceChanged(e)
		}
	}
	if n > 0 && data.End == nil {
		d.credit(data.Stream, n)
	}
}

// deviceChanged publishes one change, if it is one.
func (m *machine) deviceChanged(e wire.HardwareEvent) {
	m.mu.Lock()
	was, known := m.devices[e.Device.ID]
	switch {
	case e.Event == wire.HardwareRemoved:
		delete(m.devices, e.Device.ID)
	case m.devices != nil && len(m.devices) < maxWatched:
		m.devices[e.Device.ID] = e.Device
	}
	m.mu.Unlock()
	switch {
	case e.Event == wire.HardwareRemoved && known:
		m.happened(events.Event{Type: events.DeviceRemoved, Device: &e.Device})
	case e.Event != wire.HardwareRemoved && !known:
		m.happened(events.Event{Type: events.DeviceAdded, Device: &e.Device})
	case e.Event != wire.HardwareRemoved && was.Available != e.Device.Available:
		m.happened(events.Event{Type: events.DeviceChanged, Device: &e.Device})
	}
}

// maxWatched bounds what is remembered of a machine's devices: as many as it lists.
const maxWatched = 4096

// devicesSince publishes how the devices of a list differ from those that were
// known: while they are watched, from those of the stream, else from those of the
// HELLO before. Only what the approval lets be seen is compared: a HELLO has the
// others, too. A list that was cut says nothing about what isn't in it.
func (m *machine) devicesSince(before *wire.Hello, now []wire.HardwareDevice, cut bool) {
	m.mu.Lock()
	known := maps.Clone(m.devices)
	if known == nil && before != nil && !before.HardwareTruncated {
		known = byID(before.HardwareDevices)
	}
	if m.srv.isWatched(m.key.owner) && !cut {
		m.devices = byID(now)
	}
	m.mu.Unlock()
	if known == nil || cut {
		return
	}
	approved := m.approved()
	hidden := func(d wire.HardwareDevice) bool { return !visibleTo(approved, d) }
	maps.DeleteFunc(known, func(_ string, d wire.HardwareDevice) bool { return hidden(d) })
	for _, d := range slices.DeleteFunc(slices.Clone(now), hidden) {
		was, there := known[d.ID]
		delete(known, d.ID)
		switch {
		case !there:
			m.happened(events.Event{Type: events.DeviceAdded, Device: &d})
		case was.Available != d.Available:
			m.happened(events.Event{Type: events.DeviceChanged, Device: &d})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(known)) {
		d := known[id]
		m.happened(events.Event{Type: events.DeviceRemoved, Device: &d})
	}
}

func byID(list []wire.HardwareDevice) map[string]wire.HardwareDevice {
	out := make(map[string]wire.HardwareDevice, len(list))
	for _, d := range list {
		out[d.ID] = d
	}
	return out
}
