package client

import (
	"context"
	"net/http"
	"time"

	"farhand/wire"
)

// Machine is a paired machine as the relay knows it.
type Machine struct {
	ID           string                `json:"machine_id"`
	Name         string                `json:"name"`              // the owner's name for it
	Labels       []string              `json:"labels,omitempty"`  // the groups that it is in
	Default      bool                  `json:"default,omitempty"` // it is meant where none is named
	DisplayName  string                `json:"display_name,omitempty"`
	Online       bool                  `json:"online"`
	Platform     string                `json:"platform,omitempty"`
	Arch         string                `json:"arch,omitempty"`
	ShimVersion  string                `json:"shim_version,omitempty"`
	Board        string                `json:"board,omitempty"`
	Capabilities wire.Capabilities     `json:"capabilities"` // what it offers
	Approval     wire.Ceiling          `json:"approval"`     // what its owner allows
	ApprovedAt   time.Time             `json:"approved_at,omitzero"`
	LastSeen     time.Time             `json:"last_seen,omitzero"`
	Devices      []wire.HardwareDevice `json:"devices,omitempty"` // of its last HELLO
	// BootID changes with every start of the daemon, and DaemonStarted is when
	// this one was first heard of: a link that was lost leaves both as they are.
	BootID        string             `json:"boot_id,omitempty"`
	DaemonStarted time.Time          `json:"daemon_started,omitzero"`
	Facts         *wire.MachineFacts `json:"facts,omitempty"` // while it is online, for its owner's own login
}

// Machines lists the machines that the token may use.
func (c *Client) Machines(ctx context.Context) ([]Machine, error) {
	var out struct {
		Machines []Machine `json:"machines"`
	}
	err := c.call(ctx, http.MethodGet, "/api/machines", nil, &out)
	return out.Machines, err
}

// Machine finds one machine by id, name or an unambiguous prefix of either.
func (c *Client) Machine(ctx context.Context, machine string) (Machine, error) {
	var out Machine
	err := c.call(ctx, http.MethodGet, "/api/machines/"+escape(machine), nil, &out)
	return out, err
}

// Label adds labels to a machine and then takes others off it. It takes the
// owner's own login.
func (c *Client) Label(ctx context.Context, machine string, add, remove []string) (Machine, error) {
	in := struct {
		Add    []string `json:"add,omitempty"`
		Remove []string `json:"remove,omitempty"`
	}{add, remove}
	var out Machine
	err := c.call(ctx, http.MethodPatch, "/api/machines/"+escape(machine)+"/labels", in, &out)
	return out, err
}

// SetDefault makes a machine the one that is meant where none is named; empty:
// none is. It takes the owner's own login.
func (c *Client) SetDefault(ctx context.Context, machine string) error {
	if machine == "" {
		return c.call(ctx, http.MethodDelete, "/api/default-machine", nil, nil)
	}
	in := struct {
		Machine string `json:"machine"`
	}{machine}
	return c.call(ctx, http.MethodPut, "/api/default-machine", in, nil)
}

// Revoke withdraws a machine's tokens, ends its connections and forgets it.
func (c *Client) Revoke(ctx context.Context, machine string) error {
	return c.call(ctx, http.MethodDelete, "/api/machines/"+escape(machine), nil, nil)
}

// Root is a directory that a machine offers.
type Root struct {
	Name string `json:"name"`
	Path string `json:"path"` // canonical, absolute
}

// Roots lists the directories that a machine offers, asked of it now.
func (c *Client) Roots(ctx context.Context, machine string) ([]Root, error) {
	var out struct {
		Roots []Root `json:"roots"`
	}
	err := c.call(ctx, http.MethodGet, "/api/machines/"+escape(machine)+"/roots", nil, &out)
	return out.Roots, err
}

// AuditReport is what a machine found when it verified its audit log, compared
// with the highest head that the relay has seen.
type AuditReport struct {
	OK       bool         `json:"ok"`
	Seq      int64        `json:"seq"`
	HMAC     string       `json:"hmac"`
	Problems []string     `json:"problems"`
	Anchor   *wire.Anchor `json:"anchor"`
}

// AuditVerify has a machine verify its audit log. A log with problems is a
// report with OK false, not an error.
func (c *Client) AuditVerify(ctx context.Context, machine string) (AuditReport, error) {
	var out AuditReport
	err := c.call(ctx, http.MethodPost, "/api/machines/"+escape(machine)+"/audit/verify", struct{}{}, &out)
	return out, err
}
