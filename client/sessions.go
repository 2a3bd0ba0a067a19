package client

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"farhand/wire"
)

// SessionInfo is a session as the relay lists it.
type SessionInfo struct {
	ID          string    `json:"session_id"`
	MachineID   string    `json:"machine_id"`
	MachineName string    `json:"machine_name"`
	Root        string    `json:"root"`
	Holder      string    `json:"holder"`
	Live        bool      `json:"live"`
	CreatedAt   time.Time `json:"created_at,omitzero"`
	LastUsed    time.Time `json:"last_used,omitzero"`
}

// Sessions lists the sessions of the token; of the owner's login, all of the owner.
func (c *Client) Sessions(ctx context.Context) ([]SessionInfo, error) {
	var out struct {
		Sessions []SessionInfo `json:"sessions"`
	}
	err := c.call(ctx, http.MethodGet, "/api/sessions", nil, &out)
	return out.Sessions, err
}

// CloseSession detaches a session on its machine and forgets it. Commands that
// run in it are ended.
func (c *Client) CloseSession(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/api/sessions/"+escape(id), nil, nil)
}

// Place says where a session is: on which machine, in which root, and no more
// allowed than the given lists (nil: whatever the token is allowed).
type Place struct {
	Machine      string // id, name or an unambiguous prefix of either
	Root         string // empty: the first that the machine offers
	Capabilities []wire.Capability
	Devices      []wire.DeviceGrant
	Roots        []string
	// Span makes a session of its own that others join: with Joins set to it, on
	// further machines. Together they are one session to the relay, which ends as
	// a whole.
	Span  bool
	Joins *Session
}

// Opened is the relay's answer to opening a session.
type Opened struct {
	ID           string            `json:"session_id"`
	MachineID    string            `json:"machine_id"`
	MachineName  string            `json:"machine_name"`
	Root         string            `json:"root"`
	Roots        []Root            `json:"roots"` // what the machine offers
	Capabilities wire.Capabilities `json:"capabilities"`
	Created      bool              `json:"created"` // false: one that existed was reused
}

// Session is a place on a machine in which requests run.
type Session struct {
	client *Client
	place  Place
	moving *transferring

	mu   sync.Mutex
	open Opened
}

// Open opens a session or reuses the one that this token has at that place.
func (c *Client) Open(ctx context.Context, p Place) (*Session, error) {
	s := &Session{client: c, place: p, moving: newTransferring()}
	if err := s.reopen(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// Info is what the relay said when the session was opened.
func (s *Session) Info() Opened {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open
}

// Close detaches the session on its machine and forgets it, for everybody who
// shares it. A session that nobody closes ends on the device when it is idle and
// comes back with the next request.
func (s *Session) Close(ctx context.Context) error {
	return s.client.CloseSession(ctx, s.Info().ID)
}

func (s *Session) reopen(ctx context.Context) error {
	in := struct {
		Machine      string              `json:"machine"`
		Root         string              `json:"root,omitempty"`
		Capabilities *[]wire.Capability  `json:"capabilities,omitempty"`
		Devices      *[]wire.DeviceGrant `json:"devices,omitempty"`
		Roots        *[]string           `json:"roots,omitempty"`
		Span         bool                `json:"span,omitempty"`
		SessionID    string              `json:"session_id,omitempty"`
	}{s.place.Machine, s.place.Root, listed(s.place.Capabilities), listed(s.place.Devices), listed(s.place.Roots), s.place.Span, ""}
	if s.place.Joins != nil {
		in.SessionID = s.place.Joins.Info().ID
	}
	var out Opened
	if err := s.client.call(ctx, http.MethodPost, "/api/sessions", in, &out); err != nil {
		return err
	}
	s.mu.Lock()
	s.open = out
	s.mu.Unlock()
	return nil
}

// requestTimeout is the relay's deadline for data requests.
const requestTimeout = 30 * time.Second

// do makes a request in the session and decodes its answer into dst (nil for
// ACK). A session that the relay no longer knows is opened again once: the
// request reached no device, so nothing happens twice.
func (s *Session) do(ctx context.Context, r request, dst any) error {
	if r.timeout == 0 {
		r.timeout = requestTimeout
	}
	for attempt := 0; ; attempt++ {
		r.session, r.machine = s.at()
		payload, err := s.client.sock.do(ctx, r)
		if err == nil {
			return decode(payload, dst)
		}
		if attempt > 0 || !errors.Is(err, wire.SessionNotFound) {
			return err
		}
		if err := s.reopen(ctx); err != nil {
			return err
		}
	}
}

func decode(payload []byte, dst any) error {
	switch dst := dst.(type) {
	case nil:
		return nil
	case *wire.FileContents: // its own decoder, without a pass of encoding/json before it
		return unreadable(dst.UnmarshalJSON(payload))
	default:
		return unreadable(wire.Decode(payload, dst))
	}
}

func unreadable(err error) error {
	if err == nil {
		return nil
	}
	return wire.Errorf(wire.InternalError, "the answer can't be read: %v", err)
}

// method looks up a request type of the protocol's table.
func method(t wire.Type) wire.Method {
	m, ok := wire.MethodOf(t)
	if !ok {
		panic("client: no method " + string(t)) // a programming error, caught by the first test of the caller
	}
	return m
}
