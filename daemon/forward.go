package daemon

import (
	"context"
	"fmt"

	"farhand/audit"
	"farhand/forward"
	"farhand/shim"
	"farhand/stream"
	"farhand/wire"
)

func (d *services) openForward(_ context.Context, o Options) error {
	allow, err := forward.ParseAllow(o.Config.ForwardAllow)
	if err != nil {
		return &ConfigError{fmt.Errorf("forward.allow: %w", err)}
	}
	if allow.Empty() {
		return nil
	}
	if d.private != nil {
		allow = allow.Away()
	}
	d.forward = forward.New(allow, d.streams, d.forwardEnded)
	d.closers = append(d.closers, d.forward)
	return nil
}

// forwardEnded leaves a record of what went through a connection.
func (d *services) forwardEnded(e forward.Ended) {
	err := d.audit.Append(audit.Entry{
		SessionID: e.Session, Op: audit.OpForwardEnd, Result: audit.Result{OK: e.Address != ""},
		Details: []audit.Field{
			audit.String("stream", e.Stream), audit.String("target", e.Target), audit.String("address", e.Address), audit.String("reason", e.Reason),
			audit.Int("bytes_sent", e.Sent), audit.Int("bytes_received", e.Received), audit.Float("duration_seconds", e.Took.Seconds()),
		},
	})
	if err != nil {
		d.log.Error("the end of a connection can't be recorded", "stream", e.Stream, "error", err)
	}
}

func (s *session) openForward(_ context.Context, c *shim.Call, r wire.ForwardOpen) (any, error) {
	if err := needStreams(c); err != nil {
		return nil, err
	}
	target, err := s.d.forward.Target(r)
	if target == "" {
		target = wire.Clean(fmt.Sprintf("%s:%d", r.Host, r.Port), maxAuditedUnit)
	}
	details := []audit.Field{audit.String("target", target)}
	if err != nil {
		return look(s, c, "", func() (any, []audit.Field, error) { return nil, details, err })
	}
	var opened string
	answer, err := change(s, c, "", details, func() (any, []audit.Field, error) {
		answer, err := s.d.forward.Open(r, caller(c), s.Hold)
		opened = answer.Stream
		return answer, append(details, audit.String("stream", answer.Stream)), err
	})
	switch {
	case err == nil:
		s.d.begin(c, answer)
	case opened != "": // nobody learns its name
		s.d.streams.EndWhere(stream.ReasonFailed, func(i stream.Info) bool { return i.ID == opened })
	}
	return answer, err
}

func (s *session) forwardData(_ context.Context, c *shim.Call, r wire.ForwardData) (any, error) {
	return s.d.forward.Data(r, caller(c))
}
