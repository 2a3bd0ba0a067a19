package client

import (
	"context"
	"net/http"
	"reflect"
	"slices"
	"time"

	"farhand/wire"
)

// Grants is who may do what on a machine, as far as the relay knows. What the
// device's own configuration forbids shows in Offered alone, and a session may
// have asked for less than its token allows.
type Grants struct {
	MachineID string            `json:"machine_id"`
	Name      string            `json:"name"`
	Online    bool              `json:"online"`
	Revision  string            `json:"revision"` // of Approval
	Approved  time.Time         `json:"approved_at,omitzero"`
	Offered   wire.Capabilities `json:"offered"`   // of these the owner decides
	Approval  wire.Ceiling      `json:"approval"`  // what the owner allows
	Effective Reach             `json:"effective"` // what comes out for the caller
	Tokens    []TokenGrant      `json:"tokens"`    // those that cover the machine
}

// TokenGrant is what a token allows on a machine, and what comes out.
type TokenGrant struct {
	ID        string       `json:"id"`
	Name      string       `json:"name,omitempty"`
	ExpiresAt time.Time    `json:"expires_at,omitzero"` // zero: never
	Ceiling   wire.Ceiling `json:"ceiling"`
	Effective Reach        `json:"effective"`
}

// Reach is the meet of ceilings on a machine.
type Reach struct {
	Capabilities wire.Capabilities `json:"capabilities"`
	Roots        *[]string         `json:"roots,omitempty"` // nil: every root that the machine offers
	Devices      []DeviceReach     `json:"devices"`         // of the machine's last HELLO
}

// DeviceReach is what may be done with a device.
type DeviceReach struct {
	ID      string `json:"id"`
	Type    string `json:"type"`
	Allowed bool   `json:"allowed"`
	Ceiling string `json:"ceiling,omitempty"` // the first that refuses it: config, approval, token
	// Bounds are lists of which each must have an entry that allows the line and
	// the operation. None: everything is allowed.
	Bounds [][]Bound `json:"bounds,omitempty"`
}

// Bound allows operations on lines of a device; nil means all.
type Bound struct {
	Lines *[]string `json:"lines,omitempty"`
	Ops   *[]string `json:"ops,omitempty"`
}

// Grants tells who may do what on a machine. A token sees itself alone.
func (c *Client) Grants(ctx context.Context, machine string) (Grants, error) {
	var out Grants
	err := c.call(ctx, http.MethodGet, "/api/machines/"+escape(machine)+"/grants", nil, &out)
	return out, err
}

// SetApproval replaces what the owner allows on a machine. It counts when this
// returns: live sessions have acknowledged it, and what it forbids has ended.
func (c *Client) SetApproval(ctx context.Context, machine string, allow wire.Ceiling) error {
	return c.setApproval(ctx, machine, allow, "")
}

// editAttempts bounds how often an edit is made again because somebody else
// edited meanwhile.
const editAttempts = 8

// EditApproval changes what the owner allows on a machine: edit gets what holds
// now, and is called again with what holds then if somebody else was faster, so
// that neither edit is lost. An edit that changes nothing writes nothing, and an
// error of edit ends it. The grants as they are afterwards come back.
func (c *Client) EditApproval(ctx context.Context, machine string, edit func(*wire.Ceiling) error) (Grants, error) {
	for attempt := 1; ; attempt++ {
		now, err := c.Grants(ctx, machine)
		if err != nil {
			return now, err
		}
		allow := copyCeiling(now.Approval)
		if err := edit(&allow); err != nil {
			return now, err
		}
		if reflect.DeepEqual(allow, now.Approval) {
			return now, nil
		}
		err = c.setApproval(ctx, now.MachineID, allow, now.Revision)
		switch {
		case err == nil:
			return c.Grants(ctx, now.MachineID)
		case wire.CodeOf(err) != conflict || attempt == editAttempts:
			return now, err
		}
	}
}

// conflict is the relay's code for an edit of something that isn't so any more.
const conflict wire.Code = "CONFLICT"

func (c *Client) setApproval(ctx context.Context, machine string, allow wire.Ceiling, revision string) error {
	header := http.Header{}
	if revision != "" {
		header.Set("If-Match", `"`+revision+`"`)
	}
	return c.callWith(ctx, http.MethodPut, "/api/machines/"+escape(machine)+"/approval", header, allow, nil)
}

// copyCeiling makes one that shares nothing with c.
func copyCeiling(c wire.Ceiling) wire.Ceiling {
	out := wire.Ceiling{Capabilities: clone(c.Capabilities), Devices: clone(c.Devices), Roots: clone(c.Roots)}
	if out.Devices != nil {
		for i, g := range *out.Devices {
			(*out.Devices)[i] = wire.DeviceGrant{Pattern: g.Pattern, Lines: clone(g.Lines), Ops: clone(g.Ops)}
		}
	}
	return out
}

func clone[T any](l *[]T) *[]T {
	if l == nil {
		return nil
	}
	copied := slices.Clone(*l)
	return &copied
}
