package llm

import "strings"

// thinkFilter takes out what a model thinks aloud: servers that don't know the
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

// feed takes the next piece and gives what of the answer is certain by now.
func (f *thinkFilter) feed(piece string) string {
	if f.state == thinkAnswer {
		return piece
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
			return ""
		default:
			f.state = thinkAnswer
			return s
		}
	}
	if f.state == thinkInside {
		_, rest, closed := strings.Cut(s, thinkClose)
		if !closed {
			f.held = s[max(len(s)-len(thinkClose)+1, 0):]
			return ""
		}
		f.state = thinkAfter
		s = rest
	}
	if s = strings.TrimLeft(s, space); s != "" {
		f.state = thinkAnswer
	}
	return s
}

// maxHeld bounds the white space that is held back before an answer.
const maxHeld = 4096

// end gives what was held back when nothing more comes.
func (f *thinkFilter) end() string {
	held := f.held
	f.held = ""
	if f.state == thinkBefore {
		return held
	}
	return ""
}
