package oauth

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"farhand/relay/store"
	"farhand/wire"
)

var machineID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]*$`)

// validMachineID is the protocol's rule for HELLO.machine_id.
func validMachineID(s string) bool {
	return len(s) <= wire.MaxMachineID && machineID.MatchString(s)
}

// maxName is the most characters of a machine's or an account's name.
const maxName = 64

// validName is what a machine or an account may be called: letters, digits and
// "._-", beginning with a letter or digit, so that it stands in MACHINE:PATH
// and in a command line without quotes.
func validName(s string) bool {
	if s == "" || utf8.RuneCountInString(s) > maxName || !utf8.ValidString(s) {
		return false
	}
	for i, r := range s {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r):
		case i > 0 && strings.ContainsRune("._-", r):
		default:
			return false
		}
	}
	return true
}

// nameOf makes a valid name out of what the machine calls itself.
func nameOf(display, id string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(display) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r):
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	name := strings.TrimRight(b.String(), "-")
	if r := []rune(name); len(r) > maxName-4 { // room for a number
		name = strings.TrimRight(string(r[:maxName-4]), "-")
	}
	if validName(name) {
		return name
	}
	if len(id) > 12 {
		id = id[:12]
	}
	return "machine-" + strings.Trim(strings.ReplaceAll(id, ":", "-"), "-._")
}

var errNameTaken = errors.New("another machine has this name")

// nameRecord says which machine of an owner has a name.
type nameRecord struct {
	Machine string    `json:"machine"`
	At      time.Time `json:"at"`
}

// reserveTime is how long a name belongs to a machine whose record isn't
// written yet.
const reserveTime = time.Minute

func nameKey(owner, name string) string {
	return store.Key("o", owner, "name", strings.ToLower(name))
}

// takeName gives a name to a machine; errNameTaken if another one has it.
func (s *Server) takeName(ctx context.Context, owner, name, id string) error {
	_, err := change(ctx, s.store, nameKey(owner, name), func(r *stored[nameRecord]) error {
		if r.revision != 0 && r.value.Machine != id {
			holds, err := s.holdsName(ctx, owner, name, r.value)
			if err != nil {
				return err
			}
			if holds {
				return errNameTaken
			}
		}
		r.value = nameRecord{id, now()}
		return nil
	})
	return err
}

func (s *Server) holdsName(ctx context.Context, owner, name string, r nameRecord) (bool, error) {
	m, err := load[machine](ctx, s.store, machineKey(owner, r.Machine))
	switch {
	case err == nil && strings.EqualFold(m.value.Name, name):
		return true, nil
	case err == nil, errors.Is(err, store.ErrNotFound):
		return now().Sub(r.At) < reserveTime, nil
	}
	return false, err
}

// dropName gives a name back if the machine has it.
func (s *Server) dropName(ctx context.Context, owner, name, id string) error {
	r, err := load[nameRecord](ctx, s.store, nameKey(owner, name))
	if errors.Is(err, store.ErrNotFound) || (err == nil && r.value.Machine != id) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.store.Delete(ctx, nameKey(owner, name), r.revision); err != nil && !errors.Is(err, store.ErrConflict) {
		return err
	}
	return nil
}

// freeName takes the wanted name or, if it is taken, the first free one made
// of it and a number.
func (s *Server) freeName(ctx context.Context, owner, wanted, id string) (string, error) {
	for n := 1; n < 1000; n++ {
		name := wanted
		if n > 1 {
			name = fmt.Sprintf("%s-%d", wanted, n)
		}
		err := s.takeName(ctx, owner, name, id)
		if !errors.Is(err, errNameTaken) {
			return name, err
		}
	}
	return "", errNameTaken
}
