package octoprint_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"farhand/octoprint"
	"farhand/octoprint/octoprinttest"
	"farhand/octoprint/octotest"
	"farhand/wire"
)

func TestSuite(t *testing.T) {
	for name, o := range map[string]octotest.Options{
		"1":      {},
		"2":      {API2: true, Prefix: "/octo/print", Faults: octotest.Faults{InnerHost: "inner:5000"}},
		"framed": {Faults: octotest.Faults{Framed: true}},
		"polled": {Faults: octotest.Faults{NoPush: true}},
	} {
		t.Run(name, func(t *testing.T) {
			octoprinttest.Run(t, func(t testing.TB) octoprinttest.Bench { return serve(t, o, nil).Bench })
		})
	}
}

func upload(t testing.TB, b *bench, name string, a wire.PrinterUpload) wire.PrinterProgress {
	t.Helper()
	b.Files.Put(name, []byte("G28\n"))
	a.Path = name
	last, _ := b.Upload(t, "s", a)
	return last
}

// Field case 35: letters that aren't Latin: RFC 5987 first, and after a bare 400
// once more under a transliterated name, which is remembered.
func TestField35NonLatinNames(t *testing.T) {
	const name = "шестерня 20мм.gcode"
	b := serve(t, octotest.Options{}, nil)
	last := upload(t, b, name, wire.PrinterUpload{})
	if last.Error != nil || last.Result.Transliterated != "" || last.Result.Display != name || !last.Result.Renamed || last.Result.SentName != name {
		t.Errorf("taken as it is: %+v %v", last.Result, last.Error)
	}
	b.server.SetFaults(octotest.Faults{RefuseNonLatin: true})
	posts := b.server.Count("POST /api/files/local")
	last = upload(t, b, name, wire.PrinterUpload{})
	if last.Error != nil || last.Result.Transliterated != "shesternya 20mm.gcode" || last.Result.Path != "shesternya_20mm.gcode" {
		t.Fatalf("refused at first: %+v %v", last.Result, last.Error)
	}
	if n := b.server.Count("POST /api/files/local") - posts; n != 2 {
		t.Errorf("%d attempts", n)
	}
	list := octoprinttest.Must[wire.PrinterFileList](t, b.Rig, "s", wire.OpPrinterFiles, nil)
	if i := slices.IndexFunc(list.Files, func(f wire.PrinterFile) bool { return f.Path == last.Result.Path }); i < 0 || list.Files[i].SentName != name {
		t.Errorf("listed as %+v", list.Files)
	}
	// A name that is refused for another reason is not tried again.
	posts = b.server.Count("POST /api/files/local")
	last = upload(t, b, "plain.txt", wire.PrinterUpload{})
	if last.Error == nil || last.Error.Code != wire.InvalidArgument || b.server.Count("POST /api/files/local")-posts != 1 {
		t.Errorf("a text file: %+v", last)
	}
}

// Field case 36: a conflict after something that took effect is resolved by the
// job, and nothing is sent again.
func TestField36ConflictAfterPrint(t *testing.T) {
	b := serve(t, octotest.Options{Faults: octotest.Faults{PrintConflict: true}}, nil)
	last := upload(t, b, "a b.gcode", wire.PrinterUpload{Print: true})
	if last.Error != nil || !last.Result.Printing || !last.Result.Confirmed || last.Result.Path != "a_b.gcode" {
		t.Fatalf("upload: %+v %v", last.Result, last.Error)
	}
	for _, action := range []string{"pause", "resume", "cancel", "start"} {
		posts := b.server.Count("POST /api/job")
		done := octoprinttest.Must[wire.PrinterJobDone](t, b.Rig, "s", wire.OpPrinterJob, wire.PrinterJob{Action: action})
		if !done.Confirmed || b.server.Count("POST /api/job")-posts != 1 {
			t.Errorf("%s: %+v", action, done)
		}
	}
	octoprinttest.Must[wire.PrinterJobDone](t, b.Rig, "s", wire.OpPrinterJob, wire.PrinterJob{Action: "cancel"})
	done := octoprinttest.Must[wire.PrinterFileDone](t, b.Rig, "s", wire.OpPrinterFiles, wire.PrinterFiles{Action: "select", Path: "a_b.gcode", Print: true})
	if !done.Confirmed || done.Job.State != wire.PrinterPrinting {
		t.Errorf("select: %+v", done)
	}
	// The conflict that is one: the file that would be replaced is printing.
	last = upload(t, b, "a b.gcode", wire.PrinterUpload{Print: true})
	if last.Error == nil || last.Error.Code != wire.HardwareBusy || last.Error.Details["reason"] != "file_in_use" {
		t.Errorf("over the printing file: %+v", last)
	}
}

