// Package lazyregexp compiles patterns when they are first used. A pattern that
// counts ({1,512}) takes tens of kilobytes, and most of a program's runs, such as a
// daemon's life, never need those of its other roles.
package lazyregexp

import (
	"regexp"
	"sync"
)

// Regexp is a pattern. It is safe for concurrent use.
type Regexp struct{ compiled func() *regexp.Regexp }

// New is a pattern that is compiled at its first use, which panics if it can't be.
func New(pattern string) *Regexp {
	return &Regexp{sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })}
}

// MatchString is that of regexp.Regexp, as the others are.
func (r *Regexp) MatchString(s string) bool { return r.compiled().MatchString(s) }

// FindStringSubmatch is that of regexp.Regexp.
func (r *Regexp) FindStringSubmatch(s string) []string { return r.compiled().FindStringSubmatch(s) }

// FindSubmatch is that of regexp.Regexp.
func (r *Regexp) FindSubmatch(b []byte) [][]byte { return r.compiled().FindSubmatch(b) }
