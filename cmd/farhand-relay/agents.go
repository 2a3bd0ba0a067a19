package main

import (
	"log/slog"

	"farhand/client"
	"farhand/internal/version"
	"farhand/mcp"
	"farhand/relay"
)

// serveAgents has the MCP server answer agents. It reaches the relay as any
// operator does, with a token and what that allows; only the way there stays
// inside the process.
func serveAgents(inside relay.Dialer, instance string, log *slog.Logger) relay.Agents {
	return mcp.NewHTTP(mcp.HTTPConfig{
		Connect: func(token string) (*client.Client, error) {
			return client.New(client.Config{URL: "http://localhost", Token: token, Agent: "farhand-relay/" + version.String(), Dial: inside})
		},
		Instance: instance, Log: log,
	})
}