// Field case 37: what the server calls a file is what counts; each element of a
// path is escaped by itself.
func TestField37Renamed(t *testing.T) {
	b := serve(t, octotest.Options{}, nil)
	for sent, path := range map[string]string{
		"20mm ümläut.gcode": "20mm_umlaut.gcode", "v[2] 50%.gcode": "v[2]_50%.gcode", "a#b?c&d;e.gcode": "a#b?c&d;e.gcode", "q'uo\"te.gcode": "q'uo\"te.gcode",
	} {
		last := upload(t, b, sent, wire.PrinterUpload{Folder: "my parts"})
		if last.Error != nil || last.Result.Path != "my parts/"+path || last.Result.Renamed != (sent != path) {
			t.Errorf("%s: %+v %v", sent, last.Result, last.Error)
			continue
		}
		octoprinttest.Must[wire.PrinterFileDone](t, b.Rig, "s", wire.OpPrinterFiles, wire.PrinterFiles{Action: "select", Path: last.Result.Path})
		octoprinttest.Must[wire.PrinterFileDone](t, b.Rig, "s", wire.OpPrinterFiles, wire.PrinterFiles{Action: "delete", Path: last.Result.Path})
	}
}

// Field case 38: the base has a path prefix that the server may not know; what
// it refers to is followed only at the same origin.
func TestField38Prefix(t *testing.T) {
	for _, inner := range []string{"", "octopi.internal"} {
		b := serve(t, octotest.Options{Prefix: "/ingress/abc", Faults: octotest.Faults{InnerHost: inner}}, func(o *octoprint.Options) { o.Printers[0].Key = "" })
		j := octoprinttest.Must[wire.PrinterJoining](t, b.Rig, "s", wire.OpPrinterJoin, nil)
		rec := b.Listen(t, j.Stream)
		octoprinttest.Until(t, rec, func(e wire.PrinterJoinEvent) bool { return e.Decision == wire.JoinWaiting })
		if b.server.Decide(true) != 1 {
			t.Fatal("nothing to decide")
		}
		octoprinttest.Until(t, rec, func(e wire.PrinterJoinEvent) bool { return e.Decision == wire.JoinGranted })
		if last := upload(t, b, "x y.gcode", wire.PrinterUpload{}); last.Error != nil || last.Result.Path != "x_y.gcode" {
			t.Errorf("inner host %q: %+v", inner, last)
		}
		for _, r := range b.server.Requests() {
			if strings.Contains(r, "ingress") {
				t.Errorf("asked for %s", r)
			}
		}
	}
	b := serve(t, octotest.Options{Faults: octotest.Faults{Proxy: "redirect"}}, nil)
	if e := octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterStatus, nil, wire.HardwareOpenFailed); e.Details["reason"] != "redirected" {
		t.Errorf("redirected elsewhere: %v %v", e, e.Details)
	}
}

// Field case 39: a page of a reverse proxy is not an answer of the server.
func TestField39ProxyPages(t *testing.T) {
	for _, c := range []struct{ proxy, says string }{
		{"basic", "a login of its own"}, {"gateway", "can't reach it"}, {"portal", "a web page answers"},
	} {
		b := serve(t, octotest.Options{Faults: octotest.Faults{Proxy: c.proxy}}, nil)
		e := octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterStatus, nil, wire.HardwareOpenFailed)
		if e.Details["reason"] != "proxy" || !strings.Contains(e.Message, c.says) || e.Details["hint"] == nil {
			t.Errorf("%s: %v %v", c.proxy, e, e.Details)
		}
	}
	b := serve(t, octotest.Options{}, func(o *octoprint.Options) { o.Printers[0].Key = "wrong" })
	if e := octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterStatus, nil, wire.HardwareOpenFailed); e.Details["reason"] != "api_key" {
		t.Errorf("a wrong key: %v %v", e, e.Details)
	}
	// A page with 403 may be the server's own, or not: both are said.
	b.server.SetFaults(octotest.Faults{Proxy: "forbidden"})
	if e := octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterStatus, nil, wire.HardwareOpenFailed); e.Details["reason"] != "api_key" || e.Details["html"] != true {
		t.Errorf("a forbidden page: %v %v", e, e.Details)
	}
}

