package client

import (
	"context"
	"net/http"

	"farhand/wire"
)

// Settings are what an appliance goes by and its owner may change, asked of it
// now. It takes the owner's own login, and no secret is among them.
func (c *Client) Settings(ctx context.Context, machine string) (wire.Settings, error) {
	var out wire.Settings
	err := c.call(ctx, http.MethodGet, "/api/machines/"+escape(machine)+"/settings", nil, &out)
	return out, err
}

// ChangeSettings changes what change names and returns the settings as they are
// then. If anything in it is wrong, nothing is changed. Changed networks are put
// to use after the answer and hold once the machine has reached the relay with
// them: Wifi.Pending is true until then, and Wifi.LastChange says how it ended.
func (c *Client) ChangeSettings(ctx context.Context, machine string, change wire.SettingsChange) (wire.Settings, error) {
	var out wire.Settings
	err := c.call(ctx, http.MethodPatch, "/api/machines/"+escape(machine)+"/settings", change, &out)
	return out, err
}
