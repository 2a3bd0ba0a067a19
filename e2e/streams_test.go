package e2e

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"farhand/client"
	"farhand/wire"
)

// upTo reads a stream until so many bytes have come or it ends. Nothing may be
// missing on the way.
func upTo(t *testing.T, st *client.Stream, got []byte, n int) ([]byte, *wire.StreamEnd) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(got) < n {
		c, err := st.Next(ctx)
		if err != nil {
			t.Fatalf("after %d of %d bytes: %v (%v)", len(got), n, err, st.Trouble())
		}
		if c.Lost != nil || c.Offset != int64(len(got)) {
			t.Fatalf("after %d bytes: offset %d, lost %+v", len(got), c.Offset, c.Lost)
		}
		if got = append(got, c.Data...); c.End != nil {
			return got, c.End
		}
	}
	return got, nil
}

// A stream goes on over a relay that was started anew: its bytes come once and in
// order, also those that came meanwhile. A grant that is withdrawn ends it.
func TestStreams(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,hardware_serial")
	ctx := t.Context()
	c := b.sdk()
	s, err := c.Open(ctx, b.place())
	if err != nil {
		t.Fatal(err)
	}
	st, _, err := s.SerialWatch(ctx, echo, wire.SerialWatch{Credit: 16 << 10})
	if err != nil {
		t.Fatal(err)
	}
	var want, got []byte
	say := func(text string) {
		t.Helper()
		if _, err := s.SerialWrite(ctx, echo, wire.SerialWrite{Data: []byte(text)}, false); err != nil {
			t.Fatal(err)
		}
		want = append(want, text...)
	}
	for range 40 { // several windows of credit
		say("0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz\n")
		got, _ = upTo(t, st, got, len(want))
	}
	b.relay.stop()
	b.startRelay()
	say("after the relay came back\n")
	say("and once more\n")
	if got, _ = upTo(t, st, got, len(want)); string(got) != string(want) {
		t.Fatalf("%d bytes came, and not those that were sent", len(got))
	}
	// The owner withdraws the device: that is the end, at once.
	g, err := c.EditApproval(ctx, "bench", func(allow *wire.Ceiling) error {
		allow.Devices = &[]wire.DeviceGrant{{Pattern: psu}}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, end := upTo(t, st, got, len(want)+1); end == nil || end.Reason != "grant_revoked" {
		t.Errorf("it ended with %+v", end)
	}
	for _, d := range g.Effective.Devices {
		if d.Type == "serial" && d.Allowed != (d.ID == psu) {
			t.Errorf("%+v", d)
		}
	}
	_, _, err = s.SerialWatch(ctx, echo, wire.SerialWatch{})
	if code := wire.CodeOf(err); code != wire.HardwareNotGranted && code != wire.CapabilityNotGranted {
		t.Errorf("watching what was withdrawn: %v", err)
	}
}

// The stream of a machine's devices is the machine's: it outlives a relay that
// was started anew, and is closed through the new one.
func TestHotplugStream(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim(everything)
	c := b.sdk()
	st, list, err := c.WatchDevices(t.Context(), "bench", "")
	if err != nil || len(list.Devices) == 0 || list.Stream != st.ID() {
		t.Fatalf("%+v, %v", list, err)
	}
	b.relay.stop()
	b.startRelay()
	if err := st.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the end of the stream", func() error {
		for _, r := range b.records() {
			if r.Op == "STREAM_END" && r.Details["stream"] == st.ID() {
				if r.Details["reason"] != "closed" {
					return fmt.Errorf("it ended with %v", r.Details)
				}
				return nil
			}
		}
		return errors.New("no record of it")
	})
}
