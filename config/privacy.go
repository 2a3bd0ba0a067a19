package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/knadh/koanf/v2"

	"farhand/internal/pathglob"
)

// Privacy is what never leaves the machine but in a local model's answers.
type Privacy struct {
	Private        []Private
	AnswerChars    int
	Release        bool
	ReleaseTimeout time.Duration
}

// Private is one entry of privacy.private.
type Private struct {
	Pattern pathglob.Pattern
	Named   bool // schema=named: previews tell names of columns and keys
	Shown   bool // names=shown: names of files are no secret
}

// maxPrivate bounds the entries: each is looked at with each operation.
const maxPrivate = 64

func setPrivacy(k *koanf.Koanf, in Input, c *Config) error {
	if err := within(k, []bounds{
		{"privacy.answer_chars", 1, 65536},
		{"privacy.release_timeout_seconds", 1, 86400},
	}); err != nil {
		return err
	}
	c.Privacy = Privacy{
		AnswerChars:    k.Int("privacy.answer_chars"),
		Release:        k.Bool("privacy.release"),
		ReleaseTimeout: seconds(k.Float64("privacy.release_timeout_seconds")),
	}
	entries := k.Strings("privacy.private")
	if len(entries) > maxPrivate {
		return &Error{Key: "privacy.private", Reason: fmt.Sprintf("has more than %d entries", maxPrivate)}
	}
	for _, text := range entries {
		p, err := parsePrivate(text, in.Home)
		if err != nil {
			return &Error{Key: "privacy.private", Reason: fmt.Sprintf("%q: %v", text, err)}
		}
		c.Privacy.Private = append(c.Privacy.Private, p)
	}
	return nil
}

// parsePrivate reads PATTERN[;schema=named][;names=shown].
func parsePrivate(text, home string) (Private, error) {
	path, options, _ := strings.Cut(text, ";")
	var p Private
	var err error
	if p.Pattern, err = pathglob.Parse(path, home); err != nil || options == "" {
		return p, err
	}
	for option := range strings.SplitSeq(options, ";") {
		switch option {
		case "schema=named":
			p.Named = true
		case "names=shown":
			p.Shown = true
		default:
			return p, fmt.Errorf("%q is neither schema=named nor names=shown", option)
		}
	}
	return p, nil
}
