// Package pathglob matches absolute paths against patterns, component by
// component: *, ? and [seq] as in package fnmatch, within one component, and ** for
// any number of components, none included.
//
// It is made for patterns that close something: letters of either case fit, since
// a file system may take them for the same, and whatever a pattern fits takes all
// below it along.
package pathglob

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"farhand/internal/fnmatch"
)

// MaxNames is how many components a pattern may have.
const MaxNames = 62

// Pattern is a compiled pattern, safe for concurrent use.
type Pattern struct {
	names []string // as written
	parts []part
	fixed int // how many of the first have nothing to be matched
}

type part struct {
	any     bool // **
	literal string
	exact   fnmatch.Pattern // of what isn't literal, as written
	folded  fnmatch.Pattern // and in lower case
}

// Parse reads an absolute path. A home directory stands for a leading ~/; it may
// be empty, if there is none.
func Parse(text, home string) (Pattern, error) {
	if rest, ok := strings.CutPrefix(text, "~/"); ok {
		if home == "" {
			return Pattern{}, errors.New("there is no home directory; give an absolute path")
		}
		text = home + "/" + rest
	}
	switch {
	case !strings.HasPrefix(text, "/"):
		return Pattern{}, errors.New("must be an absolute path or begin with ~/")
	case strings.ContainsRune(text, 0):
		return Pattern{}, errors.New("must not hold a NUL byte")
	}
	var names []string
	for name := range strings.SplitSeq(text, "/") {
		switch name {
		case "", ".":
		case "..":
			return Pattern{}, errors.New("must not have .. in it")
		default:
			names = append(names, name)
		}
	}
	switch {
	case len(names) == 0:
		return Pattern{}, errors.New("is the whole file system")
	case len(names) > MaxNames:
		return Pattern{}, fmt.Errorf("has more than %d components", MaxNames)
	}
	return compile(names), nil
}

func compile(names []string) Pattern {
	p := Pattern{names: names}
	for _, name := range names {
		switch {
		case name == "**":
			p.parts = append(p.parts, part{any: true})
		case strings.ContainsAny(name, "*?["):
			p.parts = append(p.parts, part{exact: fnmatch.Compile(name), folded: fnmatch.Compile(strings.ToLower(name))})
		default:
			if p.fixed == len(p.parts) {
				p.fixed++
			}
			p.parts = append(p.parts, part{literal: name})
		}
	}
	return p
}

// String is the pattern as a path.
func (p Pattern) String() string { return "/" + strings.Join(p.names, "/") }

// Literal says whether the pattern fits one path only, letters' case aside.
func (p Pattern) Literal() bool { return p.fixed == len(p.parts) }

// Prefix are the first components, up to the first in which something is to be
// matched.
func (p Pattern) Prefix() []string { return p.names[:p.fixed:p.fixed] }

// Rest is what is to be matched below Prefix. Of a literal pattern it is empty and
// fits nothing.
func (p Pattern) Rest() Pattern { return compile(p.names[p.fixed:]) }

// At is the pattern with another prefix.
func (p Pattern) At(prefix []string) Pattern {
	return compile(append(slices.Clone(prefix), p.names[p.fixed:]...))
}

// Match is with how many of its first names a path begins to fit, at least one; 0
// if it doesn't.
func (p Pattern) Match(names []string) int {
	at := p.begin()
	for i, name := range names {
		if at = p.step(at, name); at == 0 {
			return 0
		}
		if at&(1<<len(p.parts)) != 0 {
			return i + 1
		}
	}
	return 0
}

// Below says whether the pattern could fit something below the directory with
// these names.
func (p Pattern) Below(names []string) bool {
	at := p.begin()
	for _, name := range names {
		at = p.step(at, name)
	}
	return at&^(1<<len(p.parts)) != 0
}

// begin are the places in the pattern, one bit each, at which a match may stand
// before the first name.
func (p Pattern) begin() uint64 {
	if len(p.parts) == 0 {
		return 0
	}
	return p.pass(1)
}

// pass adds the places behind each **.
func (p Pattern) pass(at uint64) uint64 {
	for i, c := range p.parts {
		if c.any && at&(1<<i) != 0 {
			at |= 1 << (i + 1)
		}
	}
	return at
}

func (p Pattern) step(at uint64, name string) uint64 {
	var next uint64
	for i, c := range p.parts {
		switch {
		case at&(1<<i) == 0:
		case c.any:
			next |= 1 << i
		case c.match(name):
			next |= 1 << (i + 1)
		}
	}
	return p.pass(next)
}

func (c part) match(name string) bool {
	if c.literal != "" {
		return strings.EqualFold(c.literal, name)
	}
	low := strings.ToLower(name)
	return c.exact.Match(name) || c.folded.Match(low) || c.exact.Match(low) || c.exact.Match(strings.ToUpper(name))
}
