package client

import (
	"context"
	"encoding/json"
	"time"

	"farhand/wire"
)

// Devices lists what is wired to a machine, read anew on it. family is a type
// (serial, usb, gpio, i2c, spi, printer) or empty for all. It needs no session.
// machine is an id or a name.
func (c *Client) Devices(ctx context.Context, machine, family string) (wire.HardwareListResponse, error) {
	in := wire.HardwareListRequest{}
	if family != "" {
		in.Type = &family
	}
	var out wire.HardwareListResponse
	payload, err := c.sock.do(ctx, request{
		method: method(wire.THardwareListRequest), machine: machine, payload: in, timeout: 10 * time.Second,
	})
	if err != nil {
		return out, err
	}
	return out, decode(payload, &out)
}

// HardwareResult is the answer to one hardware operation, its result undecoded.
type HardwareResult struct {
	Device     string          `json:"device"` // canonical id
	Generation int             `json:"generation"`
	Result     json.RawMessage `json:"result"`
}

// Hardware does one operation on one device and decodes its result into dst,
// unless that is nil.
func (s *Session) Hardware(ctx context.Context, op wire.HardwareOp, dst any) (HardwareResult, error) {
	var out HardwareResult
	if err := s.do(ctx, request{method: method(wire.THardwareOp), payload: op}, &out); err != nil {
		return out, err
	}
	if dst == nil || len(out.Result) == 0 {
		return out, nil
	}
	return out, unreadable(json.Unmarshal(out.Result, dst))
}

// Hold says whether an operation keeps its device after it, until Release.
type Hold bool

// Release gives a held device back.
func (s *Session) Release(ctx context.Context, device string) error {
	_, err := s.Hardware(ctx, wire.HardwareOp{Device: device, Op: wire.OpRelease}, nil)
	return err
}

func operate[Result any](ctx context.Context, s *Session, device, op string, args any, hold Hold) (Result, error) {
	var out Result
	raw, err := json.Marshal(args)
	if err != nil {
		return out, wire.Errorf(wire.InvalidArgument, "%s: %v", op, err)
	}
	_, err = s.Hardware(ctx, wire.HardwareOp{Device: device, Op: op, Args: raw, Hold: bool(hold)}, &out)
	return out, err
}

// look does an operation that opens a stream.
func look[Result any](ctx context.Context, s *Session, device, op string, args any) (*Stream, Result, error) {
	var out Result
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, out, wire.Errorf(wire.InvalidArgument, "%s: %v", op, err)
	}
	st, answer, err := s.Watch(ctx, wire.HardwareOp{Device: device, Op: op, Args: raw})
	if err != nil {
		return nil, out, err
	}
	if err := unreadable(json.Unmarshal(answer.Result, &out)); err != nil {
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
		defer cancel()
		_ = st.Close(bounded)
		return nil, out, err
	}
	return st, out, nil
}
