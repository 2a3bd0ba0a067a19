package daemon

import (
	"sync"

	"farhand/device"
)

// holds keeps sessions from being reaped as idle while they hold a device.
type holds struct {
	mu      sync.Mutex
	release map[holdKey]func()
}

type holdKey struct{ session, device string }

// add notes that a session holds a device; hold is called if that is new.
func (h *holds) add(session, id string, hold func() (release func())) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := holdKey{session, id}
	if h.release == nil {
		h.release = make(map[holdKey]func())
	}
	if h.release[key] == nil {
		h.release[key] = hold()
	}
}

// end is told by the leases.
func (h *holds) end(l device.LeaseInfo) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := holdKey{l.Holder.Session, l.Device}
	if release := h.release[key]; release != nil {
		release()
		delete(h.release, key)
	}
}

// holdSession holds the session for as long as it holds the device.
func (d *services) holdSession(session, id string, hold func() (release func())) {
	d.holds.add(session, id, hold)
	for _, l := range d.leases.List() {
		if l.Device == id && l.Holder.Session == session {
			return
		}
	}
	// It ended before there was anything to release.
	d.holds.end(device.LeaseInfo{Key: device.Key{Device: id}, Holder: device.Holder{Session: session}})
}
