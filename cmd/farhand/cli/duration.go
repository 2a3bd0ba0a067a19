package cli

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// duration reads a duration as Go writes it, with d for days too; a bare number
// counts seconds.
func duration(s string) (time.Duration, error) {
	if seconds, err := strconv.ParseFloat(s, 64); err == nil {
		if math.IsNaN(seconds) || math.Abs(seconds) > float64(math.MaxInt64/time.Second) {
			return 0, strconv.ErrRange
		}
		return time.Duration(seconds * float64(time.Second)), nil
	}
	if days, rest, ok := strings.Cut(s, "d"); ok {
		n, err := strconv.Atoi(days)
		if err != nil || n < 0 || n > 36500 {
			return 0, strconv.ErrSyntax
		}
		d := time.Duration(n) * 24 * time.Hour
		if rest == "" {
			return d, nil
		}
		more, err := time.ParseDuration(rest)
		if err == nil && (more < 0 || more > math.MaxInt64-d) {
			err = strconv.ErrRange
		}
		return d + more, err
	}
	return time.ParseDuration(s)
}

// expiry reads when something ends: a duration from now, or a time.
func (a *app) expiry(s string) (time.Time, error) {
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, a.inFuture(t)
	}
	d, err := duration(s)
	if err != nil {
		return time.Time{}, usage("--expires %q is neither a duration such as 24h or 30d nor a time such as 2030-01-31T12:00:00Z", s)
	}
	t := a.env.Now().Add(d)
	return t, a.inFuture(t)
}

func (a *app) inFuture(t time.Time) error {
	if !t.After(a.env.Now()) {
		return usage("--expires is in the past")
	}
	return nil
}
