package octoprint_test

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"farhand/device"
	"farhand/internal/faketime"
	"farhand/octoprint"
	"farhand/octoprint/octoprinttest"
	"farhand/octoprint/octotest"
	"farhand/stream"
	"farhand/wire"
)

func noKey(o *octoprint.Options) { o.Printers[0].Key = "" }

func join(t testing.TB, b *bench, args any) (wire.PrinterJoining, *octoprinttest.Records) {
	t.Helper()
	j := octoprinttest.Must[wire.PrinterJoining](t, b.Rig, "s", wire.OpPrinterJoin, args)
	return j, b.Listen(t, j.Stream)
}

func decided(t testing.TB, rec *octoprinttest.Records) wire.PrinterJoinEvent {
	t.Helper()
	return octoprinttest.Until(t, rec, func(e wire.PrinterJoinEvent) bool { return e.Decision != wire.JoinWaiting })
}

func TestJoin(t *testing.T) {
	var log lockedBuffer
	b := serve(t, octotest.Options{}, func(o *octoprint.Options) {
		noKey(o)
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	changes := make(chan struct{}, 10)
	b.servers.OnChange(func() { changes <- struct{}{} })
	if d := list(t, b.servers); !d[0].Available || !strings.Contains(d[0].Reason, "PRINTER_JOIN") {
		t.Errorf("without a key: %+v", d[0])
	}
	octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterStatus, nil, wire.HardwareOpenFailed)
	j, rec := join(t, b, wire.PrinterJoin{User: "me"})
	if !strings.Contains(j.Dialog, "/plugin/appkeys/auth/") || j.Hint == "" {
		t.Errorf("%+v", j)
	}
	if apps := b.server.Joins(); len(apps) != 1 || apps[0] != "farhand on bench" {
		t.Errorf("asked for by %q", apps)
	}
	b.server.Decide(true)
	if e := decided(t, rec); e.Decision != wire.JoinGranted || e.Error != nil {
		t.Errorf("%+v", e)
	}
	if reason := rec.End(); reason != "done" {
		t.Errorf("the stream ends with %q", reason)
	}
	<-changes
	octoprinttest.Must[wire.PrinterStatus](t, b.Rig, "s", wire.OpPrinterStatus, nil)
	info, err := os.Stat(filepath.Join(b.state, "printers.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	if !strings.Contains(readState(t, b), "APPKEY") {
		t.Error("the key isn't stored")
	}
	if strings.Contains(log.String(), "APPKEY") || strings.Contains(log.String(), "token") {
		t.Errorf("a secret is in the log: %s", log.String())
	}
	// The next process has it, unless the printer of this name is another.
	for at, has := range map[string]bool{address(t, b): true, "http://127.0.0.1:1/": false} {
		again := newServers(t, octoprint.Options{Printers: []octoprint.Printer{{Name: "mk4", URL: parse(t, at)}}, StateDir: b.state})
		if got := list(t, again)[0].Reason == ""; got != has {
			t.Errorf("at %s: has a key: %v", at, got)
		}
	}
	b.server.RevokeKeys()
	octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterStatus, nil, wire.HardwareOpenFailed)
}

func TestJoinDeniedAndUnsupported(t *testing.T) {
	b := serve(t, octotest.Options{}, noKey)
	_, rec := join(t, b, nil)
	b.server.Decide(false)
	if e := decided(t, rec); e.Decision != wire.JoinDenied {
		t.Errorf("%+v", e)
	}
	b.server.SetFaults(octotest.Faults{NoAppKeys: true})
	if e := octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterJoin, nil, wire.FeatureNotSupported); !strings.Contains(e.Details["hint"].(string), "printer_keys") {
		t.Errorf("%v", e.Details)
	}
	octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterJoin, wire.PrinterJoin{User: strings.Repeat("x", 200)}, wire.InvalidArgument)
	keyed := serve(t, octotest.Options{}, nil)
	octoprinttest.Code(t, keyed.Rig, "s", wire.OpPrinterJoin, nil, wire.InvalidArgument)
}

