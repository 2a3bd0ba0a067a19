package serialio

import (
	"errors"
	"fmt"
	"time"

	"farhand/wire"
)

// Limits of SERIAL_EXPECT.
const (
	MaxSteps     = 32
	DefaultStep  = 5 * time.Second // of a step
	stepSize     = 16 << 10        // bytes that a step waits through unless it says otherwise
	defaultTotal = MaxTimeout
)

// Why a dialogue ended, beside StopTimeout, StopSize and StopLost; and what a
// step says that waits for nothing.
const (
	StopDone = "done"
	StopStop = "stop"
	StopSent = "sent"
)

// step is one step, checked.
type step struct {
	send    []byte
	expects bool
	read    ReadOptions
}

func steps(list []wire.SerialStep) ([]step, error) {
	if len(list) == 0 || len(list) > MaxSteps {
		return nil, invalid("steps", "must be 1 to %d, not %d", MaxSteps, len(list))
	}
	var all []step
	sent := 0
	for i, w := range list {
		s, err := oneStep(w)
		if err != nil {
			return nil, wire.AsError(err).With("step", i)
		}
		if sent += len(s.send); sent > MaxTransfer {
			return nil, invalid("steps", "may send at most %d bytes together", MaxTransfer)
		}
		all = append(all, s)
	}
	return all, nil
}

func oneStep(w wire.SerialStep) (s step, err error) {
	s.send, s.expects = w.Send, len(w.Expect) > 0
	switch {
	case len(w.Send) > 0 && w.SendText != "":
		return s, invalid("steps.send", "and send_text can't be together")
	case w.SendText != "":
		s.send = []byte(w.SendText)
	}
	if len(s.send) == 0 && !s.expects {
		return s, invalid("steps", "must each send or expect something")
	}
	if s.read.Timeout, err = timeout("steps.timeout_seconds", w.TimeoutSeconds, DefaultStep); err != nil {
		return s, err
	}
	if w.Size < 0 || w.Size > MaxRegexpInput {
		return s, invalid("steps.size", "must be 1 to %d, not %d", MaxRegexpInput, w.Size)
	}
	s.read.Size = w.Size
	if w.Size == 0 {
		s.read.Size = stepSize
	}
	s.read.Expect, err = CompilePatterns("steps.expect", w.Expect)
	return s, err
}

func (o *operation) expect(a wire.SerialExpect) (wire.SerialExpected, error) {
	if short := (wire.SerialStep{Send: a.Send, SendText: a.SendText, Expect: a.Expect, TimeoutSeconds: a.TimeoutSeconds}); len(short.Send) > 0 || short.SendText != "" || len(short.Expect) > 0 {
		if len(a.Steps) > 0 {
			return wire.SerialExpected{}, invalid("steps", "take the place of send, send_text and expect: give either")
		}
		a.Steps = []wire.SerialStep{short}
	}
	list, err := steps(a.Steps)
	if err != nil {
		return wire.SerialExpected{}, err
	}
	total, err := timeout("timeout_seconds", a.TimeoutSeconds, defaultTotal)
	if err != nil {
		return wire.SerialExpected{}, err
	}
	p, err := o.port(a.Mode)
	if err != nil {
		return wire.SerialExpected{}, err
	}
	if a.Flush {
		if err := p.FlushInput(o.ctx); err != nil {
			return wire.SerialExpected{}, err
		}
	}
	out := wire.SerialExpected{Steps: []wire.SerialStepResult{}, StopReason: StopDone, Complete: true, Opened: o.opened}
	returned := 0 // bytes of Data so far
	for i, end := 0, time.Now().Add(total); i < len(list) && out.StopReason == StopDone; i++ {
		s := list[i]
		s.read.Timeout = min(s.read.Timeout, max(0, time.Until(end)))
		s.read.Size = min(s.read.Size, MaxTransfer-returned)
		done, match, err := o.step(p, s)
		if err != nil {
			return out, o.stepError(err, i)
		}
		out.Steps = append(out.Steps, done)
		out.BytesWritten += done.BytesWritten
		out.BytesSeen += len(done.Data)
		returned += len(done.Data)
		switch {
		case !s.expects:
		case match == nil:
			out.StopReason, out.Complete = done.StopReason, false
		case match.Stop:
			out.StopReason, out.Complete = StopStop, i == len(list)-1
		}
	}
	out.Offset, out.InWaiting = p.cursor()
	return out, nil
}

// stepError says in which step it was. What ended ctx is not ours to change.
func (o *operation) stepError(err error, i int) error {
	if e, ok := errors.AsType[*wire.Error](err); ok && o.ctx.Err() == nil {
		return e.With("step", i)
	}
	return fmt.Errorf("step %d: %w", i, err)
}

// step sends and waits; both have one time.
func (o *operation) step(p *Port, s step) (wire.SerialStepResult, *Match, error) {
	began := time.Now()
	done := wire.SerialStepResult{StopReason: StopSent, Data: []byte{}}
	if len(s.send) > 0 {
		var err error
		if done.BytesWritten, err = o.send(p, s.send, s.read.Timeout); err != nil {
			return done, nil, err
		}
	}
	if !s.expects {
		done.Offset, _ = p.cursor()
		done.Seconds = time.Since(began).Seconds()
		return done, nil, nil
	}
	if s.read.Size == 0 { // the steps before it have seen as much as all may
		done.StopReason = StopSize
		return done, nil, nil
	}
	s.read.Timeout = max(0, s.read.Timeout-time.Since(began))
	r, err := o.receive(p, s.read)
	if err != nil {
		return done, nil, err
	}
	done.StopReason, done.Match, done.Data, done.BytesSeen = r.Stop, r.Match.wire(), r.Data, r.Seen
	done.Offset, done.Lost = r.Offset, r.Lost
	done.Seconds = time.Since(began).Seconds()
	return done, r.Match, nil
}
