package report_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"farhand/lab/proto"
	"farhand/lab/report"
)

// frames is what a guest sends.
func frames(t *testing.T, all ...proto.Frame) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	for _, f := range all {
		if err := json.NewEncoder(&b).Encode(f); err != nil {
			t.Fatal(err)
		}
	}
	return &b
}

func read(t *testing.T, r *report.Report, in *bytes.Buffer) error {
	t.Helper()
	err := r.Read(in, func(proto.Frame) {})
	if finish := r.Finish(err); finish != nil {
		t.Fatal(finish)
	}
	return err
}

// mark begins a line of -test.v=test2json.
const mark = "\x16"

var (
	up     = proto.Frame{Kind: proto.Boot, Text: "7.3.4", Seconds: 3.5}
	passes = proto.Frame{Kind: proto.Output, Suite: "gpio", Output: []byte(
		mark + "=== RUN   TestLabChip\n    chip_test.go:9: figure: toggle 91 %\n" + mark + "--- PASS: TestLabChip (0.25s)\n" + mark + "PASS\n")}
	ended = proto.Frame{Kind: proto.End, Suite: "gpio", Seconds: 0.3}
	done  = proto.Frame{Kind: proto.Done}
)

func TestAllPass(t *testing.T) {
	r := report.New([]string{"gpio"})
	if err := read(t, r, frames(t, up, passes, ended, done)); err != nil {
		t.Fatal(err)
	}
	if r.Result != report.Pass || r.Kernel != "7.3.4" || len(r.Suites) != 1 {
		t.Fatalf("the report is %+v", r)
	}
	s := r.Suites[0]
	if s.Name != "lab/gpio" || len(s.Tests) != 1 || s.Tests[0].Name != "lab/gpio.TestLabChip" || s.Tests[0].Seconds != 0.25 {
		t.Errorf("the suite is %+v with %+v", s, s.Tests)
	}
	if len(s.Figures) != 1 || s.Figures[0] != "toggle 91 %" {
		t.Errorf("its figures are %q", s.Figures)
	}
	path := filepath.Join(t.TempDir(), "sub", "lab.json")
	if err := r.Write(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil || !json.Valid(b) || !bytes.Contains(b, []byte(`"lab/gpio.TestLabChip"`)) {
		t.Errorf("the file holds %s (%v)", b, err)
	}
}

// TestNothingFailsUnseen is every way in which a run is not all right.
func TestNothingFailsUnseen(t *testing.T) {
	output := func(s string) proto.Frame {
		return proto.Frame{Kind: proto.Output, Suite: "gpio", Output: []byte(strings.ReplaceAll(s, "@", mark))}
	}
	for name, c := range map[string]struct {
		frames []proto.Frame
		says   string
	}{
		"the guest dies":          {[]proto.Frame{up, passes, ended}, "before it was done"},
		"a suite never ran":       {[]proto.Frame{up, done}, "MISSING"},
		"a suite never ended":     {[]proto.Frame{up, passes, done}, "MISSING"},
		"a test fails":            {[]proto.Frame{up, output("@=== RUN   TestLabA\n    a_test.go:1: why\n@--- FAIL: TestLabA (0.00s)\n@FAIL\n"), {Kind: proto.End, Suite: "gpio", Exit: 1, Text: "exit status 1"}, done}, "a_test.go:1: why"},
		"a test is skipped":       {[]proto.Frame{up, output("@=== RUN   TestLabA\n    a_test.go:1: needs\n@--- SKIP: TestLabA (0.00s)\n@PASS\n"), ended, done}, "SKIP: lab/gpio.TestLabA"},
		"a test never ends":       {[]proto.Frame{up, output("@=== RUN   TestLabA\n"), ended, done}, "MISSING: lab/gpio.TestLabA"},
		"no test runs":            {[]proto.Frame{up, output("testing: warning: no tests to run\n@PASS\n"), ended, done}, "no test"},
		"a binary can't start":    {[]proto.Frame{up, {Kind: proto.End, Suite: "gpio", Exit: -1, Text: "exec format error"}, done}, "exec format error"},
		"a panic between tests":   {[]proto.Frame{up, passes, output("panic: boo\n"), {Kind: proto.End, Suite: "gpio", Exit: 2, Text: "exit status 2"}, done}, "panic: boo"},
		"the guest can't boot":    {[]proto.Frame{{Kind: proto.Failed, Text: "module x: no such file"}}, "module x"},
		"what it says is no JSON": {nil, "before it was done"},
	} {
		t.Run(name, func(t *testing.T) {
			r := report.New([]string{"gpio"})
			in := frames(t, c.frames...)
			if c.frames == nil {
				in.WriteString("Kernel panic\n")
			}
			_ = read(t, r, in) // the report has it
			var text bytes.Buffer
			r.Print(&text, false)
			if r.Result != report.Fail || !strings.Contains(text.String(), c.says) {
				t.Errorf("%s:\n%s", r.Result, text.String())
			}
		})
	}
}

func TestProblemAndFailedBuild(t *testing.T) {
	r := report.New([]string{"gpio", "usb"})
	r.FailSuite("usb", "go test: x.go:1: undefined")
	if err := r.Read(frames(t, up, passes, ended, done), func(proto.Frame) {}); err != nil {
		t.Fatal(err)
	}
	if err := r.Finish(errors.New("the guest's kernel panicked")); err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	r.Print(&text, false)
	for _, want := range []string{"kernel panicked", "undefined", "lab/usb", "1 passed, 0 failed"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table doesn't say %q:\n%s", want, text.String())
		}
	}
	if r.Result != report.Fail {
		t.Errorf("the result is %s", r.Result)
	}
}

