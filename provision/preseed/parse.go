package preseed

// Files are the contents of a card's files; nil for what isn't there.
type Files struct {
	Preseed  []byte // rpi-preseed.toml
	Farhand  []byte // farhand.toml
	Firstrun []byte // firstrun.sh
	Cmdline  []byte // cmdline.txt beside it, which Imager 1 puts kernel arguments in
}

// Parse reads a card's files and says what became of each of their settings.
// Where rpi-preseed.toml and firstrun.sh disagree, the former counts.
func Parse(f Files) (Settings, []Item) {
	var s Settings
	var all []Item
	if f.Firstrun != nil || f.Cmdline != nil {
		all = append(all, parseFirstrun(&s, f.Firstrun, f.Cmdline)...)
	}
	if f.Preseed != nil {
		all = append(all, parsePreseed(&s, f.Preseed)...)
	}
	if f.Farhand != nil {
		all = append(all, parseFarhand(&s, f.Farhand)...)
	}
	return s, append(all, contradictions(&s)...)
}

// contradictions settles what only shows when everything is read.
func contradictions(s *Settings) []Item {
	r := report{file: "settings"}
	if s.SSH.Enabled && s.User == nil {
		r.add("ssh", Refused, "SSH stays off: there is no user to log in as")
		s.SSH.Enabled = false
	}
	if s.SSH.Enabled && s.SSH.PasswordLogin && s.User.PasswordHash == "" {
		r.add("ssh", Changed, "no login by password: the user has none")
		s.SSH.PasswordLogin = false
	}
	s.SSH.PasswordLogin = s.SSH.PasswordLogin && s.SSH.Enabled
	if s.Wifi != nil && s.Country == "" {
		r.add("wlan.country", Refused, "without its country the radio stays off")
	}
	return r.items
}

// setter applies a value of the right kind; it returns a note if not to the
// letter.
type setter struct {
	kind  kind
	apply func(v value) (note string, err error)
}

// apply runs a file's entries through its table. What the table doesn't know is
// told by unknown.
func apply(r *report, entries []entry, table map[string]setter, unknown func(key string)) {
	seen := make(map[string]bool)
	for _, e := range entries {
		set, known := table[e.key]
		switch {
		case e.err != nil:
			r.unreadable(e)
		case !known:
			unknown(e.key)
		case seen[e.key]:
			r.add(e.key, Refused, "it stands twice; the first one counts")
		case set.kind != e.kind:
			r.add(e.key, Refused, "the value must be "+set.kind.String())
		default:
			seen[e.key] = true
			note, err := set.apply(e.value)
			if note == "" && e.joined {
				note = joinedNote
			}
			r.outcome(e.key, note, err)
		}
	}
}

// text is the setter of a text.
func text(set func(string) (note string, err error)) setter {
	return setter{aText, func(v value) (string, error) { return set(v.text) }}
}

// flag is the setter of a yes or no that nothing is wrong with.
func flag(set func(bool)) setter {
	return setter{aBool, func(v value) (string, error) {
		set(v.flag)
		return "", nil
	}}
}

// stored is the setter of a text that a check returns as it will be used.
func stored(into *string, check func(string) (string, error)) setter {
	return text(func(s string) (string, error) {
		v, err := check(s)
		if err == nil {
			*into = v
		}
		return "", err
	})
}

// noted is stored for a check with a note.
func noted(into *string, check func(string) (string, string, error)) setter {
	return text(func(s string) (string, error) {
		v, note, err := check(s)
		if err == nil {
			*into = v
		}
		return note, err
	})
}
