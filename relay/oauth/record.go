package oauth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"farhand/relay/store"
)

// casAttempts bounds how often a change is tried again when others change the
// same record: more rivals than that at one record means something is wrong.
const casAttempts = 64

// errUnchanged ends a change without writing; the record as it is stands.
var errUnchanged = errors.New("nothing to change")

// stored is a record with what a compare-and-swap needs.
type stored[T any] struct {
	value    T
	revision uint64 // 0: not there
	expires  time.Time
}

// load reads a record; store.ErrNotFound, wrapped, if it isn't there.
func load[T any](ctx context.Context, s store.Store, key string) (stored[T], error) {
	e, err := s.Get(ctx, key)
	if err != nil {
		return stored[T]{}, err
	}
	r := stored[T]{revision: e.Revision, expires: e.Expires}
	if err := json.Unmarshal(e.Value, &r.value); err != nil {
		return stored[T]{}, fmt.Errorf("record %s: %w", key, err)
	}
	return r, nil
}

// create writes a record that isn't there; store.ErrExists, wrapped, if it is.
func create[T any](ctx context.Context, s store.Store, key string, value T, expires time.Time) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("record %s: %w", key, err)
	}
	_, err = s.Create(ctx, key, raw, expires)
	return err
}

// change applies f to the newest state of a record, again if somebody was
// faster. f gets revision 0 and a zero value if there is no record; it sets
// value and expires, or returns errUnchanged or its own error. Only f's last run
// counts, so it must not do anything else.
func change[T any](ctx context.Context, s store.Store, key string, f func(*stored[T]) error) (T, error) {
	var zero T
	for range casAttempts {
		r, err := load[T](ctx, s, key)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			return zero, err
		}
		if err := f(&r); err != nil {
			if errors.Is(err, errUnchanged) {
				return r.value, nil
			}
			return zero, err
		}
		raw, err := json.Marshal(r.value)
		if err != nil {
			return zero, fmt.Errorf("record %s: %w", key, err)
		}
		if r.revision == 0 {
			_, err = s.Create(ctx, key, raw, r.expires)
		} else {
			_, err = s.Update(ctx, key, raw, r.expires, r.revision)
		}
		switch {
		case err == nil:
			return r.value, nil
		case errors.Is(err, store.ErrConflict), errors.Is(err, store.ErrExists):
			continue
		}
		return zero, err
	}
	return zero, fmt.Errorf("record %s: %w", key, store.ErrConflict)
}

// list reads every record below a prefix.
func list[T any](ctx context.Context, s store.Store, prefix string) ([]T, error) {
	entries, err := s.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	values := make([]T, len(entries))
	for i, e := range entries {
		if err := json.Unmarshal(e.Value, &values[i]); err != nil {
			return nil, fmt.Errorf("record %s: %w", e.Key, err)
		}
	}
	return values, nil
}

// byKey reads every record below a prefix.
func byKey[T any](ctx context.Context, s store.Store, prefix string) (map[string]*T, error) {
	entries, err := s.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	values := make(map[string]*T, len(entries))
	for _, e := range entries {
		v := new(T)
		if err := json.Unmarshal(e.Value, v); err != nil {
			return nil, fmt.Errorf("record %s: %w", e.Key, err)
		}
		values[e.Key] = v
	}
	return values, nil
}

// now is the time as records keep it: UTC, no monotonic part.
func now() time.Time { return time.Now().UTC().Round(0) }
