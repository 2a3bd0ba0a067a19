package preseed

import "fmt"

// report collects what became of a file's settings. It never gets to see a
// value: a reason that quotes one would end in a log.
type report struct {
	file  string
	items []Item
}

// maxItems bounds the report of one file.
const maxItems = 128

func (r *report) add(key, outcome, why string) {
	if len(r.items) == maxItems {
		return
	}
	name := r.file
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
