package main

import "testing"

// Programs read these lines: bar <name> <value> <limit> ok|short.
func TestBarLine(t *testing.T) {
	for want, b := range map[string]bar{
		"bar idle_rss 14.25 20 ok":       {name: "idle_rss", value: 14.25, limit: 20, unit: "MB"},
		"bar file_stat 2.01 2 short":     {name: "file_stat", value: 2.013, limit: 2},
		"bar file_read_8mib 0.71 0.7 ok": {name: "file_read_8mib", value: 0.71, limit: 0.7, floor: true},
		"bar put_ 0.60 0.7 short":        {name: "put_", value: 0.6, limit: 0.7, floor: true},
	} {
		if got := b.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
