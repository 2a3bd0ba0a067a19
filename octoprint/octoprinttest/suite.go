package octoprinttest

import (
	"bytes"
	"testing"

	"farhand/internal/leak"
	"farhand/wire"
)

// Run runs the suite; open makes a fresh bench for each case and cleans up after
// itself with t.Cleanup.
func Run(t *testing.T, open func(t testing.TB) Bench) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, *Rig)
	}{
		{"Status", testStatus},
		{"Files", testFiles},
		{"Upload", testUpload},
		{"UploadRenamed", testUploadRenamed},
		{"UploadNothing", testUploadNothing},
		{"Job", testJob},
		{"Temperature", testTemperature},
		{"HeatersOffOnRelease", testHeatersOff},
		{"HeatersHold", testHeatersHold},
		{"HeatersOfAJob", testHeatersOfAJob},
		{"HeatersByGCode", testHeatersByGCode},
		{"Move", testMove},
		{"Watch", testWatch},
		{"OneHolder", testOneHolder},
		{"BadArguments", testBadArguments},
	} {
		t.Run(c.name, func(t *testing.T) {
			leak.Check(t)
			c.run(t, NewRig(t, open(t)))
		})
	}
}

const session = "s1"

type none struct{}

func status(t testing.TB, r *Rig) wire.PrinterStatus {
	t.Helper()
	return Must[wire.PrinterStatus](t, r, session, wire.OpPrinterStatus, none{})
}

func release(t testing.TB, r *Rig) {
	t.Helper()
	if _, err := r.Do(t, session, wire.OpRelease, none{}); err != nil {
		t.Fatal(err)
	}
}

// target is the target of a heater; -1 if it has none.
func target(t testing.TB, r *Rig, heater string) float64 {
	t.Helper()
	if h := status(t, r).Temperatures[heater]; h.Target != nil {
		return *h.Target
	}
	return -1
}

func testStatus(t *testing.T, r *Rig) {
	s := status(t, r)
	if s.State != wire.PrinterReady || s.Server == nil || s.Server.Kind == "" || s.Server.Version == "" || s.Job == nil || s.Port != nil {
		t.Errorf("%+v", s)
	}
	for _, heater := range []string{"tool0", "bed"} {
		if h := s.Temperatures[heater]; h.Actual == nil || *h.Actual < -20 || *h.Actual > 100 {
			t.Errorf("%s: %+v", heater, h)
		}
	}
}

// put uploads content under a name and answers the path on the printer.
func put(t testing.TB, r *Rig, name string, more wire.PrinterUpload) string {
	t.Helper()
	r.Files.Put("work/"+name, []byte("G28\nM84\n"))
	more.Path = "work/" + name
	last, _ := r.Upload(t, session, more)
	if last.Error != nil {
		t.Fatalf("upload of %s: %v", name, last.Error)
	}
	return last.Result.Path
}

func find(l wire.PrinterFileList, path string) *wire.PrinterFile {
	for _, f := range l.Files {
		if f.Path == path {
			return &f
		}
	}
	return nil
}

func testFiles(t *testing.T, r *Rig) {
	path := put(t, r, "square.gcode", wire.PrinterUpload{Folder: "suite"})
	if path != "suite/square.gcode" {
		t.Errorf("stored as %q", path)
	}
	list := Must[wire.PrinterFileList](t, r, session, wire.OpPrinterFiles, wire.PrinterFiles{Recursive: true})
	f := find(list, path)
	if f == nil || f.Location != wire.PrinterLocal || f.Type != "machinecode" || f.Size == nil || *f.Size != 8 || f.Date == 0 {
		t.Fatalf("listed as %+v", f)
	}
	inFolder := Must[wire.PrinterFileList](t, r, session, wire.OpPrinterFiles, wire.PrinterFiles{Path: "suite"})
	if find(inFolder, path) == nil {
		t.Errorf("the folder has %+v", inFolder)
	}
	if !r.NoSelect {
		Must[wire.PrinterFileDone](t, r, session, wire.OpPrinterFiles, wire.PrinterFiles{Action: "select", Path: path})
		if j := status(t, r).Job; j.File != path {
			t.Errorf("selected: %+v", j)
		}
	}
	Must[wire.PrinterFileDone](t, r, session, wire.OpPrinterFiles, wire.PrinterFiles{Action: "delete", Path: path})
	list = Must[wire.PrinterFileList](t, r, session, wire.OpPrinterFiles, wire.PrinterFiles{Recursive: true})
	if find(list, path) != nil {
		t.Error("it is still listed")
	}
	Code(t, r, session, wire.OpPrinterFiles, wire.PrinterFiles{Action: "delete", Path: path}, wire.PathNotFound)
}

