package route

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"farhand/relay/store"
	"farhand/wire"
)

// record is a session as it is kept: the binding that the device signed and the
// ceilings that go with it. Nothing of it changes but LastUsed.
type record struct {
	ID          string        `json:"id"`
	Owner       string        `json:"owner"`
	Holder      string        `json:"holder"` // the login or token it belongs to
	Machine     string        `json:"machine"`
	Root        string        `json:"root"`
	Fingerprint string        `json:"fingerprint"`
	Revision    int           `json:"revision"`
	Grant       string        `json:"grant"` // the device's own signed statement, opaque to us
	Token       *wire.Ceiling `json:"token,omitempty"`
	Session     *wire.Ceiling `json:"session,omitempty"`
	Created     time.Time     `json:"created"`
	LastUsed    time.Time     `json:"last_used"`
	Expires     time.Time     `json:"expires,omitzero"` // with its token

	Span   bool `json:"span,omitempty"`   // other machines may join it
	Joined bool `json:"joined,omitempty"` // it is the part of such a session on another machine than the first
}

var errNoSession = errors.New("no such session")

// Keys are o.<owner>.session.<key of the record>: the owner comes first, as in relay/oauth.
func sessionKey(owner, key string) string { return store.Key("o", owner, "session", key) }

func (s *Server) loadRecord(ctx context.Context, owner, id string) (record, error) {
	e, err := s.store.Get(ctx, sessionKey(owner, id))
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrInvalid) {
		return record{}, errNoSession
	}
	if err != nil {
		return record{}, fmt.Errorf("session %s: %w", id, err)
	}
	return decodeRecord(e)
}

func decodeRecord(e store.Entry) (record, error) {
	var r record
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return record{}, fmt.Errorf("record %s: %w", e.Key, err)
	}
	return r, nil
}

func (s *Server) listRecords(ctx context.Context, owner string) ([]record, error) {
	entries, err := s.store.List(ctx, store.Prefix("o", owner, "session"))
	if err != nil {
		return nil, fmt.Errorf("sessions of %s: %w", owner, err)
	}
	all := make([]record, 0, len(entries))
	for _, e := range entries {
		r, err := decodeRecord(e)
		if err != nil {
			s.log.Error("session skipped", "error", err)
			continue
		}
		all = append(all, r)
	}
	return all, nil
}

func (s *Server) createRecord(ctx context.Context, r record) error {
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("session %s: %w", r.ID, err)
	}
	if _, err := s.store.Create(ctx, sessionKey(r.Owner, r.key()), value, r.Expires); err != nil {
		return fmt.Errorf("session %s: %w", r.ID, err)
	}
	return nil
}

// touchRecord writes the time of the last use. Somebody else's write wins.
func (s *Server) touchRecord(ctx context.Context, owner, id string, used time.Time) error {
	key := sessionKey(owner, id)
	e, err := s.store.Get(ctx, key)
	if errors.Is(err, store.ErrNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("session %s: %w", id, err)
	}
	r, err := decodeRecord(e)
	if err != nil {
		return err
	}
	r.LastUsed = used
	value, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("session %s: %w", id, err)
	}
	_, err = s.store.Update(ctx, key, value, e.Expires, e.Revision)
	if errors.Is(err, store.ErrConflict) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("session %s: %w", id, err)
	}
	return nil
}

func (s *Server) deleteRecord(ctx context.Context, owner, id string) error {
	if err := s.store.Delete(ctx, sessionKey(owner, id), 0); err != nil {
		return fmt.Errorf("session %s: %w", id, err)
	}
	return nil
}
