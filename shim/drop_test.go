package shim

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"farhand/wire"
)

// A peer can't fill the disk with what it sends wrong.
func TestDropsAreNotAllLogged(t *testing.T) {
	var out bytes.Buffer
	k := &socket{shim: &Shim{log: slog.New(slog.NewTextHandler(&out, nil))}, calls: make(map[string]*Call)}
	long := `{"type":"FILE_STAT","id":"1","version":"2.` + strings.Repeat("0", 1<<20) + `","payload":{}}`
	for i := range 1000 {
		frame := []string{long, `{`, `{"type":"ACK","id":"1","payload":{}}`}[min(i, 1+i%2)]
		if err := k.receive([]byte(frame), nil); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Count(out.String(), "\n")
	if lines != dropsLogged+1 || out.Len() > lines*500 {
		t.Errorf("%d lines of %d bytes in total for 1000 frames", lines, out.Len())
	}
	if !strings.Contains(out.String(), "another protocol version") || !strings.Contains(out.String(), string(wire.TAck)) {
		t.Errorf("the log says\n%s", out.String())
	}
}