func testUpload(t *testing.T, r *Rig) {
	content := bytes.Repeat([]byte("G1 X10 Y10\nG1 X20 Y20\n"), 40_000) // 880 kB
	r.Files.Put("large.gcode", content)
	up := Must[wire.PrinterUploading](t, r, session, wire.OpPrinterUpload, wire.PrinterUpload{Path: "large.gcode"})
	if up.Size != int64(len(content)) {
		t.Errorf("size %d", up.Size)
	}
	rec := r.Listen(t, up.Stream)
	first := Until(t, rec, func(wire.PrinterProgress) bool { return true })
	if first.Size != up.Size || first.Error != nil {
		t.Errorf("the first record is %+v", first)
	}
	last := first
	if last.Result == nil {
		last = Until(t, rec, func(p wire.PrinterProgress) bool { return p.Result != nil || p.Error != nil })
	}
	if last.Error != nil || last.Sent != up.Size || last.Result.Path != "large.gcode" || last.Result.Renamed || last.Result.Printing {
		t.Errorf("the last record is %+v", last)
	}
	if reason := rec.End(); reason != "done" {
		t.Errorf("the stream ends with %q", reason)
	}
	list := Must[wire.PrinterFileList](t, r, session, wire.OpPrinterFiles, none{})
	if f := find(list, "large.gcode"); f == nil || f.Size == nil || *f.Size != up.Size {
		t.Errorf("listed as %+v", f)
	}
}

// Field case 37: the server renames, and its name is the one that counts.
func testUploadRenamed(t *testing.T, r *Rig) {
	const name = "a [b] 100% #1.gcode"
	path := put(t, r, name, wire.PrinterUpload{})
	list := Must[wire.PrinterFileList](t, r, session, wire.OpPrinterFiles, none{})
	f := find(list, path)
	if f == nil {
		t.Fatalf("%q isn't in %+v", path, list.Files)
	}
	if !r.NoRename && (path == name || f.SentName != name) {
		t.Errorf("stored as %q, listed as %+v", path, f)
	}
	Must[wire.PrinterFileDone](t, r, session, wire.OpPrinterFiles, wire.PrinterFiles{Action: "delete", Path: path})
}

func testUploadNothing(t *testing.T, r *Rig) {
	opens := r.Files.Opens()
	Code(t, r, session, wire.OpPrinterUpload, wire.PrinterUpload{Path: "absent.gcode"}, wire.PathNotFound)
	for field, args := range map[string]wire.PrinterUpload{
		"path": {}, "location": {Path: "x.gcode", Location: "moon"}, "folder": {Path: "x.gcode", Folder: "../.."},
	} {
		if e := Code(t, r, session, wire.OpPrinterUpload, args, wire.InvalidArgument); e.Details["field"] != field {
			t.Errorf("%+v: the details are %v, want the field %s", args, e.Details, field)
		}
	}
	if n := r.Files.Opens(); n != opens {
		t.Errorf("%d files were opened", n-opens)
	}
}

func job(t testing.TB, r *Rig, action string) wire.PrinterJobDone {
	t.Helper()
	return Must[wire.PrinterJobDone](t, r, session, wire.OpPrinterJob, wire.PrinterJob{Action: action})
}

