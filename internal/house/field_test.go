package house

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestFieldCases: docs/field-cases.md names a test that exists for each of the
// cases 1 to 86, or says why one can't apply.
func TestFieldCases(t *testing.T) {
	doc, err := os.ReadFile("../../docs/field-cases.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| (\d+) \|([^|]*)\|([^|]*)\|([^|]*)\|$`)
	next := 1
	for _, m := range row.FindAllStringSubmatch(string(doc), -1) {
		if m[1] != strconv.Itoa(next) {
			t.Fatalf("case %s where %d was to come", m[1], next)
		}
		next++
		tests := strings.TrimSpace(m[4])
		if tests == "" {
			if !strings.Contains(m[3], "can't apply") {
				t.Errorf("case %s has neither a test nor a reason", m[1])
			}
			continue
		}
		for _, group := range strings.Split(tests, ";") {
			checkTests(t, m[1], strings.TrimSpace(group))
		}
	}
	if next != 87 {
		t.Errorf("the last case is %d, want 86", next-1)
	}
}

// checkTests looks for "`package` TestA, CaseB" in the package's files: a test
// function, or a case of a suite by its name in quotes.
func checkTests(t *testing.T, number, group string) {
	t.Helper()
	parts := strings.SplitN(group, "`", 3)
	if len(parts) != 3 {
		t.Errorf("case %s: %q names no package", number, group)
		return
	}
	files, _ := filepath.Glob(filepath.Join("../..", parts[1], "*.go"))
	var source strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		source.Write(b)
	}
	for _, name := range strings.Split(parts[2], ",") {
		name = strings.TrimSpace(name)
		text := source.String()
		if !strings.Contains(text, "func "+name+"(") && !strings.Contains(text, `"`+name+`"`) {
			t.Errorf("case %s: %s has no test %s", number, parts[1], name)
		}
	}
}
