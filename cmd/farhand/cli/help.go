package cli

import (
	"strings"

	"farhand/internal/lazyregexp"
)

// described is a flag, a command or an exit code, and what is said of it beside.
var described = lazyregexp.New(`^( +\S(?:.*?\S)?) {2,}(\S.*)$`)

// foldHelp makes a text of help fit into a width: paragraphs that are too wide are
// set anew, and what describes a flag or a command stands beside it or, where there
// is no room, below. Examples stay as they are, for they are there to be copied.
func foldHelp(text string, width int) string {
	if width <= 0 {
		return text
	}
	var b strings.Builder
	var paragraph []string
	flush := func() {
		wide := false
		for _, line := range paragraph {
			wide = wide || shown(line) > width
		}
		if wide {
			paragraph = []string{foldAt(strings.Join(paragraph, " "), width, 0)}
		}
		for _, line := range paragraph {
			b.WriteString(line + "\n")
		}
		paragraph = nil
	}
	examples := false
	for line := range strings.Lines(text) {
		line = strings.ReplaceAll(strings.TrimRight(line, " \n"), "\t", "    ") // how far a tab goes nobody knows
		indented := strings.HasPrefix(line, " ")
		if line != "" && !indented && !examples && line != "Examples:" {
			paragraph = append(paragraph, line)
			continue
		}
		flush()
		m := described.FindStringSubmatch(line)
		switch {
		case line == "", line == "Examples:":
			examples = line != ""
			b.WriteString(line + "\n")
		case examples, shown(line) <= width:
			b.WriteString(line + "\n")
		case m == nil:
			b.WriteString(fold(line, width) + "\n")
		default:
			b.WriteString(foldDescribed(line, m[1], m[2], width))
		}
	}
	flush()
	return b.String()
}

// beside is how many columns a description needs to stand beside what it describes.
const beside = 24

func foldDescribed(line, name, what string, width int) string {
	at := shown(line) - shown(what)
	if width-at < beside {
		name, at = fold(name, width)+"\n", 8
	} else {
		name += strings.Repeat(" ", at-shown(name))
	}
	below := strings.Repeat(" ", at)
	text := strings.Join(wrap(what, width-at), "\n"+below)
	if strings.HasSuffix(name, "\n") {
		text = below + text
	}
	return name + text + "\n"
}
