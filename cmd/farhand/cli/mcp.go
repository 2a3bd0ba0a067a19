package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"farhand/mcp"
)

func (a *app) mcp() *cobra.Command {
	var (
		readOnly bool
		local    string
	)
	cmd := &cobra.Command{
		Use:   "mcp",
		Short: "Serve the machines to an agent by the Model Context Protocol",
		Long: `mcp speaks the Model Context Protocol on standard input and output, for an agent
that starts it as a server. The agent gets tools for the machines' files, shell,
local model and everything wired to them: those that are granted, and no others.

It can do what the login can that this command has. To allow an agent less, make a
token and put it into the agent's configuration as FARHAND_TOKEN, or use
--read-only. It can touch no file of this computer, unless --local-root opens a
directory to copy from and to. Agents that reach the relay themselves need no command:
its address for them ends in /mcp, and they sign in with a browser.`,
		Example: `  farhand mcp
  farhand mcp --local-root ~/exchange
  claude mcp add farhand -- farhand mcp
  claude mcp add farhand --env FARHAND_URL=https://relay.example.org --env FARHAND_TOKEN=fh_op_… -- farhand mcp --read-only`,
		Args: between(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if a.env.Stdin == nil {
				return usage("mcp speaks on standard input, and there is none")
			}
			ctx := cmd.Context()
			c, err := a.connect()
			if err != nil {
				return err
			}
			defer c.Close()
			cfg := mcp.Config{Client: c, ReadOnly: readOnly}
			if local != "" {
				if cfg.LocalRoot, err = os.OpenRoot(local); err != nil {
					return fmt.Errorf("--local-root: %w", err)
				}
				defer cfg.LocalRoot.Close()
			}
			server, err := mcp.New(ctx, cfg)
			if err != nil {
				return err
			}
			defer server.Close()
			if a.interactive() {
				a.note("This speaks JSON-RPC with an agent that starts it; farhand mcp --help says how one does. Ctrl-D ends it.")
			}
			err = server.Run(ctx, mcp.Pipes(closable(a.env.Stdin), unclosable{a.env.Stdout}))
			if ctx.Err() != nil || errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
				return ctx.Err() // the agent went away, which is how this ends
			}
			if malformed := new(json.SyntaxError); errors.As(err, &malformed) {
				return fmt.Errorf("what came on standard input is no message of the protocol: %w", err)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "only tools that change nothing")
	cmd.Flags().StringVar(&local, "local-root", "", "let the agent copy files from and to this `DIRECTORY` of this computer (default: none)")
	return cmd
}

// closable is standard input as something whose closing ends a read.
func closable(r io.Reader) io.ReadCloser {
	if c, ok := r.(io.ReadCloser); ok {
		return c
	}
	return io.NopCloser(r)
}

// unclosable is standard output, which outlives the protocol on it.
type unclosable struct{ io.Writer }

func (unclosable) Close() error { return nil }
