package wire_test

import (
	"bytes"
	"testing"

	"farhand/wire"
)

// What is attached to a frame comes out of it as it went in, whatever it is.
func TestAttached(t *testing.T) {
	for name, data := range map[string][]byte{
		"text": []byte("ok\n"), "zeros": {0, 0, 0}, "looks like JSON": []byte(`}{"type":"PING"}`), "not UTF-8": {0xff, 0, 0xfe},
	} {
		done := false
		a := &wire.Attached{Payload: wire.TransferChunk{Transfer: "t", Offset: 7}, Data: data, Done: func() { done = true }}
		f, err := wire.Message{Type: wire.TTransferChunk, ID: "1", Payload: a}.Encode()
		if err != nil || !f.Binary {
			t.Fatalf("%s: binary %v, %v", name, f.Binary, err)
		}
		var b bytes.Buffer
		if err := f.WriteFrame(&b); err != nil || b.Len() != f.Size() {
			t.Fatalf("%s: %d bytes of %d, %v", name, b.Len(), f.Size(), err)
		}
		e, err := wire.DecodeEnvelope(b.Bytes())
		if err != nil || !bytes.Equal(e.Data, data) || string(e.Payload) != `{"transfer":"t","offset":7}` {
			t.Errorf("%s: %q %q, %v", name, e.Payload, e.Data, err)
		}
		if a.Release(); !done || a.Data != nil {
			t.Errorf("%s: not released", name)
		}
	}
}

// A relay passes payload and data on as they are; without data the frame is text.
func TestAttachedRaw(t *testing.T) {
	for _, data := range [][]byte{nil, []byte("x")} {
		f, err := wire.Message{Type: wire.TTransferData, ID: "1", Payload: &wire.Attached{Payload: wire.Raw(`{"a":1}`), Data: data}}.Encode()
		if err != nil || f.Binary != (data != nil) {
			t.Fatal(f.Binary, err)
		}
		var b bytes.Buffer
		if err := f.WriteFrame(&b); err != nil {
			t.Fatal(err)
		}
		e, err := wire.DecodeEnvelope(b.Bytes())
		if err != nil || string(e.Payload) != `{"a":1}` || !bytes.Equal(e.Data, data) {
			t.Errorf("%q %q, %v", e.Payload, e.Data, err)
		}
	}
}

// Only messages that may have data do: any other is malformed, as ever.
func TestNothingAttachedElsewhere(t *testing.T) {
	for _, typ := range []wire.Type{wire.TPing, wire.TFileStat, wire.TTransferCommit, "UNKNOWN"} {
		if e, err := wire.DecodeEnvelope([]byte(`{"type":"` + string(typ) + `","id":"1","payload":{}}` + "\x00data")); err == nil {
			t.Errorf("%s: taken with %q", typ, e.Data)
		}
	}
	if e, err := wire.DecodeEnvelope([]byte(`{"id":"1","payload":{},"type":"TRANSFER_CHUNK"} ` + "\x00data")); err == nil {
		t.Errorf("a space before the zero byte: taken with %q", e.Data)
	}
}

// FuzzAttached: whatever arrives, an envelope and its data are parts of the frame
// that don't overlap, and what was understood is written again as it was.
func FuzzAttached(f *testing.F) {
	for _, s := range scenes(f) {
		for _, frame := range s.Frames {
			f.Add(frame.Text)
		}
	}
	f.Add([]byte("{\"type\":\"TRANSFER_CHUNK\",\"id\":\"1\"}\x00\x00}"))
	f.Fuzz(func(t *testing.T, frame []byte) {
		e, err := wire.DecodeEnvelope(frame)
		if err != nil || len(e.Data) == 0 {
			return
		}
		out, err := wire.Message{Type: e.Type, ID: e.ID, Payload: &wire.Attached{Payload: wire.Raw(e.Payload), Data: e.Data}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		out.WriteFrame(&b)
		again, err := wire.DecodeEnvelope(b.Bytes())
		if err != nil || !bytes.Equal(again.Data, e.Data) || !bytes.Equal(again.Payload, e.Payload) || again.ID != e.ID {
			t.Errorf("%q came back as %q, %v", frame, b.Bytes(), err)
		}
	})
}
