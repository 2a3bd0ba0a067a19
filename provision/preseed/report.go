package preseed

import (
	"fmt"
	"strings"
)

// report collects what became of a file's settings. It never gets to see a
// value: a reason that quotes one would end in a log.
type report struct {
	file  string
	items []Item
}

// maxItems bounds the report of one file, and maxKey how much of a key's name,
// in bytes, stands in it: a table's name is repeated with each of its keys, and
// a report that is too long can neither be stored nor told.
const (
	maxItems = 128
	maxKey   = 80
)

func (r *report) add(key, outcome, why string) {
	if len(r.items) == maxItems {
		return
	}
	name := r.file
	if len(key) > maxKey {
		key = strings.ToValidUTF8(key[:maxKey], "") + "..."
	}
	if key != "" {
		name += " " + key
	}
	r.items = append(r.items, Item{Item: name, Outcome: outcome, Why: why})
}

// outcome notes what a setting's note and error amount to.
func (r *report) outcome(key, note string, err error) {
	switch {
	case err != nil:
		r.add(key, Refused, err.Error())
	case note != "":
		r.add(key, Changed, note)
	default:
		r.add(key, Applied, "")
	}
}

// unreadable notes a line that can't be read.
func (r *report) unreadable(e entry) {
	key := e.key
	if key == "" {
		key = fmt.Sprintf("line %d", e.line)
	}
	r.add(key, Refused, fmt.Sprintf("line %d: %v", e.line, e.err))
}

// joinedNote is what is said of a text that a line end was pasted into.
const joinedNote = "a line end within the text was left out"