func testJob(t *testing.T, r *Rig) {
	path := put(t, r, "job.gcode", wire.PrinterUpload{})
	done := Must[wire.PrinterFileDone](t, r, session, wire.OpPrinterFiles, wire.PrinterFiles{Action: "select", Path: path, Print: true})
	if done.Job == nil || done.Job.State != wire.PrinterPrinting || done.Job.File != path || done.Confirmed {
		t.Fatalf("printed: %+v", done.Job)
	}
	e := Code(t, r, session, wire.OpPrinterJob, wire.PrinterJob{Action: "start"}, wire.HardwareBusy)
	if e.Details["reason"] != "job_active" || e.Details["hint"] == nil {
		t.Errorf("details %v", e.Details)
	}
	e = Code(t, r, session, wire.OpPrinterFiles, wire.PrinterFiles{Action: "delete", Path: path}, wire.HardwareBusy)
	if e.Details["reason"] != "file_in_use" {
		t.Errorf("details %v", e.Details)
	}
	if j := job(t, r, "pause").Job; j.State != wire.PrinterPaused {
		t.Errorf("paused: %+v", j)
	}
	if s := status(t, r); s.State != wire.PrinterPaused || s.Job.File != path {
		t.Errorf("status of the paused: %+v", s)
	}
	if j := job(t, r, "resume").Job; j.State != wire.PrinterPrinting {
		t.Errorf("resumed: %+v", j)
	}
	if j := job(t, r, "cancel").Job; j.State != wire.PrinterReady && j.State != wire.PrinterCancelling {
		t.Errorf("cancelled: %+v", j)
	}
	Code(t, r, session, wire.OpPrinterJob, wire.PrinterJob{Action: "pause"}, wire.HardwareBusy)
}

func testTemperature(t *testing.T, r *Rig) {
	got := Must[wire.PrinterTargets](t, r, session, wire.OpPrinterTemperature, map[string]any{"tool0": 205, "bed": 60})
	if got.Targets["tool0"] != 205 || got.OnRelease != wire.HeaterOff {
		t.Errorf("%+v", got)
	}
	if tool, bed := target(t, r, "tool0"), target(t, r, "bed"); tool != 205 || bed != 60 {
		t.Errorf("targets %g and %g", tool, bed)
	}
	Must[wire.PrinterTargets](t, r, session, wire.OpPrinterTemperature, wire.PrinterTemperature{Targets: map[string]float64{"bed": 0}})
	if bed := target(t, r, "bed"); bed != 0 {
		t.Errorf("the bed has %g", bed)
	}
}

