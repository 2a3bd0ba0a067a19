package llm

import (
	"strings"
	"unicode/utf8"
)

// thinkFilter tells apart what a model thinks aloud: servers that don't know the
// think option leave it at the beginning of the answer, between <think> and
// </think>. Anywhere else these are words like others.
type thinkFilter struct {
	state thinkState
	held  string // what may turn out to be a tag
}

type thinkState int

const (
	thinkBefore thinkState = iota // nothing but white space so far
	thinkInside
	thinkAfter // white space between thoughts and answer
	thinkAnswer
)

const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
	space      = " \t\r\n"
)

// feed takes the next piece and gives what of the answer and of the thoughts is
// certain by now.
func (f *thinkFilter) feed(piece string) (answer, thought string) {
	if f.state == thinkAnswer {
		return piece, ""
	}
	s := f.held + piece
	f.held = ""
	if f.state == thinkBefore {
		switch tag := strings.TrimLeft(s, space); {
		case strings.HasPrefix(tag, thinkOpen):
			f.state = thinkInside
			s = tag[len(thinkOpen):]
		case strings.HasPrefix(thinkOpen, tag) && len(s) < maxHeld:
			f.held = s
			return "", ""
		default:
			f.state = thinkAnswer
			return s, ""
		}
	}
	if f.state == thinkInside {
		inside, rest, closed := strings.Cut(s, thinkClose)
		if !closed {
			sure := max(len(s)-len(thinkClose)+1, 0)
			for sure > 0 && !utf8.RuneStart(s[sure]) {
				sure-- // a character stays whole
			}
			f.held = s[sure:]
			return "", s[:sure]
		}
		f.state, thought = thinkAfter, inside
		s = rest
	}
	if s = strings.TrimLeft(s, space); s != "" {
		f.state = thinkAnswer
	}
	return s, thought
}

// maxHeld bounds the white space that is held back before an answer.
const maxHeld = 4096

// end gives what was held back when nothing more comes.
func (f *thinkFilter) end() (answer, thought string) {
	held := f.held
	f.held = ""
	switch f.state {
	case thinkBefore:
		return held, ""
	case thinkInside:
		return "", held
	}
	return "", ""
}
