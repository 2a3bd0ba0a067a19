package mcp

import (
	"context"
	"fmt"
	"strings"
	"time"

	"farhand/client"
	"farhand/wire"
)

func eventTools() []tool {
	return []tool{
		define("list_events", "What happened to machines",
			"Lists what happened to the machines, the oldest first: online, offline, devices that came and went, grants that changed. Give the cursor of an answer as after to hear of what came since; with wait_seconds it waits for that.",
			reads, "", listEvents),
	}
}

type eventsAsked struct {
	Machine     string  `json:"machine,omitempty" jsonschema:"only what happened to this one; default: to any"`
	After       string  `json:"after,omitempty" jsonschema:"the cursor of an earlier answer: only what came after it; default: all that is kept"`
	MaxEvents   int     `json:"max_events,omitempty" jsonschema:"if there are more, the newest of them" default:"100" range:"1..1000"`
	WaitSeconds float64 `json:"wait_seconds,omitempty" jsonschema:"if nothing happened, wait so long for something" range:"0..600"`
}

type eventsFound struct {
	Events  []eventFound `json:"events"`
	Cursor  string       `json:"cursor" jsonschema:"as after it goes on here"`
	Missing string       `json:"missing,omitempty" jsonschema:"why events after the cursor that was given are not told: too_old, relay_restarted or not_recorded"`
	More    bool         `json:"more,omitempty" jsonschema:"older ones are left out: raise max_events"`
}

type eventFound struct {
	Time      string `json:"time" jsonschema:"RFC 3339, UTC"`
	Type      string `json:"type" jsonschema:"machine_online, machine_offline, machine_removed, grants_changed, device_added, device_removed, device_changed; for the owner's own login others, too"`
	Machine   string `json:"machine,omitempty"`
	MachineID string `json:"machine_id,omitempty"`
	Device    string `json:"device,omitempty" jsonschema:"its id"`
	Available *bool  `json:"available,omitempty" jsonschema:"of the device"`
	Reason    string `json:"reason,omitempty"`
}

func listEvents(ctx context.Context, c *call, in eventsAsked) (eventsFound, string, error) {
	out := eventsFound{Events: []eventFound{}}
	query := client.EventQuery{After: in.After, Machine: in.Machine, OnCursor: func(at string) { out.Cursor = at }}
	if err := out.read(ctx, c.client, query, in.MaxEvents, false); err != nil {
		return out, "", err
	}
	if len(out.Events) == 0 && out.Missing == "" && in.WaitSeconds > 0 {
		query.After, query.Follow = out.Cursor, true
		bounded, cancel := context.WithTimeout(ctx, time.Duration(in.WaitSeconds*float64(time.Second)))
		defer cancel()
		if err := out.read(bounded, c.client, query, in.MaxEvents, true); err != nil && (bounded.Err() == nil || ctx.Err() != nil) {
			return out, "", err
		}
	}
	var text strings.Builder
	if out.Missing != "" {
		fmt.Fprintf(&text, "[events are missing here: %s]\n", out.Missing)
	}
	for _, e := range out.Events {
		fmt.Fprintf(&text, "%s %s %s", e.Time, e.Type, e.Machine)
		if e.Device != "" {
			text.WriteString(" " + e.Device)
		}
		if e.Reason != "" {
			fmt.Fprintf(&text, " (%s)", e.Reason)
		}
		text.WriteByte('\n')
	}
	if len(out.Events) == 0 {
		text.WriteString("nothing happened\n")
	}
	return out, text.String(), nil
}

// read reads events, and with first no more than one: what comes with it is read
// next time.
func (out *eventsFound) read(ctx context.Context, from *client.Client, query client.EventQuery, most int, first bool) error {
	for e, err := range from.Events(ctx, query) {
		if err != nil {
			return err
		}
		if e.Gap != "" {
			out.Missing = e.Gap
			continue
		}
		out.Events = append(out.Events, eventOf(e))
		if len(out.Events) > most {
			out.Events, out.More = out.Events[1:], true
		}
		if first {
			return nil
		}
	}
	return nil
}

func eventOf(e client.Event) eventFound {
	out := eventFound{Time: e.Time.UTC().Format(time.RFC3339Nano), Type: e.Type, Machine: e.MachineName, MachineID: e.MachineID, Reason: wire.Clean(e.Reason, 300)}
	if out.Machine == "" {
		out.Machine = e.MachineID
	}
	if e.Device != nil {
		out.Device, out.Available = e.Device.ID, &e.Device.Available
	}
	return out
}
