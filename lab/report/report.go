// Package report turns what the lab's guest said into results by test: a table
// for people, a file for programs.
package report

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"farhand/lab/proto"
)

// Outcomes of a test and of a suite.
const (
	Pass    = "pass"
	Fail    = "fail"
	Skip    = "skip"    // counts as a failure: the guest has everything
	Missing = "missing" // it didn't run, or was not seen to end
)

// Report is one run of the lab.
type Report struct {
	Kernel      string   `json:"kernel"`
	BootSeconds float64  `json:"boot_seconds"` // from the kernel's start until modules are loaded
	Seconds     float64  `json:"seconds"`      // of wall time, building and booting included
	Result      string   `json:"result"`
	Whole       bool     `json:"whole"`             // it was of every suite and test
	Problem     string   `json:"problem,omitempty"` // what went wrong outside of the suites
	Suites      []*Suite `json:"suites"`
}

// Suite is one package's tests.
type Suite struct {
	Name    string  `json:"name"` // "lab/gpio"
	Result  string  `json:"result"`
	Seconds float64 `json:"seconds"`
	Problem string  `json:"problem,omitempty"`
	// First is what went wrong in the first machine, if the suite ran again in
	// another.
	First   *Suite   `json:"first,omitempty"`
	Tests   []*Test  `json:"tests"`
	Figures []string `json:"figures,omitempty"` // what tests logged as "figure: ..."

	raw bytes.Buffer
}

// Test is one test function or subtest.
type Test struct {
	Name    string  `json:"name"` // "lab/gpio.TestLabX"
	Result  string  `json:"result"`
	Seconds float64 `json:"seconds"`
	Output  string  `json:"output,omitempty"` // of a test that didn't pass
}

// New is the report of a run that is to have these suites.
func New(suites []string) *Report {
	r := &Report{Result: Missing}
	for _, s := range suites {
		r.Suites = append(r.Suites, &Suite{Name: suiteName(s), Result: Missing})
	}
	return r
}

// suiteName is what a package's tests in the guest are called, so that they
// aren't mistaken for those on the host.
func suiteName(pkg string) string { return "lab/" + strings.TrimPrefix(pkg, "lab/") }

func (r *Report) suite(pkg string) *Suite {
	for _, s := range r.Suites {
		if s.Name == suiteName(pkg) {
			return s
		}
	}
	s := &Suite{Name: suiteName(pkg), Result: Missing}
	r.Suites = append(r.Suites, s)
	return s
}

// FailSuite says that a suite can't run.
func (r *Report) FailSuite(pkg, problem string) {
	s := r.suite(pkg)
	s.Result, s.Problem = Fail, problem
}

// maxOutput bounds what one suite may print.
const maxOutput = 32 << 20

// Read takes the guest's frames until it is done or its port ends, which is an
// error. watch is told of each frame.
func (r *Report) Read(in io.Reader, watch func(proto.Frame)) error {
	for d := json.NewDecoder(in); ; {
		var f proto.Frame
		if err := d.Decode(&f); err != nil {
			return fmt.Errorf("the guest ended before it was done: %w", err)
		}
		watch(f)
		switch f.Kind {
		case proto.Boot:
			r.Kernel, r.BootSeconds = f.Text, f.Seconds
		case proto.Output:
			if s := r.suite(f.Suite); s.raw.Len() < maxOutput {
				s.raw.Write(f.Output)
			}
		case proto.End:
			s := r.suite(f.Suite)
			s.Seconds = f.Seconds
			s.Result = Pass
			if f.Exit != 0 {
				s.Result, s.Problem = Fail, f.Text
			}
		case proto.Failed:
			return errors.New("the guest: " + f.Text)
		case proto.Done:
			return nil
		}
	}
}

// event is a line of what go tool test2json prints (go doc test2json).
type event struct {
	Action  string
	Test    string
	Output  string
	Elapsed float64
}