func TestJoin(t *testing.T) {
	good, bad := report.New([]string{"usb"}), report.New([]string{"gpio"})
	if err := read(t, good, frames(t, up, proto.Frame{Kind: proto.Output, Suite: "usb", Output: passes.Output}, proto.Frame{Kind: proto.End, Suite: "usb"}, done)); err != nil {
		t.Fatal(err)
	}
	if r := report.Join(nil, good); r.Result != report.Pass || r.Kernel != "7.3.4" || len(r.Suites) != 1 {
		t.Errorf("a good one alone is %+v", r)
	}
	_ = read(t, bad, frames(t)) // its guest never spoke
	for _, r := range []*report.Report{report.Join(good, bad), report.Join(bad, good)} {
		if r.Result != report.Fail || r.Problem == "" || len(r.Suites) != 2 || r.Suites[0].Name != "lab/gpio" {
			t.Errorf("good and bad are %+v", r)
		}
	}
}

func TestAgain(t *testing.T) {
	first := report.New([]string{"gpio", "usb", "bus"})
	for _, s := range first.Suites {
		s.Result = report.Pass
	}
	named(t, first, "lab/usb").Result, named(t, first, "lab/usb").Problem = report.Fail, "stood still"
	named(t, first, "lab/bus").Result = report.Missing
	first.Result, first.Problem = report.Fail, "the guest was killed"
	names := first.Failed([]string{"gpio", "usb", "bus"})
	if !slices.Equal(names, []string{"usb", "bus"}) {
		t.Fatalf("failed: %v", names)
	}
	second := report.New(names)
	named(t, second, "lab/usb").Result, named(t, second, "lab/bus").Result = report.Pass, report.Fail
	first.Again(second)
	if first.Result != report.Fail || first.Problem != "" || len(first.Suites) != 3 {
		t.Errorf("%+v", first)
	}
	if s := named(t, first, "lab/usb"); s.Result != report.Pass || s.First == nil || s.First.Problem != "stood still" {
		t.Errorf("%+v", s)
	}
	third := report.New(first.Failed([]string{"gpio", "usb", "bus"}))
	named(t, third, "lab/bus").Result = report.Pass
	if first.Again(third); first.Result != report.Pass {
		t.Errorf("%+v", first)
	}
	var table strings.Builder
	first.Print(&table, false)
	if got := table.String(); !strings.Contains(got, "stood still") || !strings.Contains(got, "in the first machine") {
		t.Errorf("the table is\n%s", got)
	}
}

func named(t *testing.T, r *report.Report, name string) *report.Suite {
	t.Helper()
	for _, s := range r.Suites {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("no suite %s", name)
	return nil
}