// Nobody decides: the request is polled in time (a gap of 5 s would end it) for
// ten minutes and no longer.
func TestJoinNobodyDecides(t *testing.T) {
	bubble(t, octotest.Options{}, noKey, func(t *testing.T, b *bench) {
		_, rec := join(t, b, nil)
		faketime.Advance(9*time.Minute + 50*time.Second)
		if len(b.server.Joins()) != 1 {
			t.Error("the request is gone before its time")
		}
		faketime.Advance(20 * time.Second)
		if e := decided(t, rec); e.Decision != wire.JoinDenied {
			t.Errorf("%+v", e)
		}
	})
}

func TestKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "key")
	b := serve(t, octotest.Options{}, func(o *octoprint.Options) { o.Printers[0].Key, o.Printers[0].KeyFile = "", path })
	octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterStatus, nil, wire.HardwareOpenFailed)
	for _, bad := range []string{"", "two words\n", strings.Repeat("x", 1000), "caf\u00e9\n"} {
		write(t, path, bad)
		octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterStatus, nil, wire.HardwareOpenFailed)
	}
	write(t, path, "secret\n")
	octoprinttest.Must[wire.PrinterStatus](t, b.Rig, "s", wire.OpPrinterStatus, nil)
}

func TestBrokenState(t *testing.T) {
	for _, content := range []string{"", "{", "[]", `{"mk4":null}`, `{"mk4":{"hot":7}}`} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "printers.json"), content)
		s := newServers(t, octoprint.Options{Printers: []octoprint.Printer{{Name: "mk4", URL: parse(t, "http://printer.invalid/")}}, StateDir: dir})
		if d := list(t, s); len(d) != 1 || d[0].Reason == "" {
			t.Errorf("%q: %+v", content, d)
		}
	}
}

// What a daemon that was killed left hot goes off at the next start.
func TestRecover(t *testing.T) {
	b := serve(t, octotest.Options{}, nil)
	octoprinttest.Must[wire.PrinterTargets](t, b.Rig, "s", wire.OpPrinterTemperature, map[string]any{"tool0": 200, "bed": 60})
	next := newServers(t, octoprint.Options{Printers: []octoprint.Printer{{Name: "mk4", URL: parse(t, address(t, b)), Key: "secret"}}, StateDir: b.state})
	next.Recover(t.Context())
	if tool, bed := b.server.Target("tool0"), b.server.Target("bed"); tool != 0 || bed != 0 {
		t.Errorf("targets %g and %g", tool, bed)
	}
	if s := readState(t, b); strings.Contains(s, "tool0") {
		t.Errorf("the state still has %s", s)
	}
}

// Heaters that can't be switched off now are tried again, unless somebody has
// set them meanwhile.
func TestHeatersOffLater(t *testing.T) {
	bubble(t, octotest.Options{}, nil, func(t *testing.T, b *bench) {
		octoprinttest.Must[wire.PrinterTargets](t, b.Rig, "s", wire.OpPrinterTemperature, map[string]any{"bed": 60})
		b.server.SetFaults(octotest.Faults{Proxy: "gateway"})
		if _, err := b.Do(t, "s", wire.OpRelease, nil); err != nil {
			t.Fatal(err)
		}
		faketime.Advance(time.Minute)
		if b.server.Target("bed") != 60 {
			t.Fatal("it was switched off through a broken gateway")
		}
		b.server.SetFaults(octotest.Faults{})
		faketime.Advance(16 * time.Second)
		if got := b.server.Target("bed"); got != 0 {
			t.Errorf("the target is %g", got)
		}
		octoprinttest.Must[wire.PrinterTargets](t, b.Rig, "s", wire.OpPrinterTemperature, map[string]any{"bed": 60})
		b.server.SetFaults(octotest.Faults{Proxy: "gateway"})
		if _, err := b.Do(t, "s", wire.OpRelease, nil); err != nil {
			t.Fatal(err)
		}
		b.server.SetFaults(octotest.Faults{})
		octoprinttest.Must[wire.PrinterTargets](t, b.Rig, "s2", wire.OpPrinterTemperature, map[string]any{"bed": 70, "on_release": "hold"})
		faketime.Advance(10 * time.Minute)
		if got := b.server.Target("bed"); got != 70 {
			t.Errorf("who set it since has %g", got)
		}
	})
}

