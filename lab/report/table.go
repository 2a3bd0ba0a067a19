package report

import (
	"fmt"
	"io"
	"strings"
)

// barSeconds is how long the whole lab may take, booting included.
const barSeconds = 180

// Print writes the table for people. verbose lists each test that passed, too.
func (r *Report) Print(w io.Writer, verbose bool) {
	passed, failed := 0, 0
	for _, s := range r.Suites {
		for _, t := range s.Tests {
			if t.Result == Pass {
				passed++
			} else {
				failed++
			}
		}
		if s.First != nil {
			s.First.print(w, false)
			fmt.Fprintf(w, "%s: that was in the first machine; what follows is of a second one\n", s.Name)
		}
		s.print(w, verbose)
	}
	for _, s := range r.Suites {
		word := "ok  "
		if s.Result != Pass {
			word = strings.ToUpper(s.Result)
		}
		fmt.Fprintf(w, "%s\t%-24s %4d tests %7.2fs\n", word, s.Name, len(s.Tests), s.Seconds)
	}
	if r.Problem != "" {
		fmt.Fprintln(w, "lab:", r.Problem)
	}
	// Cutting the run short is for limits, not for this bar: a machine may be
	// busy with something else.
	if r.Whole {
		word := "ok"
		if r.Seconds > barSeconds {
			word = "short"
		}
		fmt.Fprintf(w, "bar lab_seconds %.0f %d %s\n", r.Seconds, barSeconds, word)
	}
	fmt.Fprintf(w, "lab: Linux %s, up in %.1f s, %.1f s in all: %d passed, %d failed\n", r.Kernel, r.BootSeconds, r.Seconds, passed, failed)
}

// print writes what there is to say beside the table.
func (s *Suite) print(w io.Writer, verbose bool) {
	for _, t := range s.Tests {
		if verbose || t.Result != Pass {
			fmt.Fprintf(w, "--- %s: %s (%.2fs)\n%s", strings.ToUpper(t.Result), t.Name, t.Seconds, t.Output)
		}
	}
	if s.Problem != "" {
		fmt.Fprintf(w, "%s: %s\n", s.Name, strings.TrimSpace(s.Problem))
	}
	for _, f := range s.Figures {
		fmt.Fprintf(w, "%s: %s\n", s.Name, f)
	}
}
