package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"

	"farhand/client"
	"farhand/wire"
)

const printer3D = "printer:sim-i3"

// last is the record of a stream that is wanted.
func last[T any](t *testing.T, st *client.Stream, wanted func(T) bool) T {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		c, err := st.Next(ctx)
		if err != nil {
			t.Fatal(err, st.Trouble())
		}
		for _, raw := range c.Records {
			var v T
			if err := json.Unmarshal(raw, &v); err != nil {
				t.Fatal(err)
			}
			if wanted(v) {
				return v
			}
		}
		if c.End != nil {
			t.Fatalf("the stream ended: %+v", c.End)
		}
	}
}

// A file of the machine's root is printed, watched and cancelled; what lies
// outside, or isn't granted, is never read.
func TestPrinter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("files,hardware_printer")
	ctx := t.Context()
	s, err := b.sdk().Open(ctx, b.place())
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Write(ctx, "a part.gcode", bytes.Repeat([]byte("G1 X10 Y10\n"), 50_000), false, nil); err != nil {
		t.Fatal(err)
	}
	watch, _, err := s.PrinterWatch(ctx, printer3D, wire.PrinterWatch{IntervalSeconds: 0.5})
	if err != nil {
		t.Fatal(err)
	}
	up, opened, err := s.PrinterUpload(ctx, printer3D, wire.PrinterUpload{Path: "a part.gcode", Print: true})
	if err != nil {
		t.Fatal(err)
	}
	done := last(t, up, func(p wire.PrinterProgress) bool { return p.Result != nil || p.Error != nil })
	if done.Error != nil || done.Sent != opened.Size || !done.Result.Printing || done.Result.Path != "a_part.gcode" || !done.Result.Renamed {
		t.Fatalf("%+v %v", done.Result, done.Error)
	}
	e := last(t, watch, func(e wire.PrinterEvent) bool { return e.Status != nil && e.Status.State == wire.PrinterPrinting })
	if e.Status.Job.File != "a_part.gcode" {
		t.Errorf("%+v", e.Status.Job)
	}
	if j, err := s.PrinterJob(ctx, printer3D, wire.PrinterJob{Action: "cancel"}, false); err != nil || j.Job.State != wire.PrinterReady {
		t.Errorf("%+v %v", j, err)
	}
	for path, want := range map[string]wire.Code{"../state/audit.key": wire.PathOutsideAllowedRoot, "absent.gcode": wire.PathNotFound} {
		if _, _, err := s.PrinterUpload(ctx, printer3D, wire.PrinterUpload{Path: path}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
	b.wholeAudit()
}

// Without the files capability there is nothing to be sent.
func TestPrinterWithoutFiles(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.claim("hardware_printer")
	s, err := b.sdk().Open(t.Context(), b.place())
	if err != nil {
		t.Fatal(err)
	}
	b.write(b.root()+"/a.gcode", "G28\n")
	if _, _, err := s.PrinterUpload(t.Context(), printer3D, wire.PrinterUpload{Path: "a.gcode"}); !errors.Is(err, wire.CapabilityNotGranted) {
		t.Errorf("%v", err)
	}
	if st, err := s.PrinterStatus(t.Context(), printer3D, false); err != nil || st.State != wire.PrinterReady {
		t.Errorf("%+v %v", st, err)
	}
}
