// Package access is what the parts of the relay tell each other about who may
// do what: relay/oauth answers for tokens, accounts and machines (Authority),
// relay/route answers for the live sockets (Sockets). It holds types alone, so
// that neither imports the other.
package access

import (
	"context"
	"errors"
	"time"

	"farhand/wire"
)

// Errors of an Authority. Anything else is a failure of the store (HTTP 503).
var (
	ErrUnauthorized = errors.New("token unknown, expired or revoked")
	ErrNotFound     = errors.New("not found")
)

// Device is what a device's access token stands for.
type Device struct {
	Owner     string // opaque owner id
	MachineID string // empty until the first accepted HELLO of a family issued by PKCE
	Family    string // refresh token family: revoking it ends its sockets
	ClientID  string
	Expires   time.Time // the sockets of this token are closed with 4401 then
}

// Operator is what an operator's bearer token stands for: the owner's own login
// or a token made by `farhand token create`.
type Operator struct {
	Owner   string
	Name    string    // the owner's account name, for people
	Holder  string    // opaque id of this login or token; sessions belong to it
	Login   bool      // the owner's own login: no third ceiling, may manage
	Manage  bool      // may call the management API (logins only)
	Expires time.Time // zero: never
	// Machines are the machine ids this token may use; nil: all.
	Machines *[]string
	// Ceiling is the token's own ceiling; nil for the owner's own login.
	Ceiling *wire.Ceiling
}

// MayUse says whether the token covers the machine.
func (o Operator) MayUse(machineID string) bool {
	if o.Machines == nil {
		return true
	}
	for _, m := range *o.Machines {
		if m == machineID {
			return true
		}
	}
	return false
}

// Machine is one paired machine as the relay remembers it.
type Machine struct {
	ID         string       `json:"machine_id"`
	Owner      string       `json:"-"`
	Name       string       `json:"name"`              // the owner's name for it; unique per owner
	Labels     []string     `json:"labels,omitempty"`  // the groups that it is in, sorted
	Default    bool         `json:"default,omitempty"` // it is meant where none is named
	Board      string       `json:"board,omitempty"`
	Approval   wire.Ceiling `json:"approval"`
	ApprovedAt time.Time    `json:"approved_at"`
	LastSeen   time.Time    `json:"last_seen"`
	// Started is when the daemon that runs, or ran last, was first heard of: its
	// boot id tells it from the one before.
	Started time.Time    `json:"started"`
	Hello   *wire.Hello  `json:"hello,omitempty"`  // the last control HELLO
	Anchor  *wire.Anchor `json:"anchor,omitempty"` // the highest audit head ever reported
}

// Authority answers for tokens and machines. Safe for concurrent use.
type Authority interface {
	// Device introspects a device's access token.
	Device(ctx context.Context, bearer string) (Device, error)
	// Operator introspects an operator's token.
	Operator(ctx context.Context, bearer string) (Operator, error)
	// Bind ties a family without a machine to the machine of its first
	// accepted HELLO and remembers the machine. A machine that belongs to
	// another owner, or a family bound to another machine: ErrUnauthorized.
	Bind(ctx context.Context, d Device, machineID string) error
	// Machine and Machines read the machines of an owner.
	Machine(ctx context.Context, owner, machineID string) (Machine, error)
	Machines(ctx context.Context, owner string) ([]Machine, error)
	// Seen remembers the last control HELLO and the time.
	Seen(ctx context.Context, owner, machineID string, hello wire.Hello) error
	// Left remembers the time at which the machine's control socket was lost.
	Left(ctx context.Context, owner, machineID string) error
	// Anchored keeps a if its sequence number is higher than what is kept, and
	// returns the highest. The same number with another hmac is an error.
	Anchored(ctx context.Context, owner, machineID string, a wire.Anchor) (wire.Anchor, error)
}

// Sockets answers for what is connected now. Safe for concurrent use; but for
// ApprovalChanged no call waits for a peer.
type Sockets interface {
	// Online says whether the machine's control socket is up.
	Online(owner, machineID string) bool
	// Hello is the machine's last HELLO while Authority.Seen has not kept it yet,
	// nil afterwards.
	Hello(owner, machineID string) *wire.Hello
	// Facts are what the machine's control socket told of the machine last; nil
	// if it is offline or told nothing.
	Facts(owner, machineID string) *wire.MachineFacts
	// RevokeFamily ends every socket of a token family with SESSION_REVOKED
	// user_revoked and 4428.
	RevokeFamily(owner, family string)
	// RevokeMachine does so for every socket of a machine and forgets its sessions.
	RevokeMachine(owner, machineID string)
	// RevokeHolder ends the operator's sockets and sessions of a login or token.
	RevokeHolder(owner, holder string)
	// ApprovalChanged sends GRANTS_UPDATE to the machine's sockets. It returns
	// when the new approval counts: every socket has acknowledged it or was
	// closed for not doing so in time. It gives up earlier only with ctx.
	ApprovalChanged(ctx context.Context, owner, machineID string)
	// Approved says what the store holds now, changed by another instance of the
	// relay: sockets that were told otherwise are sent GRANTS_UPDATE.
	Approved(owner, machineID string, approval wire.Ceiling)
}
