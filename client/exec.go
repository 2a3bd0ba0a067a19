package client

import (
	"context"
	"time"

	"farhand/wire"
)

// Exec runs a command to its end. Its timeout is the device's own (30 s unless
// configured) or, if shorter, the one asked for. A command that exits with a
// failure, dies by a signal or times out is a result, not an error. Cancelling
// the context ends the command, too.
func (s *Session) Exec(ctx context.Context, cmd wire.ExecuteCommand) (wire.CommandResult, error) {
	timeout := wire.DefaultCommandTimeout
	if t := cmd.TimeoutSeconds; t != nil && *t > 0 {
		timeout = time.Duration(min(*t, 86400) * float64(time.Second))
	}
	var out wire.CommandResult
	err := s.do(ctx, request{method: method(wire.TExecuteCommand), payload: cmd, timeout: timeout + 10*time.Second}, &out)
	return out, err
}
