//go:build unix

package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	"farhand/client/clienttest"
	"farhand/cmd/farhand/cli"
	"farhand/internal/leak"
	"farhand/wire"
)

// piped is standard input that says when it has been read to its end.
type piped struct {
	io.Reader
	once sync.Once
	over chan struct{}
}

func (p *piped) Read(b []byte) (int, error) {
	n, err := p.Reader.Read(b)
	if err != nil {
		p.once.Do(func() { close(p.over) })
	}
	return n, err
}

func agentEnv(r *clienttest.Relay, stdin io.Reader, stdout, stderr io.Writer) cli.Env {
	return cli.Env{Args: []string{"mcp"}, Stdin: stdin, Stdout: stdout, Stderr: stderr, Getenv: func(name string) string {
		return map[string]string{"FARHAND_URL": r.URL, "FARHAND_TOKEN": clienttest.OwnerToken}[name]
	}}
}

const hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"printf","version":"1"}}}
{"jsonrpc":"2.0","method":"notifications/initialized"}
`

func command(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"run_command","arguments":{"argv":["echo","hello %d"]}}}`+"\n", id, id)
}

// printf … | farhand mcp: what was asked is answered, though its end comes at once.
func TestMCPAnswersWhatWasPiped(t *testing.T) {
	leak.Check(t)
	r := clienttest.New(t)
	r.Device.Exec = remoteCommand
	const calls = 20
	var asked strings.Builder
	asked.WriteString(hello)
	for id := 1; id <= calls; id++ {
		asked.WriteString(command(id))
	}
	in := &piped{Reader: strings.NewReader(asked.String()), over: make(chan struct{})}
	r.Change(func() {
		r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
			if env.Type == wire.TExecuteCommand {
				<-in.over // the commands take longer than their asking
			}
			return "", nil, clienttest.ErrPass
		}
	})
	var out, errs bytes.Buffer
	if code := cli.Run(t.Context(), agentEnv(r, in, &out, &errs)); code != 0 || errs.Len() > 0 {
		t.Errorf("exit code %d: %s", code, &errs)
	}
	answers := make(map[int]string)
	for line := range strings.Lines(out.String()) {
		var m struct {
			ID     *int
			Result json.RawMessage
		}
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if m.ID != nil {
			answers[*m.ID] = string(m.Result)
		}
	}
	for id := 0; id <= calls; id++ {
		if want := map[bool]string{true: "serverInfo", false: fmt.Sprintf("hello %d", id)}[id == 0]; !strings.Contains(answers[id], want) {
			t.Errorf("the answer to %d is %q", id, answers[id])
		}
	}
}

// An interrupt doesn't wait for what goes on, before the end of what is asked or
// after it.
func TestInterruptEndsMCP(t *testing.T) {
	for _, over := range []bool{false, true} {
		t.Run(fmt.Sprint(over), func(t *testing.T) {
			leak.Check(t)
			r := clienttest.New(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ask, say := io.Pipe()
			in := &piped{Reader: ask, over: make(chan struct{})}
			r.Change(func() {
				r.Handle = func(env wire.Envelope) (wire.Type, any, error) {
					if env.Type != wire.TExecuteCommand {
						return "", nil, clienttest.ErrPass
					}
					if over {
						say.Close()
						<-in.over
					}
					cancel()
					return "", nil, nil // no answer
				}
			})
			code := make(chan int, 1)
			var out, errs bytes.Buffer
			go func() { code <- cli.Run(ctx, agentEnv(r, in, &out, &errs)) }()
			io.WriteString(say, hello+command(1))
			exit(t, code, 130)
			say.Close()
		})
	}
}
