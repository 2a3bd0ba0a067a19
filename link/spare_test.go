package link_test

import (
	"bytes"
	"testing"

	"farhand/link"
	"farhand/wire"
)

// Memory that was given back holds the next message of its kind, and only that.
func TestReuse(t *testing.T) {
	here, far := pair(t, link.DialOptions{}, link.Options{})
	send := func(n int) []byte {
		t.Helper()
		data := bytes.Repeat([]byte{byte(n)}, n)
		go here.Send(t.Context(), link.Transfers, wire.Message{Type: wire.TTransferChunk, ID: "1", Payload: &wire.Attached{Data: data}})
		message, err := far.Read()
		if err != nil {
			t.Fatal(err)
		}
		e, err := wire.DecodeEnvelope(message)
		if err != nil || !bytes.Equal(e.Data, data) {
			t.Fatalf("%d bytes: %d came, %v", n, len(e.Data), err)
		}
		return message
	}
	first := send(wire.TransferPiece)
	far.Reuse(first)
	second := send(wire.TransferPiece - 1)
	if &second[0] != &first[0] {
		t.Error("the memory was not used again")
	}
	third := send(wire.TransferPiece)
	if &third[0] == &second[0] {
		t.Error("memory was used again that nobody gave back")
	}
	far.Reuse(second)
	if large := send(2 * wire.TransferPiece); &large[0] == &second[0] {
		t.Error("a message came in memory that is too small for it")
	}
}
