package gpio

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"

	"farhand/device"
	"farhand/wire"
)

// Limits of arguments.
const (
	MaxDeadman = 24 * time.Hour
	MinDeadman = 100 * time.Millisecond
	MaxPoll    = time.Hour
	MinPoll    = 10 * time.Millisecond
)

// selection is the lines that an operation names, without decoding the rest of
// its arguments.
func selection(args json.RawMessage) (wire.GPIOLines, error) {
	var sel wire.GPIOSelect
	if len(args) == 0 {
		return sel.Lines, nil
	}
	err := wire.Fields(args, func(key string, raw []byte) error {
		switch key {
		case "line":
			return sel.Line.UnmarshalJSON(raw)
		case "lines":
			return sel.Lines.UnmarshalJSON(raw)
		}
		return nil
	})
	if err != nil {
		return sel.Lines, badArguments(err)
	}
	return together(sel)
}

// together joins line and lines.
func together(sel wire.GPIOSelect) (wire.GPIOLines, error) {
	all := sel.Lines
	if sel.Line != "" {
		if all.Levels != nil {
			return all, invalid("line", "can't stand beside lines with levels")
		}
		all.Names = append([]wire.GPIOLine{sel.Line}, all.Names...)
	}
	if len(all.Names) > MaxLines {
		return all, invalid("lines", "may be at most %d in one operation, not %d", MaxLines, len(all.Names))
	}
	return all, nil
}

// decodeArgs reads the arguments of an operation.
func decodeArgs[A any](args json.RawMessage) (A, error) {
	var a A
	if len(args) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(args, &a); err != nil {
		return a, badArguments(err)
	}
	return a, nil
}

// badArguments is about numbers and names, which may be repeated.
func badArguments(err error) error { return device.BadArgs(err, device.Clean(err.Error())) }

// decodeSet reads the arguments of GPIO_SET, which is called most.
func decodeSet(args json.RawMessage) (wire.GPIOSet, error) {
	var a wire.GPIOSet
	err := wire.Fields(args, func(key string, raw []byte) error {
		switch key {
		case "line":
			return a.Line.UnmarshalJSON(raw)
		case "lines":
			return a.Lines.UnmarshalJSON(raw)
		case "value":
			if string(raw) == "null" {
				return nil
			}
			var v wire.GPIOLevel
			a.Value = &v
			return v.UnmarshalJSON(raw)
		case "values":
			return json.Unmarshal(raw, &a.Values)
		case "on_release":
			return a.OnRelease.UnmarshalJSON(raw)
		case "deadman_seconds":
			return json.Unmarshal(raw, &a.DeadmanSeconds)
		}
		return nil
	})
	if err != nil {
		return a, badArguments(err)
	}
	return a, nil
}

// levels are those of GPIO_SET, one for each line.
func levels(a wire.GPIOSet) ([]int, error) {
	all, err := together(a.GPIOSelect)
	if err != nil {
		return nil, err
	}
	if a.Values != nil {
		if all.Levels != nil || a.Value != nil || len(a.Values) != len(all.Names) {
			return nil, invalid("values", "must be one for each line, and stand alone").With("hint", `{"lines":[17,18],"values":[1,0]}`)
		}
		all.Levels = a.Values
	}
	if all.Levels == nil && a.Value == nil {
		return nil, invalid("value", "must be 0 or 1").With("hint", `{"line":17,"value":1} or {"lines":{"17":1,"18":0}}`)
	}
	out := make([]int, len(all.Names))
	for i := range out {
		if all.Levels != nil {
			out[i] = int(all.Levels[i])
		} else {
			out[i] = int(*a.Value)
		}
	}
	return out, nil
}

// deadman is the time of deadman_seconds: nil if it isn't said.
func deadman(end wire.GPIOEnd) (*time.Duration, error) {
	if end.DeadmanSeconds == nil {
		return nil, nil
	}
	d, err := seconds("deadman_seconds", *end.DeadmanSeconds, 0, MaxDeadman)
	if err != nil {
		return nil, err
	}
	if d != 0 && d < MinDeadman {
		return nil, invalid("deadman_seconds", "must be 0 or at least %g", MinDeadman.Seconds())
	}
	return &d, nil
}

func seconds(field string, s float64, least, most time.Duration) (time.Duration, error) {
	if math.IsNaN(s) || s < least.Seconds() || s > most.Seconds() {
		return 0, invalid(field, "must be %g to %g", least.Seconds(), most.Seconds())
	}
	return time.Duration(s * float64(time.Second)), nil
}

// debounce is the period that either of two fields says; nil if none does.
func debounce(s *float64, us *int64) (*time.Duration, error) {
	switch {
	case s != nil && us != nil:
		return nil, invalid("debounce_us", "can't stand beside debounce_seconds")
	case us != nil:
		if *us < 0 || *us > MaxDebounce.Microseconds() {
			return nil, invalid("debounce_us", "must be 0 to %d", MaxDebounce.Microseconds())
		}
		d := time.Duration(*us) * time.Microsecond
		return &d, nil
	case s != nil:
		d, err := seconds("debounce_seconds", *s, 0, MaxDebounce)
		if err != nil {
			return nil, err
		}
		d = d.Round(time.Microsecond)
		return &d, nil
	}
	return nil, nil
}

// The words of the wire.
var (
	directions = []string{"", "in", "out"}
	pulls      = []string{"as_is", "up", "down", "none"}
	drives     = []string{"push_pull", "open_drain", "open_source"}
	edgeNames  = []string{"", "rising", "falling", "both"}
)

// pull reads pull or its other name, bias; nil if neither is there.
func pull(pull, bias string) (*Pull, error) {
	word, field := pull, "pull"
	if word == "" {
		word, field = bias, "bias"
	}
	switch word = plain(word); word {
	case "":
		return nil, nil
	case "disabled", "off":
		word = "none"
	case "pull_up", "pullup":
		word = "up"
	case "pull_down", "pulldown":
		word = "down"
	}
	i := slices.Index(pulls, word)
	if i < 0 {
		return nil, invalid(field, "must be up, down, none or as_is")
	}
	p := Pull(i)
	return &p, nil
}

// plain is a word as those of the wire are written.
func plain(word string) string { return strings.ReplaceAll(strings.ToLower(word), "-", "_") }

func drive(word string) (*Drive, error) {
	if word == "" {
		return nil, nil
	}
	i := slices.Index(drives, plain(word))
	if i < 0 {
		return nil, invalid("drive", "must be push_pull, open_drain or open_source")
	}
	d := Drive(i)
	return &d, nil
}

func edges(word string) (Edges, error) {
	if word == "" {
		return BothEdges, nil
	}
	i := slices.Index(edgeNames, word)
	if i < 1 {
		return 0, invalid("edge", "must be rising, falling or both")
	}
	return Edges(i), nil
}
