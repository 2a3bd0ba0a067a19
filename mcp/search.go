package mcp

import (
	"bytes"
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"farhand/client"
	"farhand/wire"
)

const (
	// searchFile is the largest file that is searched, and searchAll how much is
	// read of all of them: what comes over the wire in some seconds.
	searchFile = 4 << 20
	searchAll  = 64 << 20
	// searchAhead is how many files are read at once.
	searchAhead = 4
	// searchLine is how much of a line is shown.
	searchLine = 400
)

type searchAsked struct {
	onMachine
	Path       string `json:"path,omitempty" jsonschema:"the directory to search, absolute or relative to the first root; default: the first root" default:"\".\""`
	Pattern    string `json:"pattern" jsonschema:"regular expression in RE2 syntax, looked for in each line" length:"1..1000"`
	Literal    bool   `json:"literal,omitempty" jsonschema:"pattern is plain text"`
	IgnoreCase bool   `json:"ignore_case,omitempty"`
	Glob       string `json:"glob,omitempty" jsonschema:"only files whose name matches, such as *.go"`
	Hidden     bool   `json:"include_hidden,omitempty" jsonschema:"also files whose name begins with a dot"`
	MaxMatches int    `json:"max_matches,omitempty" default:"100" range:"1..1000"`
}

type searchFound struct {
	Matches   []match `json:"matches"`
	Files     int     `json:"files_searched"`
	Skipped   int     `json:"files_skipped" jsonschema:"binary, too large or not readable"`
	Truncated bool    `json:"truncated" jsonschema:"not everything was searched or shown"`
}

type match struct {
	Path string `json:"path"`
	Line int    `json:"line" jsonschema:"counted from 1"`
	Text string `json:"text"`
}

func searchFiles(ctx context.Context, c *call, in searchAsked) (searchFound, string, error) {
	out := searchFound{Matches: []match{}}
	pattern := in.Pattern
	if in.Literal {
		pattern = regexp.QuoteMeta(pattern)
	}
	if in.IgnoreCase {
		pattern = "(?i)" + pattern
	}
	re, err := regexp.Compile(pattern)
	if err != nil {
		return out, "", wire.Errorf(wire.InvalidArgument, "pattern: %v", err).With("field", "pattern")
	}
	ses, err := c.at(ctx, in.Machine, in.Path)
	if err != nil {
		return out, "", err
	}
	list, err := ses.List(ctx, wire.FileList{Path: in.Path, Glob: optional(in.Glob), Recursive: true, IncludeHidden: in.Hidden})
	if err != nil {
		return out, "", err
	}
	out.Truncated = list.Truncated
	var files []wire.FileEntry
	total := int64(0)
	for _, e := range list.Entries {
		switch {
		case !e.IsFile || e.IsSymlink:
		case e.SizeBytes > searchFile:
			out.Skipped++
		case total+e.SizeBytes > searchAll:
			out.Truncated = true
		default:
			total += e.SizeBytes
			files = append(files, e)
		}
	}
	err = c.readInOrder(ctx, ses, files, func(i int, content []byte, err error) bool {
		c.progress(ctx, float64(i+1), float64(len(files)), "files searched")
		if err != nil || !utf8.Valid(content) || bytes.IndexByte(content, 0) >= 0 {
			out.Skipped++
			return true
		}
		out.Files++
		n := 0
		for l := range strings.Lines(string(content)) {
			n++
			l = strings.TrimRight(l, "\r\n")
			if !re.MatchString(l) {
				continue
			}
			if len(out.Matches) == in.MaxMatches {
				out.Truncated = true
				return false
			}
			l, _ = shorten(l, searchLine)
			out.Matches = append(out.Matches, match{files[i].Path, n, l})
		}
		return true
	})
	if err != nil {
		return out, "", err
	}
	return out, out.text(), nil
}

func (s searchFound) text() string {
	var b strings.Builder
	for _, m := range s.Matches {
		fmt.Fprintf(&b, "%s:%d: %s\n", m.Path, m.Line, m.Text)
	}
	fmt.Fprintf(&b, "[%d matches in %d files", len(s.Matches), s.Files)
	if s.Truncated {
		b.WriteString("; there is more: narrow it by path or glob")
	}
	b.WriteString("]\n")
	return b.String()
}

// readInOrder reads files some at a time and hands them on in order, until got
// says false.
func (c *call) readInOrder(ctx context.Context, ses *client.Session, files []wire.FileEntry, got func(i int, content []byte, err error) bool) error {
	type read struct {
		content []byte
		err     error
	}
	results := make([]chan read, len(files))
	for i := range results {
		results[i] = make(chan read, 1)
	}
	ctx, cancel := context.WithCancel(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer cancel()
	slots := make(chan struct{}, searchAhead)
	tasks.Go(func() {
		for i, f := range files {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			tasks.Go(func() {
				part, err := ses.Read(ctx, f.Path, 0, searchFile)
				if err != nil {
					results[i] <- read{err: err}
					return
				}
				results[i] <- read{content: part.Content}
			})
		}
	})
	for i := range files {
		select {
		case r := <-results[i]:
			<-slots
			if err := ctx.Err(); err != nil {
				return err
			}
			if !got(i, r.content, r.err) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
