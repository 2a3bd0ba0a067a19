package route

import (
	"bufio"
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"farhand/relay/events"
	"farhand/wire"
)

// Once somebody follows the events, devices that come and go are told as it
// happens, and on a new connection no more than what is new.
func TestDevicesAreFollowed(t *testing.T) {
	b := start(t)
	r := b.robot(wire.HardwareSerial, wire.Streams)
	device := func(id string, available bool) wire.HardwareDevice {
		return wire.HardwareDevice{Type: "serial", ID: id, Available: available}
	}
	asked := make(chan *flow, 4)
	r.onControl = func(p *peer, env wire.Envelope) bool {
		switch env.Type {
		case wire.THardwareListRequest:
			p.send(wire.Message{Type: wire.THardwareListResponse, ID: env.ID, Payload: wire.HardwareListResponse{
				Devices: []wire.HardwareDevice{device("serial:a", true)}, Stream: "h",
			}})
			asked <- &flow{p: p, from: env.ID}
		case wire.TStreamCredit:
			r.note("credit")
		case wire.TStreamClose:
			p.send(wire.Message{Type: wire.TAck, ID: env.ID, Payload: wire.Ack{OK: true}})
			r.note("closed")
		default:
			return false
		}
		return true
	}
	r.connect()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, b.http.URL+"/api/events?follow=true", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+opTok)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	told := make(chan events.Event, 16)
	go func() {
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			var e events.Event
			if json.Unmarshal(lines.Bytes(), &e) == nil && e.Type != "" {
				told <- e
			}
		}
	}()
	want := func(kind events.Type, id string) {
		t.Helper()
		for {
			select {
			case e := <-told:
				if !strings.HasPrefix(string(e.Type), "device_") {
					continue
				}
				if e.Type != kind || e.Device.ID != id {
					t.Fatalf("told %+v, want %s of %s", e, kind, id)
				}
				return
			case <-time.After(time.Minute):
				t.Fatalf("not told of %s, %s", id, kind)
			}
		}
	}
	f := recv(t, asked)
	want(events.DeviceAdded, "serial:a") // the HELLO had none
	tell := func(f *flow, kind string, d wire.HardwareDevice) {
		rec, err := json.Marshal(wire.HardwareEvent{Event: kind, Device: d})
		if err != nil {
			t.Fatal(err)
		}
		f.n++
		f.p.send(wire.Message{Type: wire.TStreamData, ID: f.from + "/1", Payload: wire.StreamData{Stream: "h", Records: []json.RawMessage{rec}}})
	}
	tell(f, wire.HardwareAdded, device("serial:b", true))
	want(events.DeviceAdded, "serial:b")
	r.await("credit")
	tell(f, wire.HardwareChanged, device("serial:b", false))
	want(events.DeviceChanged, "serial:b")
	tell(f, wire.HardwareAdded, device("serial:b", false)) // told anew after a gap: nothing changed
	tell(f, wire.HardwareRemoved, device("serial:b", false))
	want(events.DeviceRemoved, "serial:b")

	r.stop()
	r.connect()
	f = recv(t, asked)
	r.await("closed")
	want(events.DeviceRemoved, "serial:a") // again not in the HELLO
	want(events.DeviceAdded, "serial:a")
	tell(f, wire.HardwareAdded, device("serial:c", true))
	want(events.DeviceAdded, "serial:c")
}