// Who takes a printer over on which heaters are still to go off has what it sets
// itself, and the others go off all the same.
func TestHeatersOfTwoSessions(t *testing.T) {
	bubble(t, octotest.Options{}, nil, func(t *testing.T, b *bench) {
		octoprinttest.Must[wire.PrinterTargets](t, b.Rig, "s", wire.OpPrinterTemperature, map[string]any{"bed": 60, "tool0": 200})
		b.server.SetFaults(octotest.Faults{Proxy: "gateway"})
		if _, err := b.Do(t, "s", wire.OpRelease, nil); err != nil {
			t.Fatal(err)
		}
		b.server.SetFaults(octotest.Faults{})
		octoprinttest.Must[wire.PrinterTargets](t, b.Rig, "s2", wire.OpPrinterTemperature, map[string]any{"bed": 70})
		if s := readState(t, b); !strings.Contains(s, "tool0") || !strings.Contains(s, "bed") {
			t.Errorf("the state has %s", s)
		}
		faketime.Advance(time.Minute)
		if tool, bed := b.server.Target("tool0"), b.server.Target("bed"); tool != 0 || bed != 70 {
			t.Errorf("targets %g and %g, want the tool off and the bed at 70", tool, bed)
		}
		if s := readState(t, b); strings.Contains(s, "tool0") || !strings.Contains(s, "bed") {
			t.Errorf("the state still has %s", s)
		}
	})
}

func TestDeadman(t *testing.T) {
	bubble(t, octotest.Options{}, nil, func(t *testing.T, b *bench) {
		octoprinttest.Must[wire.PrinterTargets](t, b.Rig, "s", wire.OpPrinterTemperature, map[string]any{"bed": 60, "deadman_seconds": 30})
		faketime.Advance(29 * time.Second)
		if got := b.server.Target("bed"); got != 60 {
			t.Errorf("too early: %g", got)
		}
		faketime.Advance(2 * time.Second)
		if got := b.server.Target("bed"); got != 0 {
			t.Errorf("after the dead-man's time: %g", got)
		}
	})
}

// A heater whose setting failed half way goes off at once.
func TestHeatersHalfSet(t *testing.T) {
	b := serve(t, octotest.Options{}, nil)
	e := octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterTemperature, map[string]any{"bed": 60, "chamber": 40}, wire.HardwareNotFound)
	if e.Details["heater"] != "chamber" {
		t.Errorf("%v", e.Details)
	}
	octoprinttest.Must[wire.PrinterStatus](t, b.Rig, "s2", wire.OpPrinterStatus, nil) // waits for the end of the first lease
	if got := b.server.Target("bed"); got != 0 {
		t.Errorf("the bed has %g", got)
	}
}

func TestWatchThroughFailures(t *testing.T) {
	bubble(t, octotest.Options{}, nil, func(t *testing.T, b *bench) {
		w := octoprinttest.Must[wire.PrinterWatching](t, b.Rig, "s", wire.OpPrinterWatch, wire.PrinterWatch{Log: true})
		rec := b.Listen(t, w.Stream)
		typed := func(typ string) wire.PrinterEvent {
			t.Helper()
			return octoprinttest.Until(t, rec, func(e wire.PrinterEvent) bool { return e.Type == typ })
		}
		if !w.Push {
			t.Error("it doesn't push")
		}
		synctest.Wait()
		b.server.Event("PrintStarted", map[string]string{"name": "x"})
		if e := typed(wire.PrinterEventEvent); e.Name != "PrintStarted" || string(e.Payload) != `{"name":"x"}` {
			t.Errorf("%+v %s", e, e.Payload)
		}
		b.server.Run("G28")
		octoprinttest.Until(t, rec, func(e wire.PrinterEvent) bool { return strings.Contains(strings.Join(e.Log, "|"), "Send: G28") })
		b.server.Reauth()
		faketime.Advance(time.Second)
		b.server.Event("Home", nil)
		if e := typed(wire.PrinterEventEvent); e.Name != "Home" {
			t.Errorf("after a new login: %+v", e)
		}
		b.server.SetFaults(octotest.Faults{Proxy: "gateway"})
		b.server.Hangup()
		if e := typed(wire.PrinterEventLost); e.Error == nil {
			t.Errorf("%+v", e)
		}
		faketime.Advance(5 * time.Minute)
		b.server.SetFaults(octotest.Faults{})
		typed(wire.PrinterEventBack)
		typed(wire.PrinterEventState)
		b.Streams.CloseStream(w.Stream, stream.Owner{Session: "s", Holder: "h", Owner: "o"})
		synctest.Wait()
		if held := b.Leases.Held("s"); held != 0 || b.server.Sockets() != 0 {
			t.Errorf("after the stream's end: %d leases, %d sockets", held, b.server.Sockets())
		}
	})
}

