package access

import (
	"errors"
	"testing"

	"farhand/wire"
)

func TestResolve(t *testing.T) {
	machines := []Machine{
		{ID: "3f2a-1", Name: "bench"},
		{ID: "3f2b-2", Name: "bench-two"},
		{ID: "bench-two", Name: "attic"}, // an id that is another's name
		{ID: "77", Name: "Küche"},
	}
	for _, c := range []struct{ name, id, code string }{
		{"3f2a-1", "3f2a-1", ""},
		{"bench", "3f2a-1", ""}, // exact before prefix
		{"BENCH", "3f2a-1", ""},
		{"bench-two", "bench-two", ""}, // id before name
		{"att", "bench-two", ""},
		{"3f2b", "3f2b-2", ""},
		{"kü", "77", ""},
		{"3f2", "", "MACHINE_AMBIGUOUS"},
		{"ben", "", "MACHINE_AMBIGUOUS"},
		{"", "", "MACHINE_AMBIGUOUS"},
		{"nothing", "", "MACHINE_NOT_ATTACHED"},
	} {
		m, err := Resolve(machines, c.name)
		if string(wire.CodeOf(err)) != c.code || m.ID != c.id {
			t.Errorf("Resolve(%q) = %q, %v; want %q, %q", c.name, m.ID, err, c.id, c.code)
		}
	}
	if m, err := Resolve(machines[:1], ""); err != nil || m.ID != "3f2a-1" {
		t.Errorf("the only machine: %q, %v", m.ID, err)
	}
	several := append([]Machine{{ID: "x", Name: "y", Default: true}}, machines...)
	if m, err := Resolve(several, ""); err != nil || m.ID != "x" {
		t.Errorf("the default machine: %q, %v", m.ID, err)
	}
	if _, err := Resolve(nil, ""); !errors.Is(err, wire.MachineNotAttached) {
		t.Errorf("no machine: %v", err)
	}
	_, err := Resolve(machines, "3f2")
	e := wire.AsError(err)
	got, _ := e.Details["candidates"].([]string)
	if len(got) != 2 || got[0] != "bench" || got[1] != "bench-two" {
		t.Errorf("candidates %v", e.Details)
	}
}
