package client

import (
	"context"
	"time"

	"farhand/wire"
)

// ExecGrace is how much longer than its own time, in which the device ends it, the
// result of a command is waited for: a moment for ending it, and the way here.
const ExecGrace = 3 * time.Second

// Exec runs a command to its end. Its timeout is the device's own (30 s unless
// configured) or, if shorter, the one asked for. A command that exits with a
// failure, dies by a signal or times out is a result, not an error. Cancelling
// the context ends the command, too.
//
// The timeout that is asked for holds on this side as well: a device that doesn't
// answer within it and ExecGrace is told to end the command, and the error is
// COMMAND_TIMEOUT with unanswered in its details. Whether it ran is not known then.
func (s *Session) Exec(ctx context.Context, cmd wire.ExecuteCommand) (wire.CommandResult, error) {
	timeout, bounded := wire.DefaultCommandTimeout, ctx
	if t := cmd.TimeoutSeconds; t != nil && *t > 0 {
		timeout = time.Duration(min(*t, 86400) * float64(time.Second))
		var cancel context.CancelFunc
		bounded, cancel = context.WithTimeout(ctx, timeout+ExecGrace)
		defer cancel()
	}
	var out wire.CommandResult
	err := s.do(bounded, request{method: method(wire.TExecuteCommand), payload: cmd, timeout: timeout + 10*time.Second}, &out)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil {
		err = wire.Errorf(wire.CommandTimeout, "the machine did not answer within the command's %s and %s more; it was told to end the command, if it has begun it",
			timeout, ExecGrace).With("unanswered", true)
	}
	return out, err
}
