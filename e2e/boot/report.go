package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// report is what came out, as it is written in JSON. Adding to it is safe for
// concurrent use.
type report struct {
	OK      bool     `json:"ok"`
	Quick   bool     `json:"quick"`
	Seed    uint64   `json:"seed"` // of the power cuts
	Seconds float64  `json:"seconds"`
	Steps   []result `json:"steps"`
	Figures []figure `json:"figures"`

	mu      sync.Mutex
	samples []sample
}

// result is how a step went.
type result struct {
	Lane    string  `json:"lane"`
	Step    string  `json:"step"`
	Seconds float64 `json:"seconds"`
	Failed  string  `json:"failed,omitempty"`
}

// figure is something measured: the median of its samples.
type figure struct {
	Name    string  `json:"name"`
	Value   float64 `json:"value"`
	Unit    string  `json:"unit"`
	Samples int     `json:"samples"`
	Limit   float64 `json:"limit,omitempty"` // the bar; 0: none
	Short   bool    `json:"short,omitempty"` // the bar was missed
}

// sample is one measurement.
type sample struct {
	name, unit   string
	value, limit float64
}

func (r *report) add(x result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Steps = append(r.Steps, x)
}

// measure notes a sample of a figure that may be at most limit, if that isn't 0.
func (r *report) measure(name string, value float64, unit string, limit float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.samples = append(r.samples, sample{name, unit, value, limit})
}

// finish makes figures of the samples, in the order in which they first came,
// and decides. A bar that was missed is told, but it is no failure: how fast an
// emulated board is depends on what else this machine does.
func (r *report) finish(o options) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Figures = nil
	samples := slices.Clone(r.samples)
	if !o.quick && o.only == "" {
		samples = append(samples, sample{"the whole test", "min", r.Seconds / 60, 25})
	}
	values := make(map[string][]float64)
	for _, s := range samples {
		if values[s.name] == nil {
			r.Figures = append(r.Figures, figure{Name: s.name, Unit: s.unit, Limit: s.limit})
		}
		values[s.name] = append(values[s.name], s.value)
	}
	for i := range r.Figures {
		f := &r.Figures[i]
		f.Samples, f.Value = len(values[f.Name]), median(values[f.Name])
		f.Short = f.Limit != 0 && f.Value > f.Limit
	}
	r.OK = len(r.Steps) > 0 && !slices.ContainsFunc(r.Steps, func(x result) bool { return x.Failed != "" })
}

// median of a figure's samples so far; 0 if there are none.
func (r *report) median(name string) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var values []float64
	for _, s := range r.samples {
		if s.name == name {
			values = append(values, s.value)
		}
	}
	return median(values)
}

func median(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	if len(v) == 0 {
		return 0
	}
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func (r *report) print(w io.Writer) {
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range r.Steps {
		verdict := "ok"
		if s.Failed != "" {
			verdict = "FAILED"
		}
		fmt.Fprintf(t, "%s\t%s\t%.1f s\t%s\n", s.Lane, s.Step, s.Seconds, verdict)
	}
	if len(r.Figures) > 0 {
		fmt.Fprintln(t)
	}
	for _, f := range r.Figures {
		bar := ""
		switch {
		case f.Short:
			bar = fmt.Sprintf("short of %.4g %s", f.Limit, f.Unit)
		case f.Limit != 0:
			bar = fmt.Sprintf("ok, at most %.4g %s", f.Limit, f.Unit)
		}
		fmt.Fprintf(t, "%s\t%.4g %s\tof %d\t%s\n", f.Name, f.Value, f.Unit, f.Samples, bar)
	}
	t.Flush()
	for _, s := range r.Steps {
		if s.Failed != "" {
			fmt.Fprintf(w, "\n%s, %s:\n  %s\n", s.Lane, s.Step, strings.ReplaceAll(s.Failed, "\n", "\n  "))
		}
	}
	verdict := "all well"
	if !r.OK {
		verdict = "FAILED"
	}
	fmt.Fprintf(w, "\nboot-test: %s, %.0f s, seed %d\n", verdict, r.Seconds, r.Seed)
}

func (r *report) write(path string) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
