package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/jsonschema-go/jsonschema"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"farhand/wire"
)

// effect is what a tool does to the world, for clients that ask a person first.
type effect int

const (
	reads    effect = iota // changes nothing
	changes                // changes something, and can be undone or only adds
	destroys               // may overwrite, remove, or move what is physical
)

// tool is one tool of the server.
type tool struct {
	*mcp.Tool
	needs wire.Capability // without it on any machine there is no such tool; empty: always there
	here  bool            // it touches this computer's files: only with Config.LocalRoot
	do    func(*Server) mcp.ToolHandler
}

// define makes a tool of a function. about says what the tool does to a reader
// that knows nothing else.
func define[In, Out any](name, title, about string, does effect, needs wire.Capability,
	do func(context.Context, *call, In) (Out, string, error)) tool {
	in, out := schemaOf[In](), schemaOf[Out]()
	resolved, err := in.Resolve(&jsonschema.ResolveOptions{ValidateDefaults: true})
	if err != nil {
		panic(fmt.Sprintf("mcp: input of %s: %v", name, err))
	}
	no := false
	destructive := does == destroys
	return tool{
		Tool: &mcp.Tool{
			Name: name, Title: title, Description: about, InputSchema: in, OutputSchema: out,
			Annotations: &mcp.ToolAnnotations{
				Title: title, ReadOnlyHint: does == reads, DestructiveHint: &destructive,
				IdempotentHint: does == reads, OpenWorldHint: &no,
			},
		},
		needs: needs,
		do: func(s *Server) mcp.ToolHandler {
			return func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				var args In
				if err := decode(resolved, req.Params.Arguments, &args); err != nil {
					return s.failure(ctx, name, err), nil
				}
				c := &call{Server: s, tool: name, request: req}
				stop := c.keepTelling(ctx)
				result, text, err := do(ctx, c, args)
				stop()
				if err != nil {
					return s.failure(ctx, name, err), nil
				}
				res := &mcp.CallToolResult{StructuredContent: result, Content: c.content}
				if text != "" {
					res.Content = append([]mcp.Content{&mcp.TextContent{Text: text}}, res.Content...)
				}
				return res, nil
			}
		},
	}
}

// idempotent says that calling the tool again with the same arguments changes
// nothing more.
func (t tool) idempotent() tool {
	t.Annotations.IdempotentHint = true
	return t
}

// openWorld says that the tool reaches beyond the machine and what is wired to it.
func (t tool) openWorld() tool {
	yes := true
	t.Annotations.OpenWorldHint = &yes
	return t
}

// local says that the tool touches files of the computer that the Server runs on.
func (t tool) local() tool {
	t.here = true
	return t
}

// decode checks arguments against a tool's schema, fills in its defaults and
// decodes them.
func decode(schema *jsonschema.Resolved, raw json.RawMessage, dst any) error {
	if len(bytes.TrimSpace(raw)) == 0 {
		raw = []byte("{}")
	}
	var given map[string]any
	if err := json.Unmarshal(raw, &given); err != nil || given == nil {
		return wire.Errorf(wire.InvalidArgument, "the arguments must be a JSON object")
	}
	for name, v := range given {
		if v == nil { // how some clients say that there is none
			delete(given, name)
		}
	}
	if err := schema.ApplyDefaults(&given); err != nil {
		return wire.Errorf(wire.InvalidArgument, "%s", plainly(err))
	}
	if err := schema.Validate(given); err != nil {
		return wire.Errorf(wire.InvalidArgument, "%s", plainly(err))
	}
	full, err := json.Marshal(given)
	if err == nil {
		err = json.Unmarshal(full, dst)
	}
	if err != nil {
		return wire.Errorf(wire.InvalidArgument, "%s", plainly(err))
	}
	return nil
}

// plainly is a schema's complaint without the path through the schema, which says
// nothing to who reads the tool's description.
func plainly(err error) string {
	text := strings.TrimPrefix(err.Error(), "validating root: ")
	for _, noise := range []string{"validating /properties/", "validating "} {
		text = strings.ReplaceAll(text, noise, "")
	}
	return wire.Clean(text, 300)
}

// call is one call of a tool.
type call struct {
	*Server
	tool    string
	request *mcp.CallToolRequest
	content []mcp.Content // more than text, such as images

	mu   sync.Mutex
	told time.Time // when the call last told its progress itself
}

// progressEvery is how often a call tells its progress at most.
const progressEvery = 250 * time.Millisecond

// progress tells how far the call is. total is 0 if that isn't known, message may
// be empty. Clients that gave no progress token are told nothing.
func (c *call) progress(ctx context.Context, done, total float64, message string) {
	c.mu.Lock()
	soon := time.Since(c.told) < progressEvery && done != total
	if !soon {
		c.told = time.Now()
	}
	c.mu.Unlock()
	if !soon {
		c.tell(ctx, done, total, message)
	}
}

func (c *call) tell(ctx context.Context, done, total float64, message string) {
	token := c.request.Params.GetProgressToken()
	if token == nil {
		return
	}
	// A client that can't be told learns of it with the answer, or is gone.
	_ = c.request.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
		ProgressToken: token, Progress: done, Total: total, Message: message,
	})
}

// heartbeat is how often a call without progress of its own says that it goes on:
// well below the time after which clients give up, which is a minute for some.
const heartbeat = 5 * time.Second

// keepTelling says that the call goes on, until the result is called.
func (c *call) keepTelling(ctx context.Context) (stop func()) {
	if c.request.Params.GetProgressToken() == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var ended sync.WaitGroup
	begun := time.Now()
	ended.Go(func() {
		tick := time.NewTicker(c.heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			c.mu.Lock()
			told := c.told
			c.mu.Unlock()
			if told.IsZero() { // else the call speaks for itself, and numbers may only grow
				gone := time.Since(begun).Seconds()
				c.tell(ctx, gone, 0, fmt.Sprintf("%s has been running for %.0f s", c.tool, gone))
			}
		}
	})
	return func() {
		cancel()
		ended.Wait()
	}
}