func testHeatersOff(t *testing.T, r *Rig) {
	Must[wire.PrinterTargets](t, r, session, wire.OpPrinterTemperature, map[string]any{"tool0": 205, "bed": 60})
	if held := r.Leases.Held(session); held != 1 {
		t.Fatalf("%d leases held", held)
	}
	release(t, r)
	if tool, bed := target(t, r, "tool0"), target(t, r, "bed"); tool != 0 || bed != 0 {
		t.Errorf("after the release targets are %g and %g", tool, bed)
	}
	Must[wire.PrinterTargets](t, r, session, wire.OpPrinterTemperature, map[string]any{"tool0": 205})
	if err := r.Leases.ReleaseAll(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	if tool := target(t, r, "tool0"); tool != 0 {
		t.Errorf("after the session's end the target is %g", tool)
	}
}

func testHeatersHold(t *testing.T, r *Rig) {
	Must[wire.PrinterTargets](t, r, session, wire.OpPrinterTemperature, map[string]any{"bed": 60, "on_release": "hold"})
	release(t, r)
	if bed := target(t, r, "bed"); bed != 60 {
		t.Errorf("after the release the target is %g", bed)
	}
	Must[wire.PrinterTargets](t, r, session, wire.OpPrinterTemperature, map[string]any{"bed": 0})
}

func testHeatersOfAJob(t *testing.T, r *Rig) {
	path := put(t, r, "hot.gcode", wire.PrinterUpload{})
	Must[wire.PrinterTargets](t, r, session, wire.OpPrinterTemperature, map[string]any{"tool0": 205})
	Must[wire.PrinterFileDone](t, r, session, wire.OpPrinterFiles, wire.PrinterFiles{Action: "select", Path: path, Print: true})
	release(t, r)
	if tool := target(t, r, "tool0"); tool != 205 {
		t.Errorf("while the job runs the target is %g", tool)
	}
	job(t, r, "cancel")
}

func testHeatersByGCode(t *testing.T, r *Rig) {
	done := Must[wire.PrinterCommanded](t, r, session, wire.OpPrinterCommand, map[string]any{"gcode": "M140 S55\nM104 T0 S180 ; warm"})
	if done.Lines != 2 {
		t.Errorf("%+v", done)
	}
	if tool, bed := target(t, r, "tool0"), target(t, r, "bed"); tool != 180 || bed != 55 {
		t.Errorf("targets %g and %g", tool, bed)
	}
	release(t, r)
	if tool, bed := target(t, r, "tool0"), target(t, r, "bed"); tool != 0 || bed != 0 {
		t.Errorf("after the release targets are %g and %g", tool, bed)
	}
	Must[wire.PrinterCommanded](t, r, session, wire.OpPrinterCommand, map[string]any{"gcode": []string{"M104 S180", "M104 S0"}})
	if held := r.Leases.Held(session); held != 0 {
		t.Error("heaters that are off keep the lease")
	}
}

func testMove(t *testing.T, r *Rig) {
	for _, a := range []map[string]any{{"home": "all"}, {"home": []string{"x", "y"}}, {"x": 10.5, "y": -2}, {"z": 5, "speed": 600, "absolute": true}} {
		if got := Must[wire.PrinterMoved](t, r, session, wire.OpPrinterMove, a); !got.Accepted {
			t.Errorf("%v: %+v", a, got)
		}
	}
}

func testWatch(t *testing.T, r *Rig) {
	w := Must[wire.PrinterWatching](t, r, session, wire.OpPrinterWatch, wire.PrinterWatch{IntervalSeconds: 0.5, Log: true})
	rec := r.Listen(t, w.Stream)
	first := Until(t, rec, func(e wire.PrinterEvent) bool { return e.Type == wire.PrinterEventState })
	if first.Status.State != wire.PrinterReady || first.Time == 0 {
		t.Errorf("the first state is %+v", first.Status)
	}
	path := put(t, r, "watched.gcode", wire.PrinterUpload{Print: true})
	e := Until(t, rec, func(e wire.PrinterEvent) bool { return e.Status != nil && e.Status.State == wire.PrinterPrinting })
	if e.Status.Job == nil || e.Status.Job.File != path || len(e.Status.Temperatures) == 0 {
		t.Errorf("printing: %+v", e.Status)
	}
	job(t, r, "cancel")
	Until(t, rec, func(e wire.PrinterEvent) bool { return e.Status != nil && e.Status.State == wire.PrinterReady })
	release(t, r)
	if reason := rec.End(); reason != "released" {
		t.Errorf("the stream ends with %q", reason)
	}
}

func testOneHolder(t *testing.T, r *Rig) {
	Must[wire.PrinterTargets](t, r, session, wire.OpPrinterTemperature, map[string]any{"bed": 40})
	e := Code(t, r, "s2", wire.OpPrinterStatus, none{}, wire.HardwareBusy)
	if e.Details["holder"] != "holder of "+session {
		t.Errorf("details %v", e.Details)
	}
	release(t, r)
	Must[wire.PrinterStatus](t, r, "s2", wire.OpPrinterStatus, none{})
}

func testBadArguments(t *testing.T, r *Rig) {
	for op, all := range map[string][]any{
		wire.OpPrinterFiles:       {map[string]any{"action": "format"}, map[string]any{"action": "delete"}, map[string]any{"path": 7}, map[string]any{"path": "a/../b"}, map[string]any{"location": "x"}},
		wire.OpPrinterJob:         {none{}, map[string]any{"action": "explode"}},
		wire.OpPrinterTemperature: {none{}, map[string]any{"tool0": 501}, map[string]any{"tool0": -1}, map[string]any{"toolx": 20}, map[string]any{"tool0": "hot"}, map[string]any{"bed": 60, "on_release": "burn"}, map[string]any{"bed": 60, "deadman_seconds": 0.5}},
		wire.OpPrinterCommand:     {none{}, map[string]any{"gcode": ""}, map[string]any{"gcode": 3}, map[string]any{"gcode": []string{"G1\x00"}}, map[string]any{"data": "AAAA"}},
		wire.OpPrinterMove:        {none{}, map[string]any{"home": "xq"}, map[string]any{"home": "x", "y": 1}, map[string]any{"x": 1e9}, map[string]any{"x": 1, "speed": 0}},
		wire.OpPrinterWatch:       {map[string]any{"interval_seconds": 0.1}, map[string]any{"interval_seconds": -1}},
		wire.OpPrinterStatus:      {[]int{1}},
	} {
		for _, args := range all {
			Code(t, r, session, op, args, wire.InvalidArgument)
		}
	}
	if held := r.Leases.Held(session); held != 0 {
		t.Errorf("%d leases held", held)
	}
}
