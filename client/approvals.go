package client

import (
	"context"
	"net/http"
	"strings"
	"time"

	"farhand/wire"
)

// Approval is a machine that asks to be paired.
type Approval struct {
	UserCode     string            `json:"user_code"`
	MachineID    string            `json:"machine_id"`
	DisplayName  string            `json:"display_name"`
	Board        string            `json:"board"`
	SerialSuffix string            `json:"serial_suffix"`
	Address      string            `json:"address"` // where it asks from
	RequestedAt  time.Time         `json:"requested_at"`
	ExpiresAt    time.Time         `json:"expires_at"`
	Capabilities wire.Capabilities `json:"capabilities"` // what it asks for
	Paired       *Paired           `json:"paired"`       // whose place it takes; nil: nobody's, or the relay is older
}

// Paired is a machine of the owner's that has the id of one that asks: the same one
// that pairs anew, or two that call themselves the same.
type Paired struct {
	Name     string    `json:"name"`
	Board    string    `json:"board"`
	Approved time.Time `json:"approved_at"`
	Online   bool      `json:"online"`
	LastSeen time.Time `json:"last_seen,omitzero"` // zero: never
}

// Decision answers a pending approval.
type Decision struct {
	Approve      bool
	Name         string             // the owner's name for the machine; empty: its own
	Capabilities []wire.Capability  // what is allowed
	Devices      []wire.DeviceGrant // nil: every device
	Roots        []string           // nil: every root that the machine offers
}

// Approved is the machine that was let in.
type Approved struct {
	MachineID string `json:"machine_id"`
	Name      string `json:"name"`
}

// Pending looks up who asks with a user code. Each miss counts towards the
// relay's limit (5 an hour and account).
func (c *Client) Pending(ctx context.Context, userCode string) (Approval, error) {
	var out Approval
	err := c.call(ctx, http.MethodGet, "/api/approvals/"+escape(UserCode(userCode)), nil, &out)
	return out, err
}

// Approve answers the request with that code.
func (c *Client) Approve(ctx context.Context, userCode string, d Decision) (Approved, error) {
	in := struct {
		Decision     string              `json:"decision"`
		Name         string              `json:"name,omitempty"`
		Capabilities []wire.Capability   `json:"capabilities"`
		Devices      *[]wire.DeviceGrant `json:"devices,omitempty"`
		Roots        *[]string           `json:"roots,omitempty"`
	}{Decision: "deny", Capabilities: []wire.Capability{}}
	if d.Approve {
		in.Decision, in.Name = "approve", d.Name
		in.Capabilities = append(in.Capabilities, d.Capabilities...)
		in.Devices, in.Roots = listed(d.Devices), listed(d.Roots)
	}
	var out Approved
	err := c.call(ctx, http.MethodPost, "/api/approvals/"+escape(UserCode(userCode)), in, &out)
	return out, err
}

// listed makes the wire's form of a list that may be absent (all) or empty (nothing).
func listed[T any](list []T) *[]T {
	if list == nil {
		return nil
	}
	return &list
}

// UserCode brings a code, as a person types it, to the form in which it is shown: two
// groups of four letters, a dash between them. What
// can't be one is returned as it is.
func UserCode(s string) string {
	plain := strings.Map(func(r rune) rune {
		switch {
		case r == '-' || r == ' ' || r == '\u2013':
			return -1
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		}
		return r
	}, s)
	if len(plain) != 8 {
		return s
	}
	return plain[:4] + "-" + plain[4:]
}