// States are told no more often than was asked for.
func TestWatchRate(t *testing.T) {
	bubble(t, octotest.Options{}, nil, func(t *testing.T, b *bench) {
		w := octoprinttest.Must[wire.PrinterWatching](t, b.Rig, "s", wire.OpPrinterWatch, wire.PrinterWatch{IntervalSeconds: 10})
		rec := b.Listen(t, w.Stream)
		faketime.Advance(100 * time.Second)
		if err := b.Leases.ReleaseAll(t.Context(), "s"); err != nil {
			t.Fatal(err)
		}
		n := 0
		octoprinttest.All(t, rec, func(wire.PrinterEvent) { n++ })
		if n < 9 || n > 12 {
			t.Errorf("%d records in 100 s", n)
		}
	})
}

// What is cut off in the middle may have happened: it is said, and not sent
// again.
func TestAmbiguousIsNotRepeated(t *testing.T) {
	b := serve(t, octotest.Options{}, nil)
	if last := upload(t, b, "a.gcode", wire.PrinterUpload{Select: true}); last.Error != nil {
		t.Fatal(last.Error)
	}
	b.server.SetFaults(octotest.Faults{Cut: "/printer/command"})
	e := octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterCommand, map[string]any{"gcode": "G28"}, wire.HardwareTransferFailed)
	if !strings.Contains(e.Details["hint"].(string), "may have taken effect") {
		t.Errorf("%v", e.Details)
	}
	if n := b.server.Count("POST /api/printer/command"); n != 1 {
		t.Errorf("sent %d times", n)
	}
	b.server.SetFaults(octotest.Faults{Cut: "/files/local"})
	posts := b.server.Count("POST /api/files/local")
	if last := upload(t, b, "b.gcode", wire.PrinterUpload{}); last.Error == nil {
		t.Errorf("%+v", last)
	}
	if n := b.server.Count("POST /api/files/local") - posts; n != 1 {
		t.Errorf("sent %d times", n)
	}
}

func TestTimes(t *testing.T) {
	bubble(t, octotest.Options{Faults: octotest.Faults{Hang: "/api/job"}}, nil, func(t *testing.T, b *bench) {
		began := time.Now()
		e := wire.AsError(doPatiently(t, b, wire.OpPrinterStatus, nil))
		if e.Code != wire.HardwareOpenFailed || e.Details["reason"] != "timeout" || time.Since(began) != 25*time.Second {
			t.Errorf("after %s: %v %v", time.Since(began), e, e.Details)
		}
		b.server.SetFaults(octotest.Faults{Hang: "/files/local"})
		began = time.Now()
		b.Files.Put("a.gcode", bytes.Repeat([]byte("G28\n"), 1<<20))
		up := octoprinttest.Must[wire.PrinterUploading](t, b.Rig, "s", wire.OpPrinterUpload, wire.PrinterUpload{Path: "a.gcode"})
		rec := b.Listen(t, up.Stream)
		faketime.Advance(10 * time.Minute)
		last := octoprinttest.Until(t, rec, func(p wire.PrinterProgress) bool { return p.Error != nil })
		if last.Error.Details["reason"] != "stalled" {
			t.Errorf("after %s: %v %v", time.Since(began), last.Error, last.Error.Details)
		}
	})
}

func doPatiently(t testing.TB, b *bench, op string, args any) error {
	t.Helper()
	_, _, err := b.Dispatcher.Do(t.Context(), device.Caller{Session: "s", Streams: true}, wire.HardwareOp{Device: b.ID, Op: op})
	return err
}

// Closing an upload's stream ends the upload.
func TestUploadCancelled(t *testing.T) {
	bubble(t, octotest.Options{Faults: octotest.Faults{Hang: "/files/local"}}, nil, func(t *testing.T, b *bench) {
		b.Files.Put("a.gcode", bytes.Repeat([]byte("G28\n"), 1<<20))
		up := octoprinttest.Must[wire.PrinterUploading](t, b.Rig, "s", wire.OpPrinterUpload, wire.PrinterUpload{Path: "a.gcode"})
		synctest.Wait()
		if b.Leases.Held("s") != 1 {
			t.Error("an upload holds no lease")
		}
		b.Streams.CloseStream(up.Stream, stream.Owner{Session: "s"})
		synctest.Wait()
		if b.Leases.Held("s") != 0 {
			t.Error("the upload goes on without its stream")
		}
	})
}

