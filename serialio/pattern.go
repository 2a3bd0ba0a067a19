package serialio

import (
	"bytes"
	"context"
	"regexp"
	"time"

	"farhand/wire"
)

// Limits of patterns.
const (
	MaxPatterns    = 16       // of one read
	MaxPattern     = 1024     // bytes of one pattern
	MaxRegexpInput = 64 << 10 // bytes that a regular expression is looked for in
)

// Patterns are what a Read may wait for; the zero value is none.
type Patterns struct {
	all     []pattern
	regexps bool
}

type pattern struct {
	name    string
	stop    bool
	literal []byte
	re      *regexp.Regexp // nil: the literal
}

// Match is which pattern a Read found.
type Match struct {
	Pattern  int // its index
	Name     string
	Stop     bool              // what the pattern says
	Captures [][]byte          // the whole match, then its groups; nil for one without a part in it
	Named    map[string][]byte // the named groups that have
}

// CompilePatterns checks patterns and prepares them. The error is
// INVALID_ARGUMENT and calls them by field.
func CompilePatterns(field string, list wire.SerialPatterns) (Patterns, error) {
	if len(list) > MaxPatterns {
		return Patterns{}, invalid(field, "may have at most %d patterns, not %d", MaxPatterns, len(list))
	}
	var p Patterns
	for i, w := range list {
		one := pattern{name: w.Name, stop: w.Stop}
		given := 0
		for _, s := range []string{string(w.Data), w.Text, w.Regexp, w.Name} {
			if len(s) > MaxPattern {
				return Patterns{}, invalid(field, "%d is longer than %d bytes", i, MaxPattern)
			}
		}
		if len(w.Data) > 0 {
			one.literal = w.Data
			given++
		}
		if w.Text != "" {
			one.literal = []byte(w.Text)
			given++
		}
		if w.Regexp != "" {
			re, err := regexp.Compile(w.Regexp)
			if err != nil {
				return Patterns{}, invalid(field, "%d is no regular expression: %v", i, err)
			}
			if re.Match(nil) {
				return Patterns{}, invalid(field, "%d matches nothing at all, so it would match before anything came", i)
			}
			one.re, p.regexps = re, true
			given++
		}
		if given != 1 {
			return Patterns{}, invalid(field, "%d needs one of data, text and regexp, and has %d", i, given)
		}
		p.all = append(p.all, one)
	}
	return p, nil
}

// wire is m as it crosses the wire; nil of nil.
func (m *Match) wire() *wire.SerialMatch {
	if m == nil {
		return nil
	}
	return &wire.SerialMatch{Pattern: m.Pattern, Name: m.Name, Captures: m.Captures, Named: m.Named}
}

// search looks for what ends a Read while its bytes come.
type search struct {
	ReadOptions
	scanned int           // bytes that were searched already
	cost    time.Duration // of the last search with regular expressions
}

// find answers where the read ends and notes why in r. Of several patterns the
// one that begins first counts.
func (s *search) find(r *ReadResult) (end int, ok bool) {
	data := r.Data
	if len(data) == s.scanned {
		return 0, false
	}
	at := -1 // where the best begins
	if i := s.literal(data, s.Until); i >= 0 {
		at, end, r.Stop = i, i+len(s.Until), StopUntil
	}
	began := time.Now()
	for i, p := range s.Expect.all {
		loc := []int{0, 0}
		if p.re != nil {
			loc = p.re.FindSubmatchIndex(data)
		} else if from := s.literal(data, p.literal); from >= 0 {
			loc[0], loc[1] = from, from+len(p.literal)
		} else {
			loc = nil
		}
		if loc == nil || at >= 0 && loc[0] >= at {
			continue
		}
		at, end, r.Stop = loc[0], loc[1], StopMatch
		r.Match = p.match(i, data, loc)
	}
	if s.Expect.regexps {
		s.cost = time.Since(began)
	}
	s.scanned = len(data)
	return end, at >= 0
}

// literal is where a sequence begins in data, or -1. What was searched before
// is not searched again.
func (s *search) literal(data, seq []byte) int {
	if len(seq) == 0 {
		return -1
	}
	from := max(0, s.scanned-len(seq)+1)
	if i := bytes.Index(data[from:], seq); i >= 0 {
		return from + i
	}
	return -1
}

func (p *pattern) match(i int, data []byte, loc []int) *Match {
	m := &Match{Pattern: i, Name: p.name, Stop: p.stop}
	for g := 0; g < len(loc); g += 2 {
		var c []byte
		if loc[g] >= 0 {
			c = data[loc[g]:loc[g+1]:loc[g+1]]
		}
		m.Captures = append(m.Captures, c)
		if p.re == nil || c == nil {
			continue
		}
		if name := p.re.SubexpNames()[g/2]; name != "" {
			if m.Named == nil {
				m.Named = make(map[string][]byte)
			}
			m.Named[name] = c
		}
	}
	return m
}

// rest lets more bytes come together before they are searched again: regular
// expressions start at the front each time, and a line that trickles in must
// not keep a processor busy. It answers whether time was up first.
func (s *search) rest(ctx context.Context, until <-chan time.Time, done <-chan struct{}) (late bool) {
	const share, longest = 4, 250 * time.Millisecond
	if s.cost == 0 {
		return false
	}
	pause := time.NewTimer(min(share*s.cost, longest))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-until:
		return true
	case <-ctx.Done(): // the caller sees these two for itself
	case <-done:
	}
	return false
}
