package shim_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"farhand/audit"
	"farhand/shim"
	"farhand/shim/shimtest"
	"farhand/wire"
)

// TestStorm: sockets that are lost and come back over and over, with requests in
// flight and sessions attached and detached meanwhile, leave nothing behind and
// never send a frame that the platform would not take.
func TestStorm(t *testing.T) {
	r, g := gated(t)
	go func() {
		for range g.started {
		}
	}()
	control := r.start()
	bindings := map[string]wire.SessionBinding{}
	for i := range 4 {
		id := fmt.Sprintf("s%d", i)
		bindings[id] = r.attach(control, id)
	}
	close(g.door("open"))
	ends := []func(*shimtest.Socket){
		(*shimtest.Socket).Drop,
		func(s *shimtest.Socket) { s.Close(1012, "") },
		func(s *shimtest.Socket) { s.Close(4401, "") },
		func(s *shimtest.Socket) { s.Raw([]byte("{")); s.Close(1011, "") },
	}
	for round := range 40 {
		for id, b := range bindings {
			decodeTo[wire.SessionBinding](t, control.Call(wire.TRestoreSession, wire.RestoreSession{SessionID: id, RootGrant: b.RootGrant}), wire.TSessionRestored)
		}
		var hit sync.WaitGroup
		for range bindings {
			s := r.platform.Next()
			hit.Go(func() {
				for i := range 6 {
					s.Request(wire.TFileList, wire.FileList{Path: []string{"open", "never"}[i%2]})
					s.Request(wire.TFileStat, wire.FileStat{Path: "x"})
				}
				if round%4 < 3 {
					ends[round%len(ends)](s)
				}
			})
		}
		hit.Wait()
		for id := range bindings {
			control.Call(wire.TDetachSession, wire.DetachSession{SessionID: id})
		}
		for range len(r.platform.Arrivals()) { // sockets that came back before the detach
			r.platform.Next()
		}
		if round%10 == 9 {
			control.Drop()
			r.awaitState(shim.Waiting)
			r.shim.Wake()
			control = r.platform.Next()
			if control.Session != "" {
				t.Fatalf("socket of %s", control.Session)
			}
		}
	}
	r.stop()
	if n := g.running.Load(); n != 0 {
		t.Errorf("%d handlers still run", n)
	}
	close(g.started)
	report, err := audit.Verify(t.Context(), filepath.Join(r.dir, "audit.log"), []byte(strings.Repeat("k", 32)))
	if err != nil || !report.OK {
		t.Errorf("audit: %+v, %v", report, err)
	}
}
