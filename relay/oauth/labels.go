package oauth

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"farhand/relay/access"
	"farhand/relay/store"
	"farhand/wire"
)

// labelSet is what an owner calls a machine beside its name: all machines with one
// label are a group. They are in a record of their own, so that they never compete
// with a change of the approval.
type labelSet struct {
	Labels []string `json:"labels"` // sorted
}

// defaultMachine is the machine that an owner means who names none.
type defaultMachine struct {
	Machine string `json:"machine"`
}

func labelsKey(owner, id string) string { return store.Key("o", owner, "labels", id) }
func defaultKey(owner string) string    { return store.Key("o", owner, "default") }

const (
	maxLabels = 32 // of one machine
	maxLabel  = 64 // characters
)

// validLabel is what a label may be: letters, digits and "._-=", beginning with a
// letter or digit.
func validLabel(s string) bool {
	if s == "" || utf8.RuneCountInString(s) > maxLabel || !utf8.ValidString(s) {
		return false
	}
	for i, r := range s {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && (i == 0 || !strings.ContainsRune("._-=", r)) {
			return false
		}
	}
	return true
}

// apiLabel is PATCH /api/machines/{machine}/labels.
func (s *Server) apiLabel(r *http.Request, who caller) (any, error) {
	var in struct{ Add, Remove []string }
	if err := readJSON(r, &in); err != nil {
		return nil, err
	}
	for _, l := range in.Add {
		if !validLabel(l) {
			return nil, wire.Errorf(wire.InvalidArgument, "a label has 1 to %d letters, digits and \"._-=\", and begins with a letter or digit", maxLabel).With("field", "add")
		}
	}
	m, err := s.resolve(r, who)
	if err != nil {
		return nil, err
	}
	e := who.event()
	e.Op, e.Machine = OpLabelsChanged, m.ID
	if err := s.intend(e); err != nil {
		return nil, err
	}
	kept, err := change(r.Context(), s.store, labelsKey(who.Owner, m.ID), func(r *stored[labelSet]) error {
		all := slices.DeleteFunc(append(slices.Clone(r.value.Labels), in.Add...), func(l string) bool { return slices.Contains(in.Remove, l) })
		slices.Sort(all)
		all = slices.Compact(all)
		if len(all) > maxLabels {
			return wire.Errorf(wire.InvalidArgument, "a machine has %d labels at most", maxLabels).With("field", "add")
		}
		r.value.Labels = all
		return nil
	})
	if err != nil {
		return nil, err
	}
	m.Labels = kept.Labels
	return s.machineJSON(m, who), nil
}

// apiSetDefault is PUT /api/default-machine.
func (s *Server) apiSetDefault(r *http.Request, who caller) (any, error) {
	var in struct{ Machine string }
	if err := readJSON(r, &in); err != nil {
		return nil, err
	}
	if in.Machine == "" {
		return nil, wire.Errorf(wire.InvalidArgument, "machine is missing").With("field", "machine")
	}
	all, err := s.machinesOf(r.Context(), who)
	if err != nil {
		return nil, err
	}
	m, err := access.Resolve(all, in.Machine)
	if err != nil {
		return nil, err
	}
	e := who.event()
	e.Op, e.Machine = OpDefaultChanged, m.ID
	if err := s.intend(e); err != nil {
		return nil, err
	}
	_, err = change(r.Context(), s.store, defaultKey(who.Owner), func(r *stored[defaultMachine]) error {
		r.value.Machine = m.ID
		return nil
	})
	return machineName{m.ID, m.Name}, err
}

// apiClearDefault is DELETE /api/default-machine.
func (s *Server) apiClearDefault(r *http.Request, who caller) (any, error) {
	e := who.event()
	e.Op = OpDefaultChanged
	if err := s.intend(e); err != nil {
		return nil, err
	}
	return okJSON{true}, s.store.Delete(r.Context(), defaultKey(who.Owner), 0)
}

// defaultOf is the id of an owner's default machine; empty if there is none.
func (s *Server) defaultOf(ctx context.Context, owner string) (string, error) {
	d, err := load[defaultMachine](ctx, s.store, defaultKey(owner))
	if errors.Is(err, store.ErrNotFound) {
		return "", nil
	}
	return d.value.Machine, err
}

// labelsOf are the labels of a machine.
func (s *Server) labelsOf(ctx context.Context, owner, id string) ([]string, error) {
	l, err := load[labelSet](ctx, s.store, labelsKey(owner, id))
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	return l.value.Labels, err
}

// forgetLabels removes what is kept of a machine here.
func (s *Server) forgetLabels(ctx context.Context, owner, id string) error {
	if err := s.store.Delete(ctx, labelsKey(owner, id), 0); err != nil {
		return err
	}
	d, err := load[defaultMachine](ctx, s.store, defaultKey(owner))
	if errors.Is(err, store.ErrNotFound) || err == nil && d.value.Machine != id {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.store.Delete(ctx, defaultKey(owner), d.revision); err != nil && !errors.Is(err, store.ErrConflict) {
		return err // another one has become the default meanwhile otherwise
	}
	return nil
}