// Finish reads the suites' outputs and settles every result.
func (r *Report) Finish(problem error) error {
	if problem != nil {
		r.Problem = problem.Error()
	}
	r.Result = Pass
	if problem != nil {
		r.Result = Fail
	}
	for _, s := range r.Suites {
		if err := s.parse(); err != nil {
			return err
		}
		if s.Result != Pass {
			r.Result = Fail
		}
	}
	return nil
}

// Join makes one report of several that are finished. nil ones are left out.
func Join(reports ...*Report) *Report {
	all := &Report{Result: Pass}
	for _, r := range reports {
		if r == nil {
			continue
		}
		all.Kernel = cmp.Or(all.Kernel, r.Kernel)
		all.BootSeconds = max(all.BootSeconds, r.BootSeconds)
		all.Suites = append(all.Suites, r.Suites...)
		if r.Result != Pass {
			all.Result = r.Result
		}
		if r.Problem != "" {
			all.Problem = strings.TrimPrefix(all.Problem+"; "+r.Problem, "; ")
		}
	}
	slices.SortFunc(all.Suites, func(a, b *Suite) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Failed are the packages of the suites that didn't pass, as New had them.
func (r *Report) Failed(packages []string) []string {
	return slices.DeleteFunc(slices.Clone(packages), func(pkg string) bool { return r.suite(pkg).Result == Pass })
}

// Again takes over the results of a second run of what had failed. What went
// wrong first stays in the report.
func (r *Report) Again(second *Report) {
	for _, s := range second.Suites {
		i := slices.IndexFunc(r.Suites, func(x *Suite) bool { return x.Name == s.Name })
		s.First, r.Suites[i] = r.Suites[i], s
	}
	r.Problem, r.Result = second.Problem, Pass
	if r.Problem != "" || slices.ContainsFunc(r.Suites, func(s *Suite) bool { return s.Result != Pass }) {
		r.Result = Fail
	}
}

func (s *Suite) parse() error {
	cmd := exec.Command("go", "tool", "test2json", "-t") // with -t it says how long
	cmd.Stdin = &s.raw
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go tool test2json: %w", err)
	}
	s.read(bytes.NewReader(out))
	return nil
}

func (s *Suite) read(events io.Reader) {
	tests := make(map[string]*Test)
	outputs := make(map[string]*strings.Builder)
	for d := json.NewDecoder(events); ; {
		var e event
		if err := d.Decode(&e); err != nil {
			break
		}
		switch e.Action {
		case "run":
			t := &Test{Name: s.Name + "." + e.Test, Result: Missing}
			tests[e.Test], outputs[e.Test] = t, &strings.Builder{}
			s.Tests = append(s.Tests, t)
		case "output":
			if b := outputs[e.Test]; b != nil {
				b.WriteString(e.Output)
			} else if s.Result != Pass && len(s.Problem) < 8<<10 {
				s.Problem += "\n" + strings.TrimRight(e.Output, "\n")
			}
			if _, figure, ok := strings.Cut(e.Output, "figure: "); ok {
				s.Figures = append(s.Figures, strings.TrimSpace(figure))
			}
		case Pass, Fail, Skip:
			if t := tests[e.Test]; t != nil {
				t.Result, t.Seconds = e.Action, e.Elapsed
			}
		}
	}
	s.settle(outputs)
}

// settle makes a suite fail that ran nothing, or of which a test was skipped or
// never ended.
func (s *Suite) settle(outputs map[string]*strings.Builder) {
	for _, t := range s.Tests {
		if t.Result == Pass {
			continue
		}
		t.Output = outputs[strings.TrimPrefix(t.Name, s.Name+".")].String()
		if s.Result == Pass {
			s.Result, s.Problem = Fail, fmt.Sprintf("%s: %s", t.Name, t.Result)
		}
	}
	if s.Result == Pass && len(s.Tests) == 0 {
		s.Result, s.Problem = Fail, "it ran no test"
	}
}

// Write makes the file for programs.
func (r *Report) Write(path string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
