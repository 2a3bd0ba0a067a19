package mcp

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"farhand/internal/leak"
)

type nobody struct{ err error }

func (n nobody) Write(b []byte) (int, error) { return len(b), n.err }
func (nobody) Close() error                  { return nil }

// Read reads to the end of what is asked, and gives what ended it.
func piped(t *testing.T, asked string, patience time.Duration, out nobody, answers ...string) error {
	t.Helper()
	p := Pipes(io.NopCloser(strings.NewReader(asked)), out).(*pipes)
	p.patience = patience
	c, err := p.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for {
		_, err := c.Read(context.Background())
		if err != nil {
			return err
		}
		for _, a := range answers {
			m, err := jsonrpc.DecodeMessage([]byte(a))
			if err != nil {
				t.Fatal(err)
			}
			_ = c.Write(context.Background(), m) // a broken pipe is one of the cases
		}
		answers = nil
	}
}

// The end of what is asked is told once there is nothing to answer, or nobody who
// would read it, or it took too long.
func TestPipesEnd(t *testing.T) {
	leak.Check(t)
	const ask, answer = `{"jsonrpc":"2.0","id":1,"method":"tools/call"}` + "\n", `{"jsonrpc":"2.0","id":1,"result":{}}`
	for _, c := range []struct {
		what, asked string
		out         nobody
		answers     []string
	}{
		{"nothing was asked", "", nobody{}, nil},
		{"it was answered", ask, nobody{}, []string{answer}},
		{"nobody reads", ask, nobody{io.ErrClosedPipe}, []string{answer}},
		{"nobody reads what is told meanwhile", ask, nobody{io.ErrClosedPipe}, []string{`{"jsonrpc":"2.0","method":"notifications/progress"}`}},
		{"what is watched has no end", `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen"}` + "\n", nobody{}, nil},
	} {
		if err := piped(t, c.asked, time.Hour, c.out, c.answers...); !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if err := piped(t, ask+strings.Replace(ask, "1", "2", 1), time.Millisecond, nobody{}); err == nil || !strings.Contains(err.Error(), "2 requests were left unanswered") {
		t.Errorf("what was never answered: %v", err)
	}
}
