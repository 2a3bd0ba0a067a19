package llmserver

import (
	"errors"
	"strings"

	"farhand/wire"
)

// Bounds of what ends an answer.
const (
	maxStops = 16
	maxStop  = 256
)

// errStopped ends a completion whose answer has come to one of the texts that end it.
var errStopped = errors.New("stopped")

// ending ends an answer before the first of some texts, which the machine doesn't
// know of: it is given up there. What may be the begin of one is held back.
type ending struct {
	stops    []string
	held     string
	content  strings.Builder
	thoughts strings.Builder
}

// take hands on what of a piece belongs to the answer. Its error is that of next, or
// errStopped after the last.
func (e *ending) take(c wire.LocalLLMChunk, next func(wire.LocalLLMChunk) error) error {
	if len(e.stops) == 0 {
		return next(c)
	}
	e.thoughts.WriteString(c.Thinking)
	e.held += c.Delta
	end, stopped := len(e.held), false
	for _, s := range e.stops {
		if i := strings.Index(e.held, s); i >= 0 && (i < end || !stopped) {
			end, stopped = i, true
		}
	}
	switch {
	case stopped:
		reason := "stop"
		c.FinishReason = &reason
	case c.FinishReason == nil:
		end -= e.begun()
	}
	c.Delta, e.held = e.held[:end], e.held[end:]
	e.content.WriteString(c.Delta)
	if err := next(c); err != nil {
		return err
	}
	if stopped {
		return errStopped
	}
	return nil
}

// begun is how much of the end of what is held may be the begin of a text that ends
// the answer.
func (e *ending) begun() int {
	most := 0
	for _, s := range e.stops {
		for n := min(len(s)-1, len(e.held)); n > most; n-- {
			if strings.HasSuffix(e.held, s[:n]) {
				most = n
			}
		}
	}
	return most
}

// answer is what there is of one that was stopped. Nobody counted its tokens.
func (e *ending) answer() wire.LocalLLMResponse {
	return wire.LocalLLMResponse{Content: e.content.String(), Thinking: e.thoughts.String(), FinishReason: "stop"}
}
