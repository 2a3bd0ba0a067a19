package access

import (
	"sort"
	"strings"

	"farhand/wire"
)

// maxCandidates is how many machines an ambiguous name lists: what a person
// reads at a glance.
const maxCandidates = 10

// Resolve finds the machine that name means: an exact id, an exact name, or an
// unambiguous prefix of either, in this order and without regard to case in
// names. An empty name means the only machine there is, or the owner's default
// machine if it is among several. No machine fits:
// MACHINE_NOT_ATTACHED; several do: MACHINE_AMBIGUOUS with
// details.candidates, their names.
func Resolve(machines []Machine, name string) (Machine, error) {
	if name == "" {
		switch len(machines) {
		case 0:
			return Machine{}, wire.Errorf(wire.MachineNotAttached, "no machine is paired yet")
		case 1:
			return machines[0], nil
		}
		for _, m := range machines {
			if m.Default {
				return m, nil
			}
		}
		return Machine{}, ambiguous(machines, "several machines are paired: say which")
	}
	rules := []func(Machine) bool{
		func(m Machine) bool { return m.ID == name },
		func(m Machine) bool { return strings.EqualFold(m.Name, name) },
		func(m Machine) bool { return strings.HasPrefix(m.ID, name) || hasPrefixFold(m.Name, name) },
	}
	for _, fits := range rules {
		found := []Machine{}
		for _, m := range machines {
			if fits(m) {
				found = append(found, m)
			}
		}
		switch len(found) {
		case 0:
			continue
		case 1:
			return found[0], nil
		}
		return Machine{}, ambiguous(found, "several machines fit "+quote(name))
	}
	return Machine{}, wire.Errorf(wire.MachineNotAttached, "no machine %s is paired", quote(name))
}

func ambiguous(machines []Machine, what string) error {
	names := make([]string, 0, len(machines))
	for _, m := range machines {
		if m.Name != "" {
			names = append(names, m.Name)
		} else {
			names = append(names, m.ID)
		}
	}
	sort.Strings(names)
	more := ""
	if len(names) > maxCandidates {
		names, more = names[:maxCandidates], ", …"
	}
	return wire.Errorf(wire.MachineAmbiguous, "%s: %s%s", what, strings.Join(names, ", "), more).
		With("candidates", names)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// quote keeps a name that came from outside from running away in a message.
func quote(name string) string {
	r := []rune(name)
	if len(r) > wire.MaxMachineID {
		name = string(r[:wire.MaxMachineID]) + "…"
	}
	return `"` + name + `"`
}