// Field case 40: Moonraker trusts by address.
func TestField40AddressNotTrusted(t *testing.T) {
	b := serve(t, octotest.Options{Moonraker: true}, func(o *octoprint.Options) { o.Printers[0].Key = "" })
	e := octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterStatus, nil, wire.HardwareOpenFailed)
	if e.Details["reason"] != "address_not_trusted" || !strings.Contains(e.Details["hint"].(string), "API key") {
		t.Errorf("%v %v", e, e.Details)
	}
	trusted := serve(t, octotest.Options{Moonraker: true, Trusted: true}, func(o *octoprint.Options) { o.Printers[0].Key = "" })
	if s := octoprinttest.Must[wire.PrinterStatus](t, trusted.Rig, "s", wire.OpPrinterStatus, nil); s.Server.Kind != "moonraker" || s.Server.Version != "v0.9.3-1-g4e00a07" {
		t.Errorf("trusted: %+v", s.Server)
	}
}

// Field case 41: after an emergency stop the state says what is needed, and
// heaters stay off whatever happens.
func TestField41NeedsFirmwareRestart(t *testing.T) {
	for name, o := range map[string]octotest.Options{"octoprint": {}, "moonraker": {Moonraker: true}} {
		t.Run(name, func(t *testing.T) {
			b := serve(t, o, nil)
			octoprinttest.Must[wire.PrinterTargets](t, b.Rig, "s", wire.OpPrinterTemperature, map[string]any{"tool0": 200})
			w := octoprinttest.Must[wire.PrinterWatching](t, b.Rig, "s", wire.OpPrinterWatch, nil)
			rec := b.Listen(t, w.Stream)
			b.server.Shutdown()
			e := octoprinttest.Until(t, rec, func(e wire.PrinterEvent) bool {
				return e.Status != nil && e.Status.State == wire.PrinterNeedsFirmwareRestart
			})
			if e.Status.Hint == "" || e.Status.Error == "" {
				t.Errorf("%+v", e.Status)
			}
			s := octoprinttest.Must[wire.PrinterStatus](t, b.Rig, "s", wire.OpPrinterStatus, nil)
			if s.State != wire.PrinterNeedsFirmwareRestart || !strings.Contains(s.Hint, "FIRMWARE_RESTART") {
				t.Errorf("%+v", s)
			}
			b.server.Run("FIRMWARE_RESTART")
			octoprinttest.Until(t, rec, func(e wire.PrinterEvent) bool { return e.Status != nil && e.Status.State == wire.PrinterReady })
			if err := b.Leases.ReleaseAll(t.Context(), "s"); err != nil {
				t.Fatal(err)
			}
			if got := b.server.Target("tool0"); got != 0 {
				t.Errorf("after the restart the target is %g", got)
			}
			if hot := readState(t, b); strings.Contains(hot, "tool0") {
				t.Errorf("still to be switched off: %s", hot)
			}
		})
	}
}

func readState(t testing.TB, b *bench) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(b.state, "printers.json"))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// Field case 42: Moonraker answers 403 to an upload over the loaded file.
func TestField42FileInUse(t *testing.T) {
	b := serve(t, octotest.Options{Moonraker: true}, nil)
	if last := upload(t, b, "part.gcode", wire.PrinterUpload{Print: true}); last.Error != nil || !last.Result.Printing {
		t.Fatalf("%+v", last)
	}
	last := upload(t, b, "part.gcode", wire.PrinterUpload{})
	if last.Error == nil || last.Error.Code != wire.HardwareBusy || last.Error.Details["reason"] != "file_in_use" {
		t.Errorf("over the loaded file: %+v", last.Error)
	}
	e := octoprinttest.Code(t, b.Rig, "s", wire.OpPrinterFiles, wire.PrinterFiles{Action: "delete", Path: "part.gcode"}, wire.HardwareBusy)
	if e.Details["reason"] != "file_in_use" {
		t.Errorf("deleting it: %v", e.Details)
	}
}