func TestPrinterOffline(t *testing.T) {
	for name, o := range map[string]octotest.Options{"1": {}, "2": {API2: true}, "moonraker": {Moonraker: true}} {
		b := serve(t, o, nil)
		b.server.SetConnected(false)
		s := octoprinttest.Must[wire.PrinterStatus](t, b.Rig, "s", wire.OpPrinterStatus, nil)
		if s.State != wire.PrinterOffline || s.Hint == "" {
			t.Errorf("%s: %+v", name, s)
		}
		if o.Moonraker {
			continue
		}
		e := octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterJob, wire.PrinterJob{Action: "start"}, wire.HardwareOpenFailed)
		if e.Details["reason"] != "printer_offline" {
			t.Errorf("%s: %v", name, e.Details)
		}
		e = octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterMove, map[string]any{"home": "all"}, wire.HardwareOpenFailed)
		if e.Details["reason"] != "printer_offline" {
			t.Errorf("%s: %v", name, e.Details)
		}
	}
}

func TestServerUnreachable(t *testing.T) {
	b := serve(t, octotest.Options{}, func(o *octoprint.Options) { o.Printers[0].URL = parse(t, "http://127.0.0.1:1/") })
	e := octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterStatus, nil, wire.HardwareOpenFailed)
	if e.Details["reason"] != "unreachable" || e.Details["os_error"] == "" {
		t.Errorf("%v %v", e, e.Details)
	}
}

func TestDiscovery(t *testing.T) {
	var mu sync.Mutex
	var seen []octoprint.Found
	set := func(f ...octoprint.Found) {
		mu.Lock()
		defer mu.Unlock()
		seen = f
	}
	browse := func(context.Context) ([]octoprint.Found, error) {
		mu.Lock()
		defer mu.Unlock()
		return seen, nil
	}
	shop := octoprint.Found{Instance: `OctoPrint "shop"`, Host: "10.0.0.9", Port: 5000, Path: "/octo/"}
	set(shop, shop, octoprint.Found{Instance: "mine", Host: "printer.invalid", Port: 80}, octoprint.Found{Instance: "<b>\x00", Host: "", Port: 80})
	bubble(t, octotest.Options{}, func(o *octoprint.Options) { o.Browse = browse }, func(t *testing.T, b *bench) {
		synctest.Wait()
		d := list(t, b.servers)
		if len(d) != 2 || d[1].Available || !strings.Contains(d[1].Reason, `"NAME=http://10.0.0.9:5000/octo"`) || d[1].ID != "printer:found-OctoPrint%20%22shop%22" {
			t.Fatalf("%+v", d)
		}
		set()
		faketime.Advance(2 * time.Minute)
		if d := list(t, b.servers); len(d) != 2 {
			t.Errorf("missed twice: %+v", d)
		}
		faketime.Advance(time.Minute)
		if d := list(t, b.servers); len(d) != 1 {
			t.Errorf("missed three times: %+v", d)
		}
		if n := len(b.server.Requests()); n != 0 {
			t.Errorf("%d requests to a printer that was only found", n)
		}
	})
}

func TestNames(t *testing.T) {
	for _, name := range []string{"", "a b", "usb-1", "lp0", "found-x", "ü", strings.Repeat("x", 33)} {
		if _, err := octoprint.NewServers(octoprint.Options{Printers: []octoprint.Printer{{Name: name, URL: parse(t, "http://x/")}}}); err == nil {
			t.Errorf("%q is accepted", name)
		}
	}
}

// address is that of a bench's printer.
func address(t testing.TB, b *bench) string { return list(t, b.servers)[0].Aliases[0] }

func newServers(t testing.TB, o octoprint.Options) *octoprint.Servers {
	t.Helper()
	s, err := octoprint.NewServers(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func list(t testing.TB, s *octoprint.Servers) []device.Descriptor {
	t.Helper()
	d, err := s.Probe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func parse(t testing.TB, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
