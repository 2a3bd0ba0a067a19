package slack

import (
	"runtime"
	"testing"
)

func TestLook(t *testing.T) {
	var w watch
	w.look()
	garbage := make([][]byte, 64)
	for i := range garbage {
		garbage[i] = make([]byte, 1<<20)
	}
	runtime.KeepAlive(garbage)
	_, full := read()
	if w.look() {
		t.Error("memory was given back by a busy program")
	}
	if !w.look() {
		t.Error("an idle program kept its memory")
	}
	if _, mapped := read(); mapped+32<<20 > full {
		t.Errorf("%d of %d bytes are still mapped", mapped, full)
	}
	if w.look() {
		t.Error("an idle program gave back memory again that it doesn't have")
	}
}
