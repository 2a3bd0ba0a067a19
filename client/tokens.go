package client

import (
	"context"
	"net/http"
	"time"

	"farhand/wire"
)

// Token is an operator token or a login as it is listed: never the secret.
type Token struct {
	ID        string    `json:"id"`
	Name      string    `json:"name,omitempty"`
	Machines  *[]string `json:"machines,omitempty"` // ids; nil: all
	CreatedAt time.Time `json:"created_at,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"` // zero: never
	Limits
}

// Limits is a wire.Ceiling among other fields: a nil list allows all, an empty
// one nothing.
type Limits struct {
	Capabilities *[]wire.Capability  `json:"capabilities,omitempty"`
	Devices      *[]wire.DeviceGrant `json:"devices,omitempty"`
	Roots        *[]string           `json:"roots,omitempty"`
}

// Ceiling is the same as a value of its own.
func (l Limits) Ceiling() wire.Ceiling { return wire.Ceiling(l) }

// NewToken says what a token may do. A nil list means all, an empty one nothing.
type NewToken struct {
	Name         string
	Machines     []string // ids
	Capabilities []wire.Capability
	Devices      []wire.DeviceGrant
	Roots        []string
	Expires      time.Time // zero: never
}

// IssuedToken is a new token. Its secret is shown this once.
type IssuedToken struct {
	ID        string    `json:"id"`
	Token     string    `json:"token"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// TokenList is who may act for an owner.
type TokenList struct {
	Tokens []Token `json:"tokens"` // made by CreateToken
	Agents []Token `json:"agents"` // let in on the consent page
	Logins []Token `json:"logins"` // the owner's own, by name and passphrase
}

// Tokens lists the operator tokens of the owner, and the logins.
func (c *Client) Tokens(ctx context.Context) (TokenList, error) {
	var out TokenList
	err := c.call(ctx, http.MethodGet, "/api/tokens", nil, &out)
	return out, err
}

// CreateToken makes an operator token.
func (c *Client) CreateToken(ctx context.Context, t NewToken) (IssuedToken, error) {
	in := struct {
		Name         string              `json:"name,omitempty"`
		Machines     *[]string           `json:"machines,omitempty"`
		Capabilities *[]wire.Capability  `json:"capabilities,omitempty"`
		Devices      *[]wire.DeviceGrant `json:"devices,omitempty"`
		Roots        *[]string           `json:"roots,omitempty"`
		Expires      *time.Time          `json:"expires,omitempty"`
	}{t.Name, listed(t.Machines), listed(t.Capabilities), listed(t.Devices), listed(t.Roots), moment(t.Expires)}
	var out IssuedToken
	err := c.call(ctx, http.MethodPost, "/api/tokens", in, &out)
	return out, err
}

// RevokeToken ends a token or a login, its connections and its sessions.
func (c *Client) RevokeToken(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/api/tokens/"+escape(id), nil, nil)
}

// Claim is a claim key as it is listed: never the key.
type Claim struct {
	ID          string `json:"id"`
	MachineName string `json:"machine_name,omitempty"`
	Limits
	CreatedAt time.Time `json:"created_at,omitzero"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	UsedAt    time.Time `json:"used_at,omitzero"`     // zero: not used yet
	MachineID string    `json:"machine_id,omitempty"` // that used it
	Address   string    `json:"address,omitempty"`    // from where
}

// NewClaim says what a machine that redeems the key is allowed.
type NewClaim struct {
	MachineName  string
	Capabilities []wire.Capability
	Devices      []wire.DeviceGrant // nil: every device
	Roots        []string           // nil: every root
	Expires      time.Time          // zero: the relay's default, 7 days
}

// IssuedClaim is a new claim key, shown this once.
type IssuedClaim struct {
	ID        string    `json:"id"`
	ClaimKey  string    `json:"claim_key"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
}

// Claims lists the claim keys of the owner, used ones too.
func (c *Client) Claims(ctx context.Context) ([]Claim, error) {
	var out struct {
		Claims []Claim `json:"claims"`
	}
	err := c.call(ctx, http.MethodGet, "/api/claims", nil, &out)
	return out.Claims, err
}

// CreateClaim makes a claim key, with which one machine pairs without a screen.
func (c *Client) CreateClaim(ctx context.Context, n NewClaim) (IssuedClaim, error) {
	in := struct {
		MachineName  string              `json:"machine_name,omitempty"`
		Capabilities []wire.Capability   `json:"capabilities"`
		Devices      *[]wire.DeviceGrant `json:"devices,omitempty"`
		Roots        *[]string           `json:"roots,omitempty"`
		Expires      *time.Time          `json:"expires,omitempty"`
	}{n.MachineName, append([]wire.Capability{}, n.Capabilities...), listed(n.Devices), listed(n.Roots), moment(n.Expires)}
	var out IssuedClaim
	err := c.call(ctx, http.MethodPost, "/api/claims", in, &out)
	return out, err
}

// RevokeClaim makes a claim key worthless.
func (c *Client) RevokeClaim(ctx context.Context, id string) error {
	return c.call(ctx, http.MethodDelete, "/api/claims/"+escape(id), nil, nil)
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = t.UTC()
	return &t
}
