package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"farhand/image/target"
)

func TestReport(t *testing.T) {
	r := &report{Seed: 7, Seconds: 12}
	r.add(result{Lane: "code", Step: "first", Seconds: 1})
	for _, v := range []float64{9, 1, 2} {
		r.measure("start", v, "s", 6)
	}
	r.measure("memory", 120, "MiB", 110)
	r.measure("memory", 130, "MiB", 110)
	r.finish(options{quick: true})
	if !r.OK || len(r.Figures) != 2 || r.Figures[0].Value != 2 || r.Figures[0].Short || r.Figures[1].Value != 125 || !r.Figures[1].Short {
		t.Errorf("the figures are %+v, ok %v", r.Figures, r.OK)
	}
	r.add(result{Lane: "code", Step: "second", Failed: "it broke\nhere"})
	r.finish(options{quick: true})
	if r.OK {
		t.Error("a step failed, and all is well")
	}
	var out bytes.Buffer
	r.print(&out)
	for _, want := range []string{"code  first   1.0 s  ok", "second  0.0 s  FAILED", "it broke\n  here", "short of 110 MiB", "ok, at most 6 s", "seed 7"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table has no %q:\n%s", want, out.String())
		}
	}
	path := filepath.Join(t.TempDir(), "report.json")
	if err := r.write(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var again report
	if err := json.Unmarshal(b, &again); err != nil || again.Seed != 7 || len(again.Steps) != 2 || again.OK {
		t.Errorf("the file says %s, %v", b, err)
	}
	empty := &report{}
	if empty.finish(options{quick: true}); empty.OK {
		t.Error("where nothing was done all is well")
	}
}

func TestNumbers(t *testing.T) {
	v, err := numbers("uptime=12.5\nbasic.target=8000000\n")
	if err != nil || v["uptime"] != 12.5 || v["basic.target"] != 8e6 {
		t.Errorf("they are %v, %v", v, err)
	}
	for _, bad := range []string{"uptime", "uptime=", "a=b\n"} {
		if _, err := numbers(bad); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
}

func TestSparse(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "disk"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := make([]byte, 5<<16+100)
	copy(want[3<<16:], "data")
	if err := sparse(f, bytes.NewReader(want)); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(f.Name()); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

func TestEqual(t *testing.T) {
	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	text := bytes.Repeat([]byte("0123456789"), 300_000)
	for _, f := range []string{a, b} {
		if err := os.WriteFile(f, text, 0o600); err != nil {
			t.Fatal(err)
		}
		text[2_500_000] = 'x'
	}
	for _, c := range []struct {
		offset, size int64
		want         bool
	}{{0, 2_500_000, true}, {2_500_001, 400_000, true}, {0, 3_000_000, false}, {2_500_000, 1, false}} {
		if same, err := equal(t.Context(), a, b, c.offset, c.size); err != nil || same != c.want {
			t.Errorf("%d bytes at %d: %v, %v", c.size, c.offset, same, err)
		}
	}
}

func TestNewest(t *testing.T) {
	dir := t.TempDir()
	if _, err := newest(dir, pi); err == nil || !strings.Contains(err.Error(), "make image") {
		t.Errorf("without an image: %v", err)
	}
	for _, name := range []string{"farhand-1-arm64.img.xz", "farhand-1-arm64.img.xz.sha256", "farhand-1-arm64.img.bmap", "farhand-1-amd64.img", "farhand-1-generic.img"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for target, want := range map[string]string{pi: "farhand-1-arm64.img.xz", "amd64": "farhand-1-amd64.img", "generic": "farhand-1-generic.img"} {
		if f, err := newest(dir, target); err != nil || filepath.Base(f) != want {
			t.Errorf("the newest for %s is %s, %v", target, f, err)
		}
	}
}

func TestLanes(t *testing.T) {
	quick, err := chosen(&run{options: options{quick: true, target: pi}})
	if err != nil || len(quick) != 1 || quick[0].name != "code" {
		t.Errorf("a quick run has %v, %v", quick, err)
	}
	all := 0
	for _, of := range target.Names() {
		lanes, err := chosen(&run{options: options{target: of}})
		if err != nil {
			t.Errorf("%s: %v", of, err)
		}
		all += len(lanes)
	}
	if all != len(allLanes()) {
		t.Errorf("full runs have %d lanes", all)
	}
	if _, err := chosen(&run{options: options{only: "none", target: pi}}); err == nil {
		t.Error("a lane that doesn't exist runs")
	}
}
