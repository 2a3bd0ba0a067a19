package soak_test

import (
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"farhand/internal/leak"
	"farhand/internal/testenv"
	"farhand/lab/guest"
)

// What may remain after all cycles beyond what was there after the first ones:
// no goroutine, no descriptor, and so much memory, which is less than a byte a
// cycle times the size of anything that one makes.
const heapBound = 256 << 10

// cycles is FARHAND_SOAK, which lab/run sets.
func cycles(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("FARHAND_SOAK"))
	if err != nil || n < 20 {
		t.Fatalf("FARHAND_SOAK is %q, want at least 20", os.Getenv("FARHAND_SOAK"))
	}
	return n
}

// TestLabPlugAndUnplug is field cases 11 and 33, a thousand times over.
func TestLabPlugAndUnplug(t *testing.T) {
	testenv.Lab(t)
	total := cycles(t)
	leak.Check(t)
	device := guest.Gadget(t, guest.ACM(), guest.Loopback(), guest.SerialNumber("SOAK"))
	end := echo(t, device.GadgetTTY(0))
	b := newBench(t)
	sessions := []*session{
		b.start("talker", serialID, talk),
		b.start("keeper", serialID, keep),
		b.start("sender", usbID, bulk),
		b.start("looker", usbID, lookAndBulk),
	}
	begin := time.Now()
	var states []state
	fifth := total / 5
	for i := range total {
		// Most changes are told to the registry at once, for speed; every
		// twentieth is for it to notice by itself.
		told := i%20 != 9
		device.Plug()
		device.HostNode("tty")
		b.waitGeneration(i+1, told)
		b.waitWork(i, sessions)
		if t.Failed() {
			return
		}
		end.unplug(device) // in the middle of what the sessions do
		b.waitGone(told)
		if (i+1)%fifth == 0 {
			states = append(states, b.settle())
			t.Logf("figure: after cycle %d: %v", i+1, states[len(states)-1])
		}
	}
	early, late := states[0], states[len(states)-1]
	t.Logf("figure: %d cycles in %.0f s while 4 sessions used the device; generation %d", total, time.Since(begin).Seconds(), total)
	for _, s := range sessions {
		t.Logf("figure: session %s: %d operations done, refused or cut: %s", s.name, s.done.Load(), s.refusals())
	}
	if late.goroutines > early.goroutines || late.descriptors > early.descriptors {
		t.Error("goroutines or descriptors are left")
	}
	if late.heap > early.heap+heapBound {
		t.Errorf("the heap grew by %d KiB, more than %d", (late.heap-early.heap)>>10, heapBound>>10)
	}
	for _, s := range sessions {
		if s.done.Load() < int64(total/10) {
			t.Errorf("session %s got hardly anything done", s.name)
		}
	}
	if left := b.leases.List(); len(left) > 0 {
		t.Errorf("leases are stuck: %+v", left)
	}
	if live := slices.DeleteFunc(b.hub.List(), ended); len(live) > 0 {
		t.Errorf("streams of a device that is gone go on: %+v", live)
	}
}
