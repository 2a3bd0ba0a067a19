package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"farhand/device"
	"farhand/stream"
	"farhand/wire"
)

// ports is a driver of so many serial ports.
type ports struct{ first, n int }

func (*ports) Type() string { return device.Serial }

func (p *ports) Probe(context.Context) ([]device.Descriptor, error) {
	var all []device.Descriptor
	for i := range p.n {
		id := fmt.Sprintf("serial:p%d", p.first+i)
		all = append(all, device.Descriptor{HardwareDevice: wire.HardwareDevice{Type: device.Serial, ID: id}, Instance: id})
	}
	return all, nil
}

// frames is a socket that takes the frames of a stream.
type frames struct {
	ctx context.Context
	got chan wire.StreamData
}

func (frames) Request() string            { return "r" }
func (f frames) Context() context.Context { return f.ctx }
func (f frames) Send(ctx context.Context, _ string, d wire.StreamData) error {
	select {
	case f.got <- d:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// More may change at once than is kept for a subscriber: what the receiver has
// in its list and is gone is told all the same. What came between the list and
// the first change is an addition.
func TestHotplugAfterALoss(t *testing.T) {
	const n = 300 // more than a subscription keeps
	drive := &ports{n: n}
	r := device.NewRegistry(device.Options{Families: []device.Family{{Driver: drive, Service: onlyListed{}}}})
	refresh := func() {
		t.Helper()
		if err := r.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	refresh()
	hub := stream.NewHub(stream.HubOptions{})
	defer hub.Close()
	st, err := hub.Open(stream.Options{Records: true, Credit: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w := &hardwareWatch{
		registry: r, st: st, sub: r.Subscribe(), known: make(map[string]wire.HardwareDevice),
		visible: func(d wire.HardwareDevice) bool { return d.ID != "serial:p1" },
	}
	defer w.sub.Close()
	for _, d := range r.List() {
		if w.visible(d) {
			w.known[d.ID] = d
		}
	}
	drive.first, drive.n = n-1, 2
	refresh()
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.run()
	}()
	f := frames{t.Context(), make(chan wire.StreamData)}
	hub.Begin(st.ID(), f)
	events := make(map[string]int)
	lost := false
	for events["removed"]+events["added"] < n-1 {
		d := <-f.got
		lost = lost || d.Lost != nil
		for _, raw := range d.Records {
			var e wire.HardwareEvent
			if err := json.Unmarshal(raw, &e); err != nil {
				t.Fatal(err)
			}
			events[e.Event]++
			if e.Event == wire.HardwareAdded && e.Device.ID != "serial:p300" || e.Device.ID == "serial:p1" {
				t.Errorf("%s %s", e.Event, e.Device.ID)
			}
		}
	}
	if !lost || events["added"] != 1 || events["removed"] != n-2 {
		t.Errorf("%v, a gap: %v", events, lost)
	}
	st.End("done", nil)
	<-over
}
