package daemon

import (
	"testing"

	"farhand/device"
)

func TestHoldsFollowTheLease(t *testing.T) {
	var h holds
	held := 0
	hold := func() func() { held++; return func() { held-- } }
	lease := func(session, id string) device.LeaseInfo {
		return device.LeaseInfo{Key: device.Key{Device: id}, Holder: device.Holder{Session: session}}
	}
	h.add("a", "serial:x", hold)
	h.add("a", "serial:x", hold) // held once, however often it is said
	h.add("a", "serial:y", hold)
	h.add("b", "serial:z", hold)
	if held != 3 {
		t.Errorf("%d held, want 3", held)
	}
	h.end(lease("a", "serial:x"))
	h.end(lease("a", "serial:x"))
	h.end(lease("c", "serial:z"))
	if held != 2 {
		t.Errorf("%d held, want 2", held)
	}
	h.end(lease("a", "serial:y"))
	h.end(lease("b", "serial:z"))
	if held != 0 || len(h.release) != 0 {
		t.Errorf("%d held, %d remembered, want none", held, len(h.release))
	}
}
